// Weights in an order of their own, as products with few tokens read them: once, from front to back, decoded in
// registers. What a quantised checkpoint holds in blocks of 32 along k stays in them; nothing is rounded that the file
// did not round.
//   kQ4: value = d·q + m, q = 0…15 (GGUF's Q4_0 and Q4_1, m = −8d for the former)      2 + 2 + 16 bytes a block
//   kQ8: value = d·q, q = −128…127 (Q8_0)                                               2 + 32 bytes a block
//   kBF16: value                                                                        64 bytes a block
//   kQ4F: as kQ4, d and m in F32 (Q4_K, whose d is a product)                           4 + 4 + 16
//   kQ8F: value = d[k/16]·q + m, q as in kQ8, d and m in F32 (what has at most 8 bits:  8 + 4 + 32
//         Q5_0, Q5_1, Q5_K, Q6_K, and rows of several types)
// Rows stand in groups of 32, the last filled up with zeros. A group holds, block after block: 32 times each d and m,
// then words of four bytes, one a row side by side: kQ4's four words have k = j, j + 4, … j + 28, the first in the
// highest four bits, the others from the lowest up; kQ8 word j has k = 4j…4j+3 and kBF16 word j has k = 2j, 2j+1, both
// from the highest bits down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/api.h"

namespace mxt::kernels {

enum class BlockKind : uint8_t { kQ4, kQ8, kBF16, kQ4F, kQ8F };
// In the order that stands above: bytes of a row's block before its values, and of its values.
constexpr size_t kBlockScales[] = {4, 2, 0, 8, 12}, kBlockValues[] = {16, 32, 64, 16, 32};

struct BlockMatrix {
  static constexpr int64_t kBlock = 32, kGroup = 32;
  BlockKind kind = BlockKind::kQ4;
  int64_t rows = 0, cols = 0;  // cols a multiple of 32
  std::byte* data = nullptr;

  // In `memory`, which is zero, stays the caller's and has bytes() of room; null: in memory of its own.
  BlockMatrix(BlockKind kind, int64_t rows, int64_t cols, std::byte* memory = nullptr);
  BlockMatrix(BlockMatrix&&) = default;
  size_t bytes() const { return bytes(kind, rows, cols); }
  static size_t bytes(BlockKind kind, int64_t rows, int64_t cols) {
    return static_cast<size_t>((rows + kGroup - 1) / kGroup * kGroup * (cols / kBlock)) * block_bytes(kind);
  }
  static constexpr size_t scale_bytes(BlockKind kind) { return kBlockScales[static_cast<size_t>(kind)]; }
  static constexpr size_t block_bytes(BlockKind kind) {
    return scale_bytes(kind) + kBlockValues[static_cast<size_t>(kind)];
  }
  int64_t groups() const { return (rows + kGroup - 1) / kGroup; }
  const std::byte* group(int64_t g) const {
    return data + static_cast<size_t>(g * (cols / kBlock) * kGroup) * block_bytes(kind);
  }
  // Row r from `blocks`: cols/32 times d (kQ8F: two), m where the kind has one, then q in order of k (nibbles: byte i
  // has k = i low and k = i + 16 high), which for kQ4 and kQ8 is GGUF's Q4_1 and Q8_0; for kBF16 the row's values.
  void set_row(int64_t r, const std::byte* blocks);
  void read_row(int64_t r, float* out) const;  // its values

 private:
  std::vector<std::byte> own_;
};

// c = a · bᵀ (+ bias), in fp32: an element is the running sum of a's and b's values in the order of k, whatever m, n
// and the threads; so a token's result does not depend on the others, and is what "panels" (kernels/cpu/gemm.h) gives
// with the values in F32.
struct BlockGemm {
  ConstMat a;  // [m, cols] F32 or BF16
  const BlockMatrix* b = nullptr;
  Mat c;  // [m, rows] F32 or BF16
  const void* bias = nullptr;
  DType bias_type = DType::kF32;
};
namespace cpu {  // the one device that has them so far
void block_gemm(const BlockGemm& g);
// y[t] = row ids[t] of the table.
void block_rows(const BlockMatrix& table, const int32_t* ids, const Mat& y);
}  // namespace cpu

}  // namespace mxt::kernels
