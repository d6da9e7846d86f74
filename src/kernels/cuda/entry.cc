#include "kernels/cuda/entry.h"

#include <cstdio>
#include <exception>
#include <memory>

#include "device/cuda/cuda_device.h"
#include "kernels/cuda/ops.h"

extern "C" __attribute__((visibility("default"))) int mxt_cuda_open(int abi, int ordinal, const char* capability,
                                                                    mxt::device::Accelerator** device,
                                                                    mxt::kernels::Ops** ops, char* error,
                                                                    size_t error_bytes) {
  try {
    if (abi != MXT_CUDA_ABI) {
      std::snprintf(error, error_bytes,
                    "libmindxtrain_cuda.so is of another build (interface %d, wanted %d): rebuild both", MXT_CUDA_ABI,
                    abi);
      return 1;
    }
    auto d = mxt::device::open_cuda_device(ordinal, capability);
    auto o = mxt::kernels::cuda::make_ops(*d);
    *ops = o.release();
    *device = d.release();
    return 0;
  } catch (const std::exception& e) {
    std::snprintf(error, error_bytes, "%s", e.what());
    return 1;
  }
}
