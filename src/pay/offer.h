// What an offer of x402 says, read as what it is: from a stranger.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"

namespace mxt::pay {

// "" where it is not there or no text.
inline std::string text_at(const Json& j, const char* key) {
  return j.is_object() && j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : "";
}

// That a payment is to hold, whatever an offer asks for.
inline int64_t seconds_of(const Json& offer) {
  constexpr int64_t kLongest = 3600, kUsual = 60;
  const Json s = offer.value("maxTimeoutSeconds", Json());
  return s.is_number_integer() ? std::clamp<int64_t>(s.get<int64_t>(), 1, kLongest) : kUsual;
}

}  // namespace mxt::pay
