// Single elements of a matrix of either type, for kernels whose time is not in how they read: `half` says bf16.
#pragma once

#include "kernels/gpu/gpu.h"

namespace mxt::kernels::MXT_GPU_NS {

__device__ __forceinline__ float get(const void* p, bool half, int64_t i) {
  return half ? to_float(static_cast<const bf16*>(p)[i]) : static_cast<const float*>(p)[i];
}
__device__ __forceinline__ void put(void* p, bool half, int64_t i, float v) {
  if (half)
    static_cast<bf16*>(p)[i] = from_float<bf16>(v);
  else
    static_cast<float*>(p)[i] = v;
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
// For results of 8 bits: within 1e-6 of sigmoid().
__device__ __forceinline__ float quick_sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ __forceinline__ float quick_silu_slope(float x) {
  const float s = quick_sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}
__device__ __forceinline__ float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}

}  // namespace mxt::kernels::MXT_GPU_NS
