// Python's two ways to fill in text, `%` and str.format, and HTML escaping.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "jinja/values/machine.h"

namespace mxt::jinja {

// Arguments of a call, as written: positions, then names.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

Value percent_format(Machine& m, const StrRef& format, const Value& args);

// How str.format reaches into a value: the sandbox's attribute and item access, which the evaluator supplies.
struct FieldAccess {
  Value (*attribute)(Machine&, const Value&, std::string_view);
  Value (*item)(Machine&, const Value&, const Value&);
};
Value brace_format(Machine& m, const StrRef& format, const Args& args, const FieldAccess& access);

// markupsafe.escape: & < > " ' of what is not Markup yet.
StrRef html_escape(Machine& m, const Value& v);
StrRef with_markup(Machine& m, const StrRef& s, bool markup);

}  // namespace mxt::jinja
