// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11): a counter-based
// generator. A draw is a pure function of (seed, stream, index), so it does not depend on threads, order or restarts.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace mxt {

inline std::array<uint32_t, 4> philox4x32(uint64_t key, uint64_t stream, uint64_t index) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> c{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                            static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// A sequence of draws from one (seed, stream).
class Philox {
 public:
  Philox(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  uint32_t next_u32() {
    if (used_ == 4) {
      block_ = philox4x32(seed_, stream_, index_++);
      used_ = 0;
    }
    return block_[static_cast<size_t>(used_++)];
  }
  uint64_t next_u64() {
    const uint64_t hi = next_u32();
    return (hi << 32) | next_u32();
  }
  // Uniform in [0, 1), 24 bits.
  float uniform() { return static_cast<float>(next_u32() >> 8) * 0x1p-24f; }
  double uniform_double() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }
  // Uniform in [0, n), unbiased (rejection); n ≥ 1.
  uint64_t below(uint64_t n) {
    const uint64_t limit = n * (UINT64_MAX / n);
    uint64_t x = next_u64();
    while (x >= limit) x = next_u64();
    return x % n;
  }
  // Standard normal (Box-Muller, one of the pair).
  float normal() {
    const double u = 1.0 - uniform_double(), v = uniform_double();
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
  }
  template <typename T>
  void shuffle(std::vector<T>& v) {  // Fisher-Yates
    for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[below(i)]);
  }

 private:
  uint64_t seed_, stream_, index_ = 0;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace mxt
