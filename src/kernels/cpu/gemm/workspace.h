// What products pack into, made once and kept, in whole huge pages: on small ones it is chance which sets of the second
// cache a process gets, and the same product takes up to a tenth longer. One product at a time uses a thread's.
#pragma once

#include <cstddef>

namespace mxt::kernels::cpu {

inline constexpr size_t kThreadWorkspace =
    size_t{2} << 20;  // bytes; what is used at once stays under 1 MiB, the usual second cache
inline constexpr size_t kSharedWorkspace = size_t{4} << 20;
char* thread_workspace();  // of the calling thread
char* shared_workspace();  // of the thread that calls a product, for all that work on it

}  // namespace mxt::kernels::cpu
