#include "kernels/backend.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/host.h"
#include "kernels/cuda/entry.h"

namespace mxt::kernels {
namespace {

constexpr const char* kLibrary = "libmindxtrain_cuda.so";

void* open_library() {
  std::error_code ec;
  const std::filesystem::path here = program_folder();
  std::string why;
  std::vector<std::filesystem::path> places{here / kLibrary, here / ".." / "lib" / kLibrary};
  // Where `pip install mindxtrain-cuda` puts it, beside NVIDIA's own packages.
  for (const auto& python : std::filesystem::directory_iterator(here / ".." / "lib", ec))
    for (const char* packages : {"site-packages", "dist-packages"})
      if (python.path().filename().string().starts_with("python"))
        places.push_back(python.path() / packages / "mindxtrain_cuda" / kLibrary);
  std::sort(places.begin() + 2, places.end());
  places.emplace_back(kLibrary);
  for (const std::filesystem::path& p : places) {
    if (p.has_parent_path() && !std::filesystem::exists(p, ec)) continue;
    if (void* h = dlopen(p.c_str(), RTLD_NOW | RTLD_LOCAL)) return h;
    const char* said = dlerror();
    if (why.empty()) why = said;  // of the object beside the program, where there is one: what it lacks
  }
  fail_missing(
      "CUDA is not available: {} (pip install mindxtrain-cuda brings {} and NVIDIA's libraries; from source it is "
      "built "
      "where nvcc 13 is found, and goes beside the program or into its ../lib)",
      why, kLibrary);
}

}  // namespace

const std::vector<BackendInfo>& backends() {
  // A trained head adds its weight gradient once a piece, so larger pieces touch it less often; a GPU wants large
  // products.
  static const std::vector<BackendInfo> list{
      {.kind = "cpu",
       .arch = {"none"},
       .packs_weights = true,
       .head_chunk = 256,
       .trained_head_chunk = 1024,
       .scoring_head_chunk = 256,
       .open = [] { return Backend{nullptr, &cpu_ops()}; }},
      {.kind = "cuda",
       .arch = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"},
       .own_memory = true,
       .fp8_products = true,
       .thin_products_cost = true,
       .one_pass_ranks =
           [](std::string_view arch, bool fp8) {  // where a block has the shared memory for it: lora.cu, act_lora.cu
             std::vector<int64_t> ranks;
             if (arch == "sm_90" || arch == "sm_100") ranks = {8, 16};
             if (!ranks.empty() && fp8) ranks.push_back(32);
             return ranks;
           },
       .prefixes = [](std::string_view arch, int64_t head_dim,
                      bool windows) { return arch == "sm_90" && head_dim == 128 && !windows; },  // attention_tiles.cu
       .relu2_products = [](std::string_view arch) { return arch == "sm_90"; },                  // relu2.cu
       .head_chunk = 4096,
       .trained_head_chunk = 4096,
       .scoring_head_chunk = 2048,
       .open = [] { return cuda_backend(); }},
  };
  return list;
}

std::vector<int64_t> one_pass_ranks(const BackendInfo& backend, std::string_view arch, bool fp8) {
  return backend.one_pass_ranks != nullptr ? backend.one_pass_ranks(arch, fp8) : std::vector<int64_t>{};
}

const BackendInfo* backend_for(std::string_view arch) {
  for (const BackendInfo& b : backends())
    if (std::find(b.arch.begin(), b.arch.end(), arch) != b.arch.end()) return &b;
  return nullptr;
}

namespace {
std::string g_capability;
}
void treat_cuda_as(std::string capability) { g_capability = std::move(capability); }

Backend cuda_backend(int ordinal) {
  static std::mutex mutex;
  static std::map<int, Backend> opened;
  const std::lock_guard lock(mutex);
  if (const auto at = opened.find(ordinal); at != opened.end()) return at->second;
  void* library = open_library();
  const auto open = reinterpret_cast<mxt_cuda_open_t>(dlsym(library, "mxt_cuda_open"));
  if (open == nullptr) fail_missing("{} exports no mxt_cuda_open: it is not of this program", kLibrary);
  Backend b;
  char error[1024] = {};
  if (open(MXT_CUDA_ABI, ordinal, g_capability.c_str(), &b.device, &b.ops, error, sizeof error) != 0)
    fail_missing("{}", error);
  opened[ordinal] = b;
  return b;
}

}  // namespace mxt::kernels
