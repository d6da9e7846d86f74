#include "eval/task/field.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "eval/task/yaml.h"
#include "jinja/jinja.h"

namespace mxt::eval {

Field::Field(const OrderedJson& value, const std::string& where, const std::vector<std::string>& columns)
    : value_(value), where_(where) {
  if (is_function(value_)) {
    function_ = &known_function(value_, where);
    if (!function_->of_doc) fail_input("{}: {} does not make a value of a document", where, function_name(value_));
  } else if (value_.is_string()) {
    const std::string& s = value_.get_ref<const std::string&>();
    column_ = std::find(columns.begin(), columns.end(), s) != columns.end();
    if (!column_) template_ = jinja::Template::compile(s, where, jinja::Style::plain());
  }
}

std::string Field::render(const OrderedJson& doc) const {
  return template_ ? jinja::render(*template_, doc) : std::string();
}

OrderedJson Field::of(const OrderedJson& doc) const {
  if (function_) return function_->of_doc(doc);
  if (column_) return doc.at(value_.get_ref<const std::string&>());
  if (template_) return render(doc);
  return value_;
}

}  // namespace mxt::eval
