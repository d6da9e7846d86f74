// Matrices held in codes of four or eight bits with scales: the definitions, and plain code both ways. Number types as
// bitsandbytes (Dettmers et al. 2023) and the OCP MX specification 1.0 have them.
//   kNf4        16 values of a table times the largest magnitude of 64 weights. Blocks run over the matrix row after
//               row, across the ends of rows; the last may be short. The even weight of a byte in the high four bits.
//   kNf4Double  the same with the magnitudes, less their mean, in 8 bits of a second table times the largest magnitude
//               of 256 of them.
//   kMxfp4      E2M1 (0 0.5 1 1.5 2 3 4 6 and a sign) times a power of two for 32 weights of a row, whose width is a
//               multiple of 32. The even weight in the low four bits.
//   kE4M3       E4M3 times a power of two for a row (f8e4m3_row_scale).
//   kE4M3Rows   E4M3 times an F32 scale for a row, as FP8 folders with a scale a row, or one for all of them, have it.
//   kE4M3Blocks E4M3 times an F32 scale for 128 rows × 128 columns, the last of which may be short.
//   kQ4_0 …     GGUF's blocks as the file has them, which hold scales and values (base/ggml_blocks.h); the width is a
//               multiple of a block's. Nothing encodes them here (formats/gguf.h does).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace mxt {

enum class Coding : uint8_t {
  kNone,
  kNf4,
  kNf4Double,
  kMxfp4,
  kE4M3,
  kE4M3Rows,
  kE4M3Blocks,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kTQ2_0,
  kIQ4_NL,
  kIQ4_XS,
  kGgmlMxfp4,
};
std::string_view name_of(Coding c);  // none, nf4, nf4 with double quantization, mxfp4, e4m3, q4_0 …

inline constexpr int64_t kNf4Block = 64, kNf4Nested = 256, kMxBlock = 32, kE4M3Block = 128;
extern const float kNf4Table[16], kE2M1Table[16];  // by code
extern const std::array<float, 256> kNf4Bytes;     // of kNf4Double's scales, ascending

// What a matrix takes, in bytes (a row of blocks that is not whole as if it were). Scales: F32 (kNf4, kE4M3Rows,
// kE4M3Blocks), U8 (kNf4Double; kMxfp4 and kE4M3: the power of two's exponent + 127). Nested, of kNf4Double alone: F32,
// one for 256 scales, and at the end the mean.
struct CodedBytes {
  int64_t codes = 0, scales = 0, nested = 0;
};
CodedBytes coded_bytes(Coding c, int64_t rows, int64_t cols);

// A matrix so held, in memory of the caller.
template <typename Byte, typename Float>
struct CodedMatrix {
  Coding coding = Coding::kNone;
  int64_t rows = 0, cols = 0;
  Byte* codes = nullptr;
  Byte* scales = nullptr;  // F32 ones aligned
  Float* nested = nullptr;
};
using Coded = CodedMatrix<const uint8_t, const float>;

// Rounds w (F32 or BF16, rows side by side) to it, on all threads; the same bytes for any number of them.
// kNf4: the code is the nearest of w·(1/largest), of two equally near the lower. kMxfp4: of the two exponents that come
// into question (the largest value fits, or is cut to 6) the one with the smaller squared error; ties to even codes.
// kE4M3Rows, kE4M3Blocks: a scale is its largest magnitude / 448, 1 where all is zero.
void encode(const void* w, DType type, const CodedMatrix<uint8_t, float>& to);
// The second quantization alone: a byte each of bytes[scales.size()], and nested scales with the mean at the end.
void encode_nf4_scales(const std::vector<float>& scales, uint8_t* bytes, float* nested);
// Weights [first, first + count), counted row after row.
void decode(const Coded& m, int64_t first, int64_t count, float* out);
// The factor of a kNf4 or kNf4Double block.
inline float nf4_scale(const Coded& m, int64_t block) {
  if (m.coding == Coding::kNf4) return reinterpret_cast<const float*>(m.scales)[block];
  const int64_t blocks = (m.rows * m.cols + kNf4Block - 1) / kNf4Block;
  return kNf4Bytes[m.scales[static_cast<size_t>(block)]] * m.nested[block / kNf4Nested] +
         m.nested[(blocks + kNf4Nested - 1) / kNf4Nested];
}
inline float exponent_scale(uint8_t exponent) {
  return std::bit_cast<float>(exponent == 255 ? 0x7fc00000u : exponent == 0 ? 0x00400000u : uint32_t{exponent} << 23);
}
// The codings of E4M3, a byte a weight; and how far the scale of the weight at (row, col) reaches, at most to `end`.
inline bool is_e4m3(Coding c) { return c == Coding::kE4M3 || c == Coding::kE4M3Rows || c == Coding::kE4M3Blocks; }
inline int64_t e4m3_reach(Coding c, int64_t col, int64_t end) {
  const int64_t next = (col / kE4M3Block + 1) * kE4M3Block;
  return c == Coding::kE4M3Blocks && next < end ? next : end;
}
inline float e4m3_scale(const Coded& m, int64_t row, int64_t col) {
  if (m.coding == Coding::kE4M3) return exponent_scale(m.scales[row]);
  const auto* scales = reinterpret_cast<const float*>(m.scales);
  if (m.coding == Coding::kE4M3Rows) return scales[row];
  return scales[row / kE4M3Block * ((m.cols + kE4M3Block - 1) / kE4M3Block) + col / kE4M3Block];
}

// Nearest E2M1 code, ties to even; larger values become 6.
uint8_t float_to_e2m1(float x);

}  // namespace mxt
