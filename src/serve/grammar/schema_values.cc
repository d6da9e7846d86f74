// How many different values a schema has at most: a list whose elements differ holds no more.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "serve/grammar/decimal.h"
#include "serve/grammar/json_grammar.h"
#include "serve/grammar/lookup.h"

namespace mxt::serve {
namespace {

constexpr int64_t kMany = JsonGrammar::kManyValues;
constexpr int kMostParts = 1000;  // of one schema that are looked into: refs lead in circles

int64_t sum(int64_t a, int64_t b) { return std::min(kMany, a + b); }

std::optional<int64_t> small(const Decimal& d) {
  if (!d.is_whole() || d.whole.size() > 15) return std::nullopt;
  return (d.negative ? -1 : 1) * std::stoll(d.whole);
}

int64_t floor_of_quotient(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// The innermost integer that a bound and its exclusive form (before 2017 true or false) leave.
std::optional<int64_t> bound(const OrderedJson& s, const char* key, const char* exclusive, bool low) {
  std::optional<int64_t> out;
  const auto hold = [&](const OrderedJson& value, bool with) {
    const auto d = decimal_of(value);
    if (!d) return;
    const auto n = small(with ? (low ? ceil_of(*d) : floor_of(*d)) : (low ? next_whole(*d) : last_whole(*d)));
    if (n) out = !out ? *n : low ? std::max(*out, *n) : std::min(*out, *n);
  };
  const bool has = s.contains(exclusive);
  if (s.contains(key)) hold(s[key], !has || s[exclusive] != OrderedJson(true));
  if (has && !s[exclusive].is_boolean()) hold(s[exclusive], false);
  return out;
}

int64_t integers(const OrderedJson& s) {
  const auto low = bound(s, "minimum", "exclusiveMinimum", true), high = bound(s, "maximum", "exclusiveMaximum", false);
  if (!low || !high) return kMany;
  const auto step = s.contains("multipleOf") ? decimal_of(s["multipleOf"]) : std::nullopt;
  const int64_t by = std::max<int64_t>(step ? small(*step).value_or(1) : 1, 1);
  return std::max<int64_t>(floor_of_quotient(*high, by) - floor_of_quotient(*low - 1, by), 0);
}

int64_t values_of_type(const OrderedJson& s, const std::string& type) {
  if (type == "null") return 1;
  if (type == "boolean") return 2;
  if (type == "integer") return integers(s);
  const auto step = s.contains("multipleOf") ? decimal_of(s["multipleOf"]) : std::nullopt;
  if (type == "number" && step && step->is_whole()) return integers(s);
  const char* most = type == "string" ? "maxLength" : type == "array" ? "maxItems" : "maxProperties";
  return type != "number" && s.contains(most) && s[most] == OrderedJson(0) ? 1 : kMany;
}

}  // namespace

int64_t JsonGrammar::most_values(const OrderedJson& s, const std::string& at, int& parts) const {
  if (s.is_boolean()) return s.get<bool>() ? kMany : 0;
  if (!s.is_object() || ++parts > kMostParts) return kMany;
  int64_t most = kMany;
  if (const auto list = s.find("enum"); list != s.end() && list->is_array()) {
    ValueSet different;
    Lookup seen;
    most = std::count_if(list->begin(), list->end(),
                         [&](const OrderedJson& v) { return allows(s, v, at, 0, seen) && different.insert(v); });
  } else if (s.contains("const")) {
    most = 1;
  } else if (s.contains("type")) {
    most = 0;
    for (const auto& type : s["type"].is_array() ? s["type"] : OrderedJson::array({s["type"]}))
      most = sum(most, type.is_string() ? values_of_type(s, type.get<std::string>()) : kMany);
  }
  if (s.contains("$ref")) most = std::min(most, most_values(target(s["$ref"], at), at, parts));
  if (const auto all = s.find("allOf"); all != s.end() && all->is_array())
    for (const auto& part : *all) most = std::min(most, most_values(part, at, parts));
  for (const char* key : {"anyOf", "oneOf"})
    if (const auto any = s.find(key); any != s.end() && any->is_array()) {
      int64_t of_any = 0;
      for (const auto& part : *any) of_any = sum(of_any, most_values(part, at, parts));
      most = std::min(most, of_any);
    }
  return s.contains("nullable") && s["nullable"] == OrderedJson(true) ? sum(most, 1) : most;
}

// Elements are counted by their values where these are few, else by their schemas: as many as stand there, but no more
// than the schema has values.
int64_t JsonGrammar::most_different(const OrderedJson& first, const OrderedJson& further, const std::string& at) const {
  std::set<std::string> values;
  std::map<std::string, std::pair<int64_t, int64_t>> others;  // places, values
  const auto add = [&](const OrderedJson& s, int64_t places) {
    if (const auto few = finite(s); !few.empty()) {
      values.insert(few.begin(), few.end());
    } else {
      int parts = 0;
      auto& other = others.try_emplace(s.dump(), 0, -1).first->second;
      if (other.second < 0) other.second = most_values(s, at, parts);
      other.first = sum(other.first, places);
    }
    auto n = static_cast<int64_t>(values.size());
    for (const auto& [text, o] : others) n = sum(n, std::min(o.first, o.second));
    return n;
  };
  for (size_t i = 0; i < first.size(); ++i)
    if (add(first[i], 1) <= static_cast<int64_t>(i)) return static_cast<int64_t>(i);
  return add(further, kMany);
}

}  // namespace mxt::serve
