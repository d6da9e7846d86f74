// Values of enum and const against what stands beside them.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "serve/grammar/decimal.h"
#include "serve/grammar/json_grammar.h"
#include "serve/grammar/lookup.h"
#include "serve/output/schema_types.h"

namespace mxt::serve {
namespace {

constexpr int kMostDepth = 64;

bool has_type(const OrderedJson& v, const std::string& name) {
  const JsonTypes t = type_of(v);
  if (name == "null") return t == kNullType;
  if (name == "boolean") return t == kBooleanType;
  if (name == "integer")
    return t == kIntegerType || (t == kNumberType && v.get<double>() == std::floor(v.get<double>()));
  if (name == "number") return t == kIntegerType || t == kNumberType;
  if (name == "string") return t == kStringType;
  if (name == "array") return t == kArrayType;
  return name == "object" && t == kObjectType;
}

bool in_range(const OrderedJson& s, const Decimal& x) {
  auto bound = [&](const char* key, auto holds) {
    const auto b = s.contains(key) ? decimal_of(s[key]) : std::nullopt;
    return !b || holds(compare(x, *b));
  };
  auto strict = [&](const char* key) { return s.contains(key) && s[key] == OrderedJson(true); };
  if (s.contains("multipleOf"))
    if (const auto step = decimal_of(s["multipleOf"]); step && !step->negative && !is_multiple(x, *step).value_or(true))
      return false;
  return bound("minimum", [&](int c) { return c > 0 || (c == 0 && !strict("exclusiveMinimum")); }) &&
         bound("maximum", [&](int c) { return c < 0 || (c == 0 && !strict("exclusiveMaximum")); }) &&
         bound("exclusiveMinimum", [](int c) { return c > 0; }) &&
         bound("exclusiveMaximum", [](int c) { return c < 0; });
}

bool in_count(const OrderedJson& s, const char* least, const char* most, size_t n) {
  auto number = [&](const char* key, double otherwise) {
    return s.contains(key) && s[key].is_number() ? s[key].get<double>() : otherwise;
  };
  return static_cast<double>(n) >= number(least, 0) && static_cast<double>(n) <= number(most, INFINITY);
}

size_t characters(const std::string& s) {
  size_t n = 0;
  for (size_t i = 0; i < s.size(); ++n) next_code_point(s, i);
  return n;
}

bool all_different(const OrderedJson& list) {
  ValueSet seen;
  return std::all_of(list.begin(), list.end(), [&](const OrderedJson& v) { return seen.insert(v); });
}

std::shared_ptr<Automaton> machine_of(const std::string& regex) {
  JsonGrammar g;
  const Grammar::Rule root = g.pattern(regex);
  return std::make_shared<Automaton>(g.take(root), std::make_shared<const TokenBytes>(std::vector<std::string>{}));
}

}  // namespace

bool pattern_matches(const std::string& regex, const std::string& text) {
  try {
    return machine_of(regex)->matches(json_text(OrderedJson(text)));
  } catch (const Error&) {
    return false;
  }
}

bool JsonGrammar::matches(const std::string& regex, const OrderedJson& text, const std::string& at) const {
  auto known = patterns_.find(regex);
  if (known == patterns_.end()) {
    std::shared_ptr<Automaton> machine;
    try {
      machine = machine_of(regex);
    } catch (const NothingLeft&) {  // it matches nothing
    } catch (const Error& e) {
      fail_input("{}: {}", at, e.what());
    }
    known = patterns_.emplace(regex, std::move(machine)).first;
  }
  return known->second && known->second->matches(spelled(text));
}

bool JsonGrammar::named_by_pattern(const OrderedJson& s, const std::string& name, const std::string& at) const {
  if (!s.contains("patternProperties") || !s["patternProperties"].is_object()) return false;
  const auto& patterns = s["patternProperties"];
  return std::any_of(patterns.items().begin(), patterns.items().end(),
                     [&](const auto& p) { return matches(p.key(), OrderedJson(name), at); });
}

bool JsonGrammar::allows(const OrderedJson& s, const OrderedJson& v, const std::string& at, int depth,
                         Lookup& seen) const {
  if (depth > kMostDepth) fail_input("{}: the schema is nested too deeply", at);
  if (s.is_boolean()) return s.get<bool>();
  if (!s.is_object()) fail_input("{}: a schema is an object", at);
  auto inner = [&](const OrderedJson& schema, const OrderedJson& value) {
    return allows(schema, value, at, depth + 1, seen);
  };
  auto list = [&](const char* key) { return s.contains(key) && s[key].is_array() ? &s[key] : nullptr; };
  if (s.contains("nullable") && s["nullable"] == OrderedJson(true) && v.is_null()) return null_is_listed(s);
  if (s.contains("type")) {
    bool any = false;
    for (const auto& t : s["type"].is_array() ? s["type"] : OrderedJson::array({s["type"]}))
      any = any || (t.is_string() && has_type(v, t.get<std::string>()));
    if (!any) return false;
  }
  if (s.contains("const") && !same_json(s["const"], v)) return false;
  if (const auto* values = list("enum"); values && !seen.holds(*values, v)) return false;
  if (s.contains("$ref") && !inner(target(s["$ref"], at), v)) return false;
  if (const auto* parts = list("allOf"))
    for (const auto& p : *parts)
      if (!inner(p, v)) return false;
  if (s.contains("not") && inner(s["not"], v)) return false;
  if (s.contains("if"))
    if (const char* then = inner(s["if"], v) ? "then" : "else"; s.contains(then) && !inner(s[then], v)) return false;
  const auto holds = [&](const OrderedJson& c) { return inner(c, v); };
  if (const auto* any = list("anyOf"); any && std::none_of(any->begin(), any->end(), holds)) return false;
  if (const auto* one = list("oneOf"); one && std::count_if(one->begin(), one->end(), holds) != 1) return false;
  if (const auto number = decimal_of(v)) return in_range(s, *number);
  if (v.is_string()) {
    if (!in_count(s, "minLength", "maxLength", characters(v.get<std::string>()))) return false;
    if (s.contains("pattern"))
      for (const auto& p : s["pattern"].is_array() ? s["pattern"] : OrderedJson::array({s["pattern"]}))
        if (p.is_string() && !matches(p.get<std::string>(), v, at + "/pattern")) return false;
    if (!s.contains("format") || !s["format"].is_string()) return true;
    const auto regex = pattern_of_format(s["format"].get<std::string>());
    return !regex || regex->empty() || matches(*regex, v, at + "/format");
  }
  if (v.is_array()) {
    if (!in_count(s, "minItems", "maxItems", v.size())) return false;
    if (s.contains("uniqueItems") && s["uniqueItems"] == OrderedJson(true) && !all_different(v)) return false;
    if (s.contains("contains")) {
      const auto hits = static_cast<size_t>(
          std::count_if(v.begin(), v.end(), [&](const OrderedJson& e) { return inner(s["contains"], e); }));
      if ((hits == 0 && !s.contains("minContains")) || !in_count(s, "minContains", "maxContains", hits)) return false;
    }
    const auto* old = list("items");  // what prefixItems was called before 2020
    const auto* first = old ? old : list("prefixItems");
    const char* further = old ? "additionalItems" : s.contains("items") ? "items" : "unevaluatedItems";
    const size_t n = first ? std::min(first->size(), v.size()) : 0;
    for (size_t i = 0; i < n; ++i)
      if (!inner((*first)[i], v[i])) return false;
    for (size_t i = n; i < v.size() && s.contains(further); ++i)
      if (!inner(s[further], v[i])) return false;
    return true;
  }
  if (!v.is_object()) return true;
  if (!in_count(s, "minProperties", "maxProperties", v.size())) return false;
  const Members members(v);
  static const OrderedJson none = OrderedJson::object();
  if (const auto* names = list("required"))
    for (const auto& n : *names)
      if (n.is_string() && !members.find(n.get_ref<const std::string&>())) return false;
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"})
    for (const auto& [name, brings] : s.contains(key) && s[key].is_object() ? s[key].items() : none.items()) {
      if (!members.find(name)) continue;
      if (!brings.is_array() && !inner(brings, v)) return false;
      for (const auto& other : brings.is_array() ? brings : none)
        if (other.is_string() && !members.find(other.get_ref<const std::string&>())) return false;
    }
  const bool declared = s.contains("properties") && s["properties"].is_object();
  for (const auto& [name, member] : v.items()) {
    if (s.contains("propertyNames") && !inner(s["propertyNames"], OrderedJson(name))) return false;
    const OrderedJson* own = declared ? seen.member(s["properties"], name) : nullptr;
    bool known = own;
    if (own && !inner(*own, member)) return false;
    if (s.contains("patternProperties") && s["patternProperties"].is_object())
      for (const auto& [regex, p] : s["patternProperties"].items())
        if (matches(regex, OrderedJson(name), at + "/patternProperties")) {
          known = true;
          if (!inner(p, member)) return false;
          if (!own && s.contains(kOfUndeclared) && s[kOfUndeclared].contains(regex) &&
              !inner(s[kOfUndeclared][regex], member))
            return false;
        }
    for (const char* other : {"additionalProperties", "unevaluatedProperties"})
      if (!known && s.contains(other) && !inner(s[other], member)) return false;
  }
  return true;
}

}  // namespace mxt::serve
