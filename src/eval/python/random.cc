#include "eval/python/random.h"

#include <bit>
#include <cmath>
#include <unordered_set>

#include "base/error.h"

namespace mxt::eval {

// Matsumoto and Nishimura's init_by_array over the 32-bit pieces of the seed, as _randommodule.c calls it.
PythonRandom::PythonRandom(uint64_t seed) {
  std::vector<uint32_t> key = {static_cast<uint32_t>(seed)};
  if (seed >> 32) key.push_back(static_cast<uint32_t>(seed >> 32));
  state_[0] = 19650218u;
  for (uint32_t i = 1; i < 624; ++i) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  size_t i = 1, j = 0;
  for (size_t k = 624; k > 0; --k) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1664525u)) + key[j] + static_cast<uint32_t>(j);
    if (++i >= 624) {
      state_[0] = state_[623];
      i = 1;
    }
    if (++j >= key.size()) j = 0;
  }
  for (size_t k = 623; k > 0; --k) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1566083941u)) - static_cast<uint32_t>(i);
    if (++i >= 624) {
      state_[0] = state_[623];
      i = 1;
    }
  }
  state_[0] = 0x80000000u;
}

uint32_t PythonRandom::next32() {
  if (at_ >= 624) {
    for (size_t i = 0; i < 624; ++i) {
      const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % 624] & 0x7fffffffu);
      state_[i] = state_[(i + 397) % 624] ^ (y >> 1) ^ ((y & 1) ? 0x9908b0dfu : 0u);
    }
    at_ = 0;
  }
  uint32_t y = state_[at_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

double PythonRandom::real() {
  const uint32_t a = next32() >> 5, b = next32() >> 6;
  return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0);
}

uint64_t PythonRandom::below(uint64_t n) {
  const int bits = static_cast<int>(std::bit_width(n));
  for (;;) {
    uint64_t r;
    if (bits <= 32) {
      r = next32() >> (32 - bits);
    } else {
      const uint64_t low = next32();
      r = low | static_cast<uint64_t>(next32() >> (64 - bits)) << 32;
    }
    if (r < n) return r;
  }
}

std::vector<size_t> PythonRandom::sample(size_t n, size_t k) {
  MXT_ASSERT(k <= n);
  std::vector<size_t> out(k);
  double set_size = 21;  // of a small set minus that of an empty list
  if (k > 5) set_size += std::pow(4.0, std::ceil(std::log(static_cast<double>(k) * 3) / std::log(4.0)));
  if (static_cast<double>(n) <= set_size) {
    std::vector<size_t> pool(n);
    for (size_t i = 0; i < n; ++i) pool[i] = i;
    for (size_t i = 0; i < k; ++i) {
      const size_t j = below(n - i);
      out[i] = pool[j];
      pool[j] = pool[n - i - 1];
    }
    return out;
  }
  std::unordered_set<size_t> taken;
  for (size_t i = 0; i < k; ++i) {
    size_t j = below(n);
    while (!taken.insert(j).second) j = below(n);
    out[i] = j;
  }
  return out;
}

void PythonRandom::choices(size_t n, std::vector<size_t>& out) {
  for (size_t& o : out) o = static_cast<size_t>(std::floor(real() * static_cast<double>(n)));
}

}  // namespace mxt::eval
