// Numbers as Python's format specifications write them.
#pragma once

#include <string>

#include "jinja/values/machine.h"

namespace mxt::jinja {

struct NumberStyle {
  char type = 0;    // d b o x X e E f F g G % n, 0 for none
  char sign = '-';  // '-', '+' or ' '
  bool alternate = false;
  bool zero = false;  // fill with zeros after the sign, up to `width`
  char grouping = 0;  // ',' or '_'
  int64_t precision = -1;
  int64_t width = 0;
  bool zero_flag_align() const { return zero; }
};

struct FormatSpec {
  NumberStyle number;
  std::string fill = " ";
  char align = 0;
  int64_t width = 0;
};

FormatSpec parse_spec(Machine& m, const std::string& text);
std::string number_text(Machine& m, const Value& v, const NumberStyle& style);

}  // namespace mxt::jinja
