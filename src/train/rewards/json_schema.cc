#include "train/rewards/json_schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"

namespace mxt::train {
namespace {

constexpr int kDeepest = 64;  // of $ref and nesting: a schema that refers to itself without end allows nothing

const std::set<std::string, std::less<>> kRemarks = {
    "$schema", "$id",      "$comment", "$defs",    "definitions", "title",      "description",
    "default", "examples", "format",   "readOnly", "writeOnly",   "deprecated", "contentMediaType"};
const std::set<std::string, std::less<>> kSchemas = {"not"};  // one
const std::set<std::string, std::less<>> kSchemaLists = {"allOf", "anyOf", "oneOf", "prefixItems"};
const std::set<std::string, std::less<>> kSchemaMaps = {"properties", "patternProperties"};
const std::set<std::string, std::less<>> kSchemaOrBool = {"items", "additionalProperties"};
const std::set<std::string, std::less<>> kNumbers = {
    "minimum",   "maximum",  "exclusiveMinimum", "exclusiveMaximum", "multipleOf",   "minLength",
    "maxLength", "minItems", "maxItems",         "minProperties",    "maxProperties"};

// A number's value, of a long integer the nearest double; nothing for what is no number.
std::optional<double> number_of(const OrderedJson& v) {
  if (v.is_number()) return v.get<double>();
  const auto digits = big_integer(v);
  if (!digits) return std::nullopt;
  double d = 0;
  const bool too_large = std::from_chars(digits->data(), digits->data() + digits->size(), d).ec != std::errc();
  return too_large ? std::copysign(INFINITY, digits->front() == '-' ? -1.0 : 1.0) : d;
}

bool is_type(const OrderedJson& v, const std::string& type) {
  if (type == "integer") return v.is_number_integer() || number_of(v) == std::floor(number_of(v).value_or(NAN));
  if (type == "number") return number_of(v).has_value();
  if (type == "string") return v.is_string();
  if (type == "boolean") return v.is_boolean();
  if (type == "null") return v.is_null();
  if (type == "array") return v.is_array();
  return type == "object" && v.is_object();
}

int64_t code_points(const std::string& s) {
  return std::count_if(s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// A number digit by digit: doubles hold no integer beyond 2^53 exactly.
struct Exact {
  bool negative = false;
  std::string whole;    // its digits, "0" at least
  double fraction = 0;  // of its size, in [0, 1)
};

Exact exact(const OrderedJson& number) {
  Exact out;
  std::string text;
  if (const auto digits = big_integer(number)) {
    text = *digits;
  } else if (number.is_number_float()) {
    const double d = number.get<double>(), whole = std::trunc(d);
    text = fmt::format("{:.0f}", whole);
    out.fraction = std::abs(d - whole);
  } else {
    text = number.dump();
  }
  const size_t sign = text.starts_with('-') ? 1 : 0;
  out.whole = text.substr(sign);
  out.negative = sign == 1 && (out.whole != "0" || out.fraction > 0);
  return out;
}

// Of digits without zeros in front.
int compare_digits(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? (a.size() < b.size() ? -1 : 1) : a.compare(b);
}

// Less than 0, 0 or more as a is less than b, equal to it or more.
int compare(const OrderedJson& left, const OrderedJson& right) {
  const Exact a = exact(left), b = exact(right);
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int size = compare_digits(a.whole, b.whole);
  if (size == 0) size = a.fraction < b.fraction ? -1 : a.fraction > b.fraction;
  return a.negative ? -size : size;
}

// Whether a number of these digits is a multiple of another's, by long division.
bool divides(const std::string& by, const std::string& digits) {
  std::string rest;
  for (const char c : digits) {
    if (rest == "0") rest.clear();
    rest += c;
    while (compare_digits(rest, by) >= 0) {
      int borrow = 0;
      for (size_t i = 0; i < rest.size(); ++i) {
        int d = rest[rest.size() - 1 - i] - '0' - borrow - (i < by.size() ? by[by.size() - 1 - i] - '0' : 0);
        borrow = d < 0;
        rest[rest.size() - 1 - i] = static_cast<char>('0' + d + 10 * borrow);
      }
      rest.erase(0, std::min(rest.find_first_not_of('0'), rest.size() - 1));
    }
  }
  return rest == "0";
}

// Of numbers with a fraction as far as doubles tell.
bool is_multiple(const OrderedJson& value, const OrderedJson& of) {
  const Exact v = exact(value), unit = exact(of);
  if (v.fraction == 0 && unit.fraction == 0) return divides(unit.whole, v.whole);
  const double times = *number_of(value) / *number_of(of);
  return std::abs(times - std::round(times)) < 1e-9 * std::max(1.0, std::abs(times));
}

// Whether a count or a number lies within the schema's bounds of that name.
bool within(const OrderedJson& s, const OrderedJson& n, const char* least, const char* most) {
  return !(s.contains(least) && compare(n, s[least]) < 0) && !(s.contains(most) && compare(n, s[most]) > 0);
}

}  // namespace

JsonSchema JsonSchema::read(const std::string& path) { return {parse_ordered_json(read_file(path), path), path}; }

JsonSchema::JsonSchema(OrderedJson document, std::string source)
    : document_(std::move(document)), source_(std::move(source)) {
  check(document_, "#", 0);
}

void JsonSchema::check(const OrderedJson& s, const std::string& at, int depth) {
  if (s.is_boolean()) return;
  if (!s.is_object() || depth > kDeepest) fail_input("{}: {}: is no schema (an object, true or false)", source_, at);
  for (const auto& [key, value] : s.items()) {
    const std::string here = at + "/" + key;
    if (key == "$defs" || key == "definitions" || kSchemaMaps.contains(key)) {
      if (!value.is_object()) fail_input("{}: {}: must be an object of schemas", source_, here);
      for (const auto& [name, inner] : value.items()) {
        if (key == "patternProperties") pattern(name, here);
        check(inner, here + "/" + name, depth + 1);
      }
    } else if (kRemarks.contains(key) || key == "const" || key == "uniqueItems") {
    } else if (kSchemas.contains(key) || kSchemaOrBool.contains(key)) {
      check(value, here, depth + 1);
    } else if (kSchemaLists.contains(key)) {
      if (!value.is_array() || value.empty()) fail_input("{}: {}: must be a list of schemas", source_, here);
      for (size_t i = 0; i < value.size(); ++i) check(value[i], fmt::format("{}/{}", here, i), depth + 1);
    } else if (kNumbers.contains(key)) {
      const auto n = number_of(value);
      if (!n || (key == "multipleOf" && *n <= 0))
        fail_input("{}: {}: is {}, a number is needed", source_, here, json_text(value));
    } else if (key == "type") {
      const OrderedJson types = value.is_array() ? value : OrderedJson::array({value});
      for (const OrderedJson& t : types)
        if (static const std::set<std::string> known{"integer", "number", "string", "boolean", "null", "array",
                                                     "object"};
            !t.is_string() || !known.contains(t.get<std::string>()))
          fail_input("{}: {}: {} is no type of JSON", source_, here, json_text(t));
    } else if (key == "enum" || key == "required") {
      if (!value.is_array()) fail_input("{}: {}: must be a list", source_, here);
      for (const OrderedJson& x : value)
        if (key == "required" && !x.is_string()) fail_input("{}: {}: must hold names", source_, here);
    } else if (key == "pattern") {
      pattern(value, here);
    } else if (key == "$ref") {
      if (!value.is_string()) fail_input("{}: {}: must be a text", source_, here);
      target(value.get<std::string>(), here);
    } else {
      fail_input("{}: {}: this keyword is not looked at here: leave it out", source_, here);
    }
  }
}

void JsonSchema::pattern(const OrderedJson& text, const std::string& at) {
  if (!text.is_string()) fail_input("{}: {}: must be a regular expression", source_, at);
  const auto p = text.get<std::string>();
  patterns_[p] = std::make_shared<const pytext::PythonRegex>(p, source_ + ": " + at);
}

const OrderedJson& JsonSchema::target(const std::string& ref, const std::string& at) const {
  if (ref == "#") return document_;
  if (!ref.starts_with("#/")) fail_input("{}: {}: {} leads out of the file: only #/… is followed", source_, at, ref);
  const OrderedJson::json_pointer where(ref.substr(1));
  if (!document_.contains(where)) fail_input("{}: {}: there is no {}", source_, at, ref);
  return document_[where];
}

bool JsonSchema::found(const std::string& p, const std::string& text) const { return patterns_.at(p)->search(text); }

bool JsonSchema::holds(const OrderedJson& s, const OrderedJson& v, int depth) const {
  if (s.is_boolean()) return s.get<bool>();
  if (depth > kDeepest) return false;
  const auto one = [&](const OrderedJson& inner) { return holds(inner, v, depth + 1); };
  if (s.contains("$ref") && !one(target(s["$ref"].get<std::string>(), "$ref"))) return false;
  if (s.contains("type")) {
    const OrderedJson types = s["type"].is_array() ? s["type"] : OrderedJson::array({s["type"]});
    if (std::none_of(types.begin(), types.end(),
                     [&](const OrderedJson& t) { return is_type(v, t.get<std::string>()); }))
      return false;
  }
  if (s.contains("const") && !same_json(s["const"], v)) return false;
  if (s.contains("enum") &&
      std::none_of(s["enum"].begin(), s["enum"].end(), [&](const OrderedJson& x) { return same_json(x, v); }))
    return false;
  if (s.contains("allOf") && !std::all_of(s["allOf"].begin(), s["allOf"].end(), one)) return false;
  if (s.contains("anyOf") && std::none_of(s["anyOf"].begin(), s["anyOf"].end(), one)) return false;
  if (s.contains("oneOf") && std::count_if(s["oneOf"].begin(), s["oneOf"].end(), one) != 1) return false;
  if (s.contains("not") && one(s["not"])) return false;
  if (v.is_object()) return holds_object(s, v, depth);
  if (v.is_array()) return holds_array(s, v, depth);
  return holds_scalar(s, v);
}

bool JsonSchema::holds_object(const OrderedJson& s, const OrderedJson& v, int depth) const {
  if (!within(s, v.size(), "minProperties", "maxProperties")) return false;
  if (s.contains("required"))
    for (const OrderedJson& name : s["required"])
      if (!v.contains(name.get<std::string>())) return false;
  const OrderedJson none = OrderedJson::object();
  const OrderedJson &named = s.contains("properties") ? s["properties"] : none,
                    &matched = s.contains("patternProperties") ? s["patternProperties"] : none;
  for (const auto& [key, value] : v.items()) {
    bool known = named.contains(key);
    if (known && !holds(named[key], value, depth + 1)) return false;
    for (const auto& [p, inner] : matched.items()) {
      if (!found(p, key)) continue;
      known = true;
      if (!holds(inner, value, depth + 1)) return false;
    }
    if (!known && s.contains("additionalProperties") && !holds(s["additionalProperties"], value, depth + 1))
      return false;
  }
  return true;
}

bool JsonSchema::holds_array(const OrderedJson& s, const OrderedJson& v, int depth) const {
  if (!within(s, v.size(), "minItems", "maxItems")) return false;
  const size_t first = s.contains("prefixItems") ? s["prefixItems"].size() : 0;
  for (size_t i = 0; i < v.size(); ++i) {
    if (i < first ? !holds(s["prefixItems"][i], v[i], depth + 1)
                  : s.contains("items") && !holds(s["items"], v[i], depth + 1))
      return false;
    if (s.contains("uniqueItems") && s["uniqueItems"] == OrderedJson(true))
      for (size_t k = 0; k < i; ++k)
        if (same_json(v[i], v[k])) return false;
  }
  return true;
}

bool JsonSchema::holds_scalar(const OrderedJson& s, const OrderedJson& v) const {
  if (v.is_string()) {
    const auto text = v.get<std::string>();
    return within(s, code_points(text), "minLength", "maxLength") &&
           (!s.contains("pattern") || found(s["pattern"].get<std::string>(), text));
  }
  if (!number_of(v)) return true;
  return within(s, v, "minimum", "maximum") &&
         !(s.contains("exclusiveMinimum") && compare(v, s["exclusiveMinimum"]) <= 0) &&
         !(s.contains("exclusiveMaximum") && compare(v, s["exclusiveMaximum"]) >= 0) &&
         (!s.contains("multipleOf") || is_multiple(v, s["multipleOf"]));
}

}  // namespace mxt::train
