#include "kernels/cpu/rows/blocks.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/threads.h"
#include "base/types.h"
#include "kernels/cpu/gemm/micro.h"
#include "kernels/cpu/rows/rows.h"

namespace mxt::kernels {
namespace {

constexpr size_t kRows = BlockMatrix::kGroup;

float half(const std::byte* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return f16_to_float(h);
}

float single(const std::byte* p) {
  float f;
  std::memcpy(&f, p, 4);
  return f;
}

// Where a word's nibbles stand, in bits: the first one highest (blocks_simd.cc says why).
size_t nibble_at(size_t n) { return n == 0 ? 28 : 4 * n - 4; }

bool is_nibbles(BlockKind kind) { return kind == BlockKind::kQ4 || kind == BlockKind::kQ4F; }
bool is_bytes(BlockKind kind) { return kind == BlockKind::kQ8 || kind == BlockKind::kQ8F; }

}  // namespace

BlockMatrix::BlockMatrix(BlockKind k, int64_t r, int64_t c, std::byte* memory)
    : kind(k), rows(r), cols(c), data(memory) {
  MXT_ASSERT(cols % kBlock == 0);
  if (data) return;
  own_.resize(bytes());
  data = own_.data();
}

void BlockMatrix::set_row(int64_t r, const std::byte* blocks) {
  const size_t bytes = block_bytes(kind), scales = scale_bytes(kind), i = static_cast<size_t>(r % kGroup);
  auto* to = const_cast<std::byte*>(group(r / kGroup));
  for (int64_t b = 0; b < cols / kBlock; ++b, blocks += bytes, to += bytes * kRows) {
    std::byte* const word = to + scales * kRows + 4 * i;
    auto put = [&](size_t j, uint32_t w) { std::memcpy(word + j * 4 * kRows, &w, 4); };
    const size_t one = kind == BlockKind::kQ4 || kind == BlockKind::kQ8 ? 2 : 4;
    for (size_t s = 0; s < scales; s += one) std::memcpy(to + s * kRows + one * i, blocks + s, one);
    const std::byte* const q = blocks + scales;
    if (is_nibbles(kind)) {
      for (size_t j = 0; j < 4; ++j) {
        uint32_t w = 0;
        for (size_t n = 0; n < 8; ++n) {
          const size_t k = 4 * n + j;
          const auto byte = std::to_integer<uint32_t>(q[k % 16]);
          w |= (k < 16 ? byte & 15 : byte >> 4) << nibble_at(n);
        }
        put(j, w);
      }
    } else if (is_bytes(kind)) {
      for (size_t j = 0; j < 8; ++j) {
        uint32_t w = 0;
        for (size_t n = 0; n < 4; ++n) w |= std::to_integer<uint32_t>(q[4 * j + n]) << (24 - 8 * n);
        put(j, w);
      }
    } else {
      for (size_t j = 0; j < 16; ++j) {
        uint16_t v[2];
        std::memcpy(v, q + 4 * j, 4);
        put(j, static_cast<uint32_t>(v[0]) << 16 | v[1]);
      }
    }
  }
}

void BlockMatrix::read_row(int64_t r, float* out) const {
  const size_t bytes = block_bytes(kind) * kRows, i = static_cast<size_t>(r % kGroup);
  const std::byte* p = group(r / kGroup);
  for (int64_t b = 0; b < cols / kBlock; ++b, p += bytes, out += 32) {
    float d[2] = {1, 1}, m = 0;
    if (kind == BlockKind::kQ4 || kind == BlockKind::kQ8) d[0] = d[1] = half(p + 2 * i);
    if (kind == BlockKind::kQ4) m = half(p + 2 * kRows + 2 * i);
    if (kind == BlockKind::kQ4F) d[0] = d[1] = single(p + 4 * i), m = single(p + 4 * (kRows + i));
    if (kind == BlockKind::kQ8F)
      d[0] = single(p + 4 * i), d[1] = single(p + 4 * (kRows + i)), m = single(p + 4 * (2 * kRows + i));
    auto word = [&](size_t j) {
      uint32_t w;
      std::memcpy(&w, p + scale_bytes(kind) * kRows + (j * kRows + i) * 4, 4);
      return w;
    };
    for (size_t k = 0; k < 32; ++k) {
      if (is_nibbles(kind))
        out[k] = d[0] * static_cast<float>(word(k % 4) >> nibble_at(k / 4) & 15) + m;
      else if (is_bytes(kind))
        out[k] = d[k / 16] * static_cast<float>(static_cast<int8_t>(word(k / 4) >> (24 - 8 * (k % 4)) & 255)) + m;
      else
        out[k] = bf16_to_float(static_cast<uint16_t>(word(k / 2) >> (k % 2 == 0 ? 16 : 0) & 0xffff));
    }
  }
}

namespace cpu {
namespace {

constexpr int64_t kFew =
    2 * kTokens;  // tokens up to which decoding for each four costs less than keeping what is decoded
constexpr int64_t kAtOnce = 192, kPart = 128;  // of a panel: tokens, and k, whose operands stay in the caches

// `count` columns of a row of the result.
void store(const BlockGemm& g, float* v, int64_t row, int64_t col, int64_t count) {
  const int64_t at = row * g.c.ld + col;
  if (g.bias && g.bias_type == DType::kF32)
    for (int64_t j = 0; j < count; ++j) v[j] += static_cast<const float*>(g.bias)[col + j];
  else if (g.bias)
    for (int64_t j = 0; j < count; ++j) v[j] += bf16_to_float(static_cast<const uint16_t*>(g.bias)[col + j]);
  convert(v, DType::kF32, static_cast<char*>(g.c.p) + static_cast<size_t>(at) * size_of(g.c.type), g.c.type,
          static_cast<size_t>(count));
}

// A few tokens against groups [first, last).
void few(const BlockGemm& g, const float* x, int64_t ldx, int64_t first, int64_t last) {
  alignas(64) float out[kTokens * kRows];
  BlockProduct p;
  p.kind = g.b->kind, p.blocks = g.b->cols / BlockMatrix::kBlock, p.ldx = ldx, p.out = out;
  for (int64_t group = first; group < last; ++group) {
    const int64_t col = group * BlockMatrix::kGroup, count = std::min(BlockMatrix::kGroup, g.b->rows - col);
    p.group = g.b->group(group);
    for (int64_t n = 0; n < g.a.rows; n += kTokens) {
      p.tokens = static_cast<int>(std::min<int64_t>(kTokens, g.a.rows - n)), p.x = x + n * ldx;
      block_product(p);
      for (int i = 0; i < p.tokens; ++i) store(g, out + i * kRows, n + i, col, count);
    }
  }
}

// Tokens [from, from + count) against the two groups of a panel, each part of them decoded once.
void panel(const BlockGemm& g, const Micro& micro, const float* x, int64_t ldx, int64_t from, int64_t count,
           int64_t index) {
  struct Workspace {
    alignas(64) float b[kPart * kPanel], partial[kAtOnce * kPanel];
  };
  thread_local Workspace w;
  static_assert(kPanel == 2 * BlockMatrix::kGroup);
  const int64_t blocks = g.b->cols / BlockMatrix::kBlock, col = index * kPanel,
                width = std::min(kPanel, g.b->rows - col), groups = g.b->groups();
  PanelCall c;
  const bool strips = &micro == avx2_micro(Unit::kF32);  // its panels are [4][steps][16], the others' [steps][64]
  c.a_row = ldx * 4, c.a_step = 4, c.b = w.b, c.m = count, c.n = kPanel, c.partial = w.partial, c.to_partial = true;
  for (int64_t block = 0; block < blocks; block += kPart / 32) {
    const int64_t n = std::min(kPart / 32, blocks - block);
    const int64_t ld = strips ? 16 : kPanel, strip = strips ? 32 * n * 16 : 16;
    if (2 * index + 1 == groups) std::fill_n(w.b, 32 * n * kPanel, 0.0f);
    for (int64_t h = 0; h < 2 && 2 * index + h < groups; ++h)
      block_decode(
          {g.b->kind,
           g.b->group(2 * index + h) + static_cast<size_t>(block) * kRows * BlockMatrix::block_bytes(g.b->kind), n,
           w.b + 2 * h * strip, ld, strip});
    c.a = x + from * ldx + block * 32, c.steps = 32 * n, c.from_partial = block > 0;
    micro.run(c);
  }
  for (int64_t i = 0; i < count; ++i) store(g, w.partial + i * kPanel, from + i, col, width);
}

}  // namespace

void block_rows(const BlockMatrix& table, const int32_t* ids, const Mat& y) {
  parallel_for(0, y.rows, 64, [&](int64_t b, int64_t e) {
    std::vector<float> row(static_cast<size_t>(table.cols));
    for (int64_t t = b; t < e; ++t) {
      table.read_row(ids[t], row.data());
      convert(row.data(), DType::kF32, static_cast<char*>(y.p) + static_cast<size_t>(t * y.ld) * size_of(y.type),
              y.type, row.size());
    }
  });
}

void block_gemm(const BlockGemm& g) {
  const int64_t m = g.a.rows, k = g.a.cols, groups = g.b->groups();
  MXT_ASSERT(k == g.b->cols && g.c.rows == m && g.c.cols == g.b->rows);
  const F32Rows rows = as_f32(g.a);
  const float* x = rows.p;
  const int64_t ldx = rows.ld;
  if (m <= kFew) {
    // About sixteen pieces, of a few microseconds at least.
    const int64_t grain = std::max<int64_t>({1, (int64_t{1} << 15) / (m * k * BlockMatrix::kGroup), groups / 16});
    return parallel_for(0, groups, grain, [&](int64_t first, int64_t last) { few(g, x, ldx, first, last); });
  }
  Unit unit;
  const Micro& micro = best_micro(false, false, &unit);
  const int64_t panels = (groups + 1) / 2, chunks = (m + kAtOnce - 1) / kAtOnce;
  parallel_for(0, panels * chunks, 1, [&](int64_t i, int64_t) {
    const int64_t from = i / panels * kAtOnce;
    panel(g, micro, x, ldx, from, std::min(kAtOnce, m - from), i % panels);
  });
}

}  // namespace cpu

}  // namespace mxt::kernels
