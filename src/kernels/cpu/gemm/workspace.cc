#include "kernels/cpu/gemm/workspace.h"

#include <memory>
#include <new>

#include "base/error.h"

namespace mxt::kernels::cpu {
namespace {

constexpr auto kAlign = std::align_val_t(64);

struct Free {
  void operator()(char* p) const { ::operator delete(p, kAlign); }
};

class Memory {
 public:
  char* at_least(size_t bytes) {
    if (have_ < bytes) {
      memory_.reset();
      memory_.reset(static_cast<char*>(::operator new(bytes, kAlign)));
      have_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<char, Free> memory_;
  size_t have_ = 0;
};

}  // namespace

char* thread_workspace() {
  thread_local Memory memory;
  return memory.at_least(kThreadWorkspace);
}

char* shared_workspace(size_t bytes) {
  MXT_ASSERT(bytes <= kSharedWorkspace);
  thread_local Memory memory;
  return memory.at_least(bytes);
}

}  // namespace mxt::kernels::cpu
