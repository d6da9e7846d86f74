// Copies in meaning (SemDeDup, Abbas et al. 2023): rows are clustered by their embeddings, and compared within their
// cluster in the order of their similarity to its centroid. A row goes where one that stays is alike; the paper also
// drops rows for the sake of rows that go, so that chains of rows lose all but one.
//
// The result does not depend on threads, nor on the order of the rows: it is decided by keys of their contents.
//
// Memory: 28 bytes a row, 128 · √rows embeddings while centroids are found, and for each thread those of a cluster that
// stay. All embeddings, 2 bytes an element, lie in an unnamed file of the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/sections/data.h"
#include "data/store/scratch.h"

namespace mxt::data {

struct SemanticCopies {
  std::vector<uint32_t> stays;    // for each row, by its number in the order of add(), the one that stays for it
  std::vector<float> similarity;  // cosine of the two; 1 of a row that stays
  int64_t clusters = 0, largest_cluster = 0;
  int64_t groups = 0, largest_group = 0;  // rows that stay for others, and of the largest group all rows
};

class SemDedup {
 public:
  SemDedup(const config::SemDedup& settings, size_t width, const std::string& folder);
  // `key`: of the row's content; decides among equals. < 2^32 rows. False: an element is not finite.
  bool add(uint64_t key, std::span<const float> embedding);
  SemanticCopies find();  // once, after the last row

 private:
  void thin(std::span<const uint32_t> members, SemanticCopies* out) const;
  config::SemDedup settings_;
  size_t width_, stride_;
  std::vector<uint64_t> keys_;
  std::vector<double> wide_;
  std::vector<int16_t> row_;
  void read_row(size_t row, int16_t* to) const;
  Scratch rows_;
};

}  // namespace mxt::data
