#include "train/rewards/json_schema.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/files.h"

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

bool is_type(const OrderedJson& v, const std::string& type) {
  if (type == "integer")
    return v.is_number_integer() || (v.is_number() && v.get<double>() == std::floor(v.get<double>()));
  if (type == "number") return v.is_number();
  if (type == "string") return v.is_string();
  if (type == "boolean") return v.is_boolean();
  if (type == "null") return v.is_null();
  if (type == "array") return v.is_array();
  return type == "object" && v.is_object();
}

bool same(const OrderedJson& a, const OrderedJson& b) { return Json(a) == Json(b); }  // whatever the order of keys

int64_t code_points(const std::string& s) {
  return std::count_if(s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Whether a count or a number lies within the schema's bounds of that name.
bool within(const OrderedJson& s, double n, const char* least, const char* most) {
  return !(s.contains(least) && n < s[least].get<double>()) && !(s.contains(most) && n > s[most].get<double>());
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
      if (!value.is_number() || (key == "multipleOf" && value.get<double>() <= 0))
        fail_input("{}: {}: is {}, a number is needed", source_, here, value.dump());
    } else if (key == "type") {
      const OrderedJson types = value.is_array() ? value : OrderedJson::array({value});
      for (const OrderedJson& t : types)
        if (static const std::set<std::string> known{"integer", "number", "string", "boolean", "null", "array",
                                                     "object"};
            !t.is_string() || !known.contains(t.get<std::string>()))
          fail_input("{}: {}: {} is no type of JSON", source_, here, t.dump());
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
  if (s.contains("const") && !same(s["const"], v)) return false;
  if (s.contains("enum") &&
      std::none_of(s["enum"].begin(), s["enum"].end(), [&](const OrderedJson& x) { return same(x, v); }))
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
  if (!within(s, static_cast<double>(v.size()), "minProperties", "maxProperties")) return false;
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
  if (!within(s, static_cast<double>(v.size()), "minItems", "maxItems")) return false;
  const size_t first = s.contains("prefixItems") ? s["prefixItems"].size() : 0;
  for (size_t i = 0; i < v.size(); ++i) {
    if (i < first ? !holds(s["prefixItems"][i], v[i], depth + 1)
                  : s.contains("items") && !holds(s["items"], v[i], depth + 1))
      return false;
    if (s.contains("uniqueItems") && s["uniqueItems"] == OrderedJson(true))
      for (size_t k = 0; k < i; ++k)
        if (same(v[i], v[k])) return false;
  }
  return true;
}

bool JsonSchema::holds_scalar(const OrderedJson& s, const OrderedJson& v) const {
  if (v.is_string()) {
    const auto text = v.get<std::string>();
    return within(s, static_cast<double>(code_points(text)), "minLength", "maxLength") &&
           (!s.contains("pattern") || found(s["pattern"].get<std::string>(), text));
  }
  if (!v.is_number()) return true;
  const double n = v.get<double>();
  if (!within(s, n, "minimum", "maximum")) return false;
  if (s.contains("exclusiveMinimum") && n <= s["exclusiveMinimum"].get<double>()) return false;
  if (s.contains("exclusiveMaximum") && n >= s["exclusiveMaximum"].get<double>()) return false;
  if (!s.contains("multipleOf")) return true;
  const double times = n / s["multipleOf"].get<double>();
  return std::abs(times - std::round(times)) < 1e-9 * std::max(1.0, std::abs(times));
}

}  // namespace mxt::train
