// Threads. A thread that opens parallel regions has workers of its own, which wait for the next region, awake at first.
// Libraries with threads of their own (oneDNN with OpenMP) are called inside pieces and get one there, so cores are not
// oversubscribed.
//
// Rule for results: how work is cut must not depend on the number of threads. Cut into a fixed number of pieces (or by
// a fixed grain), and reduce pieces in index order.
#pragma once

#include <cstdint>
#include <functional>

namespace mxt {

int num_threads();
// n ≥ 1. Applies to this thread's later parallel regions (OpenMP's too).
void set_num_threads(int n);
// Ends the workers that this thread's parallel regions left waiting; the next region makes new ones. Each thread that
// opens regions has workers of its own, so one that hands work over to another must do this, or its workers compete
// with the other's.
void release_workers();

// Cores that this process may run on.
int usable_cores();
// Binds thread i of the pool to the i-th of them (where there are as many), or gives all threads all of them back. The
// calling thread stays free, so that threads and programs that it starts later are not bound to one core.
void pin_threads(bool on);

// A plain pointer and context instead of std::function: kernels call this thousands of times a step.
void parallel_for_raw(int64_t begin, int64_t end, int64_t grain, void (*fn)(void*, int64_t, int64_t), void* ctx);

// Calls body(b, e) for consecutive pieces of [begin, end) of `grain` items (the last may be shorter), in any order, on
// all threads, and returns when all are done. Inside a parallel region it runs serially. An exception thrown by the
// body is rethrown here (the first one).
template <typename F>
void parallel_for(int64_t begin, int64_t end, int64_t grain, F&& body) {
  parallel_for_raw(
      begin, end, grain, [](void* c, int64_t b, int64_t e) { (*static_cast<std::remove_reference_t<F>*>(c))(b, e); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace mxt
