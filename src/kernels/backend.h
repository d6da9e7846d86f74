// The devices that a run can be put on: the CPU, or an accelerator whose code lies in a shared object opened on demand,
// so that one binary runs where there is no GPU.
#pragma once

#include <string>

#include "device/accelerator.h"
#include "kernels/api.h"

namespace mxt::kernels {

struct Backend {
  device::Accelerator* device = nullptr;  // null: host memory, the CPU
  Ops* ops = nullptr;
};

// Opens libmindxtrain_cuda.so from beside the binary, its ../lib, or the loader's path, and GPU `ordinal` (once; later
// calls give the same objects). kMissing, with what to do, where the shared object, the driver, a library or the GPU is
// not there.
Backend cuda_backend(int ordinal = 0);

}  // namespace mxt::kernels
