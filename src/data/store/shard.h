// Token shards: safetensors files, so that anything can read them. Tensors, all I32 but the two row indices (I64):
//   ids         [tokens]
//   marks       [documents]         of labelled answers: 1 good, -1 bad; absent elsewhere
//   labels      [tokens]            absent where every token is trained (labels = ids)
//   cu_seqlens  [documents + rows]  per row: 0, ends of its documents
//   row_tokens  [rows + 1]          row r holds tokens row_tokens[r] … row_tokens[r + 1]
//   row_cu      [rows + 1]          and cu_seqlens row_cu[r] … row_cu[r + 1]
// Where rows have pictures also:
//   row_pictures [rows + 1]     I64  row r has pictures row_pictures[r] … row_pictures[r + 1]
//   pictures     [4 · pictures] I64  of each: its first token in the row, patches down and across, its place in pixels
//   pixels       [bytes]        U8   each picture once: [height, width, 3] as the model sees it
// A corpus for random windows has `ids` alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace mxt::data {

class PictureStore;
class Spill;
// The documents of one row by their indices, and how many tokens of each stand in it (empty: all).
struct RowDocuments {
  std::span<const uint32_t> documents, kept = {};
  uint32_t length(size_t i, const Spill& spill) const;
};
// `joined`: a row counts as one document, whatever stands in it. The file appears whole or not at all.
void write_shard(const std::string& path, std::span<const RowDocuments> rows, const Spill& documents,
                 bool joined = false, const PictureStore* pictures = nullptr);
// Writes one array; `piece(k)` gives its parts in turn until an empty one; they hold `tokens` together.
void write_array(const std::string& path, int64_t tokens, const std::function<std::span<const int32_t>(size_t)>& piece);

class Shard {
 public:
  // Checks everything that row() relies on. Errors (kBadInput) name the file.
  explicit Shard(const std::string& path);
  ~Shard();
  Shard(Shard&&) noexcept;
  int64_t rows() const;
  Row row(int64_t i) const;
  std::span<const int32_t> ids() const;

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace mxt::data
