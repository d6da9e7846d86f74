// Every operation of api.h on one NVIDIA GPU. All pointers in calls are device memory; everything runs on the device's
// stream.
#pragma once

#include <memory>

#include "device/cuda/cuda_device.h"
#include "kernels/api.h"

namespace mxt::kernels::cuda {

std::unique_ptr<Ops> make_ops(device::CudaDevice& device);

}  // namespace mxt::kernels::cuda
