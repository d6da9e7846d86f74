// The inner kernels of our own matrix product. An operand is packed in "steps" along k: one step is one 4-byte unit, a
// float or two consecutive bf16 (k, k+1). A kernel reads the columns of one step side by side, and one unit of the
// other operand is broadcast against them. How packed units lie is the kernel's own; most have [steps][width].
//
// Each output element is the running sum over its steps in ascending order, whatever the tile it falls into. So results
// do not depend on m, n, tile sizes or threads.
#pragma once

#include <cstdint>

namespace mxt::kernels::cpu {

constexpr int64_t kPanel = 64;  // columns of a panel of B

// c = alpha · a · b (+ c) (+ bias) for m rows against one packed panel of n ≤ 64 columns, or a part of it along k.
struct PanelCall {
  const void* a = nullptr;  // unit of row i and step s at a + i·a_row + s·a_step (bytes)
  int64_t a_row = 0, a_step = 0;
  bool packed = false;  // a was packed by the same kernel, as many steps; its strides here are those of [steps][width]
  const void* b = nullptr;  // packed by the same kernel, as many steps
  int64_t b_step = 0;       // for kernels that are `strided`: bytes between steps of a b that is not packed; 0: packed
  int64_t b_steps = 0;      // for kernels with `blocks`: steps of a block of b that is entered in part; 0: `steps`
  int64_t m = 0, n = 0, steps = 0;
  float* partial = nullptr;  // [m][64] sums of earlier parts of k (read when from_partial, written when to_partial)
  bool from_partial = false, to_partial = false;
  void* c = nullptr;  // written when !to_partial
  int64_t ldc = 0;    // elements
  bool c_bf16 = false, accumulate = false, bias_bf16 = false;
  bool far = false;  // c is likely not in a cache yet: fetch rows ahead
  float alpha = 1;
  const void* bias = nullptr;  // [n]
};

constexpr int64_t kPackSlack = 8;  // columns

// Where an operand's elements lie before packing: element (i, k) at p + i·ld + k when k is contiguous, else p + k·ld +
// i.
struct PackCall {
  const void* p = nullptr;
  int64_t ld = 0;
  bool k_contiguous = true;
  int64_t count = 0, width = 0;  // columns i present, and packed (the rest zero)
  int64_t k = 0;                 // elements along k
  void* to = nullptr;            // ceil(k / step) · width units, on the left of width + kPackSlack
  bool left = false;             // for the left operand of a product
  // Where k is a part of what lies there, for kernels with `blocks`: elements (of what is packed) between blocks; 0: as
  // many as k says.
  int64_t down = 0;
};

// Source and arithmetic of a product: what one step holds. Widened: bf16 in memory, floats where they are multiplied.
enum class Unit { kF32, kBf16Pair, kBf16Widened };

struct Micro {
  const char* name;
  void (*run)(const PanelCall&);
  void (*pack)(const PackCall&);
  // Rows of the left operand a multiple of so many bytes apart get into each other's way where they stand: 0 for none.
  // Zen's first cache finds lines by part of the address; with rows 2 KiB apart a third of the speed is lost, where
  // packing costs a tenth.
  int64_t clash = 0;
  // How AVX2's kernel lays out a left operand: with k contiguous as rows, copied_row() apart, which are read like rows
  // in place; else as blocks of six rows, packed_six() apart. Packed whole, it can be entered at any multiple of six
  // rows.
  bool blocks = false;
  // Of a packed column of the right operand, each step. Two: bf16 that the kernel widens when it reads them, at no cost
  // beside the products.
  int64_t b_bytes = 4;
  bool strided = false;  // reads b where it stands too, its columns in whole sixteens
  int64_t rows = 24;     // that whole tiles cover: of a task a multiple of these
};

// Units from one row or block to the next: an odd number of cache lines, so that they lie in different sets of the
// first cache.
inline int64_t copied_row(int64_t steps) { return (steps + 15) / 16 * 16 | 16; }
inline int64_t packed_six(int64_t steps) { return (6 * steps + 15) / 16 * 16 | 16; }

inline int64_t panel_width(int64_t n) { return (n + 15) / 16 * 16; }

const Micro* avx512_micro(Unit unit);  // null without AVX-512 F, BW, VL and BF16
// Finishes rows [row, row + rows) of a call from sums[rows][64], where there is an avx512_micro().
void avx512_finish(const PanelCall& p, const float* sums, int64_t row, int64_t rows);
// sums[m][64] of pairs of bf16 for m ≤ kFewTileRows, to the bit as AMX tiles give them (amx.h): for few rows loading a
// tile costs more than multiplying. `sums` may be p.partial.
constexpr int64_t kFewTileRows = 2;
void avx512_tile_sums(const PanelCall& p, float* sums);
const Micro* avx2_micro(Unit unit);      // kF32 and kBf16Widened; null without AVX2 and FMA
const Micro* neon_micro(Unit unit);      // kBf16Pair; null but on arm64 with BF16
const Micro& portable_micro(Unit unit);  // Highway; kF32 and kBf16Widened

// The best kernel of this processor for operands of a type in memory, or the one that any processor runs. `unit`
// becomes what it works on: pairs of bf16 need AVX-512 BF16 or arm64's BFDOT, elsewhere bf16 is packed as float.
const Micro& best_micro(bool bf16, bool portable, Unit* unit);

}  // namespace mxt::kernels::cpu
