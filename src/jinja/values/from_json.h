// JSON as the template sees it.
#pragma once

#include "base/json.h"
#include "jinja/values/machine.h"

namespace mxt::jinja {

// Everything below gets `origin`. Refuses what is nested too deep and text that is not UTF-8.
Value from_json(Machine& m, const OrderedJson& j, uint32_t origin = 0);
// A string value, or an error that names `what`.
Value json_text(Machine& m, const std::string& s, uint32_t origin, std::string_view what);
// Puts key and value into a dict under construction and counts them.
void put(Machine& m, Dict& d, Value key, Value value);

}  // namespace mxt::jinja
