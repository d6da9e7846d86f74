#include "kernels/cpu/pointwise/work.h"

#include <array>

#include "base/error.h"

namespace mxt::kernels::cpu {

float* temporary(Slot slot, int64_t floats) {
  thread_local std::array<std::vector<float>, static_cast<size_t>(Slot::kCount)> buffers;
  std::vector<float>& b = buffers[static_cast<size_t>(slot)];
  if (b.size() < static_cast<size_t>(floats)) b.resize(static_cast<size_t>(floats));
  return b.data();
}

const float* as_floats(const void* p, DType type, int64_t n, float missing, Slot slot) {
  if (p && type == DType::kF32) return static_cast<const float*>(p);
  float* out = temporary(slot, n);
  if (!p) {
    std::fill_n(out, n, missing);
  } else {
    MXT_ASSERT(type == DType::kBF16);
    for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_float(static_cast<const uint16_t*>(p)[i]);
  }
  return out;
}

}  // namespace mxt::kernels::cpu
