// Connected components by union-find that many threads may use at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace mxt::data {

// The components do not depend on the order of the unions; which member is the root does not matter to callers.
class Components {
 public:
  explicit Components(size_t n) : parent_(new std::atomic<uint32_t>[n]) {
    for (size_t i = 0; i < n; ++i) parent_[i].store(static_cast<uint32_t>(i), std::memory_order_relaxed);
  }
  uint32_t find(uint32_t x) {
    for (;;) {
      uint32_t p = parent_[x].load(std::memory_order_relaxed);
      if (p == x) return x;
      const uint32_t g = parent_[p].load(std::memory_order_relaxed);
      if (g != p) parent_[x].compare_exchange_weak(p, g, std::memory_order_relaxed);  // halves the path
      x = g;
    }
  }
  // A root's parent only ever becomes a smaller root, so there are no cycles and a lost race is seen by the exchange.
  void join(uint32_t a, uint32_t b) {
    for (;;) {
      a = find(a), b = find(b);
      if (a == b) return;
      if (a < b) std::swap(a, b);
      uint32_t expected = a;
      if (parent_[a].compare_exchange_strong(expected, b, std::memory_order_relaxed)) return;
    }
  }

 private:
  std::unique_ptr<std::atomic<uint32_t>[]> parent_;
};

}  // namespace mxt::data
