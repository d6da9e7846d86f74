// Time that work on a device takes: its own clock where it has one, the host's for a backend in host memory.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/stop.h"
#include "device/accelerator.h"
#include "kernels/api.h"

namespace mxt::autotune {

class DeviceTimer {
 public:
  // kInterrupted before work is timed once `stop` is set.
  explicit DeviceTimer(kernels::Ops& ops, StopFlag stop = nullptr);
  ~DeviceTimer();
  DeviceTimer(const DeviceTimer&) = delete;
  // µs from before `work` is queued until the device has finished it.
  template <typename F>
  double us(F&& work) {
    start();
    work();
    return stop();
  }

 private:
  void start();
  double stop();
  device::Accelerator* device_;
  StopFlag stop_;
  void *from_ = nullptr, *to_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
};

// Seconds that the probe has: a deadline that every part looks at before it starts something, with what that will take.
class Deadline {
 public:
  explicit Deadline(double seconds) : end_(now() + seconds) {}
  double left() const { return end_ - now(); }
  bool allows(double us) const { return us * 1e-6 < left(); }
  // The first `part` of what is left.
  Deadline part(double share) const { return Deadline(share * std::max(0.0, left())); }
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  double end_;
};

}  // namespace mxt::autotune
