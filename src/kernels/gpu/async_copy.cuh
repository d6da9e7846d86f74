// Copies from the device's memory into shared memory that nobody waits for until he asks (sm_80 and later; not for
// HIP). Each thread waits for its own; a barrier shows them to the others.
#pragma once

#include <cstdint>

namespace mxt::kernels::cuda {

// 16 bytes (4 with copy_4), or zeros where they are not `there`; both addresses at multiples of that.
__device__ __forceinline__ void copy_16(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy_4(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}
__device__ __forceinline__ void copy_16(void* to, const void* from, bool there) {
  copy_16(static_cast<uint32_t>(__cvta_generic_to_shared(to)), from, there);
}
// What was asked for since the last call is a group.
__device__ __forceinline__ void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All groups but the last kLeft have arrived.
template <int kLeft>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}
// All that was asked for has, in groups or not.
__device__ __forceinline__ void copies_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace mxt::kernels::cuda
