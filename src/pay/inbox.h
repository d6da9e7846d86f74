// How jobs come to the thread that settles them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace mxt::pay {

template <typename Job>
class Inbox {
 public:
  void put(Job job) {
    {
      const std::lock_guard lock(mutex_);
      new_.push_back(std::move(job));
    }
    wake_.notify_all();
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
  }
  // What has come. Where none has, waits for one; with `busy` (others are under way) no longer than `poll_seconds`, and
  // then gives none. Nothing: stop() was called.
  std::optional<std::deque<Job>> take(bool busy, double poll_seconds) {
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return stopping_ || !new_.empty(); };
    if (busy)
      wake_.wait_for(lock, std::chrono::duration<double>(poll_seconds), ready);
    else
      wake_.wait(lock, ready);
    if (stopping_) return std::nullopt;
    return std::exchange(new_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::deque<Job> new_;
};

}  // namespace mxt::pay
