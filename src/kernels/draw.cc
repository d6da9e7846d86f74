#include "kernels/draw.h"

#include "base/error.h"

namespace mxt::kernels {

void check(const DrawTokens& d) {
  MXT_ASSERT(d.logits.type == DType::kF32 && d.logits.ld >= d.logits.cols && d.logits.cols > 0);
  MXT_ASSERT(d.logits.cols < int64_t{1} << 24 && d.softcap >= 0);
  MXT_ASSERT(d.drawn.type == DType::kF32 && d.drawn.rows == d.logits.rows && d.drawn.cols == 2 && d.drawn.ld >= 2);
  MXT_ASSERT((d.temperature && d.bits) || d.logits.rows == 0);
}

}  // namespace mxt::kernels
