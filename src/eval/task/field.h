// A task's doc_to_text, doc_to_target and the like: a column's name, a Jinja template, a constant or a known function.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/task/functions.h"

namespace mxt::jinja {
class Template;
}

namespace mxt::eval {

class Field {
 public:
  Field() = default;
  // `where` names the task and key. `columns`: of the documents; text that is one of them names it.
  Field(const OrderedJson& value, const std::string& where, const std::vector<std::string>& columns);
  bool set() const { return !value_.is_null(); }
  bool is_text() const { return value_.is_string(); }
  bool is_column() const { return column_; }
  // The column's value, the function's, the constant; for a template its text.
  OrderedJson of(const OrderedJson& doc) const;
  std::string render(const OrderedJson& doc) const;  // a template only

 private:
  OrderedJson value_;
  std::string where_;
  bool column_ = false;
  const TaskFunction* function_ = nullptr;
  std::shared_ptr<const jinja::Template> template_;
};

}  // namespace mxt::eval
