// A matrix operand of a kernel call, in memory that the caller owns.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace mxt::kernels {

struct Mat {
  void* p = nullptr;
  int64_t rows = 0, cols = 0, ld = 0;  // ld ≥ cols
  DType type = DType::kF32;
};
struct ConstMat {
  const void* p = nullptr;
  int64_t rows = 0, cols = 0, ld = 0;
  DType type = DType::kF32;
  ConstMat() = default;
  ConstMat(const void* p_, int64_t rows_, int64_t cols_, int64_t ld_, DType t)
      : p(p_), rows(rows_), cols(cols_), ld(ld_), type(t) {}
  ConstMat(const Mat& m) : p(m.p), rows(m.rows), cols(m.cols), ld(m.ld), type(m.type) {}
};

}  // namespace mxt::kernels
