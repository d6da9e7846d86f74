#include "kernels/decode.h"

#include "kernels/reference/element.h"

namespace mxt::kernels::reference {

void decode(const Decode& d) {
  for (int64_t r = 0; r < d.out.rows; ++r)
    for (int64_t c = 0; c < d.out.cols; ++c) {
      float x;
      mxt::decode(part_of(d, (d.row + r) / d.matrix.rows), (d.row + r) % d.matrix.rows * d.matrix.cols + d.col + c, 1,
                  &x);
      if (d.through == DType::kBF16) x = bf16_to_float(float_to_bf16(x));
      if (d.through == DType::kF16) x = f16_to_float(float_to_f16(x));
      set(d.out, r, c, static_cast<double>(x));
    }
}

}  // namespace mxt::kernels::reference
