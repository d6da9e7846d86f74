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
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kSharedBytes = 1 << 20;  // of a packed B at once: half of a core's second cache
constexpr int64_t kPieceBytes = static_cast<int64_t>(kSharedWorkspace) / 2;
constexpr double kSerialFlops = 4e6;

// 32 rows of op(A), or columns of op(B), are packed as blocks of 32 terms; a block has for every part two tiles of 16
// indices. A tile's row is 16 units of two terms: of A an index, its units one after another; of B a unit, of 16
// indices. Which terms share a unit is the same for both: two neighbours of bf16, terms i and i + 16 of fp32.
constexpr int parts_of(bool wide) { return wide ? 3 : 1; }

inline __mmask32 mask32(int64_t n) { return n >= 32 ? 0xffffffffu : (1u << n) - 1; }

// bf16 nearest to v, ties away from zero, as fp32.
inline __m512 rounded(__m512 v) {
  const __m512i bits = _mm512_add_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

inline __m512i unit(__m512 low, __m512 high) {
  return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(low), 16), _mm512_castps_si512(high));
}

// 16 indices and 32 terms into their tiles, `part_bytes` from one part's to the next. Less of both at the edges: zeros.
template <bool kWide, bool kKContiguous, bool kTransposed, bool kWhole>
inline void pack_tiles(const char* p, int64_t ld, int64_t count, int64_t k, char* to, int64_t part_bytes) {
  constexpr int kParts = parts_of(kWide);
  __m512i out[kParts][16];
  // The same of the next 32 terms: hardware does not follow so many short pieces far apart.
  if constexpr (kWhole && kTransposed && !kKContiguous) {
    constexpr int64_t kSize = kWide ? 4 : 2;
    for (int64_t r = kTerms; r < 2 * kTerms; ++r) _mm_prefetch(p + r * ld * kSize, _MM_HINT_T0);
  }
#pragma GCC unroll 16
  for (int l = 0; l < 16; ++l) {
    if constexpr (kWide) {
      __m512 low, high;
      if constexpr (kKContiguous) {
        const float* row = reinterpret_cast<const float*>(p) + l * ld;
        const bool here = kWhole || l < count;
        low = kWhole ? _mm512_loadu_ps(row) : _mm512_maskz_loadu_ps(here ? mask_of(k) : 0, row);
        high = kWhole ? _mm512_loadu_ps(row + 16)
                      : _mm512_maskz_loadu_ps(here && k > 16 ? mask_of(k - 16) : 0, row + (k > 16 ? 16 : 0));
      } else {
        const float* row = reinterpret_cast<const float*>(p);
        const __mmask16 mask = kWhole ? 0xffff : mask_of(count);
        low = kWhole || l < k ? _mm512_maskz_loadu_ps(mask, row + l * ld) : _mm512_setzero_ps();
        high = kWhole || l + 16 < k ? _mm512_maskz_loadu_ps(mask, row + (l + 16) * ld) : _mm512_setzero_ps();
      }
#pragma GCC unroll 3
      for (int part = 0; part < kParts; ++part) {
        const bool last = part + 1 == kParts;  // nothing is left to round
        const __m512 a = last ? low : rounded(low), b = last ? high : rounded(high);
        out[part][l] = unit(a, b);
        low = _mm512_sub_ps(low, a), high = _mm512_sub_ps(high, b);
      }
    } else {
      const uint16_t* x = reinterpret_cast<const uint16_t*>(p);
      if constexpr (kKContiguous) {
        out[0][l] =
            kWhole ? _mm512_loadu_si512(x + l * ld) : _mm512_maskz_loadu_epi16(l < count ? mask32(k) : 0, x + l * ld);
      } else {
        const __mmask16 mask = kWhole ? 0xffff : mask_of(count);
        auto row = [&](int64_t i) {
          return _mm512_cvtepu16_epi32(kWhole || i < k ? _mm256_maskz_loadu_epi16(mask, x + i * ld)
                                                       : _mm256_setzero_si256());
        };
        out[0][l] = _mm512_or_si512(row(2 * l), _mm512_slli_epi32(row(2 * l + 1), 16));
      }
    }
  }
#pragma GCC unroll 3
  for (int part = 0; part < kParts; ++part) {
    if constexpr (kTransposed) transpose16(out[part]);
#pragma GCC unroll 16
    for (int l = 0; l < 16; ++l) _mm512_store_si512(to + part * part_bytes + l * 64, out[part][l]);
  }
}

// Indices [first, first + count) of 16 and terms [k0, end) of 32.
template <bool kWide, bool kKContiguous, bool kTransposed>
void pack_half(const ConstMat& x, int64_t first, int64_t count, int64_t k0, int64_t end, char* to) {
  constexpr int64_t kSize = kWide ? 4 : 2;
  const char* p = static_cast<const char*>(x.p);
  if (count > 0) p += (kKContiguous ? first * x.ld + k0 : k0 * x.ld + first) * kSize;
  if (count >= 16 && end - k0 >= kTerms)
    pack_tiles<kWide, kKContiguous, kTransposed, true>(p, x.ld, 16, kTerms, to, 2 * kTileBytes);
  else
    pack_tiles<kWide, kKContiguous, kTransposed, false>(p, x.ld, std::clamp<int64_t>(count, 0, 16), end - k0, to,
                                                        2 * kTileBytes);
}

using PackHalf = void (*)(const ConstMat&, int64_t, int64_t, int64_t, int64_t, char*);
PackHalf pack_of(bool wide, bool k_contiguous, bool left) {
  if (wide) {
    if (left) return k_contiguous ? pack_half<true, true, false> : pack_half<true, false, true>;
    return k_contiguous ? pack_half<true, true, true> : pack_half<true, false, false>;
  }
  if (left) return k_contiguous ? pack_half<false, true, false> : pack_half<false, false, true>;
  return k_contiguous ? pack_half<false, true, true> : pack_half<false, false, false>;
}

// Packs 32 indices and terms [k0, end), half a block at a time.
struct Packing {
  PackHalf pack = nullptr;
  const ConstMat* x = nullptr;
  int64_t first = 0, count = 0, k0 = 0, end = 0, block_bytes = 0;
  char* to = nullptr;
  bool second = false;
  // One block of 32 terms alone.
  void only(int64_t block) {
    k0 += block * kTerms, to += block * block_bytes;
    end = std::min(end, k0 + kTerms);
  }
  bool more() const { return k0 < end; }
  void next() {
    const int64_t at = second ? 16 : 0;
    pack(*x, first + at, count - at, k0, end, to + (second ? kTileBytes : 0));
    if (second) k0 += kTerms, to += block_bytes;
    second = !second;
  }
  void all() {
    while (more()) next();
  }
};

using T = TileRegisters;

template <int kA, int kB, bool kLoadA, bool kLoadB>
inline void multiply(const char* a, const char* b) {
  if constexpr (kLoadA) T::load<4>(a + kA * 2 * kTileBytes, 64);
  if constexpr (kLoadB) T::load<6>(b + kB * 2 * kTileBytes, 64);
  T::multiply<0, 4, 6>();
  if constexpr (kLoadB) T::load<7>(b + kB * 2 * kTileBytes + kTileBytes, 64);
  T::multiply<1, 4, 7>();
  if constexpr (kLoadA) T::load<5>(a + kA * 2 * kTileBytes + kTileBytes, 64);
  T::multiply<2, 5, 6>();
  T::multiply<3, 5, 7>();
}

// 32 × 32 sums into registers 0 to 3. Vectors are packed while the matrix unit works: it takes 16 cycles a product.
template <bool kWide>
inline void sum_block(const char* a, const char* b, int64_t blocks, Packing& beside) {
  T::zero<0>(), T::zero<1>(), T::zero<2>(), T::zero<3>();
  constexpr int64_t kStep = parts_of(kWide) * 2 * kTileBytes;
  for (int64_t i = 0; i < blocks; ++i, a += kStep, b += kStep) {
    if constexpr (kWide) {
      multiply<0, 2, true, true>(a, b);
      multiply<0, 0, false, true>(a, b);
      multiply<0, 1, false, true>(a, b);
      multiply<1, 1, true, false>(a, b);
      multiply<1, 0, false, true>(a, b);
      multiply<2, 0, true, false>(a, b);
    } else {
      multiply<0, 0, true, true>(a, b);
    }
    if (beside.more()) beside.next();
  }
}

inline void store_block(float* to, int64_t ld) {
  T::store<0>(to, ld * 4), T::store<1>(to + 16, ld * 4);
  T::store<2>(to + 16 * ld, ld * 4), T::store<3>(to + 16 * ld + 16, ld * 4);
}

// op(A), op(B) and C of a product. In fp32 its k may be cut into two pieces, whose sums are added in the end: the
// gradient of a weight sums over tokens, and what each thread made of those is in its own cache. Then C may stand
// transposed (A and B change places), so that the smaller operand is the one that is read again and again. bf16 has
// half of the bytes and gains nothing from it.
struct Product {
  const Gemm& g;
  ConstMat a, b;
  bool a_by_k, b_by_k;  // terms of k are neighbours in memory
  int64_t m, n, k, pieces = 1;
  bool swapped = false, wide;
  int64_t terms, edge_bytes;  // of a piece; 32 indices of a piece, packed
  PackHalf pack_a, pack_b;

  explicit Product(const Gemm& gemm)
      : g(gemm), a(g.a), b(g.b), a_by_k(!g.trans_a), b_by_k(g.trans_b), wide(g.a.type == DType::kF32) {
    m = g.c.rows, n = g.c.cols, k = g.trans_a ? g.a.rows : g.a.cols;
    constexpr int64_t kLeastTerms = 256;
    const int64_t half = ((k + 1) / 2 + kTerms - 1) / kTerms * ((std::min(m, n) + kEdge - 1) / kEdge) * block_bytes();
    if (wide && g.trans_a && k >= 2 * kLeastTerms && half + m * n * 4 <= kPieceBytes) pieces = 2, swapped = m < n;
    if (swapped) std::swap(a, b), std::swap(a_by_k, b_by_k), std::swap(m, n);
    terms = ((k + pieces - 1) / pieces + kTerms - 1) / kTerms * kTerms;
    edge_bytes = terms / kTerms * block_bytes();
    pack_a = pack_of(wide, a_by_k, true), pack_b = pack_of(wide, b_by_k, false);
  }
  int64_t block_bytes() const { return parts_of(wide) * 2 * kTileBytes; }
  Packing packing(bool left, int64_t first, int64_t piece, char* to) const {
    Packing p;
    p.pack = left ? pack_a : pack_b, p.x = left ? &a : &b;
    p.first = first, p.count = std::min(kEdge, (left ? m : n) - first);
    p.k0 = piece * terms, p.end = std::min(k, p.k0 + terms), p.block_bytes = block_bytes(), p.to = to;
    return p;
  }
  void sum(const char* a, const char* b, int64_t piece, Packing& beside) const {
    const int64_t blocks = (std::min(terms, k - piece * terms) + kTerms - 1) / kTerms;
    wide ? sum_block<true>(a, b, blocks, beside) : sum_block<false>(a, b, blocks, beside);
  }

  // 32-row blocks [begin, end) of C and columns [col, stop), whose B is packed at b; to `partial` [m][n] unless null.
  void rows(int64_t begin, int64_t end, int64_t col, int64_t stop, int64_t piece, const char* panels,
            float* partial) const {
    const bool plain = partial || (g.c.type == DType::kF32 && g.alpha == 1 && !g.bias && !g.accumulate);
    float* out = partial ? partial : static_cast<float*>(g.c.p);
    const int64_t ld = partial ? n : g.c.ld;
    const bool two = 2 * static_cast<size_t>(edge_bytes) <= kThreadWorkspace;
    char *now = thread_workspace(), *other = two ? now + edge_bytes : now;
    T::Configuration whole;
    for (int r = 0; r < 8; ++r) whole.rows[r] = 16, whole.columns[r] = 64;
    T::configure(whole);
    alignas(64) float sums[kEdge * kPanel];
    Packing beside;
    for (int64_t block = begin; block < end; ++block) {
      if (block == begin || !two) packing(true, block * kEdge, piece, now).all();
      if (block + 1 < end && two) beside = packing(true, (block + 1) * kEdge, piece, other);
      const int64_t row = block * kEdge, here = std::min(kEdge, m - row);
      const char* panel = panels;
      for (int64_t i = col; i < stop;) {
        if (plain && here == kEdge && stop - i >= kEdge) {
          sum(now, panel, piece, beside), store_block(out + row * ld + i, ld);
          i += kEdge, panel += edge_bytes;
          continue;
        }
        PanelCall c;
        if (partial)
          c.n = std::min(kPanel, stop - i), c.m = here, c.ldc = ld, c.c = out + row * ld + i;
        else
          c = call(row, i, std::min(kPanel, stop - i), here);
        for (int64_t j = 0; j < c.n; j += kEdge, panel += edge_bytes)
          sum(now, panel, piece, beside), store_block(sums + j, kPanel);
        avx512_finish(c, sums, 0, here);
        i += c.n;
      }
      beside.all();
      std::swap(now, other);
    }
    T::release();
  }

  // Adds the pieces' sums into 16 rows of C from `row` on.
  void reduce(int64_t row, const float* x, const float* y) const {
    constexpr int64_t kRows = 16;
    alignas(64) float sums[kRows * kPanel];
    const int64_t rows = std::min(kRows, g.c.rows - row), cols = g.c.cols;
    for (int64_t col = 0; col < cols; col += kPanel) {
      PanelCall c = call(row, col, std::min(kPanel, cols - col), rows);
      for (int64_t j = 0; j < c.n; j += 16) {
        const int64_t here = swapped ? std::min<int64_t>(16, c.n - j) : rows;  // rows of the pieces
        const __mmask16 mask = mask_of(swapped ? rows : c.n - j);
        __m512i r[16];
        for (int64_t i = 0; i < 16; ++i) {
          const int64_t at = swapped ? (col + j + i) * n + row : (row + i) * n + col + j;
          r[i] = i < here ? _mm512_castps_si512(
                                _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x + at), _mm512_maskz_loadu_ps(mask, y + at)))
                          : _mm512_setzero_si512();
        }
        if (swapped) transpose16(r);
        for (int64_t i = 0; i < 16; ++i) _mm512_store_si512(sums + i * kPanel + j, r[i]);
      }
      avx512_finish(c, sums, 0, rows);
    }
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
  MXT_ASSERT(static_cast<size_t>(p.edge_bytes) <= kThreadWorkspace);
  const bool alone = 2.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k) < kSerialFlops;
  const int64_t row_blocks = (p.m + kEdge - 1) / kEdge, col_blocks = (p.n + kEdge - 1) / kEdge;
  // Columns whose packed B is kept at once, about as many each time; in whole panels.
  const int64_t most = p.pieces > 1 ? col_blocks : std::max<int64_t>(2, kSharedBytes / p.edge_bytes);
  const int64_t times = (col_blocks + most - 1) / most;
  const int64_t at_once = std::min(col_blocks, ((col_blocks + times - 1) / times + 1) / 2 * 2);
  // A piece's operand and sums lie where the last product's lay: most likely in the caches of the thread that works on
  // it.
  char* shared = shared_workspace(kSharedWorkspace);
  auto partial = [&](int64_t piece) {
    return p.pieces == 1 ? nullptr : reinterpret_cast<float*>(shared + piece * kPieceBytes + at_once * p.edge_bytes);
  };
  for (int64_t first = 0; first < col_blocks; first += at_once) {
    const int64_t here = std::min(at_once, col_blocks - first), end = std::min(p.n, (first + here) * kEdge);
    // Along the memory of B: a few whole rows of it at a time, or of its transpose.
    const int64_t cuts = p.b_by_k ? here : p.terms / kTerms;
    parallel_for(0, p.pieces * cuts, alone ? p.pieces * cuts : 1, [&](int64_t begin, int64_t stop) {
      for (int64_t i = begin; i < stop; ++i) {
        char* to = shared + i / cuts * kPieceBytes;
        for (int64_t j = 0; j < (p.b_by_k ? 1 : here); ++j) {
          const int64_t edge = p.b_by_k ? i % cuts : j;
          Packing packing = p.packing(false, (first + edge) * kEdge, i / cuts, to + edge * p.edge_bytes);
          if (!p.b_by_k) packing.only(i % cuts);
          packing.all();
        }
      }
    });
    // Some whole rows to a task; fewer columns, in whole panels, where there are too few of them for the threads.
    const int64_t pairs = (here + 1) / 2, threads = num_threads(), enough = 4 * threads, all = p.pieces * row_blocks;
    const int64_t groups = std::clamp<int64_t>((enough + all - 1) / all, 1, pairs);
    const int64_t width = (pairs + groups - 1) / groups * 2, across = (here + width - 1) / width;
    const int64_t down = std::clamp<int64_t>((enough + across * p.pieces - 1) / (across * p.pieces), 1, row_blocks),
                  height = (row_blocks + down - 1) / down, each = (row_blocks + height - 1) / height * across;
    parallel_for(0, p.pieces * each, alone ? p.pieces * each : 1, [&](int64_t begin, int64_t stop) {
      for (int64_t i = begin; i < stop; ++i) {
        const int64_t piece = i / each, block = i % across * width, row = i % each / across * height;
        p.rows(row, std::min(row + height, row_blocks), (first + block) * kEdge,
               std::min(end, (first + block + width) * kEdge), piece,
               shared + piece * kPieceBytes + block * p.edge_bytes, partial(piece));
      }
    });
  }
  if (p.pieces == 1) return;
  parallel_for(0, (g.c.rows + 15) / 16, 1, [&](int64_t begin, int64_t stop) {
    for (int64_t i = begin; i < stop; ++i) p.reduce(i * 16, partial(0), partial(1));
  });
}

}  // namespace mxt::kernels::cpu

HWY_POP_ATTRIBUTES

#else

namespace mxt::kernels::cpu {
bool tiles_usable(int64_t) { return false; }
void tiles_gemm(const Gemm&) { MXT_ASSERT(!"tiles: not on this machine"); }
}  // namespace mxt::kernels::cpu

#endif
