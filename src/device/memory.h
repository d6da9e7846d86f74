// Owned device memory. On the host: zeroed pages from the kernel, on huge pages where it has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "device/accelerator.h"

namespace mxt::device {

class Buffer {
 public:
  Buffer() = default;
  // `bytes` of zeroed, page-aligned memory; kBadInput with the figures where the machine has not enough.
  static Buffer host(size_t bytes);
  // The same in the memory of `device`, aligned to 256 bytes; null: the host's.
  static Buffer on(Accelerator* device, size_t bytes);
  // Host memory that `device` reaches without a copy between (pinned, not zeroed); null: as host().
  static Buffer shared_with(Accelerator* device, size_t bytes);
  ~Buffer();
  Buffer(Buffer&& o) noexcept
      : p_(std::exchange(o.p_, nullptr)),
        bytes_(std::exchange(o.bytes_, 0)),
        device_(std::exchange(o.device_, nullptr)),
        pinned_(o.pinned_) {}
  Buffer& operator=(Buffer&& o) noexcept {
    std::swap(p_, o.p_);
    std::swap(bytes_, o.bytes_);
    std::swap(device_, o.device_);
    std::swap(pinned_, o.pinned_);
    return *this;
  }
  void* data() const { return p_; }
  std::byte* bytes_at(size_t offset) const { return static_cast<std::byte*>(p_) + offset; }
  size_t size() const { return bytes_; }

 private:
  void* p_ = nullptr;
  size_t bytes_ = 0;
  Accelerator* device_ = nullptr;
  bool pinned_ = false;
};

// Memory that a new allocation may use now: MemAvailable, or less where a cgroup limits this process.
uint64_t available_host_bytes();
uint64_t total_host_bytes();
// The process's peak and current resident memory (VmHWM, VmRSS).
uint64_t peak_resident_bytes();
uint64_t resident_bytes();

}  // namespace mxt::device
