// The two tables of filters; find_filter() looks in both.
#pragma once

#include <string_view>

#include "jinja/syntax/ast.h"

namespace mxt::jinja {

struct FilterEntry {
  std::string_view name;
  FilterFn function;
};

FilterFn find_text_filter(std::string_view name);
FilterFn find_list_filter(std::string_view name);

}  // namespace mxt::jinja
