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
  size_t rows() const { return begin.size() - 1; }
};

// Best-fit decreasing (longest document first, each into the fullest row that still has room; Johnson 1974: at most
// 11/9 of the optimum plus one row), O(n log n). Where that leaves more than 0.5 % empty, rows are filled one by one
// instead if fewer do: the longest document left, then the largest sum that others make of the rest. Deterministic:
// equal lengths keep their order, equally full rows are taken oldest first. Rows come out in the order of their first
// document, documents in a row in file order, so a file of short documents is read nearly as it stands. 1 ≤ length ≤
// seq_len.
Packing pack_best_fit(std::span<const uint32_t> lengths, uint32_t seq_len);

// One document a row, in file order.
Packing one_per_row(size_t documents);

}  // namespace mxt::data
