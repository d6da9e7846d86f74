// Two schemas as one that demands what both do.
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "serve/grammar/json_grammar.h"

namespace mxt::serve {
namespace {

OrderedJson list_of(const OrderedJson& v) { return v.is_array() ? v : OrderedJson::array({v}); }

// Types that both allow; an integer is a number.
OrderedJson common_types(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson out = OrderedJson::array();
  for (const auto& x : list_of(a))
    for (const auto& y : list_of(b)) {
      if (x == y)
        out.push_back(x);
      else if ((x == "integer" && y == "number") || (x == "number" && y == "integer"))
        out.push_back("integer");
    }
  return out;
}

OrderedJson common_values(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson out = OrderedJson::array();
  for (const auto& x : a)
    for (const auto& y : b)
      if (x == y) out.push_back(x);
  return out;
}

}  // namespace

bool is_annotation(const std::string& keyword) {
  static const std::set<std::string> kAnnotations{
      "title",      "description", "default",   "examples", "example",     "$schema", "$id",      "$comment",
      "deprecated", "readOnly",    "writeOnly", "$defs",    "definitions", "strict",  "nullable", "id"};
  return kAnnotations.contains(keyword);
}

OrderedJson both(const OrderedJson& a, const OrderedJson& b, const std::string& at) {
  if (b == OrderedJson(true)) return a;
  if (a == OrderedJson(true)) return b;
  if (!a.is_object() || !b.is_object()) fail_input("{}: a schema is an object", at);
  OrderedJson out = a;
  for (const auto& [key, v] : b.items()) {
    if (!out.contains(key)) {
      out[key] = v;
      continue;
    }
    OrderedJson& old = out[key];
    if (old == v || is_annotation(key)) continue;
    if (key == "properties") {
      if (!old.is_object() || !v.is_object()) fail_input("{}/properties: an object is wanted", at);
      for (const auto& [name, p] : v.items())
        old[name] = old.contains(name) ? both(old[name], p, at + "/properties/" + name) : p;
    } else if (key == "required") {
      if (!old.is_array() || !v.is_array()) fail_input("{}/required: a list of names is wanted", at);
      for (const auto& name : v) old.push_back(name);
    } else if (key == "type") {
      old = common_types(old, v);
      if (old.empty()) fail_input("{}: no type is left of both", at);
    } else if (key == "enum" && old.is_array() && v.is_array()) {
      old = common_values(old, v);
      if (old.empty()) fail_input("{}: no value of \"enum\" is left of both", at);
    } else if ((key == "items" || key == "additionalProperties") && old.is_object() && v.is_object()) {
      old = both(old, v, at + "/" + key);
    } else if (key == "additionalProperties" && (old.is_boolean() || v.is_boolean())) {
      old = old == OrderedJson(false) || v == OrderedJson(false) ? OrderedJson(false) : old.is_boolean() ? v : old;
    } else if (key.starts_with("min") || key == "exclusiveMinimum") {
      if (!old.is_number() || !v.is_number()) fail_input("{}/{}: a number is wanted", at, key);
      if (v.get<double>() > old.get<double>()) old = v;
    } else if (key.starts_with("max") || key == "exclusiveMaximum") {
      if (!old.is_number() || !v.is_number()) fail_input("{}/{}: a number is wanted", at, key);
      if (v.get<double>() < old.get<double>()) old = v;
    } else {
      fail_input("{}: two different values of \"{}\"", at, key);
    }
  }
  return out;
}

}  // namespace mxt::serve
