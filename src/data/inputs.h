// All that decides the prepared bytes, as the manifest states it.
#pragma once

#include <string>

#include "base/json.h"
#include "data/coder.h"
#include "data/settings.h"

namespace mxt::data {

OrderedJson inputs_of(const Settings& settings, const Coder& coder);
// Their digest; where a file stands does not change what it becomes.
std::string key_of(OrderedJson inputs);

}  // namespace mxt::data
