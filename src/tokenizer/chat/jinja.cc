#include "tokenizer/chat/jinja.h"

#include <nlohmann/json.hpp>

#include "tokenizer/chat/eval/interp.h"
#include "tokenizer/chat/syntax/parser.h"
#include "tokenizer/chat/values/from_json.h"

namespace mxt::tokenizer::jinja {

Template::Template() = default;
Template::~Template() = default;

std::shared_ptr<const Template> Template::compile(std::string_view source, std::string_view name) {
  std::shared_ptr<Template> t(new Template);
  t->name_ = name;
  t->ast_ = Parser(source, name).run();
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
  Variables values;
  for (const auto& [name, value] : variables.items()) values.emplace_back(name, from_json(m, value));
  return Interp(m, t.ast(), values, now).run().text;
}

}  // namespace mxt::tokenizer::jinja
