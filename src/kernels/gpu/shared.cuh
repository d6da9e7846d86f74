// Shared memory beyond what a launch may have unasked.
#pragma once

#include "kernels/gpu/gpu.h"

namespace mxt::kernels::MXT_GPU_NS {

template <typename K>
void allow_shared(K kernel, size_t bytes) {
#if !defined(__HIP__)
  if (bytes > 48 * 1024)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
#endif
}

}  // namespace mxt::kernels::MXT_GPU_NS
