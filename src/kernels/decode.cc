#include "kernels/decode.h"

#include "base/error.h"
#include "base/ggml_blocks.h"

namespace mxt::kernels {

void check(const Decode& d) {
  const Coded& m = d.matrix;
  MXT_ASSERT(d.out.ld >= d.out.cols && (d.out.p || d.out.rows == 0));
  MXT_ASSERT(d.out.type == DType::kF32 || d.out.type == DType::kBF16);
  MXT_ASSERT(m.coding != Coding::kNone && (m.coding != Coding::kMxfp4 || m.cols % kMxBlock == 0));
  const GgmlBlock* block = ggml_block(m.coding);
  MXT_ASSERT(!block || m.cols % block->values == 0);
  MXT_ASSERT((m.codes && (m.scales || block) && (m.nested || m.coding != Coding::kNf4Double)) || d.out.rows == 0);
  MXT_ASSERT(d.row >= 0 && d.row + d.out.rows <= d.parts * m.rows && d.col >= 0 && d.col + d.out.cols <= m.cols);
  MXT_ASSERT(d.through == DType::kF32 || d.through == DType::kBF16 || d.through == DType::kF16);
}

}  // namespace mxt::kernels
