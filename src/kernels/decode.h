// A matrix held in codes (base/coding.h), decoded where it is to be multiplied. A backend that has this call is also a
// Decoder.
#pragma once

#include "base/coding.h"
#include "kernels/api.h"

namespace mxt::kernels {

// A rectangle of the matrix: out = its values from row `row` and column `col` on, each rounded through `through` (F32:
// not) and then to out's type.
struct Decode {
  Coded matrix;
  // So many of them, one below the other; bytes from each one's arrays to the next one's.
  int64_t parts = 1, codes_step = 0, scales_step = 0, nested_step = 0;
  int64_t row = 0, col = 0;
  DType through = DType::kF32;  // F32, BF16 or F16
  Mat out;                      // F32 or BF16
};

void check(const Decode&);  // as checks.h

// The part of this number.
inline Coded part_of(const Decode& d, int64_t part) {
  Coded m = d.matrix;
  m.codes += part * d.codes_step;
  m.scales += part * d.scales_step;
  if (m.nested) m.nested += part * d.nested_step / 4;
  return m;
}

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void decode(const Decode&) = 0;
};

namespace reference {
void decode(const Decode&);
}
namespace cpu {
void decode(const Decode&);  // on all threads
}

}  // namespace mxt::kernels
