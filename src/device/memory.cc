#include "device/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace mxt::device {
namespace {

// "Name:   123 kB" lines of /proc files.
uint64_t proc_kb(const char* file, const std::string& key) {
  std::ifstream in(file);
  std::string word;
  while (in >> word)
    if (word == key) {
      uint64_t kb = 0;
      in >> kb;
      return kb * 1024;
    }
  return 0;
}

uint64_t read_number(const char* file) {
  std::ifstream in(file);
  uint64_t v = 0;
  return in >> v ? v : 0;  // "max" reads as no number: no limit
}

}  // namespace

Buffer Buffer::host(size_t bytes) {
  Buffer b;
  if (bytes == 0) return b;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    fail_input("not enough memory: {} more were needed, {} are free", human_bytes(bytes),
               human_bytes(available_host_bytes()));
  madvise(p, bytes, MADV_HUGEPAGE);
  b.p_ = p;
  b.bytes_ = bytes;
  return b;
}

Buffer Buffer::on(Accelerator* device, size_t bytes) {
  if (device == nullptr) return host(bytes);
  Buffer b;
  if (bytes == 0) return b;
  b.p_ = device->allocate(bytes);
  b.bytes_ = bytes;
  b.device_ = device;
  device->fill(b.p_, 0, bytes);
  return b;
}

Buffer Buffer::shared_with(Accelerator* device, size_t bytes) {
  if (device == nullptr) return host(bytes);
  Buffer b;
  b.p_ = device->allocate_pinned(bytes);
  b.bytes_ = bytes;
  b.device_ = device;
  b.pinned_ = true;
  return b;
}

Buffer::~Buffer() {
  if (p_ == nullptr) return;
  if (pinned_)
    device_->release_pinned(p_);
  else if (device_)
    device_->release(p_);
  else
    munmap(p_, bytes_);
}

uint64_t total_host_bytes() { return proc_kb("/proc/meminfo", "MemTotal:"); }

uint64_t available_host_bytes() {
  uint64_t free = proc_kb("/proc/meminfo", "MemAvailable:");
  const uint64_t limit = read_number("/sys/fs/cgroup/memory.max"), used = read_number("/sys/fs/cgroup/memory.current");
  if (limit > 0) free = std::min(free, limit > used ? limit - used : 0);
  if (rlimit r{}; getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY) {
    const uint64_t mapped = proc_kb("/proc/self/status", "VmSize:");
    free = std::min<uint64_t>(free, r.rlim_cur > mapped ? r.rlim_cur - mapped : 0);
  }
  return free;
}

uint64_t peak_resident_bytes() { return proc_kb("/proc/self/status", "VmHWM:"); }
uint64_t resident_bytes() { return proc_kb("/proc/self/status", "VmRSS:"); }

}  // namespace mxt::device
