// Numbers that nobody can guess: ids, keys, seeds that nobody gave. Never for what must come out the same again
// (Philox).
#pragma once

#include <cstdint>

namespace mxt {

uint32_t unguessable();  // from the kernel

}  // namespace mxt
