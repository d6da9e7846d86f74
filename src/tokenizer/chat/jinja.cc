#include "tokenizer/chat/jinja.h"

#include <nlohmann/json.hpp>

#include "tokenizer/chat/eval/interp.h"
#include "tokenizer/chat/syntax/parser.h"
#include "tokenizer/chat/values/from_json.h"

namespace mxt::tokenizer::jinja {

Template::Template() = default;
Template::~Template() = default;

std::shared_ptr<const Template> Template::compile(std::string_view source, std::string_view name, const Style& style) {
  std::shared_ptr<Template> t(new Template);
  t->name_ = name;
  t->style_ = style;
  t->ast_ = Parser(source, name, style).run();
  return t;
}

bool Template::reads(std::string_view variable) const {
  const auto it = ast_->ids.find(std::string(variable));
  return it != ast_->ids.end() && ast_->read[it->second];
}

bool Template::has_generation() const { return ast_->generation; }

std::string render(const Template& t, const OrderedJson& variables, const Limits& limits, int64_t now) {
  if (!variables.is_object()) fail_input("{}: the variables of a template are a JSON object", t.name());
  Machine m(t.name(), limits);
  m.strict_undefined = t.style().strict_undefined;
  Variables values;
  for (const auto& [name, value] : variables.items()) values.emplace_back(name, from_json(m, value));
  return Interp(m, t.ast(), values, now).run().text;
}

}  // namespace mxt::tokenizer::jinja
