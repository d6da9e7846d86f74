// Section `hardware`: the machine that the recipe is written for.
#pragma once

#include <cstdint>
#include <optional>

#include "config/enums.h"

namespace mxt::config {

struct Hardware {
  GpuName name = GpuName::kMi300x;
  Arch gfx_arch = Arch::kGfx942;  // from `name`
  int64_t gpus = 1;               // 0 = the CPU lane, whatever `name` says
  int64_t nodes = 1;
  int64_t expected_hbm_gb = 192;       // from `name`; 0 for cpu
  std::optional<double> usd_per_hour;  // of one device; from `name` where a price is known

  bool cpu_lane() const { return gpus == 0; }
};

// MI300X, MI325X, MI350X, MI355X: the family with xGMI links and the eight environment keys.
constexpr bool is_mi300_class(GpuName n) {
  return n == GpuName::kMi300x || n == GpuName::kMi325x || n == GpuName::kMi350x || n == GpuName::kMi355x;
}

constexpr Arch arch_of(GpuName n) {
  switch (n) {
    case GpuName::kMi300x:
    case GpuName::kMi325x:
      return Arch::kGfx942;
    case GpuName::kMi350x:
    case GpuName::kMi355x:
      return Arch::kGfx950;
    case GpuName::kH100:
    case GpuName::kH200:
      return Arch::kSm90;
    case GpuName::kCpu:
      return Arch::kNone;
  }
  return Arch::kNone;
}

}  // namespace mxt::config
