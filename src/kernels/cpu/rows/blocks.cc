#include "kernels/cpu/rows/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/threads.h"
#include "base/types.h"
#include "kernels/blocks.h"

namespace mxt::kernels {
namespace cpu {
namespace {

float half(const std::byte* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return f16_to_float(h);
}

// The same operations in the same order as the vector kernels, so that the bits are the same.
template <bool kFour>
void portable(const BlockTile& t) {
  constexpr size_t kBytes = kFour ? 160 : 272;
  for (int n = 0; n < t.tokens; ++n)
    for (int r = 0; r < 8; ++r) {
      float acc = 0, mins = 0;
      for (int64_t b = 0; b < t.blocks; ++b) {
        const std::byte* p = t.group + static_cast<size_t>(b) * kBytes;
        const int8_t* x = t.x[n] + b * 32;
        int32_t sum = 0;
        for (int k = 0; k < 32; ++k) {
          int q;
          if (kFour) {
            const auto byte = std::to_integer<int>(p[32 + k / 8 * 32 + r * 4 + k % 4]);
            q = k % 8 < 4 ? byte & 15 : byte >> 4;
          } else {
            q = static_cast<int8_t>(std::to_integer<int>(p[16 + k / 4 * 32 + r * 4 + k % 4]));
          }
          sum += q * x[k];
        }
        acc = std::fma(half(p + 2 * r) * t.dx[n][b], static_cast<float>(sum), acc);
        if (kFour) mins = std::fma(half(p + 16 + 2 * r), t.sx[n][b], mins);
      }
      t.out[n][r] = acc + mins;
    }
}

void round_block(const float* x, int8_t* q, float* d, float* s) {
  float top = 0;
  for (int i = 0; i < 32; ++i) top = std::max(top, std::abs(x[i]));
  const float scale = top / 127.0f, inverse = top > 0 ? 127.0f / top : 0.0f;
  int32_t sum = 0;
  for (int i = 0; i < 32; ++i) {
    q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
    sum += q[i];
  }
  *d = scale;
  *s = scale * static_cast<float>(sum);
}

}  // namespace

const BlockKernels& portable_blocks() {
  static const BlockKernels k{portable<true>, portable<false>, round_block};
  return k;
}

}  // namespace cpu

BlockMatrix::BlockMatrix(BlockKind k, int64_t r, int64_t c) : kind(k), rows(r), cols(c) {
  MXT_ASSERT(cols % kBlock == 0 && rows % kGroup == 0);
  data.resize(static_cast<size_t>(rows * (cols / kBlock)) * block_bytes(kind));
}

void BlockMatrix::set_row(int64_t r, const std::byte* blocks) {
  const size_t bytes = block_bytes(kind), i = static_cast<size_t>(r % kGroup);
  auto* to = const_cast<std::byte*>(group(r / kGroup));
  for (int64_t b = 0; b < cols / kBlock; ++b, blocks += bytes, to += bytes * kGroup) {
    std::memcpy(to + 2 * i, blocks, 2);
    if (kind == BlockKind::kQ4) {
      std::memcpy(to + 16 + 2 * i, blocks + 2, 2);
      for (size_t k = 0; k < 32; ++k) {
        const auto byte = std::to_integer<unsigned>(blocks[4 + k % 16]);
        const unsigned q = k < 16 ? byte & 15 : byte >> 4;
        std::byte& out = to[32 + k / 8 * 32 + i * 4 + k % 4];
        out = k % 8 < 4 ? static_cast<std::byte>(q) : out | static_cast<std::byte>(q << 4);
      }
    } else {
      for (size_t k = 0; k < 32; ++k) to[16 + k / 4 * 32 + i * 4 + k % 4] = blocks[2 + k];
    }
  }
}

void BlockMatrix::read_row(int64_t r, float* out) const {
  const size_t bytes = block_bytes(kind) * kGroup, i = static_cast<size_t>(r % kGroup);
  const std::byte* p = group(r / kGroup);
  for (int64_t b = 0; b < cols / kBlock; ++b, p += bytes, out += 32) {
    const float d = cpu::half(p + 2 * i), m = kind == BlockKind::kQ4 ? cpu::half(p + 16 + 2 * i) : 0.0f;
    for (size_t k = 0; k < 32; ++k) {
      if (kind == BlockKind::kQ4) {
        const auto byte = std::to_integer<int>(p[32 + k / 8 * 32 + i * 4 + k % 4]);
        out[k] = d * static_cast<float>(k % 8 < 4 ? byte & 15 : byte >> 4) + m;
      } else {
        out[k] = d * static_cast<float>(static_cast<int8_t>(std::to_integer<int>(p[16 + k / 4 * 32 + i * 4 + k % 4])));
      }
    }
  }
}

namespace cpu {

void block_rows(const BlockMatrix& table, const int32_t* ids, const Mat& y) {
  parallel_for(0, y.rows, 64, [&](int64_t b, int64_t e) {
    std::vector<float> row(static_cast<size_t>(table.cols));
    for (int64_t t = b; t < e; ++t) {
      table.read_row(ids[t], row.data());
      convert(row.data(), DType::kF32, static_cast<char*>(y.p) + static_cast<size_t>(t * y.ld) * size_of(y.type), y.type, row.size());
    }
  });
}

namespace {

// Eight columns of a row of the result.
void store(const BlockGemm& g, float* v, int64_t row, int64_t col) {
  const int64_t at = row * g.c.ld + col;
  if (g.bias)
    for (int j = 0; j < 8; ++j) v[j] += g.bias_type == DType::kF32 ? static_cast<const float*>(g.bias)[col + j] : bf16_to_float(static_cast<const uint16_t*>(g.bias)[col + j]);
  if (g.c.type == DType::kF32) std::memcpy(static_cast<float*>(g.c.p) + at, v, 32);
  else
    for (int j = 0; j < 8; ++j) static_cast<uint16_t*>(g.c.p)[at + j] = float_to_bf16(v[j]);
}

}  // namespace

void block_gemm(const BlockGemm& g) {
  const int64_t m = g.a.rows, k = g.a.cols, blocks = k / BlockMatrix::kBlock, groups = g.b->rows / BlockMatrix::kGroup;
  MXT_ASSERT(k == g.b->cols && g.c.rows == m && g.c.cols == g.b->rows);
  static const BlockKernels& kernels = avx2_blocks() ? *avx2_blocks() : portable_blocks();
  // The caller's thread owns what all threads read.
  thread_local std::vector<int8_t> q;
  thread_local std::vector<float> scales;
  q.resize(static_cast<size_t>(m * k));
  scales.resize(static_cast<size_t>(2 * m * blocks));
  int8_t* const x = q.data();
  float* const dx = scales.data();
  float* const sx = dx + m * blocks;
  auto round = [&](int64_t first, int64_t last) {
    float values[32];
    for (int64_t t = first; t < last; ++t)
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t at = t * g.a.ld + b * 32;
        const float* from = values;
        if (g.a.type == DType::kF32) from = static_cast<const float*>(g.a.p) + at;
        else
          for (int i = 0; i < 32; ++i) values[i] = bf16_to_float(static_cast<const uint16_t*>(g.a.p)[at + i]);
        kernels.round(from, x + t * k + b * 32, dx + t * blocks + b, sx + t * blocks + b);
      }
  };
  if (m < 16) round(0, m);
  else parallel_for(0, m, 8, round);

  auto work = [&](int64_t first, int64_t last) {
    alignas(32) float out[kTokens][8];
    BlockTile t;
    t.blocks = blocks;
    // Some tokens at a time through all groups of the piece: both stay in the caches.
    for (int64_t from = 0; from < m; from += 64)
      for (int64_t group = first; group < last; ++group) {
        t.group = g.b->group(group);
        for (int64_t n = from; n < std::min(m, from + 64); n += kTokens) {
          t.tokens = static_cast<int>(std::min<int64_t>(kTokens, m - n));
          for (int i = 0; i < t.tokens; ++i) {
            t.x[i] = x + (n + i) * k;
            t.dx[i] = dx + (n + i) * blocks;
            t.sx[i] = sx + (n + i) * blocks;
            t.out[i] = out[i];
          }
          (g.b->kind == BlockKind::kQ4 ? kernels.q4 : kernels.q8)(t);
          for (int i = 0; i < t.tokens; ++i) store(g, out[i], n + i, group * 8);
        }
      }
  };
  // Pieces of about a hundred thousand products: less costs more in waking threads. The cut changes no result.
  const int64_t grain = std::max<int64_t>(8, (int64_t{1} << 17) / std::max<int64_t>(1, m * k * 8));
  parallel_for(0, groups, grain, work);
}

}  // namespace cpu

}  // namespace mxt::kernels
