// One NVIDIA GPU. Lives in the CUDA shared object, never in the binary itself.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "device/accelerator.h"

namespace mxt::device {

class CudaDevice : public Accelerator {
 public:
  virtual cudaStream_t stream() const = 0;
  virtual void add_library(const std::string& name, const std::string& version) = 0;
};

// kMissing where there is no driver, no such GPU, or one older than Ampere (compute capability 8.0). `as`: a lower
// compute capability ("8.6") that the card is to count as, or "".
std::unique_ptr<CudaDevice> open_cuda_device(int ordinal, const std::string& as = "");

// Throws kMissing with CUDA's own words; `what` names the call.
void check_cuda(cudaError_t e, const char* what);

}  // namespace mxt::device
