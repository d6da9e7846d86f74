// MinHash signatures and their bands (Broder 1997; Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, chapter 3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mxt::data {

// Two sets agree in a part of their signatures' places that is, in the mean, their Jaccard similarity
// |A ∩ B| / |A ∪ B|. The hash functions are a·x + b modulo 2^32 with odd a, over shingle hashes that are well mixed
// already; they are fixed, so signatures are alike in every run and on every machine.
class MinHash {
 public:
  explicit MinHash(int permutations);
  int permutations() const { return permutations_; }
  // out [permutations]: the smallest value of each function over the shingles; all ones for an empty set. Repeated
  // shingles change nothing.
  void signature(std::span<const uint32_t> shingles, uint32_t* out) const;

 private:
  int permutations_;
  std::vector<uint32_t> factor_, shift_;
};

// Rows are compared where one of `bands` groups of `rows` places of their signatures agrees: the chance of that is
// 1 − (1 − J^rows)^bands.
struct Bands {
  int bands, rows;
  double chance(double jaccard) const;
};
// The fewest comparisons, that is the longest bands, that find at least 98 % of the copies when their similarities are
// spread evenly from the threshold to 1; bands · rows ≤ permutations.
Bands choose_bands(int permutations, double threshold);

// |A ∩ B| / |A ∪ B| of two sets, each sorted and without repetitions. 1 where both are empty.
double jaccard(std::span<const uint32_t> a, std::span<const uint32_t> b);

}  // namespace mxt::data
