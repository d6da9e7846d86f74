#include "base/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#ifdef MXT_OPENMP
#include <omp.h>
#endif

#include "base/log.h"

namespace mxt {
namespace {

// The cores of this process as it was started.
const std::vector<int>& cores() {
  static const std::vector<int> list = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> all;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
      for (int i = 0; i < CPU_SETSIZE; ++i)
        if (CPU_ISSET(i, &set)) all.push_back(i);
    return all;
  }();
  return list;
}

// Waits for a moment of some nanoseconds to a microsecond, longer the longer it has been; false when it is time to
// sleep. The processor is offered to others soon, so that a thread that waits for one without a core does not keep it
// from getting one.
class Patience {
 public:
  bool left() {
    constexpr int kPauses = 4000, kYields = 10000;  // about 100 µs, then two milliseconds
    if (++waited_ < kPauses) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("isb");  // a few tens of cycles, as x86's pause; `yield` ends at once on most cores
#endif
    } else {
      sched_yield();
    }
    return waited_ < kPauses + kYields;
  }

 private:
  int waited_ = 0;
};

thread_local bool t_inside = false;  // a piece runs on this thread

struct Job {
  int64_t begin = 0, end = 0, grain = 1;
  void (*fn)(void*, int64_t, int64_t) = nullptr;
  void* ctx = nullptr;
};

// The workers of one thread that opens regions. A region is over when its pieces are done; a worker that was not there
// in time is not waited for, so one that another program keeps from its core costs little.
// Each thread begins with a share of its own, the same part of every region: what it wrote in the region before is
// still in its core's cache. Then it helps the others.
class Team {
 public:
  ~Team() { resize(0); }
  Team() = default;
  Team(const Team&) = delete;

  void resize(int workers) {
    const size_t want = std::min(static_cast<size_t>(workers), most_);
    if (want == workers_.size()) return;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (auto& w : workers_) w.join();
    workers_.clear();
    stopping_ = false;
    shares_ = std::vector<Share>(want + 1);
    while (workers_.size() < want) {
      try {
        workers_.emplace_back([this, own = workers_.size() + 1] { serve(own); });
      } catch (const std::system_error& e) {  // `ulimit -u`, a container's limit: fewer threads do the same work
        most_ = workers_.size();
        log::warn("only {} of {} threads could be started: {}", most_ + 1, want + 1, e.what());
        break;
      }
      if (pinned_) bind(workers_.size() - 1);
    }
  }

  void pin(bool on) {
    pinned_ = on;
    for (size_t i = 0; i < workers_.size(); ++i) bind(i);
  }
  bool pinned() const { return pinned_; }

  void run(const Job& job, uint32_t pieces) {
    job_ = job;
    error_ = nullptr;
    failed_.store(false, std::memory_order_relaxed);
    unfinished_.store(pieces, std::memory_order_relaxed);
    // From here on any worker may take pieces. Orders against sleepers_ in serve().
    const uint64_t n = shares_.size();
    for (uint64_t i = 0; i < n; ++i) shares_[i].ticket.store((i + 1) * pieces / n << 32 | i * pieces / n);
    if (sleepers_.load() > 0) {
      {
        std::lock_guard lock(mutex_);
      }
      wake_.notify_all();
    }
    take_pieces(0);
    for (Patience p; unfinished_.load(std::memory_order_acquire) > 0;) {
      if (p.left()) continue;
      std::unique_lock lock(mutex_);
      caller_sleeps_ = true;
      done_.wait(lock, [this] { return unfinished_.load() == 0; });
      caller_sleeps_ = false;
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  bool offered() const {
    return std::any_of(shares_.begin(), shares_.end(), [](const Share& s) {
      const uint64_t t = s.ticket.load();
      return static_cast<uint32_t>(t) < t >> 32;
    });
  }

  // Its own share first, then what is left of the next ones.
  bool take_pieces(size_t own) {
    bool took = false;
    for (size_t i = 0; i < shares_.size(); ++i) took |= take_share(shares_[(own + i) % shares_.size()].ticket);
    return took;
  }

  bool take_share(std::atomic<uint64_t>& ticket) {
    bool took = false;
    for (uint64_t t = ticket.load(std::memory_order_acquire); static_cast<uint32_t>(t) < t >> 32;) {
      // The region cannot end before a piece taken here is done: job_ stays as it is until then.
      if (!ticket.compare_exchange_weak(t, t + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      took = true;
      run_piece(static_cast<uint32_t>(t));
      if (unfinished_.fetch_sub(1) == 1 && caller_sleeps_.load()) {
        {
          std::lock_guard lock(mutex_);
        }
        done_.notify_one();
      }
      t = ticket.load(std::memory_order_acquire);
    }
    return took;
  }

  void run_piece(int64_t piece) {
    if (failed_.load(std::memory_order_relaxed)) return;
    const bool before = t_inside;
    t_inside = true;
    try {
      const int64_t begin = job_.begin + piece * job_.grain;
      job_.fn(job_.ctx, begin, std::min(job_.end, begin + job_.grain));
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
    t_inside = before;
  }

  void serve(size_t own) {
#ifdef MXT_OPENMP
    omp_set_num_threads(1);  // what libraries do inside a piece
#endif
    for (Patience p; !stopping_;) {
      if (take_pieces(own)) p = {};
      if (p.left()) continue;
      std::unique_lock lock(mutex_);
      ++sleepers_;
      wake_.wait(lock, [this] { return stopping_ || offered(); });
      --sleepers_;
      p = {};
    }
  }

  // Refused: the thread stays where it may be, which changes no result.
  void bind(size_t worker) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t i = 0; i < cores().size(); ++i)
      if (!pinned_ || i == worker + 1) CPU_SET(cores()[i], &set);
    pthread_setaffinity_np(workers_[worker].native_handle(), sizeof set, &set);
  }

  Job job_;
  struct alignas(64) Share {
    std::atomic<uint64_t> ticket{0};  // end of its pieces << 32 | the next one to be taken
  };
  std::vector<Share> shares_{1};                     // of the caller and of each worker
  alignas(64) std::atomic<uint32_t> unfinished_{0};  // pieces that are not done
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false}, caller_sleeps_{false}, failed_{false};
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::exception_ptr error_;
  std::vector<std::thread> workers_;
  size_t most_ = std::numeric_limits<size_t>::max();  // that the system lets us start
  bool pinned_ = false;
};

std::unique_ptr<Team>& own_team() {
  thread_local std::unique_ptr<Team> team;
  return team;
}

Team& team() {
  auto& t = own_team();
  if (!t) t = std::make_unique<Team>();
  t->resize(num_threads() - 1);
  return *t;
}

}  // namespace

int usable_cores() { return std::max<int>(1, static_cast<int>(cores().size())); }

#ifdef MXT_OPENMP
int num_threads() { return omp_get_max_threads(); }
void set_num_threads(int n) { omp_set_num_threads(std::max(1, n)); }
#else
namespace {
thread_local int t_threads = usable_cores();
}
int num_threads() { return t_threads; }
void set_num_threads(int n) { t_threads = std::max(1, n); }
#endif

void release_workers() { own_team().reset(); }

void pin_threads(bool on) {
  if ((!on && !(own_team() && own_team()->pinned())) || t_inside) return;
  if (on && usable_cores() < num_threads()) return;
  team().pin(on);
}

void parallel_for_raw(int64_t begin, int64_t end, int64_t grain, void (*fn)(void*, int64_t, int64_t), void* ctx) {
  if (end <= begin) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t pieces = (end - begin + grain - 1) / grain;
  if (pieces == 1 || t_inside || num_threads() == 1) {
    for (int64_t p = 0; p < pieces; ++p) fn(ctx, begin + p * grain, std::min(end, begin + (p + 1) * grain));
    return;
  }
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  for (int64_t first = 0; first < pieces; first += kMost) {
    const int64_t count = std::min(kMost, pieces - first), from = begin + first * grain;
    team().run({from, count == pieces - first ? end : from + count * grain, grain, fn, ctx},
               static_cast<uint32_t>(count));
  }
}

}  // namespace mxt
