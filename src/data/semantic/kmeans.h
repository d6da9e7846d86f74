// k-means over unit vectors by their cosine (spherical k-means, Dhillon & Modha 2001), in exact integers: the result
// depends on the vectors and their order alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/semantic/vectors.h"

namespace mxt::data {

class KMeans {
 public:
  // Lloyd's iterations over `rows` (n of `stride` elements, each rounded by round_unit); the first k ≤ n are the first
  // centroids, so the order of the rows must be one of chance. A cluster that has become empty begins again at the row
  // that is farthest from its own centroid.
  KMeans(std::span<const int16_t> rows, size_t stride, size_t k, int iterations);
  size_t clusters() const { return panels_.size(); }
  struct Nearest {
    uint32_t cluster;
    int32_t product;  // kUnitSquared · cosine
  };
  // The nearest centroid of each row, the first where several are. On all threads.
  void assign(std::span<const int16_t> rows, std::span<Nearest> out) const;

 private:
  size_t stride_;
  Panels panels_;
};

}  // namespace mxt::data
