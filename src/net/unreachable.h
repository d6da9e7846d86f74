// The server cannot be reached: its name, a connection or an answer in time. What is missing is the network, not a
// file.
#pragma once

#include <string>

#include "base/error.h"

namespace mxt::net {

class Unreachable : public Error {
 public:
  explicit Unreachable(const std::string& message) : Error(Exit::kMissing, message) {}
};

}  // namespace mxt::net
