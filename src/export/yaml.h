// JSON values as YAML that PyYAML, OmegaConf and YAML 1.2 read alike.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace mxt::exporting {

// Maps and lists in blocks, lists of plain values in one line; ends with a line end.
std::string yaml_text(const OrderedJson& value);
// "# " before each line of the text; control characters as \xNN.
std::string yaml_comment(std::string_view text);

}  // namespace mxt::exporting
