#include <dnnl.h>
#include <fmt/format.h>

#include <fstream>
#include <string_view>

#include "kernels/api.h"
#include "kernels/cpu/gemm/micro.h"
#include "kernels/cpu/pointwise.h"

namespace mxt::kernels {
namespace {

// Of the first processor in /proc/cpuinfo; empty where there is none.
std::string cpu_info(std::string_view key) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with(key))
      if (const size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "";
}

// arm64's Linux gives numbers: the implementer's and the part's.
std::string processor_name() {
  if (std::string name = cpu_info("model name"); !name.empty()) return name;
  const std::string implementer = cpu_info("CPU implementer"), part = cpu_info("CPU part");
  if (implementer.empty()) return "unknown";
  constexpr struct {
    std::string_view part, name;
  } kArm[] = {{"0xd03", "Cortex-A53"},  {"0xd08", "Cortex-A72"},  {"0xd0b", "Cortex-A76"}, {"0xd0c", "Neoverse N1"},
              {"0xd40", "Neoverse V1"}, {"0xd49", "Neoverse N2"}, {"0xd4f", "Neoverse V2"}};
  if (implementer == "0x41")
    for (const auto& known : kArm)
      if (known.part == part) return fmt::format("Arm {}", known.name);
  return fmt::format("arm64 implementer {} part {}", implementer, part);
}

bool has_cpu_flag(const std::string& flag) {
#if defined(__x86_64__)
  return (" " + cpu_info("flags") + " ").find(" " + flag + " ") != std::string::npos;
#else
  (void)flag;
  return false;
#endif
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
  if (cpu::neon_micro(cpu::Unit::kBf16Pair)) f.vector_target += "_BF16";
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
