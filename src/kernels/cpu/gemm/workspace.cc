#include "kernels/cpu/gemm/workspace.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace mxt::kernels::cpu {
namespace {

constexpr size_t kHuge = size_t{2} << 20;

class HugePages {
 public:
  explicit HugePages(size_t bytes) : bytes_(bytes + kHuge) {
    all_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all_ == MAP_FAILED) throw std::bad_alloc();
    begin_ = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(all_) + kHuge - 1) / kHuge * kHuge);
    madvise(begin_, bytes, MADV_HUGEPAGE);
  }
  ~HugePages() { munmap(all_, bytes_); }
  HugePages(const HugePages&) = delete;
  char* begin() const { return begin_; }

 private:
  size_t bytes_;
  void* all_;
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
