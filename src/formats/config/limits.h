#pragma once

#include <cstdint>
#include <limits>

namespace mxt::formats {

// Sizes beyond which a file is damaged or hostile.
inline constexpr int64_t kMaxWidth = 1 << 24, kMaxCount = 1 << 16, kMaxTokens = std::numeric_limits<int32_t>::max();

}  // namespace mxt::formats
