// Task files of lm-evaluation-harness: YAML 1.1 as PyYAML reads it, with `include` and `!function` tags.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace mxt::eval {

// One file with its includes merged (the file's own keys win). `!function module.name` becomes the object
// {"!function": "module.name", "folder": folder of the file that says it}. Errors (kBadInput): syntax, cycles, a file
// that is no map, more than 1 MiB or 100,000 nodes.
OrderedJson load_task_yaml(const std::string& path);
// The same for one document of text; `include` is not possible there.
OrderedJson parse_task_yaml(const std::string& text, const std::string& name);
// A file of the binary: one task, or several documents of which the first may hold what all its tasks share.
std::vector<OrderedJson> parse_builtin_tasks(const std::string& text, const std::string& name);

bool is_function(const OrderedJson& v);
std::string function_name(const OrderedJson& v);  // "folder's name/module.name", as known functions are listed

}  // namespace mxt::eval
