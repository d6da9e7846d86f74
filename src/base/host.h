// The machine and the moment, as records name them.
#pragma once

#include <string>

namespace mxt {

std::string utc_now();    // 2026-01-31T09:30:00Z
std::string host_name();  // "" where the kernel does not say

}  // namespace mxt
