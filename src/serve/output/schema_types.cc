#include "serve/output/schema_types.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "net/url.h"
#include "serve/grammar/json_grammar.h"

namespace mxt::serve {
namespace {

constexpr int kDeepestType = 32;

JsonTypes named(const std::string& type) {
  if (type == "null") return kNullType;
  if (type == "boolean") return kBooleanType;
  if (type == "integer") return kIntegerType;
  if (type == "number") return kNumberType | kIntegerType;
  if (type == "string") return kStringType;
  if (type == "array") return kArrayType;
  if (type == "object") return kObjectType;
  return kAnyType;
}

JsonTypes types_of(const OrderedJson& s, const OrderedJson& document, int depth) {
  if (!s.is_object() || depth > kDeepestType) return kAnyType;
  JsonTypes out = kAnyType;
  const auto list = [&](const char* key) { return s.contains(key) && s[key].is_array() ? &s[key] : nullptr; };
  if (s.contains("type") && s["type"].is_string()) out &= named(s["type"].get<std::string>());
  if (const OrderedJson* types = list("type")) {
    JsonTypes any = 0;
    for (const auto& t : *types) any |= t.is_string() ? named(t.get<std::string>()) : kAnyType;
    out &= any;
  }
  if (s.contains("const")) out &= type_of(s["const"]);
  if (const OrderedJson* values = list("enum")) {
    JsonTypes any = 0;
    for (const auto& v : *values) any |= type_of(v);
    out &= any;
  }
  for (const char* key : {"anyOf", "oneOf"})
    if (const OrderedJson* choices = list(key)) {
      JsonTypes any = 0;
      for (const auto& c : *choices) any |= types_of(c, document, depth + 1);
      out &= any;
    }
  if (const OrderedJson* parts = list("allOf"))
    for (const auto& p : *parts) out &= types_of(p, document, depth + 1);
  if (s.contains("$ref") && s["$ref"].is_string())
    if (const OrderedJson* to = referred(document, s["$ref"].get<std::string>()))
      out &= types_of(*to, document, depth + 1);
  if (s.contains("nullable") && s["nullable"] == OrderedJson(true)) out |= kNullType;
  return out == 0 ? kAnyType : out;
}

// Of a member of objects that `s` allows; 0 where nothing is said of it.
JsonTypes types_of_member(const OrderedJson& s, const std::string& name, const OrderedJson& document, int depth) {
  if (!s.is_object() || depth > kDeepestType) return 0;
  JsonTypes out = 0;
  const auto hold = [&](JsonTypes types) {
    if (types != 0) out = out == 0 ? types : out & types;
  };
  const auto list = [&](const char* key) { return s.contains(key) && s[key].is_array() ? &s[key] : nullptr; };
  bool known = s.contains("properties") && s["properties"].is_object() && s["properties"].contains(name);
  if (known) hold(types_of(s["properties"][name], document, depth + 1));
  if (s.contains("patternProperties") && s["patternProperties"].is_object())
    for (const auto& [regex, p] : s["patternProperties"].items())
      if (pattern_matches(regex, name)) {
        known = true;
        hold(types_of(p, document, depth + 1));
      }
  if (!known && s.contains("additionalProperties") && s["additionalProperties"].is_object())
    hold(types_of(s["additionalProperties"], document, depth + 1));
  if (const OrderedJson* parts = list("allOf"))
    for (const auto& p : *parts) hold(types_of_member(p, name, document, depth + 1));
  for (const char* key : {"anyOf", "oneOf"})
    if (const OrderedJson* choices = list(key)) {
      JsonTypes any = 0;
      for (const auto& c : *choices) any |= types_of_member(c, name, document, depth + 1);
      hold(any);
    }
  if (s.contains("$ref") && s["$ref"].is_string())
    if (const OrderedJson* to = referred(document, s["$ref"].get<std::string>()))
      hold(types_of_member(*to, name, document, depth + 1));
  return out;
}

const OrderedJson* anchored(const OrderedJson& s, const std::string& name, int depth) {
  if (depth > kDeepestType || !s.is_structured()) return nullptr;
  if (s.is_object() && s.contains("$anchor") && s["$anchor"] == name) return &s;
  for (const auto& inner : s)
    if (const OrderedJson* found = anchored(inner, name, depth + 1)) return found;
  return nullptr;
}

}  // namespace

JsonTypes type_of(const OrderedJson& v) {
  if (v.is_null()) return kNullType;
  if (v.is_boolean()) return kBooleanType;
  if (v.is_number_integer() || big_integer(v)) return kIntegerType;
  if (v.is_number()) return kNumberType;
  if (v.is_string()) return kStringType;
  return v.is_array() ? kArrayType : kObjectType;
}

JsonTypes types_of_parameter(const OrderedJson& parameters, const std::string& name) {
  const JsonTypes types = types_of_member(parameters, name, parameters, 0);
  return types == 0 ? kAnyType : types;
}

const OrderedJson* referred(const OrderedJson& document, const std::string& ref) {
  std::string_view place = ref;
  // The document may call itself by the name that it has.
  if (const auto id = document.is_object() ? document.find("$id") : document.end(); id != document.end())
    if (id->is_string() && !id->get_ref<const std::string&>().empty() && !ref.starts_with("#") &&
        place.starts_with(id->get_ref<const std::string&>()))
      place.remove_prefix(id->get_ref<const std::string&>().size());
  if (place.empty() && !ref.empty()) return &document;
  if (!place.starts_with("#")) return nullptr;
  const auto plain = net::percent_decode(place.substr(1));
  if (!plain) return nullptr;
  if (!plain->empty() && plain->front() != '/') return anchored(document, *plain, 0);
  try {
    const OrderedJson::json_pointer p(*plain);
    if (document.contains(p)) return &document[p];
  } catch (const OrderedJson::exception&) {
  }
  return nullptr;
}

}  // namespace mxt::serve
