// The filters and tests by name, and how their arguments are bound.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "jinja/syntax/ast.h"
#include "jinja/text/format.h"

namespace mxt::jinja {

FilterFn find_filter(std::string_view name);                               // null where there is none
Value regex_replace_filter(Interp& in, const Value& v, const Args& args);  // Style::regex_replace
Value html_tojson_filter(Interp& in, const Value& v, const Args& args);    // Style::html_json
TestFn find_test(std::string_view name);
std::string no_filter(std::string_view name);  // what to say then

// Binds arguments to parameter names as a Python call does; given() is false where the call left one out.
class Bound {
 public:
  // `what` names the function in messages; the first `required` parameters must be there.
  Bound(Machine& m, std::string_view what, const Args& args, std::initializer_list<std::string_view> names,
        size_t required = 0);
  bool given(size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *values_[i]; }
  Value get(size_t i, Value otherwise) const { return given(i) ? *values_[i] : std::move(otherwise); }
  bool flag(size_t i, bool otherwise) const;
  int64_t integer(size_t i, int64_t otherwise) const;

 private:
  Machine& m_;
  std::string_view what_;
  std::vector<const Value*> values_;
};

}  // namespace mxt::jinja
