// How pointwise work is cut: by shape only, never by the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/threads.h"
#include "kernels/api.h"

namespace mxt::kernels::cpu {

// About 5 µs of streaming work: below it a second thread costs more than it brings.
inline constexpr int64_t kGrain = 16384;

inline int64_t rows_per_piece(int64_t width) { return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width)); }

// Column sums over many rows: `pieces` runs of `rows` rows, each summed into its own row of partial sums, which are
// then added in order. At most 64 pieces, so partial sums stay small next to the matrix.
struct RowPieces {
  int64_t rows, pieces;
};
inline RowPieces row_pieces(int64_t rows, int64_t width) {
  const int64_t least = std::max<int64_t>(16, rows_per_piece(width));
  const int64_t per_piece = std::max(least, (rows + 63) / 64);
  return {per_piece, rows == 0 ? 0 : (rows + per_piece - 1) / per_piece};
}

// Calls f(piece, tensor, begin, end) for pieces of `grain` elements over many tensors, in parallel. Small tensors share
// a parallel region, so a model of many of them costs one region a step.
template <typename F>
void over_tensors(const std::vector<int64_t>& sizes, int64_t grain, F f) {
  std::vector<int64_t> first{0};  // first piece of each tensor
  for (int64_t n : sizes) first.push_back(first.back() + (n + grain - 1) / grain);
  parallel_for(0, first.back(), 1, [&](int64_t piece, int64_t) {
    const auto t = static_cast<size_t>(std::upper_bound(first.begin(), first.end(), piece) - first.begin()) - 1;
    const int64_t begin = (piece - first[t]) * grain;
    f(piece, t, begin, std::min(sizes[t], begin + grain));
  });
}

// Temporary floats of the calling thread, kept between calls so that a step allocates nothing once it is warm.
// Each slot is one buffer; contents last until the thread asks for the same slot again.
enum class Slot { kWeight, kBias, kPartial, kRow, kColumn, kCount };
float* temporary(Slot slot, int64_t floats);

// A parameter vector as floats: the parameter itself when it is F32, else converted into `slot`; `missing` everywhere
// where there is none.
const float* as_floats(const void* p, DType type, int64_t n, float missing, Slot slot);

}  // namespace mxt::kernels::cpu
