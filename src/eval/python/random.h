// CPython's random.Random: MT19937 seeded as `random.Random(int)`, with sample() and choices(). Few-shot examples and
// bootstrapped standard errors are then lm-evaluation-harness's own draws.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace mxt::eval {

class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);
  uint32_t next32();
  double real();                                   // random(): [0, 1) with 53 bits
  uint64_t below(uint64_t n);                      // _randbelow(n), n ≥ 1
  std::vector<size_t> sample(size_t n, size_t k);  // indices that sample(population of n, k) picks; k ≤ n
  // shuffle(list)
  template <typename T>
  void shuffle(std::vector<T>& list) {
    for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[below(i)]);
  }
  void choices(size_t n, std::vector<size_t>& out);  // fills `out` as choices(population of n, k=out.size())

 private:
  std::array<uint32_t, 624> state_;
  size_t at_ = 624;
};

}  // namespace mxt::eval
