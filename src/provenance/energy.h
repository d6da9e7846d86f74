// Energy of this machine since the meter was made, where the machine can say.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace mxt::provenance {

// Where energy is asked for. Libraries are opened at run time, so that a machine without them runs the same program.
struct EnergySources {
  // Linux's powercap counters of the processor packages (Intel and AMD RAPL): microjoules that wrap. They count the
  // whole package, other programs too, and nothing else of the machine.
  std::string powercap = "/sys/class/powercap";
  // The GPUs that the run computes on, as CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES write them: an ordinal in the
  // order of the bus, or NVIDIA's UUID. Empty: none, and the processors alone are the run's.
  std::vector<std::string> gpus;
  bool amd = false;
  std::string nvml = "libnvidia-ml.so.1";       // nvmlDeviceGetTotalEnergyConsumption: millijoules (Volta and later)
  std::string rocm_smi = "librocm_smi64.so.1";  // rsmi_dev_energy_count_get: a counter and its resolution (MI100 on)
};

class EnergyMeter {
 public:
  explicit EnergyMeter(const EnergySources& sources = {});
  // {"kwh": 0.0123, "method": "rapl, 1 processor package; nvml, 1 GPU"} or {"kwh": null, "method": "not available: …"}.
  // A sum without what computed is none: null where one of the GPUs, or on a machine without them the processor, cannot
  // be read; processors that cannot be read beside GPUs are said to be left out. Counters are read again here; one of
  // powercap that wrapped more than once since (days) is not noticed.
  Json reading() const;

  struct Counter {
    std::function<bool(uint64_t& value)> read;
    double joules = 1e-6;  // a unit of it
    uint64_t begin = 0, range = 0;
  };
  struct Part {
    std::string name;  // "rapl", "nvml", "rocm_smi"
    std::string of;    // "processor package", "GPU"
    std::vector<Counter> counters;
    std::string why_not;  // "" where it counts
  };

 private:
  std::vector<Part> parts_;  // the one that computes first
};

}  // namespace mxt::provenance
