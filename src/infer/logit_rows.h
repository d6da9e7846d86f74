// Where a pass puts its logits: host memory that the device writes to by itself. Grows.
#pragma once

#include <span>

#include "device/memory.h"

namespace mxt::infer {

class LogitRows {
 public:
  explicit LogitRows(device::Accelerator* device) : device_(device) {}
  // Room for `count` floats, their contents undefined; earlier spans end.
  std::span<float> take(size_t count) {
    if (count * sizeof(float) > memory_.size()) memory_ = device::Buffer::shared_with(device_, count * sizeof(float));
    return {static_cast<float*>(memory_.data()), count};
  }

 private:
  device::Accelerator* device_;
  device::Buffer memory_;
};

}  // namespace mxt::infer
