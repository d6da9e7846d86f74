// Where the documents of a packed batch begin and end, on the device.
#pragma once

#include "kernels/gpu/gpu.h"

namespace mxt::kernels::MXT_GPU_NS {

// Document of token t: the last i with cu[i] ≤ t.
__device__ __forceinline__ int64_t document_of(const int32_t* cu, int64_t documents, int64_t t) {
  int64_t lo = 0, hi = documents - 1;
  while (lo < hi) {
    const int64_t mid = (lo + hi + 1) / 2;
    if (cu[mid] <= t)
      lo = mid;
    else
      hi = mid - 1;
  }
  return lo;
}

}  // namespace mxt::kernels::MXT_GPU_NS
