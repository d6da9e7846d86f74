// Reading and writing one element of a matrix. All reference arithmetic is in double with one rounding at the store, so
// that what a test measures against it is the error of the other side. F64 matrices are allowed here (and only here):
// derivatives are checked numerically in them.
#pragma once

#include "base/error.h"
#include "kernels/api.h"

namespace mxt::kernels::reference {

inline double get(const void* p, DType type, int64_t i) {
  switch (type) {
    case DType::kF32:
      return static_cast<double>(static_cast<const float*>(p)[i]);
    case DType::kBF16:
      return static_cast<double>(bf16_to_float(static_cast<const uint16_t*>(p)[i]));
    case DType::kF64:
      return static_cast<const double*>(p)[i];
    case DType::kF8E4M3:
      return static_cast<double>(f8e4m3_to_float(static_cast<const uint8_t*>(p)[i]));
    default:
      assert_failed("element type is F32, BF16 or F64", __FILE__, __LINE__);
  }
}
inline void set(void* p, DType type, int64_t i, double v) {
  switch (type) {
    case DType::kF32:
      static_cast<float*>(p)[i] = static_cast<float>(v);
      break;
    case DType::kBF16:
      static_cast<uint16_t*>(p)[i] = float_to_bf16(static_cast<float>(v));
      break;
    case DType::kF64:
      static_cast<double*>(p)[i] = v;
      break;
    default:
      assert_failed("element type is F32, BF16 or F64", __FILE__, __LINE__);
  }
}

inline double get(const ConstMat& m, int64_t row, int64_t col) { return get(m.p, m.type, row * m.ld + col); }
inline void set(const Mat& m, int64_t row, int64_t col, double v) { set(m.p, m.type, row * m.ld + col, v); }

// An optional parameter vector: `missing` where there is none.
inline double param(const void* w, DType type, int64_t i, double missing) { return w ? get(w, type, i) : missing; }

// out[i] (+)= sums[i], for gradients of parameters.
inline void add_into(float* out, const std::vector<double>& sums, bool accumulate) {
  if (!out) return;
  for (size_t i = 0; i < sums.size(); ++i)
    out[i] = static_cast<float>(sums[i] + (accumulate ? static_cast<double>(out[i]) : 0.0));
}

}  // namespace mxt::kernels::reference
