// Whether a JSON value is as a schema demands (JSON Schema 2020-12, its assertions):
//   type enum const · properties required additionalProperties patternProperties min/maxProperties · items prefixItems
//   min/maxItems uniqueItems · min/maxLength pattern · minimum maximum exclusiveMinimum exclusiveMaximum multipleOf ·
//   allOf anyOf oneOf not · $ref into the document ("#/…")
// Integers are compared digit by digit, however long.
// A keyword that is none of these and no remark (title, description, default, examples, format …) is refused, so that
// no reward is given for what was not looked at.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "pytext/python_regex.h"

namespace mxt::train {

class JsonSchema {
 public:
  // Errors (kBadInput) name the file and the place: no JSON, a keyword or a value that is not understood.
  static JsonSchema read(const std::string& path);
  JsonSchema(OrderedJson document, std::string source);
  bool allows(const OrderedJson& value) const { return holds(document_, value, 0); }

 private:
  void check(const OrderedJson& schema, const std::string& at, int depth);
  void pattern(const OrderedJson& text, const std::string& at);
  const OrderedJson& target(const std::string& ref, const std::string& at) const;
  bool holds(const OrderedJson& schema, const OrderedJson& value, int depth) const;
  bool holds_object(const OrderedJson& schema, const OrderedJson& value, int depth) const;
  bool holds_array(const OrderedJson& schema, const OrderedJson& value, int depth) const;
  bool holds_scalar(const OrderedJson& schema, const OrderedJson& value) const;
  bool found(const std::string& pattern, const std::string& text) const;

  OrderedJson document_;
  std::string source_;
  std::map<std::string, std::shared_ptr<const pytext::PythonRegex>> patterns_;
};

}  // namespace mxt::train
