#include "kernels/cpu/gemm.h"

#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/checks.h"
#include "kernels/cpu/gemm/micro.h"
#include "kernels/cpu/gemm/onednn.h"
#include "kernels/cpu/gemm/panels.h"
#include "kernels/cpu/gemm/tiles.h"
#include "kernels/cpu/gemm/workspace.h"
#include "kernels/cpu/rows/rows.h"

namespace mxt::kernels::cpu {
namespace {

enum Algorithm { kAuto, kPanels, kOneDnn, kRows, kTiles };

// oneDNN 2.6 has no F32 product with a BF16 result.
bool usable(const Gemm& g) { return onednn_usable(g.a.type) && !(g.a.type == DType::kF32 && g.c.type == DType::kBF16); }

// Many rows and not few columns of bf16, on processors with AMX: packing both operands into tiles then costs less than
// it saves. Measured ahead of oneDNN on two hosts.
bool suits_tiles(const Gemm& g, int64_t k) {
  constexpr int64_t kMany = 512, kEdge = 128;
  if (g.a.type != DType::kBF16 || !tiles_usable(k)) return false;
  if (g.trans_a) return g.c.rows >= kEdge && g.c.cols >= kEdge && k >= kMany;
  return g.c.rows >= kMany && g.c.cols >= kEdge;
}

// The rule of "auto". Measured on Zen 5 and Zen 3: panels is level with oneDNN on large products, and ahead on thin
// ones and where the left operand is transposed. On processors with AMX panels uses its tiles in bf16 too, and is twice
// as fast for few columns (an adapter's rank). Where few terms are added to what is there (an adapter's way back into
// y: its rank is k) oneDNN is four to six times slower than panels; few rows are left to panels too. oneDNN's fp32 is
// a tenth ahead there.
Algorithm choose(const Gemm& g, int64_t k) {
  constexpr int64_t kLeast = 16, kFewTerms = 16, kFewColumns = 16;
  if (suits_tiles(g, k)) return kTiles;
  if (g.accumulate && k <= kFewTerms) return kPanels;
  if (g.a.type == DType::kBF16 && !g.trans_a && g.c.cols <= kFewColumns && k >= kLeastTileDepth) return kPanels;
  return usable(g) && onednn_has_amx() && g.c.rows >= kLeast && g.c.cols >= kLeast && k >= kLeast ? kOneDnn : kPanels;
}

// What `algo` comes to for this product.
Algorithm resolve(const Gemm& g, int64_t k, int algo) {
  switch (algo == kAuto ? choose(g, k) : static_cast<Algorithm>(algo)) {
    case kOneDnn:
      return usable(g) ? kOneDnn : kPanels;
    case kRows:
      return g.trans_b && !g.trans_a ? kRows : kPanels;
    case kTiles:
      return g.a.type == DType::kBF16 && tiles_usable(k) ? kTiles : kPanels;
    case kPanels:
      return kPanels;
    case kAuto:
      break;
  }
  MXT_ASSERT(!"gemm: no such algorithm");
  return kPanels;
}

int64_t inner(const Gemm& g) { return g.trans_a ? g.a.rows : g.a.cols; }

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

size_t gemm_memory(const Gemm&) { return static_cast<size_t>(num_threads()) * kThreadWorkspace + kSharedWorkspace; }

std::vector<std::string> gemm_algorithms() { return {"auto", "panels", "onednn", "rows", "tiles"}; }

int same_gemm(const Gemm& g, int algo) {
  const Algorithm code = resolve(g, inner(g), algo);
  for (int first = 0; first < algo; ++first)
    if (resolve(g, inner(g), first) == code) return first;
  return algo;
}

// Only panels read it, and "auto" is oneDNN on processors with AMX.
size_t packed_b_bytes(const Gemm& g) {
  const bool onednn = onednn_usable(g.b.type) && onednn_has_amx();
  return g.algo == kPanels || (g.algo == kAuto && !onednn) ? panels_packed_bytes(g) : 0;
}

void pack_b(const Gemm& g, void* to) { panels_pack(g, to); }

void gemm(const Gemm& g) {
  check(g);
  MXT_ASSERT(g.a.type == DType::kF32 || g.a.type == DType::kBF16);
  MXT_ASSERT(g.c.type == DType::kF32 || g.c.type == DType::kBF16);
  const int64_t k = inner(g);
  if (g.c.rows == 0 || g.c.cols == 0) return;
  if (k == 0) return empty_product(g);
  switch (resolve(g, k, g.algo)) {
    case kOneDnn:
      return onednn_gemm(g);
    case kRows:
      return rows_gemm(g);
    case kTiles:
      return tiles_gemm(g);
    default:
      return panels_gemm(g);
  }
}

}  // namespace mxt::kernels::cpu
