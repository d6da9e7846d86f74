// "not", and "if" with "then" and "else", said by other keywords: what a schema leaves out is a schema again where its
// keywords have opposites. Listed values that must not be stay under "not" until the type of the answer is known.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/grammar/json_grammar.h"
#include "serve/grammar/lookup.h"
#include "serve/output/schema_types.h"

namespace mxt::serve {
namespace {

constexpr int kMaxNested = 32;
constexpr int64_t kMostCount = int64_t{1} << 31;
constexpr const char* kTypes[] = {"object", "array", "string", "number", "boolean", "null"};

OrderedJson other_types(const OrderedJson& type, const std::string& at) {
  const OrderedJson given = type.is_array() ? type : OrderedJson::array({type});
  for (const auto& name : given)
    if (name != "integer" && std::find(std::begin(kTypes), std::end(kTypes), name) == std::end(kTypes))
      fail_input("{}/type: {} is no JSON type", at, name.dump());
  const auto has = [&](const char* name) { return std::find(given.begin(), given.end(), name) != given.end(); };
  if (has("integer") && !has("number"))
    fail_input("{}: \"not\" of integers leaves numbers with a fraction: not supported; say a type", at);
  OrderedJson left = OrderedJson::array();
  for (const char* name : kTypes)
    if (!has(name)) left.push_back(name);
  return left;
}

OrderedJson one_of(const OrderedJson& pieces) {
  if (pieces.empty()) return false;
  return pieces.size() == 1 ? pieces[0] : OrderedJson{{"anyOf", pieces}};
}

// The opposite of a bound, for values of its type.
std::optional<OrderedJson> beyond(const std::string& key, const OrderedJson& bound, const std::string& at) {
  if (key == "minimum") return OrderedJson{{"type", "number"}, {"exclusiveMaximum", bound}};
  if (key == "maximum") return OrderedJson{{"type", "number"}, {"exclusiveMinimum", bound}};
  for (const auto& [type, least, most] : std::initializer_list<std::tuple<const char*, const char*, const char*>>{
           {"string", "minLength", "maxLength"},
           {"array", "minItems", "maxItems"},
           {"object", "minProperties", "maxProperties"}}) {
    if (key != least && key != most) continue;
    if (!bound.is_number_integer() || bound < 0) fail_input("{}/{}: a whole number from 0 on is wanted", at, key);
    const auto n = bound.get<int64_t>();
    if (key == most && n >= kMostCount) return OrderedJson(false);  // nobody writes more
    if (key == most) return OrderedJson{{"type", type}, {least, n + 1}};
    return n == 0 ? OrderedJson(false) : OrderedJson{{"type", type}, {most, n - 1}};
  }
  return std::nullopt;
}

}  // namespace

// A schema of what `s` does not allow: it misses one of the things that it demands.
OrderedJson JsonGrammar::opposite(OrderedJson s, const std::string& at, int depth) {
  if (depth > 2 * kMaxNested) fail_input("{}: the schema is nested too deeply", at);
  s = flat(copied(std::move(s), at), at);
  if (s.is_boolean()) return !s.get<bool>();
  if (!s.is_object()) fail_input("{}: a schema is an object", at);
  if (lists_values(s)) {
    OrderedJson values = OrderedJson::array();
    const OrderedJson listed = s.contains("const") ? OrderedJson::array({s["const"]}) : s["enum"];
    s.erase(s.contains("const") ? "const" : "enum");
    Lookup seen;
    for (const auto& v : listed)
      if (allows(s, v, at, 0, seen)) values.push_back(v);
    return values.empty() ? OrderedJson(true) : OrderedJson{{"not", {{"enum", values}}}};
  }
  OrderedJson pieces = OrderedJson::array();
  const auto add = [&](OrderedJson piece) {
    if (piece != OrderedJson(false)) pieces.push_back(std::move(piece));
  };
  for (const auto& [key, v] : s.items()) {
    if (is_annotation(key)) continue;
    if (key == "type") {
      if (const OrderedJson left = other_types(v, at); !left.empty()) add({{"type", left}});
    } else if (key == "required" && v.is_array()) {
      for (const auto& name : v)
        if (name.is_string()) add({{"type", "object"}, {"properties", {{name.get<std::string>(), false}}}});
    } else if (key == "properties" && v.is_object()) {
      for (const auto& [name, p] : v.items())
        if (const OrderedJson other = opposite(p, at + "/properties/" + name, depth + 1); other != OrderedJson(false))
          add({{"type", "object"}, {"properties", {{name, other}}}, {"required", OrderedJson::array({name})}});
    } else if (key == "anyOf" && v.is_array() && !v.empty()) {
      OrderedJson none = true;
      for (const auto& branch : v) none = copied(both(none, flat(opposite(branch, at, depth + 1), at), at), at);
      add(std::move(none));
    } else if (key == "allOf" && v.is_array()) {
      for (const auto& part : v) add(opposite(part, at, depth + 1));
    } else if (key == "not") {
      add(flat(copied(v, at), at));
    } else if (const auto bound = beyond(key, v, at)) {
      add(*bound);
    } else {
      fail_input("{}: \"{}\" inside \"not\" or \"if\" is not supported", at, key);
    }
  }
  return one_of(pieces);
}

// "if" as what it decides between.
OrderedJson JsonGrammar::conditional(const OrderedJson& s, const std::string& at, int depth) {
  struct Within {  // conditions that lead to themselves
    int& n;
    Within(int& count, const std::string& place) : n(count) {
      if (++n > kMaxNested) {
        --n;
        fail_input("{}: conditions are nested too deeply", place);
      }
    }
    ~Within() { --n; }
  } const within(conditions_, at);
  const OrderedJson rest = without(s, {"if", "then", "else"}, at);
  if (!s.contains("if") || (!s.contains("then") && !s.contains("else"))) return rest;
  OrderedJson branches = OrderedJson::array();
  std::string why;
  const auto add = [&](const OrderedJson& condition, const char* consequence) {
    try {
      OrderedJson branch = both(rest, flat(condition, at), at);
      if (s.contains(consequence)) branch = both(branch, flat(copied(s[consequence], at), at), at);
      branches.push_back(copied(std::move(branch), at));
    } catch (const NothingLeft& e) {
      why = e.what();
    }
  };
  add(copied(s["if"], at), "then");
  add(opposite(s["if"], at + "/if", depth + 1), "else");
  if (branches.empty()) throw NothingLeft(why);
  return one_of(branches);
}

// What is left of a schema of one type without values that it must not have.
JsonGrammar::Rule JsonGrammar::except(Rule of, const std::string& type, const OrderedJson& values,
                                      const std::string& at) {
  std::vector<std::string> texts;
  std::vector<Rule> literals;
  for (const auto& v : values) {
    const JsonTypes t = type_of(v);
    if (type == "string" && t == kStringType) texts.push_back(v.get<std::string>());
    if (type == "null" && t == kNullType) throw NothingLeft(at + ": null alone is left, and must not be");
    if (type == "integer" && t == kIntegerType) literals.push_back(literal(spelled(v)));
    const bool number = type == "number" && (t == kIntegerType || t == kNumberType);
    if (number || (type == "array" && t == kArrayType) || (type == "object" && t == kObjectType))
      fail_input("{}: \"not\" of values of type {} is not supported: they are written in many ways", at, type);
  }
  if (type == "boolean") {
    std::vector<Rule> left;
    for (const bool b : {false, true})
      if (std::find(values.begin(), values.end(), OrderedJson(b)) == values.end())
        left.push_back(literal(b ? "true" : "false"));
    if (left.empty()) throw NothingLeft(at + ": neither true nor false is left");
    return any_of(left);
  }
  if (!texts.empty() && form_ == Form::kText) {
    for (const auto& t : texts) literals.push_back(literal(t));
    return intersection(of, any_of(literals), at, true);
  }
  if (!texts.empty()) return intersection(of, other_than(texts), at);
  return literals.empty() ? of : intersection(of, any_of(literals), at, true);
}

}  // namespace mxt::serve
