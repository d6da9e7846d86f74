// Waiting for somebody else, which ends early when the program is asked to.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "base/stop.h"

namespace mxt {

// kInterrupted where the flag is set before `seconds` are over; `whom` for its message: "http://127.0.0.1:5001".
inline void wait_for(const std::string& whom, double seconds, StopFlag stop) {
  using Clock = std::chrono::steady_clock;
  constexpr Clock::duration kStep = std::chrono::milliseconds(50);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (;;) {
    if (stop && stop->load()) throw Error(Exit::kInterrupted, "interrupted while waiting for " + whom);
    const auto left = end - Clock::now();
    if (left <= Clock::duration::zero()) return;
    std::this_thread::sleep_for(std::min(left, kStep));
  }
}

}  // namespace mxt
