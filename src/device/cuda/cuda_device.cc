#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "device/cuda/card.h"

namespace mxt::device {
namespace {

struct Capability {
  int major = 0, minor = 0;
  auto operator<=>(const Capability&) const = default;
};

// The card's own, or the lower one that is asked for: so one card shows what another would run.
Capability capability_of(const cudaDeviceProp& p, std::string_view text) {
  const Capability own{p.major, p.minor};
  if (text.empty()) return own;
  const size_t dot = text.find('.');
  Capability c;
  auto number = [](std::string_view t, int* to) {
    const auto [end, e] = std::from_chars(t.data(), t.data() + t.size(), *to);
    return e == std::errc() && end == t.data() + t.size();
  };
  if (dot == text.npos || !number(text.substr(0, dot), &c.major) || !number(text.substr(dot + 1), &c.minor) ||
      c < Capability{8, 0} || c > own)
    fail_input(
        "MINDXTRAIN_CUDA_CAPABILITY={}: is a compute capability from 8.0 to this card's own, {}.{}; leave it out for "
        "that one",
        text, own.major, own.minor);
  return c;
}

std::string arch_of(Capability c) { return fmt::format("sm_{}{}{}", c.major, c.minor, c.major == 9 ? "a" : ""); }

Card card_of(Capability c, const cudaDeviceProp& p) {
  constexpr size_t kSmall = size_t{99} << 10, kAmpere = size_t{163} << 10;
  Card out;
  const bool large = c.minor == 0 && (c.major == 8 || c.major == 9 || c.major == 10);
  out.shared = std::min(p.sharedMemPerBlockOptin, !large ? kSmall : c.major == 8 ? kAmpere : p.sharedMemPerBlockOptin);
  out.early = c.major >= 9;
  out.warpgroups = out.fp8_row_scales = c.major == 9;
  out.fp8 = c >= Capability{8, 9};
  return out;
}

std::optional<Card> g_card;
std::string g_arch;

class Device final : public CudaDevice {
 public:
  Device(int ordinal, const cudaDeviceProp& p, std::string arch) : ordinal_(ordinal) {
    check_cuda(cudaSetDevice(ordinal), "cudaSetDevice");
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    int driver = 0, runtime = 0;
    check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
    properties_.kind = "cuda";
    properties_.name = p.name;
    properties_.arch = std::move(arch);
    properties_.driver = version(driver);
    properties_.libraries["cudart"] = version(runtime);
    properties_.multiprocessors = p.multiProcessorCount;
    properties_.memory = p.totalGlobalMem;
    properties_.l2_cache = static_cast<uint64_t>(p.l2CacheSize);
  }
  ~Device() override { cudaStreamDestroy(stream_); }

  cudaStream_t stream() const override { return stream_; }
  void add_library(const std::string& name, const std::string& version) override {
    properties_.libraries[name] = version;
  }
  const Properties& properties() const override { return properties_; }

  MemoryInfo memory() const override {
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    const std::lock_guard lock(mutex_);
    return {free, total, held_, peak_};
  }

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    void* p = nullptr;
    const cudaError_t e = cudaMalloc(&p, bytes);
    if (e == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // not sticky: the next call must not see it
      fail_input("not enough GPU memory: {} more were needed, {} of {} are free", human_bytes(bytes),
                 human_bytes(memory().free), human_bytes(memory().total));
    }
    check_cuda(e, "cudaMalloc");
    const std::lock_guard lock(mutex_);
    sizes_[p] = bytes;
    held_ += bytes;
    peak_ = std::max(peak_, held_);
    return p;
  }
  void release(void* p) noexcept override {
    if (p == nullptr) return;
    cudaFree(p);
    const std::lock_guard lock(mutex_);
    held_ -= sizes_[p];
    sizes_.erase(p);
  }
  void* allocate_pinned(size_t bytes) override {
    void* p = nullptr;
    if (bytes == 0) return p;
    const cudaError_t e = cudaMallocHost(&p, bytes);
    if (e == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // not sticky: the next call must not see it
      fail_input("not enough host memory: {} more were needed, pinned, for the GPU to reach", human_bytes(bytes));
    }
    check_cuda(e, "cudaMallocHost");
    return p;
  }
  void release_pinned(void* p) noexcept override {
    if (p != nullptr) cudaFreeHost(p);
  }

  // (The kind of a copy is the driver's to find: a device's data may lie in pinned host memory.)
  void upload(void* to, const void* from, size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "upload");
  }
  void download(void* to, const void* from, size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "download");
  }
  void upload_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows) override {
    check_cuda(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDefault, stream_), "upload");
  }
  void download_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                     size_t rows) override {
    check_cuda(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDefault, stream_), "download");
  }
  void copy(void* to, const void* from, size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copy");
  }
  void fill(void* to, int byte, size_t bytes) override {
    check_cuda(cudaMemsetAsync(to, byte, bytes, stream_), "fill");
  }
  void synchronize() override { check_cuda(cudaStreamSynchronize(stream_), "synchronize"); }

  void begin_recording() override {
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "begin capture");
  }
  void* end_recording() override {
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_, &graph), "end capture");
    cudaGraphExec_t exec = nullptr;
    const cudaError_t e = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(e, "instantiate graph");
    return exec;
  }
  void replay(void* recording) override {
    check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(recording), stream_), "replay graph");
  }
  void discard(void* recording) noexcept override { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(recording)); }

  void* make_mark() override {
    cudaEvent_t e = nullptr;
    check_cuda(cudaEventCreate(&e), "cudaEventCreate");
    return e;
  }
  void mark(void* m) override { check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(m), stream_), "cudaEventRecord"); }
  void wait(void* m) override { check_cuda(cudaEventSynchronize(static_cast<cudaEvent_t>(m)), "cudaEventSynchronize"); }
  double elapsed_us(void* from, void* to) override {
    check_cuda(cudaEventSynchronize(static_cast<cudaEvent_t>(to)), "cudaEventSynchronize");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(from), static_cast<cudaEvent_t>(to)),
               "cudaEventElapsedTime");
    return static_cast<double>(ms) * 1000.0;
  }
  void release_mark(void* m) noexcept override { cudaEventDestroy(static_cast<cudaEvent_t>(m)); }

 private:
  int ordinal_;
  cudaStream_t stream_ = nullptr;
  Properties properties_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_;
  uint64_t held_ = 0, peak_ = 0;
};

}  // namespace

void check_cuda(cudaError_t e, const char* what) {
  if (e != cudaSuccess) fail_missing("CUDA: {} failed: {} ({})", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

std::unique_ptr<CudaDevice> open_cuda_device(int ordinal, const std::string& as) {
  int count = 0;
  const cudaError_t e = cudaGetDeviceCount(&count);
  int driver = 0;
  const bool known = e == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess;
  if (known && driver == 0)
    fail_missing(
        "NVIDIA's driver is not installed here: install one for CUDA {}.{} (CUDA 13: 580 or newer), or set "
        "hardware.name: "
        "cpu",
        CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  if (known)
    fail_missing(
        "NVIDIA's driver is too old: it is for CUDA {}.{}, and this build needs {}.{}: update the driver (CUDA 13: 580 "
        "or newer), or set hardware.name: cpu",
        driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  if (e != cudaSuccess || count == 0)
    fail_missing("no NVIDIA GPU can be used ({}): check `nvidia-smi`, or set hardware.name: cpu",
                 e == cudaSuccess ? "none found" : cudaGetErrorString(e));
  if (ordinal < 0 || ordinal >= count) fail_missing("GPU {} was asked for, this machine has {}", ordinal, count);
  cudaDeviceProp p{};
  check_cuda(cudaGetDeviceProperties(&p, ordinal), "cudaGetDeviceProperties");
  if (p.major < 8)
    fail_missing(
        "GPU {} is a {} (sm_{}{}): this build has kernels for compute capability 8.0 (Ampere) and later: set "
        "hardware.name: cpu, or take a newer card",
        ordinal, p.name, p.major, p.minor);
  const Capability c = capability_of(p, as);
  if (g_card && g_arch != arch_of(c))
    fail_missing("GPU {} is of another kind ({}) than the one opened before ({}): a process takes GPUs of one kind",
                 ordinal, arch_of(c), g_arch);
  g_card = card_of(c, p), g_arch = arch_of(c);
  return std::make_unique<Device>(ordinal, p, g_arch);
}

const Card& card() {
  MXT_ASSERT(g_card.has_value());
  return *g_card;
}

}  // namespace mxt::device
