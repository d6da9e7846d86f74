// Packing: documents into rows of at most seq_len tokens, whole (a document never spans rows).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mxt::data {

// Which documents stand in which row: row r holds documents[begin[r]] … documents[begin[r + 1] − 1].
struct Packing {
  std::vector<uint32_t> documents;
  std::vector<uint32_t> begin;  // [rows + 1]
  std::vector<uint32_t> kept;   // of each in `documents`: its tokens that stand there; empty = all of them
  size_t rows() const { return begin.size() - 1; }
};

// Best-fit decreasing (longest document first, each into the fullest row that still has room; Johnson 1974: at most
// 11/9 of the optimum plus one row), O(n log n). Where that leaves more than 0.5 % empty, rows are filled one by one
// instead if fewer do: the longest document left, then the largest sum that others make of the rest. Deterministic:
// equal lengths keep their order, equally full rows are taken oldest first. Rows come out in the order of their first
// document, documents in a row in file order, so a file of short documents is read nearly as it stands. 1 ≤ length ≤
// seq_len.
Packing pack_best_fit(std::span<const uint32_t> lengths, uint32_t seq_len);

// nanochat's rows (its dataloader's "BOS-aligned best fit"): `row_tokens` each, filled from a buffer of at least 1,000
// documents that takes 128 at a time, in file order: the longest that fits whole comes next, and where none fits the
// shortest is cropped to what is left and its rest thrown away; of equals the first. At the end the buffer runs dry,
// and a row that it cannot fill is left out. Lengths ≥ 1, of any size; O(n log n).
Packing pack_bos_crop(std::span<const uint32_t> lengths, uint32_t row_tokens);

// nanochat's rows of conversations (its chat_sft.py): of a buffer of 100 the longest that fits whole comes next, of
// equals the first; where none fits a new row begins, and what is left of the row stays empty (nanochat fills it with
// positions that no loss is taken of). 1 ≤ length ≤ row_tokens.
Packing pack_by_buffer(std::span<const uint32_t> lengths, uint32_t row_tokens);

// One document a row, in file order.
Packing one_per_row(size_t documents);

}  // namespace mxt::data
