// Section `quantize`. The section absent = the stage is off.
#pragma once

#include "config/enums.h"

namespace mxt::config {

struct Quantize {
  bool enabled = true;
  QuantScheme scheme = QuantScheme::kQuarkFp8;
  bool ptpc = true;  // quark_fp8: per-token activations and per-channel weights, else one scale per tensor
};

}  // namespace mxt::config
