// The piece of the caller's scratch memory that one call may use. Contents are undefined before and after the call.
#pragma once

#include <cstddef>

namespace mxt::kernels::cpu {

struct Scratch {
  void* p = nullptr;  // 64-byte aligned where bytes > 0
  size_t bytes = 0;
};

}  // namespace mxt::kernels::cpu
