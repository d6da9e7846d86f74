#include "base/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#ifdef MXT_OPENMP
#include <omp.h>
#endif

namespace mxt {
namespace {

// Keeps the first exception: nothing may leave an OpenMP region by unwinding.
class FirstError {
 public:
  template <typename F>
  void guard(F&& f) {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      f();
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }
  void rethrow() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

#ifdef MXT_OPENMP

int num_threads() { return omp_get_max_threads(); }
void set_num_threads(int n) { omp_set_num_threads(std::max(1, n)); }
void release_workers() { omp_pause_resource_all(omp_pause_soft); }

void parallel_for_raw(int64_t begin, int64_t end, int64_t grain, void (*fn)(void*, int64_t, int64_t), void* ctx) {
  if (end <= begin) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t pieces = (end - begin + grain - 1) / grain;
  if (pieces == 1 || omp_in_parallel() || omp_get_max_threads() == 1) {
    for (int64_t p = 0; p < pieces; ++p) fn(ctx, begin + p * grain, std::min(end, begin + (p + 1) * grain));
    return;
  }
  FirstError error;
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t p = 0; p < pieces; ++p)
    error.guard([&] { fn(ctx, begin + p * grain, std::min(end, begin + (p + 1) * grain)); });
  error.rethrow();
}

#else

namespace {
std::atomic<int> g_threads{static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
thread_local bool t_inside = false;
}  // namespace

int num_threads() { return g_threads; }
void set_num_threads(int n) { g_threads = std::max(1, n); }
void release_workers() {}

void parallel_for_raw(int64_t begin, int64_t end, int64_t grain, void (*fn)(void*, int64_t, int64_t), void* ctx) {
  if (end <= begin) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t pieces = (end - begin + grain - 1) / grain;
  const int workers = static_cast<int>(std::min<int64_t>(pieces, g_threads));
  if (workers <= 1 || t_inside) {
    for (int64_t p = 0; p < pieces; ++p) fn(ctx, begin + p * grain, std::min(end, begin + (p + 1) * grain));
    return;
  }
  std::atomic<int64_t> next{0};
  FirstError error;
  auto work = [&] {
    t_inside = true;
    for (int64_t p; (p = next++) < pieces;)
      error.guard([&] { fn(ctx, begin + p * grain, std::min(end, begin + (p + 1) * grain)); });
    t_inside = false;
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < workers; ++i) pool.emplace_back(work);
  work();
  for (auto& t : pool) t.join();
  error.rethrow();
}

#endif

}  // namespace mxt
