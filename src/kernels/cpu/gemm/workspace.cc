#include "kernels/cpu/gemm/workspace.h"

#include <cstdint>

#include "device/memory.h"

namespace mxt::kernels::cpu {
namespace {

constexpr size_t kHuge = size_t{2} << 20;

// Host memory asks for huge pages itself; here it begins at one.
class HugePages {
 public:
  explicit HugePages(size_t bytes) : memory_(device::Buffer::host(bytes + kHuge)) {
    const auto at = reinterpret_cast<uintptr_t>(memory_.bytes_at(0));
    begin_ = reinterpret_cast<char*>((at + kHuge - 1) / kHuge * kHuge);
  }
  char* begin() const { return begin_; }

 private:
  device::Buffer memory_;
  char* begin_;
};

}  // namespace

char* thread_workspace() {
  thread_local HugePages memory(kThreadWorkspace);
  return memory.begin();
}

char* shared_workspace() {
  thread_local HugePages memory(kSharedWorkspace);
  return memory.begin();
}

}  // namespace mxt::kernels::cpu
