// Weights kept in blocks of 32 along k with a scale each, as they multiply: what a quantised checkpoint holds, in an order of its own.
//   kQ4: value = d·q + m, q = 0…15 (GGUF's Q4_0 and Q4_1, m = −8d for the former)      2 + 2 + 16 bytes a block
//   kQ8: value = d·q, q = −128…127 (Q8_0)                                               2 + 32 bytes a block
// Rows stand in groups of eight. A group holds, block after block: eight d (f16), for kQ4 eight m (f16), then the quants so that one
// 32-byte vector has four neighbours along k of each of the eight rows. kQ4: vector j has k = 8j…8j+3 in the low and 8j+4…8j+7 in the
// high nibbles; kQ8: vector j has k = 4j…4j+3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/api.h"

namespace mxt::kernels {

enum class BlockKind : uint8_t { kQ4, kQ8 };

struct BlockMatrix {
  static constexpr int64_t kBlock = 32, kGroup = 8;
  BlockKind kind = BlockKind::kQ4;
  int64_t rows = 0, cols = 0;  // cols a multiple of 32, rows of 8
  std::vector<std::byte> data;

  BlockMatrix(BlockKind kind, int64_t rows, int64_t cols);
  static size_t block_bytes(BlockKind kind) { return kind == BlockKind::kQ4 ? 20 : 34; }
  const std::byte* group(int64_t g) const { return data.data() + static_cast<size_t>(g * (cols / kBlock) * kGroup) * block_bytes(kind); }
  // Row r from `blocks`: cols/32 times f16 d, for kQ4 f16 m, then q in order of k (kQ4: byte i has k = i low and k = i + 16 high), which
  // is GGUF's Q4_1 and Q8_0.
  void set_row(int64_t r, const std::byte* blocks);
  void read_row(int64_t r, float* out) const;  // its values
};

// c = a · bᵀ (+ bias). Each 32 values of a are rounded to int8 with a scale of their own (their largest magnitude over 127), the
// products of a block are summed exactly, blocks in fp32 in the order of k: a token's result does not depend on the other tokens or on
// the threads.
struct BlockGemm {
  ConstMat a;  // [m, cols] F32 or BF16
  const BlockMatrix* b = nullptr;
  Mat c;       // [m, rows] F32 or BF16
  const void* bias = nullptr;
  DType bias_type = DType::kF32;
};
namespace cpu {  // the one device that has them so far
// The same bits on every instruction set.
void block_gemm(const BlockGemm& g);
// y[t] = row ids[t] of the table.
void block_rows(const BlockMatrix& table, const int32_t* ids, const Mat& y);
}  // namespace cpu

}  // namespace mxt::kernels
