// Waiting for what happens elsewhere: as long as a slow machine needs, no longer than a fast one does.
#pragma once

#include <chrono>
#include <thread>

namespace mxt {

// Whether `done` became true within `limit` seconds. The limit is for what never happens: no test is to pass by it.
template <typename F>
bool within(double limit, F done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit);
  while (!done()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace mxt
