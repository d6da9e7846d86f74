// How Python prints values: str(), repr(), json.dumps().
#pragma once

#include <string>

#include "jinja/values/machine.h"

namespace mxt::jinja {

std::string int_text(Int i);
std::string float_text(double d);  // repr(float): the shortest text that reads back

StrRef to_str(Machine& m, const Value& v);  // str(v): a string as it is, undefined as nothing
StrRef to_repr(Machine& m, const Value& v);
// '…' as repr writes a string; pieces keep their origin.
void add_repr(Machine& m, Builder& out, const Str& s);
// Text for a message: repr cut to a line.
std::string brief(Machine& m, const Value& v);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;  // text of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
StrRef to_json(Machine& m, const Value& v, const JsonStyle& style);

}  // namespace mxt::jinja
