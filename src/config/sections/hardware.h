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

struct DeviceKind {
  GpuName name;
  Arch arch;
  int64_t memory_gb;  // of one device, as its maker states it; 0: the machine's
};
inline constexpr DeviceKind kDeviceKinds[] = {
    {GpuName::kMi300x, Arch::kGfx942, 192},  {GpuName::kMi325x, Arch::kGfx942, 256},
    {GpuName::kMi350x, Arch::kGfx950, 288},  {GpuName::kMi355x, Arch::kGfx950, 288},
    {GpuName::kH100, Arch::kSm90, 80},       {GpuName::kH200, Arch::kSm90, 141},
    {GpuName::kCpu, Arch::kNone, 0},         {GpuName::kRtx3090, Arch::kSm86, 24},
    {GpuName::kRtx4090, Arch::kSm89, 24},    {GpuName::kRtx5090, Arch::kSm120, 32},
    {GpuName::kRtx6000Ada, Arch::kSm89, 48}, {GpuName::kL4, Arch::kSm89, 24},
    {GpuName::kL40s, Arch::kSm89, 48},       {GpuName::kA100, Arch::kSm80, 80},
    {GpuName::kB200, Arch::kSm100, 180},     {GpuName::kCuda, Arch::kSm80, 8},
};
constexpr DeviceKind device_kind(GpuName n) {
  for (const DeviceKind& k : kDeviceKinds)
    if (k.name == n) return k;
  return {n, Arch::kNone, 0};
}
constexpr Arch arch_of(GpuName n) { return device_kind(n).arch; }
constexpr bool is_nvidia(Arch a) { return a != Arch::kGfx942 && a != Arch::kGfx950 && a != Arch::kNone; }

}  // namespace mxt::config
