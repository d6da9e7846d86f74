// Philox streams of this room: the high half names the use, the low half counts (an epoch, a step).
#pragma once

#include <cstdint>

namespace mxt::data::streams {

inline constexpr uint64_t kEpochOrder = uint64_t{0xDA7A0001} << 32;
inline constexpr uint64_t kWindows = uint64_t{0xDA7A0002} << 32;
inline constexpr uint64_t kHeldOut = uint64_t{0xDA7A0003} << 32;
inline constexpr uint64_t kMixture = uint64_t{0xDA7A0005} << 32;
inline constexpr uint64_t kMinHash = uint64_t{0xDA7A0004} << 32;

}  // namespace mxt::data::streams
