#include <dnnl.h>
#include <fmt/format.h>

#include <fstream>

#include "kernels/api.h"
#include "kernels/cpu/pointwise.h"

namespace mxt::kernels {
namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown";
}

bool has_cpu_flag(const std::string& flag) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("flags")) return (line + " ").find(" " + flag + " ") != std::string::npos;
  return false;
}

std::string isa_name(dnnl_cpu_isa_t isa) {
  switch (isa) {
    case dnnl_cpu_isa_sse41:
      return "sse41";
    case dnnl_cpu_isa_avx:
      return "avx";
    case dnnl_cpu_isa_avx2:
      return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
      return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core:
      return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "avx512_core_amx";
    default:
      return fmt::format("isa {}", static_cast<int>(isa));
  }
}

}  // namespace

CpuFeatures cpu_features() {
  CpuFeatures f;
  f.model = processor_name();
  f.vector_target = cpu::vector_target();
  f.avx2 = has_cpu_flag("avx2");
  f.avx512 =
      has_cpu_flag("avx512f") && has_cpu_flag("avx512bw") && has_cpu_flag("avx512dq") && has_cpu_flag("avx512vl");
  f.avx512_bf16 = has_cpu_flag("avx512_bf16");
  f.amx_bf16 = has_cpu_flag("amx_bf16");
  const dnnl_version_t* v = dnnl_version();
  f.onednn_version = fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
  f.onednn_isa = isa_name(dnnl_get_effective_cpu_isa());
  return f;
}

}  // namespace mxt::kernels
