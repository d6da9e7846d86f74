// JSON Schema of the recipe, out of the declarations.
#include <cmath>

#include "config/field.h"
#include "config/rules.h"

namespace mxt::config {
namespace {

std::string bare(const std::string& choice) { return choice.starts_with('+') ? choice.substr(1) : choice; }

OrderedJson number(double v, bool whole) {
  if (whole) return static_cast<int64_t>(v);
  return v;
}

void add_range(OrderedJson& j, const Field& f, bool whole) {
  if (!f.allowed.empty()) j["enum"] = f.allowed;
  if (std::isfinite(f.range.low)) j[f.range.low_open ? "exclusiveMinimum" : "minimum"] = number(f.range.low, whole);
  if (std::isfinite(f.range.high)) j[f.range.high_open ? "exclusiveMaximum" : "maximum"] = number(f.range.high, whole);
}

OrderedJson section_schema(const Section& s, const std::string& path);

OrderedJson choices_schema(const Field& f) {
  OrderedJson j;
  j["type"] = "string";
  for (const auto& c : f.choices) j["enum"].push_back(bare(c));
  return j;
}

OrderedJson value_schema(const Field& f, const std::string& path) {
  OrderedJson j = OrderedJson::object();
  switch (f.shape) {
    case Shape::kBool:
      j["type"] = "boolean";
      break;
    case Shape::kInt:
      j["type"] = "integer";
      add_range(j, f, true);
      break;
    case Shape::kFloat:
      j["type"] = "number";
      add_range(j, f, false);
      break;
    case Shape::kText:
      j["type"] = "string";
      if (f.non_empty) j["pattern"] = "\\S";
      break;
    case Shape::kChoice:
      j = choices_schema(f);
      break;
    case Shape::kList:
      j["type"] = "array";
      j["items"] = {{"type", "string"}, {"pattern", "\\S"}};
      if (f.non_empty) j["minItems"] = 1;
      if (!f.choices.empty()) j = {{"oneOf", {std::move(j), {{"enum", f.choices}}}}};
      break;
    case Shape::kChoiceList:
      j["type"] = "array";
      j["items"] = choices_schema(f);
      break;
    case Shape::kPair:
      j["type"] = "array";
      j["items"]["type"] = "number";
      add_range(j["items"], f, false);
      j["minItems"] = j["maxItems"] = 2;
      break;
    case Shape::kTextMap:
      j["type"] = "object";
      j["propertyNames"]["minLength"] = 1;
      j["additionalProperties"]["type"] = "string";
      break;
    case Shape::kIntList:
      j["type"] = "array";
      j["items"]["type"] = "integer";
      add_range(j["items"], f, true);
      break;
    case Shape::kIntMap:
      j["type"] = "object";
      j["propertyNames"]["minLength"] = 1;
      j["additionalProperties"]["type"] = "integer";
      add_range(j["additionalProperties"], f, true);
      break;
    case Shape::kPathOrInline:
      j["type"] = {"string", "object", "null"};
      break;
    case Shape::kSection:
      j = section_schema(*f.section, path);
      break;
    case Shape::kSectionList:
      j["type"] = "array";
      j["items"] = section_schema(*f.section, path + "[]");
      break;
    case Shape::kUnion:
      j["type"] = "object";
      for (const auto& [kind, section] : f.variants) {
        OrderedJson v = section_schema(*section, path + "." + kind);
        v["properties"]["kind"] = {{"const", kind}};
        v["required"] = {"kind"};
        j["oneOf"].push_back(std::move(v));
      }
      if (auto rules = schema_rules(path); !rules.empty()) j["allOf"] = std::move(rules);
      break;
  }
  // `eval:` with nothing after it is refused: a stage is not null.
  if (f.nullable && !(f.section && path == f.key)) {
    if (j.contains("enum")) j["enum"].push_back(nullptr);
    j["type"] = {j["type"], "null"};
  }
  return j;
}

OrderedJson section_schema(const Section& s, const std::string& path) {
  OrderedJson j;
  j["type"] = "object";
  j["description"] = s.doc;
  j["additionalProperties"] = false;
  const std::string prefix = path.empty() ? "" : path + ".";
  for (const Field& f : s.fields) {
    OrderedJson v = value_schema(f, prefix + f.key);
    v["description"] = f.doc;
    if (f.shape != Shape::kSection && f.default_note.empty() && !f.required && !f.default_value.is_null())
      v["default"] = f.default_value;
    j["properties"][f.key] = std::move(v);
    if (f.required) j["required"].push_back(f.key);
  }
  if (auto rules = schema_rules(path); !rules.empty()) j["allOf"] = std::move(rules);
  return j;
}

}  // namespace

OrderedJson schema() {
  OrderedJson j;
  j["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  j["title"] = "mindXtrain recipe";
  j.update(section_schema(declare_recipe(), ""));
  OrderedJson& model = j["properties"]["model"];  // `model: qwen3-8b` says its name alone
  model["type"] = {"object", "string"};
  model["minLength"] = 1;
  return j;
}

}  // namespace mxt::config
