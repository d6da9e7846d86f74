// A batch's pictures as the kernels read them. Internal to the room.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "runtime/program.h"

namespace mxt::runtime {

// Where each array begins in a block of picture_bytes().
struct PictureLayout {
  PictureLayout(const ProgramSettings& s, const graph::Pictures& p, int64_t rotary, DType type);
  size_t pixels, features, documents, rows, text_ids, count, corners, corner_weights, patch_cos, patch_sin, token_cos,
      token_sin, bytes;
};

class PictureStaging {
 public:
  PictureStaging(const ProgramSettings& s, const graph::Graph& g);
  const PictureLayout& layout() const { return layout_; }
  // Fills the block at `base`.
  void fill(const Batch& b, std::byte* base);
  int64_t longest() const { return longest_; }  // patches of the last batch's largest picture

 private:
  void tokens(const Batch& b, std::byte* base) const;
  void patches(const PictureBatch& p, std::byte* base);

  const graph::Graph& g_;
  PictureLayout layout_;
  int64_t most_tokens_ = 0, longest_ = 0;
};

}  // namespace mxt::runtime
