#include "kernels/cpu/gemm.h"

#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/checks.h"
#include "kernels/cpu/gemm/micro.h"
#include "kernels/cpu/gemm/onednn.h"
#include "kernels/cpu/gemm/panels.h"
#include "kernels/cpu/rows/rows.h"

namespace mxt::kernels::cpu {
namespace {

enum Algorithm { kAuto, kPanels, kOneDnn, kRows };

// oneDNN 2.6 has no F32 product with a BF16 result.
bool usable(const Gemm& g) { return onednn_usable(g.a.type) && !(g.a.type == DType::kF32 && g.c.type == DType::kBF16); }

// The rule of "auto". Measured on Zen 5 and Zen 3: panels is level with oneDNN on large products, and ahead on thin ones and where the
// left operand is transposed. AMX tiles are several times faster, but want enough rows to fill them.
Algorithm choose(const Gemm& g, int64_t k) {
  const bool bf16 = g.a.type == DType::kBF16;
  return bf16 && usable(g) && onednn_has_amx() && g.c.rows >= 32 && g.c.cols >= 32 && k >= 32 ? kOneDnn : kPanels;
}

// k = 0: the product is zero, what is added to it stays.
void empty_product(const Gemm& g) {
  if (g.accumulate) return;
  for (int64_t r = 0; r < g.c.rows; ++r)
    for (int64_t c = 0; c < g.c.cols; ++c) {
      float v = 0;
      if (g.bias)
        v = g.bias_type == DType::kF32 ? static_cast<const float*>(g.bias)[c]
                                       : bf16_to_float(static_cast<const uint16_t*>(g.bias)[c]);
      if (g.c.type == DType::kF32)
        static_cast<float*>(g.c.p)[r * g.c.ld + c] = v;
      else
        static_cast<uint16_t*>(g.c.p)[r * g.c.ld + c] = float_to_bf16(v);
    }
}

}  // namespace

size_t gemm_memory(const Gemm&) { return static_cast<size_t>(num_threads()) * panels_memory() + panels_shared_memory(); }

std::vector<std::string> gemm_algorithms() { return {"auto", "panels", "onednn", "rows"}; }

void gemm(const Gemm& g) {
  check(g);
  MXT_ASSERT(g.a.type == DType::kF32 || g.a.type == DType::kBF16);
  MXT_ASSERT(g.c.type == DType::kF32 || g.c.type == DType::kBF16);
  const int64_t k = g.trans_a ? g.a.rows : g.a.cols;
  if (g.c.rows == 0 || g.c.cols == 0) return;
  if (k == 0) return empty_product(g);
  switch (g.algo == kAuto ? choose(g, k) : static_cast<Algorithm>(g.algo)) {
    case kOneDnn:
      return usable(g) ? onednn_gemm(g) : panels_gemm(g);
    case kRows:
      return g.trans_b && !g.trans_a ? rows_gemm(g) : panels_gemm(g);
    case kPanels:
      return panels_gemm(g);
    default:
      MXT_ASSERT(!"gemm: no such algorithm");
  }
}

}  // namespace mxt::kernels::cpu
