// The one function that the CUDA shared object exports.
#pragma once

#include <cstddef>

#include "device/accelerator.h"
#include "kernels/api.h"

// Changes whenever Ops, Accelerator or a call's structure does: binary and shared object must be of one build.
#define MXT_CUDA_ABI 4

extern "C" {
// Opens GPU `ordinal`, as one of `capability` where that is not empty (kernels/backend.h). 0, and the two objects,
// which live until the process ends; otherwise the message is in `error`.
using mxt_cuda_open_t = int (*)(int abi, int ordinal, const char* capability, mxt::device::Accelerator** device,
                                mxt::kernels::Ops** ops, char* error, size_t error_bytes);
}
