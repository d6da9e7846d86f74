// What attention does to one tile besides multiplying matrices: softmax of scores, its derivative, rows in and out.
// Compiled by Highway once per instruction set. Scores are kept in base 2 (multiplied by log2 e), so exp is exp2.
//
// Sums of a tile live as panels of 64 columns, [panels][tile rows][64] floats, the layout of gemm's partial sums.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "base/error.h"
#include "base/philox.h"
#include "kernels/api.h"
#include "kernels/cpu/gemm/amx.h"
#include "kernels/cpu/gemm/micro.h"

namespace mxt::kernels::cpu {

constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;

// Scores s of `rows` queries against `cols` keys become weights p = 2^(s − top), zero where a key is not seen. top and
// sum are the running maximum and sum of each row (−inf and 0 at first); the row's output sums are scaled when top
// grows.
struct SoftmaxTile {
  const float* s = nullptr;  // [rows][ld]
  void* p = nullptr;         // [rows][ld], bf16 or float; written up to an even column count
  int64_t ld = 0, rows = 0, cols = 0;
  int64_t first_query = 0, first_key = 0, window = 0;  // positions in the document; row r is query first_query + r
  bool same_query = false;                             // every row is at first_query
  bool bf16 = false;
  float *top = nullptr, *sum = nullptr;  // [rows]
  float* out = nullptr;                  // [panels][tile_rows][64]
  int64_t panels = 0, tile_rows = 0;
};

// Transposed scores st [keys][queries] and dpt = v·doutᵀ become p = 2^(st − lse2) and ds = p (dpt − delta), both zero
// where a query does not see a key.
struct GradTile {
  const float *st = nullptr, *dpt = nullptr;  // [keys][ld]
  void *p = nullptr, *ds = nullptr;           // [keys][ld], bf16 or float; written up to an even column count
  int64_t ld = 0, keys = 0, queries = 0;
  int64_t first_query = 0, first_key = 0, window = 0;
  bool bf16 = false;
  const float *lse2 = nullptr, *delta = nullptr;  // [queries]
};

// Rows of sums to memory: to[r][c] = from · factor (· factors[r] where given).
struct StoreRows {
  const float* from = nullptr;  // [panels][tile_rows][64]
  int64_t tile_rows = 0, rows = 0, cols = 0;
  float factor = 1;
  const float* factors = nullptr;
  void* to = nullptr;
  int64_t ld = 0;
  bool bf16 = false;
};

// Dropout of attention's weights (kernels/api.h); threshold 0: none.
struct Drop {
  uint64_t threshold = 0, seed = 0, stream = 0;
  float scale = 1;
  int64_t first_row = 0;
  template <typename A>
  static Drop of(const A& a) {
    if (!(a.dropout > 0)) return {};
    return {static_cast<uint64_t>(static_cast<double>(a.dropout) * 0x1p32), a.seed, a.stream,
            static_cast<float>(1.0 / (1.0 - static_cast<double>(a.dropout))), a.first_row};
  }
  // keep(i, whether) for the keys s + i of query t, 0 ≤ i < n; t and s are rows of the batch.
  template <typename F>
  void draw(int64_t head, int64_t t, int64_t s, int64_t n, F&& keep) const {
    t += first_row, s += first_row;
    for (int64_t i = 0; i < n;) {
      const auto words = philox4x32(seed, stream, attention_drop_index(head, t, s + i));
      do keep(i, words[static_cast<size_t>((s + i) % 4)] >= threshold);
      while (++i < n && (s + i) % 4 != 0);
    }
  }
};

void softmax_tile(const SoftmaxTile& t);
void grad_tile(const GradTile& t);
void store_rows(const StoreRows& t);
// out[r] = Σ_c a[r][c]·b[r][c]; both of one type, rows ld elements apart.
void row_dots(const void* a, int64_t lda, const void* b, int64_t ldb, bool bf16, int64_t rows, int64_t cols,
              float* out);

// The kernels of one operand type, and how rows that stand in memory are read as their left operand.
struct TileKernels {
  Unit unit;
  const Micro* micro;
  bool bf16;         // of the operands in memory
  int64_t pair;      // elements of k in a step
  bool bf16_inside;  // type of weights that are multiplied on
  bool amx;          // products by tile registers: left operands must have k contiguous

  explicit TileKernels(DType t, bool portable = false) : bf16(t == DType::kBF16) {
    MXT_ASSERT(t == DType::kF32 || t == DType::kBF16);
    micro = &best_micro(bf16, portable, &unit);
    pair = unit == Unit::kBf16Pair ? 2 : 1;
    bf16_inside = unit == Unit::kBf16Pair;
    amx = bf16_inside && amx_here();
  }
  void multiply(const PanelCall& c) const { amx ? amx_panel(c) : micro->run(c); }
  int64_t size() const { return bf16 ? 2 : 4; }
  int64_t size_inside() const { return bf16_inside ? 2 : 4; }
  int64_t steps(int64_t k) const { return (k + pair - 1) / pair; }
  // Whether rows of length d can be multiplied where they stand.
  bool in_place(int64_t d) const { return unit == Unit::kF32 || (unit == Unit::kBf16Pair && d % 2 == 0); }
  int64_t row_bytes(int64_t d) const { return steps(d) * 4; }  // of a copied row
  // Rows as the kernel wants them: bf16 to float, or an odd count of bf16 filled up with a zero.
  void copy_rows(const void* from, int64_t ld, int64_t rows, int64_t d, void* to) const;
  // Columns [0, count) of a right operand with k elements along the sum; panels of 64 columns one after another, each
  // [steps(k)][width].
  void pack(const void* p, int64_t ld, bool k_contiguous, int64_t count, int64_t k, uint32_t* to) const;
};

inline int64_t panels_of(int64_t n) { return (n + kPanel - 1) / kPanel; }
// Units that pack() writes.
inline int64_t packed_units(const TileKernels& kernels, int64_t count, int64_t k) {
  return panels_of(count) * kPanel * kernels.steps(k);
}

// One thread's memory, kept between calls and grown when a shape needs more.
class Arena {
 public:
  void reserve(int64_t units) {
    used_ = 0;
    if (units <= size_) return;
    memory_.reset();
    memory_.reset(static_cast<char*>(::operator new(static_cast<size_t>(units) * 4, std::align_val_t(64))));
    size_ = units;
  }
  static int64_t rounded(int64_t units) { return (units + 15) / 16 * 16; }
  template <typename T = float>
  T* take(int64_t units) {
    T* p = reinterpret_cast<T*>(memory_.get() + used_ * 4);
    used_ += rounded(units);
    MXT_ASSERT(used_ <= size_);
    return p;
  }

 private:
  struct Free {
    void operator()(char* p) const { ::operator delete(p, std::align_val_t(64)); }
  };
  std::unique_ptr<char, Free> memory_;
  int64_t size_ = 0, used_ = 0;
};

}  // namespace mxt::kernels::cpu
