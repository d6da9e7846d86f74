// Energy of this machine since the meter was made, where the machine can say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace mxt::provenance {

// Linux's powercap counters of the processor packages (Intel and AMD RAPL): microjoules that wrap. They count the whole
// package, other programs too, and nothing else of the machine.
class EnergyMeter {
 public:
  explicit EnergyMeter(std::string root = "/sys/class/powercap");
  // {"kwh": 0.0123, "method": "rapl, 1 package"} or {"kwh": null, "method": "not available: …"}. A counter is read
  // again here; one that wrapped more than once since (days) is not noticed.
  Json reading() const;

 private:
  struct Counter {
    std::string path;
    uint64_t begin = 0, range = 0;  // microjoules
  };
  std::vector<Counter> counters_;
  std::string why_not_;
};

}  // namespace mxt::provenance
