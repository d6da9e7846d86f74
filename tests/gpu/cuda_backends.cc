// The operation tests of tests/kernels on a CUDA device. What the backend has no kernel for is skipped by its name.
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "kernels/backend.h"
#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

class DeviceMemory final : public Memory {
 public:
  explicit DeviceMemory(device::Accelerator& d) : d_(d) {}
  void* allocate(size_t bytes) override { return d_.allocate(bytes); }
  void release(void* p) override { d_.release(p); }
  void to_device(void* to, const void* from, size_t bytes) override { d_.upload(to, from, bytes), d_.synchronize(); }
  void to_host(void* to, const void* from, size_t bytes) override { d_.download(to, from, bytes), d_.synchronize(); }

 private:
  device::Accelerator& d_;
};

// The device, or null with the reason in `why`.
const kernels::Backend* device(std::string* why) {
  static std::string reason;
  static const kernels::Backend* found = []() -> const kernels::Backend* {
    try {
      if (const char* as = std::getenv("MINDXTRAIN_CUDA_CAPABILITY")) treat_cuda_as(as);
      static kernels::Backend b = cuda_backend();
      return &b;
    } catch (const Error& e) {
      reason = e.what();
      return nullptr;
    }
  }();
  if (why) *why = reason;
  return found;
}

TEST(Device, IsHere) {
  std::string why;
  if (device(&why) == nullptr) GTEST_SKIP() << why;
  EXPECT_NE(device(nullptr)->ops->device(), nullptr);
}

}  // namespace

std::vector<Backend> backends() {
  const kernels::Backend* b = device(nullptr);
  if (b == nullptr) return {};
  static DeviceMemory memory(*b->device);
  return {{"cuda", b->ops, &memory, {}, {}, false}};
}

}  // namespace mxt::kernels::test
