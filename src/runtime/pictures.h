// Pictures in a batch: where tokens stand in time, down and across (M-RoPE of Qwen-VL), and what the kernels read of
// patches.
#pragma once

#include <cstdint>
#include <span>

namespace mxt::runtime {

// A picture's run of tokens: the first of them, counted from its document's start, and its patches down and across.
struct PlacedPicture {
  int64_t first = 0;
  int32_t rows = 0, columns = 0;
  int64_t tokens(int64_t merge) const { return int64_t{rows / merge} * (columns / merge); }
};

// Positions of a document's n tokens. Text counts up on all three axes; the token of a picture that begins at position
// p has p in time and p plus its row and column; text after it goes on at p plus the longer side. Returns the position
// of the token that would follow. `pictures` in order, none beyond n.
int32_t positions_of(int64_t n, std::span<const PlacedPicture> pictures, int64_t merge, int32_t* time, int32_t* down,
                     int32_t* across);

}  // namespace mxt::runtime
