// Two schemas as one that demands what both do.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/json_text.h"
#include "serve/grammar/decimal.h"
#include "serve/grammar/json_grammar.h"
#include "serve/grammar/lookup.h"

namespace mxt::serve {
namespace {

constexpr size_t kMaxCombined = 64;

OrderedJson array_of(const OrderedJson& v) { return v.is_array() ? v : OrderedJson::array({v}); }

// Types that both allow; an integer is a number.
OrderedJson common_types(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson out = OrderedJson::array();
  for (const auto& x : array_of(a))
    for (const auto& y : array_of(b)) {
      if (x == y)
        out.push_back(x);
      else if ((x == "integer" && y == "number") || (x == "number" && y == "integer"))
        out.push_back("integer");
    }
  return out;
}

// What is a multiple of both, as whole numbers of the smaller's last digit.
OrderedJson common_multiple(const OrderedJson& a, const OrderedJson& b, const std::string& at) {
  const auto x = decimal_of(a), y = decimal_of(b);
  if (!x || !y || x->negative || y->negative || x->is_zero() || y->is_zero())
    fail_input("{}/multipleOf: a number above 0 is wanted", at);
  const size_t places = std::max(x->fraction.size(), y->fraction.size());
  const std::string m = digits_of(*x) + std::string(places - x->fraction.size(), '0'),
                    n = digits_of(*y) + std::string(places - y->fraction.size(), '0');
  if (m.size() > 9 || n.size() > 9) fail_input("{}/multipleOf: too many digits to hold together", at);
  const int64_t both_of = std::lcm(std::stoll(m), std::stoll(n));
  if (places == 0) return both_of;
  return OrderedJson::parse(fmt::format("{}e-{}", both_of, places));
}

OrderedJson common_values(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson out = OrderedJson::array();
  const ValueSet others(b);
  for (const auto& x : a)
    if (others.contains(x)) out.push_back(x);
  return out;
}

}  // namespace

// One of a and one of b.
OrderedJson JsonGrammar::combinations(const OrderedJson& a, const OrderedJson& b, const std::string& at) const {
  if (!a.is_array() || !b.is_array()) fail_input("{}: a list of schemas is wanted", at);
  if (a.size() * b.size() > kMaxCombined) fail_input("{}: too many alternatives that hold together", at);
  OrderedJson out = OrderedJson::array();
  std::string why = at + ": no alternative is left of both";
  for (const auto& x : a)
    for (const auto& y : b) try {
        out.push_back(both(x, y, at));
      } catch (const NothingLeft& e) {
        why = e.what();
      }
  if (out.empty()) throw NothingLeft(why);
  return out;
}

// A member, or an element, that cannot be need not be: false.
OrderedJson JsonGrammar::both_or_none(const OrderedJson& a, const OrderedJson& b, const std::string& at) const {
  try {
    return both(a, b, at);
  } catch (const NothingLeft&) {
    return false;
  }
}

// What a schema says of a member that it does not declare, beside the patterns that match its name.
OrderedJson JsonGrammar::of_undeclared(const OrderedJson& s, const std::string& name, const std::string& at) const {
  if (!named_by_pattern(s, name, at))
    return s.contains("additionalProperties") ? s["additionalProperties"] : OrderedJson(true);
  OrderedJson all = true;
  if (s.contains(kOfUndeclared))
    for (const auto& [regex, v] : s[kOfUndeclared].items())
      if (matches(regex, OrderedJson(name), at)) all = both_or_none(all, v, at);
  return all;
}

// Declared members of both; one that is declared by one alone is additional to the other.
OrderedJson JsonGrammar::common_members(const OrderedJson& a, const OrderedJson& b, const std::string& at) const {
  static const OrderedJson kNone = OrderedJson::object();
  const OrderedJson& in_a = a.contains("properties") ? a["properties"] : kNone;
  const OrderedJson& in_b = b.contains("properties") ? b["properties"] : kNone;
  if (!in_a.is_object() || !in_b.is_object()) fail_input("{}/properties: an object is wanted", at);
  const Members of_a(in_a), of_b(in_b);
  OrderedJson::object_t out;
  for (const auto* one : {&a, &b}) {
    const OrderedJson& other = one == &a ? b : a;
    for (const auto& [name, p] : (one == &a ? in_a : in_b).items()) {
      const OrderedJson *p_of_a = of_a.find(name), *p_of_b = of_b.find(name);
      const std::string there = at + "/properties/" + name;
      if (p_of_a && p_of_b) {
        if (one == &a) out.emplace_back(name, both_or_none(*p_of_a, *p_of_b, there));
      } else {
        const OrderedJson of_other = of_undeclared(other, name, there);
        out.emplace_back(name, of_other == OrderedJson(true) ? p : both_or_none(p, of_other, there));
      }
    }
  }
  return out;
}

bool is_annotation(const std::string& keyword) {
  static const std::set<std::string> kAnnotations{
      // JSON Schema's own, and where the parts of a document are found.
      "title", "description", "default", "examples", "$schema", "$id", "id", "$comment", "$defs", "definitions",
      "$anchor", "$vocabulary", "version", "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType",
      "contentSchema",
      // OpenAPI's, OpenAI's, and what editors are told.
      "example", "discriminator", "externalDocs", "xml", "strict", "markdownDescription", "enumDescriptions",
      "markdownEnumDescriptions", "enumNames", "defaultSnippets", "errorMessage", "patternErrorMessage",
      "deprecationMessage", "doNotSuggest", "suggestSortText", "allowComments", "allowTrailingCommas", "tsType",
      "propertyOrdering", "units", "unit", "name", "summary", "tags", "comment"};
  return keyword.starts_with("x-") || keyword.starts_with("ui:") || kAnnotations.contains(keyword);
}

bool lists_values(const OrderedJson& s) {
  return s.is_object() && (s.contains("const") || (s.contains("enum") && s["enum"].is_array()));
}

bool is_list_of_values(const OrderedJson& s) {
  return s.is_object() && s.size() == 1 && s.contains("enum") && s["enum"].is_array();
}

// What `other` says of members and elements that it has no word for is said of those that `one` alone has patterns or
// places for.
void JsonGrammar::hold_others(OrderedJson& all, const OrderedJson& one, const OrderedJson& other,
                              const std::string& at) const {
  const auto rest = other.find("additionalProperties");
  if (const auto mine = one.find("patternProperties"); mine != one.end() && rest != other.end())
    for (const auto& [regex, of_pattern] : mine->items()) {
      if (other.contains("patternProperties") && other["patternProperties"].contains(regex)) continue;
      OrderedJson& of_undeclared = all[kOfUndeclared].emplace(regex, true).first.value();
      of_undeclared = both_or_none(of_undeclared, *rest, at + "/patternProperties");
    }
}

// The first elements of both lists; those that one alone has a place for are further ones to the other.
void JsonGrammar::hold_first(OrderedJson& all, const OrderedJson& a, const OrderedJson& b,
                             const std::string& at) const {
  static const OrderedJson kNone = OrderedJson::array();
  const OrderedJson& in_a = a.contains("prefixItems") ? a["prefixItems"] : kNone;
  const OrderedJson& in_b = b.contains("prefixItems") ? b["prefixItems"] : kNone;
  if (!in_a.is_array() || !in_b.is_array()) fail_input("{}/prefixItems: a list of schemas is wanted", at);
  const auto element = [](const OrderedJson& s, const OrderedJson& first, size_t i) {
    return i < first.size() ? first[i] : s.contains("items") ? s["items"] : OrderedJson(true);
  };
  OrderedJson first = OrderedJson::array();
  for (size_t i = 0; i < std::max(in_a.size(), in_b.size()); ++i) {
    first.push_back(both_or_none(element(a, in_a, i), element(b, in_b, i), at + "/prefixItems"));
    if (first.back() != OrderedJson(false)) continue;
    first.erase(first.size() - 1);  // an element that cannot be ends the list before it
    const auto most = all.contains("maxItems") ? decimal_of(all["maxItems"]) : std::nullopt;
    if (const OrderedJson n = first.size(); !most || compare(*decimal_of(n), *most) < 0) all["maxItems"] = n;
    break;
  }
  if (!in_a.empty() || !in_b.empty()) all["prefixItems"] = std::move(first);
}

namespace {

// A list as `items` is what prefixItems was called before 2020; what follows it was additionalItems.
OrderedJson of_2020(OrderedJson s) {
  if (!s.contains("items") || !s["items"].is_array()) return s;
  s["prefixItems"] = s["items"];
  s.erase("items");
  if (s.contains("additionalItems")) s["items"] = s["additionalItems"];
  s.erase("additionalItems");
  return s;
}

// OpenAPI's nullable is one type more to the schema that says it, and to no other.
OrderedJson with_null_as_type(OrderedJson s) {
  if (!s.contains("type") || !s.contains("nullable") || !s["nullable"].is_boolean()) return s;
  OrderedJson types = array_of(s["type"]);
  if (s["nullable"] == OrderedJson(true) && std::find(types.begin(), types.end(), OrderedJson("null")) == types.end())
    types.push_back("null");
  s["type"] = types;
  s.erase("nullable");
  return s;
}

// What a member brings with it in both: names as a list, or a schema.
OrderedJson both_dependents(const OrderedJson& a, const OrderedJson& b) {
  const auto schema = [](const OrderedJson& v) { return v.is_array() ? OrderedJson{{"required", v}} : v; };
  if (!a.is_array() || !b.is_array()) return OrderedJson{{"allOf", OrderedJson::array({schema(a), schema(b)})}};
  OrderedJson names = a;
  for (const auto& name : b) names.push_back(name);
  return names;
}

}  // namespace

OrderedJson JsonGrammar::both(const OrderedJson& one, const OrderedJson& other, const std::string& at) const {
  for (const auto* s : {&one, &other})
    if (*s == OrderedJson(false)) throw NothingLeft(at + ": a schema that allows nothing");
  if (other == OrderedJson(true)) return one;
  if (one == OrderedJson(true)) return other;
  if (!one.is_object() || !other.is_object()) fail_input("{}: a schema is an object", at);
  const OrderedJson a = with_null_as_type(of_2020(one)), b = with_null_as_type(of_2020(other));
  OrderedJson out = a;
  for (const auto& [key, v] : b.items()) {
    if (!out.contains(key)) {
      out[key] = v;
      continue;
    }
    OrderedJson& old = out[key];
    if (same_json(old, v) || is_annotation(key)) continue;
    if (key == "properties" || key == "prefixItems") continue;  // below
    if (key == "required") {
      if (!old.is_array() || !v.is_array()) fail_input("{}/required: a list of names is wanted", at);
      for (const auto& name : v) old.push_back(name);
    } else if (key == "type") {
      old = common_types(old, v);
      if (old.empty()) throw NothingLeft(at + ": no type is left of both");
    } else if ((key == "patternProperties" || key == kOfUndeclared) && old.is_object() && v.is_object()) {
      for (const auto& [regex, p] : v.items()) {
        OrderedJson& there_already = old.emplace(regex, true).first.value();
        there_already = both_or_none(there_already, p, at + "/patternProperties");
      }
    } else if ((key.starts_with("dependent") || key == "dependencies") && old.is_object() && v.is_object()) {
      for (const auto& [name, brought] : v.items()) {
        if (old.contains(name))
          old[name] = both_dependents(old[name], brought);
        else
          old[name] = brought;
      }
    } else if (key == "enum" && old.is_array() && v.is_array()) {
      old = common_values(old, v);
      if (old.empty()) throw NothingLeft(at + ": no value of \"enum\" is left of both");
    } else if (key == "const") {
      throw NothingLeft(at + ": two values of \"const\"");
    } else if (key == "pattern") {  // all of them, as a list
      OrderedJson all = array_of(old);
      for (const auto& p : array_of(v)) all.push_back(p);
      old = all;
    } else if (key == "not") {
      if (is_list_of_values(old) && is_list_of_values(v))
        for (const auto& x : v["enum"]) old["enum"].push_back(x);
      else
        old = OrderedJson{{"anyOf", {old, v}}};
    } else if (key == "anyOf" || key == "oneOf") {
      old = combinations(old, v, at);
    } else if (key == "allOf" && old.is_array() && v.is_array()) {
      for (const auto& part : v) old.push_back(part);
    } else if (key == "$ref") {  // the second as one of allOf
      if (!out.contains("allOf")) out["allOf"] = OrderedJson::array();
      if (!out["allOf"].is_array()) fail_input("{}/allOf: a list of schemas is wanted", at);
      out["allOf"].push_back({{"$ref", v}});
    } else if ((key == "uniqueItems" || key == "nullable") && old.is_boolean() && v.is_boolean()) {
      old = key == "uniqueItems";  // they differ: unique where one says so, null where both do
    } else if (key == "multipleOf") {
      old = common_multiple(old, v, at);
    } else if (key == "items" || key == "additionalItems" || key == "additionalProperties" || key == "propertyNames") {
      old = both_or_none(old, v, at + "/" + key);
    } else if (key.starts_with("min") || key == "exclusiveMinimum" || key.starts_with("max") ||
               key == "exclusiveMaximum") {
      const auto x = decimal_of(old), y = decimal_of(v);
      if (!x || !y) fail_input("{}/{}: a number is wanted", at, key);
      const bool least = key.starts_with("min") || key == "exclusiveMinimum";
      if (least ? compare(*y, *x) > 0 : compare(*y, *x) < 0) old = v;
    } else {
      fail_input("{}: two different values of \"{}\"", at, key);
    }
  }
  const bool in_a = a.contains("properties"), in_b = b.contains("properties");
  if ((in_a && (in_b || b.contains("additionalProperties"))) || (in_b && a.contains("additionalProperties")))
    out["properties"] = common_members(a, b, at);
  for (const auto* s : {&a, &b})
    if (s->contains("patternProperties") && !(*s)["patternProperties"].is_object())
      fail_input("{}/patternProperties: an object is wanted", at);
  hold_others(out, a, b, at);
  hold_others(out, b, a, at);
  hold_first(out, a, b, at);
  return out;
}

}  // namespace mxt::serve
