// The files of recipes/tasks, in the binary.
#pragma once

#include <span>
#include <string_view>

namespace mxt::eval {

struct BuiltinTask {
  std::string_view name, text;
};
std::span<const BuiltinTask> builtin_tasks();

}  // namespace mxt::eval
