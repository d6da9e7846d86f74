// What the opened NVIDIA card can do beyond what every card since Ampere (compute capability 8.0) can.
#pragma once

#include <cstddef>

namespace mxt::device {

struct Card {
  size_t shared = size_t{99} << 10;  // bytes of shared memory that one block may ask for
  bool early = false;                // a kernel may start while the one before it ends (9.0 and later)
  bool warpgroups = false;           // Hopper's own instructions: its objects are for sm_90a alone
  bool fp8 = false;                  // matrix units that take E4M3 (8.9 and later)
  bool fp8_row_scales = false;       // cuBLASLt scales every row and column of such a product (9.0)
};

// Of the card that open_cuda_device() opened: set before the first launch, the same for all of a process.
const Card& card();

}  // namespace mxt::device
