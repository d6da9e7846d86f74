#include "autotune/device_timer.h"

namespace mxt::autotune {

DeviceTimer::DeviceTimer(kernels::Ops& ops, StopFlag stop) : device_(ops.device()), stop_(stop) {
  if (!device_) return;
  from_ = device_->make_mark();
  to_ = device_->make_mark();
}

DeviceTimer::~DeviceTimer() {
  if (!device_) return;
  device_->release_mark(from_);
  device_->release_mark(to_);
}

void DeviceTimer::start() {
  check_stop(stop_);
  if (device_)
    device_->mark(from_);
  else
    begin_ = std::chrono::steady_clock::now();
}

double DeviceTimer::stop() {
  if (!device_) return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin_).count();
  device_->mark(to_);
  return device_->elapsed_us(from_, to_);
}

}  // namespace mxt::autotune
