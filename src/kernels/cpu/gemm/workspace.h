// What products pack into, made once and kept, aligned to 64 bytes. One product at a time uses a thread's.
#pragma once

#include <cstddef>

namespace mxt::kernels::cpu {

inline constexpr size_t kThreadWorkspace = size_t{184} << 12;  // bytes; under 1 MiB, the usual second cache
inline constexpr size_t kSharedWorkspace = size_t{4} << 20;
char* thread_workspace();              // of the calling thread
char* shared_workspace(size_t bytes);  // of the thread that calls a product, for all that work on it

}  // namespace mxt::kernels::cpu
