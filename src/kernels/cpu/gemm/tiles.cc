#include "kernels/cpu/gemm/tiles.h"

#include <hwy/base.h>

#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "base/types.h"
#include "kernels/cpu/gemm/amx.h"
#include "kernels/cpu/gemm/micro.h"
#include "kernels/cpu/gemm/workspace.h"

#if HWY_ARCH_X86_64 && defined(__linux__) && (HWY_COMPILER_GCC || HWY_COMPILER_CLANG)
#if HWY_COMPILER_GCC && !HWY_COMPILER_CLANG
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC's own _mm512_undefined
#endif
#include <immintrin.h>

#include "kernels/cpu/gemm/avx512-inl.h"
#include "kernels/cpu/gemm/tile_registers.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq")

namespace mxt::kernels::cpu {
namespace {

constexpr int64_t kEdge = 32, kTerms = 32;  // a block of C is 32 × 32; its operands are packed 32 terms of k at a time
constexpr int64_t kTileBytes = 1024, kBlockBytes = 2 * kTileBytes;
constexpr int64_t kSharedBytes = 1 << 20;  // of a packed B at once: half of a core's second cache
constexpr double kSerialFlops = 4e6;

inline __mmask32 mask32(int64_t n) { return n >= 32 ? 0xffffffffu : (1u << n) - 1; }

// 32 rows of op(A), or columns of op(B), are packed as blocks of 32 terms: two tiles of 16 indices. A tile's row is 16
// pairs of terms: of A an index, its pairs one after another; of B a pair, of 16 indices.
//
// Here 16 indices and 32 terms go into a tile. Less of both at the edges: zeros.
template <bool kKContiguous, bool kTransposed, bool kWhole>
inline void pack_tile(const uint16_t* x, int64_t ld, int64_t count, int64_t k, char* to) {
  __m512i out[16];
  // The same of the next 32 terms: hardware does not follow so many short pieces far apart.
  if constexpr (kWhole && kTransposed && !kKContiguous)
    for (int64_t r = kTerms; r < 2 * kTerms; ++r) _mm_prefetch(x + r * ld, _MM_HINT_T0);
#pragma GCC unroll 16
  for (int l = 0; l < 16; ++l) {
    if constexpr (kKContiguous) {
      out[l] =
          kWhole ? _mm512_loadu_si512(x + l * ld) : _mm512_maskz_loadu_epi16(l < count ? mask32(k) : 0, x + l * ld);
    } else {
      const __mmask16 mask = kWhole ? 0xffff : mask_of(count);
      auto row = [&](int64_t i) {
        return _mm512_cvtepu16_epi32(kWhole || i < k ? _mm256_maskz_loadu_epi16(mask, x + i * ld)
                                                     : _mm256_setzero_si256());
      };
      out[l] = _mm512_or_si512(row(2 * l), _mm512_slli_epi32(row(2 * l + 1), 16));
    }
  }
  if constexpr (kTransposed) transpose16(out);
#pragma GCC unroll 16
  for (int l = 0; l < 16; ++l) _mm512_store_si512(to + l * 64, out[l]);
}

// Indices [first, first + count) of 16 and terms [k0, end) of 32.
template <bool kKContiguous, bool kTransposed>
void pack_half(const ConstMat& m, int64_t first, int64_t count, int64_t k0, int64_t end, char* to) {
  const uint16_t* x = static_cast<const uint16_t*>(m.p);
  if (count > 0) x += kKContiguous ? first * m.ld + k0 : k0 * m.ld + first;
  if (count >= 16 && end - k0 >= kTerms)
    pack_tile<kKContiguous, kTransposed, true>(x, m.ld, 16, kTerms, to);
  else
    pack_tile<kKContiguous, kTransposed, false>(x, m.ld, std::clamp<int64_t>(count, 0, 16), end - k0, to);
}

using PackHalf = void (*)(const ConstMat&, int64_t, int64_t, int64_t, int64_t, char*);
PackHalf pack_of(bool k_contiguous, bool left) {
  if (left) return k_contiguous ? pack_half<true, false> : pack_half<false, true>;
  return k_contiguous ? pack_half<true, true> : pack_half<false, false>;
}

// Packs 32 indices and terms [k0, end), half a block at a time.
struct Packing {
  PackHalf pack = nullptr;
  const ConstMat* x = nullptr;
  int64_t first = 0, count = 0, k0 = 0, end = 0;
  char* to = nullptr;
  bool second = false;
  // One block of 32 terms alone.
  void only(int64_t block) {
    k0 += block * kTerms, to += block * kBlockBytes;
    end = std::min(end, k0 + kTerms);
  }
  bool more() const { return k0 < end; }
  void next() {
    const int64_t at = second ? 16 : 0;
    pack(*x, first + at, count - at, k0, end, to + (second ? kTileBytes : 0));
    if (second) k0 += kTerms, to += kBlockBytes;
    second = !second;
  }
  void all() {
    while (more()) next();
  }
};

using T = TileRegisters;

// 32 × 32 sums into registers 0 to 3. Vectors are packed while the matrix unit works: it takes 16 cycles a product.
inline void sum_block(const char* a, const char* b, int64_t blocks, Packing& beside) {
  T::zero<0>(), T::zero<1>(), T::zero<2>(), T::zero<3>();
  for (int64_t i = 0; i < blocks; ++i, a += kBlockBytes, b += kBlockBytes) {
    T::load<4>(a, 64), T::load<6>(b, 64);
    T::multiply<0, 4, 6>();
    T::load<7>(b + kTileBytes, 64);
    T::multiply<1, 4, 7>();
    T::load<5>(a + kTileBytes, 64);
    T::multiply<2, 5, 6>();
    T::multiply<3, 5, 7>();
    if (beside.more()) beside.next();
  }
}

inline void store_block(float* to, int64_t ld) {
  T::store<0>(to, ld * 4), T::store<1>(to + 16, ld * 4);
  T::store<2>(to + 16 * ld, ld * 4), T::store<3>(to + 16 * ld + 16, ld * 4);
}

struct Product {
  const Gemm& g;
  int64_t m, n, k, blocks, edge_bytes;  // of 32 indices, packed
  PackHalf pack_a, pack_b;

  explicit Product(const Gemm& gemm)
      : g(gemm), pack_a(pack_of(!gemm.trans_a, true)), pack_b(pack_of(gemm.trans_b, false)) {
    m = g.c.rows, n = g.c.cols, k = g.trans_a ? g.a.rows : g.a.cols;
    blocks = (k + kTerms - 1) / kTerms, edge_bytes = blocks * kBlockBytes;
  }
  Packing packing(bool left, int64_t first, char* to) const {
    Packing p;
    p.pack = left ? pack_a : pack_b, p.x = left ? &g.a : &g.b;
    p.first = first, p.count = std::min(kEdge, (left ? m : n) - first), p.end = k, p.to = to;
    return p;
  }

  // 32-row blocks [begin, end) of C and columns [col, stop), whose B is packed at `panels`.
  void rows(int64_t begin, int64_t end, int64_t col, int64_t stop, const char* panels) const {
    const bool plain = g.c.type == DType::kF32 && g.alpha == 1 && !g.bias && !g.accumulate;
    char *now = thread_workspace(), *other = now + edge_bytes;
    T::Configuration whole;
    for (int r = 0; r < 8; ++r) whole.rows[r] = 16, whole.columns[r] = 64;
    T::configure(whole);
    alignas(64) float sums[kEdge * kPanel];
    Packing beside;
    for (int64_t block = begin; block < end; ++block) {
      if (block == begin) packing(true, block * kEdge, now).all();
      if (block + 1 < end) beside = packing(true, (block + 1) * kEdge, other);
      const int64_t row = block * kEdge, here = std::min(kEdge, m - row);
      const char* panel = panels;
      for (int64_t i = col; i < stop;) {
        if (plain && here == kEdge && stop - i >= kEdge) {
          sum_block(now, panel, blocks, beside);
          store_block(static_cast<float*>(g.c.p) + row * g.c.ld + i, g.c.ld);
          i += kEdge, panel += edge_bytes;
          continue;
        }
        const PanelCall c = call(row, i, std::min(kPanel, stop - i), here);
        for (int64_t j = 0; j < c.n; j += kEdge, panel += edge_bytes)
          sum_block(now, panel, blocks, beside), store_block(sums + j, kPanel);
        avx512_finish(c, sums, 0, here);
        i += c.n;
      }
      beside.all();
      std::swap(now, other);
    }
    T::release();
  }

 private:
  // How a part of C is finished from its sums.
  PanelCall call(int64_t row, int64_t col, int64_t columns, int64_t rows) const {
    PanelCall c;
    c.n = columns, c.m = rows, c.ldc = g.c.ld, c.accumulate = g.accumulate, c.alpha = g.alpha;
    c.c_bf16 = g.c.type == DType::kBF16, c.bias_bf16 = g.bias_type == DType::kBF16;
    c.c = static_cast<char*>(g.c.p) + (row * g.c.ld + col) * static_cast<int64_t>(size_of(g.c.type));
    c.bias = g.bias ? static_cast<const char*>(g.bias) + static_cast<size_t>(col) * size_of(g.bias_type) : nullptr;
    return c;
  }
};

}  // namespace

bool tiles_usable(int64_t k) { return k <= kMostTileTerms && amx_here(); }

void tiles_gemm(const Gemm& g) {
  const Product p(g);
  MXT_ASSERT(g.a.type == DType::kBF16 && 2 * static_cast<size_t>(p.edge_bytes) <= kThreadWorkspace);
  const bool alone = 2.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k) < kSerialFlops;
  const int64_t row_blocks = (p.m + kEdge - 1) / kEdge, col_blocks = (p.n + kEdge - 1) / kEdge;
  // Columns whose packed B is kept at once, about as many each time; in whole panels.
  const int64_t most = std::max<int64_t>(2, kSharedBytes / p.edge_bytes), times = (col_blocks + most - 1) / most;
  const int64_t at_once = std::min(col_blocks, ((col_blocks + times - 1) / times + 1) / 2 * 2);
  MXT_ASSERT(static_cast<size_t>(at_once * p.edge_bytes) <= kSharedWorkspace);
  char* shared = shared_workspace();
  for (int64_t first = 0; first < col_blocks; first += at_once) {
    const int64_t here = std::min(at_once, col_blocks - first), end = std::min(p.n, (first + here) * kEdge);
    // Along the memory of B: a few whole rows of it at a time, or of its transpose.
    const int64_t cuts = g.trans_b ? here : p.blocks;
    parallel_for(0, cuts, alone ? cuts : 1, [&](int64_t begin, int64_t stop) {
      for (int64_t i = begin; i < stop; ++i)
        for (int64_t j = 0; j < (g.trans_b ? 1 : here); ++j) {
          const int64_t edge = g.trans_b ? i : j;
          Packing packing = p.packing(false, (first + edge) * kEdge, shared + edge * p.edge_bytes);
          if (!g.trans_b) packing.only(i);
          packing.all();
        }
    });
    // Some whole rows to a task; fewer columns, in whole panels, where there are too few of them for the threads.
    const int64_t pairs = (here + 1) / 2, enough = 4 * num_threads();
    const int64_t groups = std::clamp<int64_t>((enough + row_blocks - 1) / row_blocks, 1, pairs);
    const int64_t width = (pairs + groups - 1) / groups * 2, across = (here + width - 1) / width;
    const int64_t down = std::clamp<int64_t>((enough + across - 1) / across, 1, row_blocks),
                  height = (row_blocks + down - 1) / down, tasks = (row_blocks + height - 1) / height * across;
    parallel_for(0, tasks, alone ? tasks : 1, [&](int64_t begin, int64_t stop) {
      for (int64_t i = begin; i < stop; ++i) {
        const int64_t block = i % across * width, row = i / across * height;
        p.rows(row, std::min(row + height, row_blocks), (first + block) * kEdge,
               std::min(end, (first + block + width) * kEdge), shared + block * p.edge_bytes);
      }
    });
  }
}

}  // namespace mxt::kernels::cpu

HWY_POP_ATTRIBUTES

#else

namespace mxt::kernels::cpu {
bool tiles_usable(int64_t) { return false; }
void tiles_gemm(const Gemm&) { MXT_ASSERT(!"tiles: not on this machine"); }
}  // namespace mxt::kernels::cpu

#endif
