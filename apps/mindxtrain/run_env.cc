#include "run_env.h"

#include <fmt/ranges.h>

#include <cstdlib>
#include <string_view>

#include "base/log.h"

namespace mxt::app {

bool may_set(const std::string& name) {
  constexpr std::string_view kReaders[] = {
      "PYTORCH_", "TORCH_",  "HSA_",  "HIP_",    "ROCM_", "ROCR_", "ROCBLAS_", "HIPBLASLT_", "MIOPEN_",
      "AMD_",     "GPU_",    "NVTE_", "PRIMUS_", "NCCL_", "RCCL_", "CUDA_",    "CUBLAS_",    "CUBLASLT_",
      "CUDNN_",   "NVIDIA_", "UCX_",  "OMPI_",   "FI_",   "DNNL_", "ONEDNN_"};
  // CUDA_INJECTION64_PATH, HSA_TOOLS_LIB, NCCL_NET_PLUGIN, OMPI_MCA_component_path …
  constexpr std::string_view kFinders[] = {"PATH",   "LIB", "PLUGIN", "TOOL", "FILE", "DIR",
                                           "INJECT", "MCA", "CONF",   "path", "file"};
  for (const std::string_view part : kFinders)
    if (name.find(part) != std::string::npos) return false;
  for (const std::string_view prefix : kReaders)
    if (name.starts_with(prefix)) return true;
  return false;
}

std::string left_to_the_shell(const std::map<std::string, std::string>& env) {
  std::vector<std::string> rest;
  for (const auto& [name, value] : env)
    if (const char* is = std::getenv(name.c_str()); !may_set(name) && (!is || is != value)) rest.push_back(name);
  if (rest.empty()) return "";
  return fmt::format(
      "train.env: {} {} recorded but not set: a run sets variables of devices, collectives and math libraries; set "
      "the others in the shell",
      fmt::join(rest, ", "), rest.size() == 1 ? "is" : "are");
}

void set_environment(const std::map<std::string, std::string>& env) {
  for (const auto& [name, value] : env)
    if (may_set(name)) ::setenv(name.c_str(), value.c_str(), 1);
  if (const std::string rest = left_to_the_shell(env); !rest.empty()) log::warn("{}", rest);
}

}  // namespace mxt::app
