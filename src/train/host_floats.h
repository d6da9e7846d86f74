#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/accelerator.h"

namespace mxt::train {

// Host memory that a device copies into without stopping the host.
class HostFloats {
 public:
  HostFloats(device::Accelerator* d, int64_t n) : device_(d) {
    if (device_)
      pinned_ = static_cast<float*>(device_->allocate_pinned(static_cast<size_t>(n) * sizeof(float)));
    else
      plain_.resize(static_cast<size_t>(n));
  }
  ~HostFloats() {
    if (device_) device_->release_pinned(pinned_);
  }
  HostFloats(const HostFloats&) = delete;
  float* at(int64_t i) { return (device_ ? pinned_ : plain_.data()) + i; }

 private:
  device::Accelerator* device_;
  float* pinned_ = nullptr;
  std::vector<float> plain_;
};

}  // namespace mxt::train
