// The machine and the moment, as records name them.
#pragma once

#include <cstdint>
#include <string>

namespace mxt {

std::string utc_text(int64_t seconds);  // since 1970: 2026-01-31T09:30:00Z
std::string utc_now();
std::string host_name();  // "" where the kernel does not say

}  // namespace mxt
