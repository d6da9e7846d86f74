#include "jinja/jinja.h"

#include <nlohmann/json.hpp>

#include "jinja/eval/interp.h"
#include "jinja/syntax/parser.h"
#include "jinja/values/from_json.h"

namespace mxt::jinja {

Template::Template() = default;
Template::~Template() = default;

std::shared_ptr<const Template> Template::compile(std::string_view source, std::string_view name, const Style& style) {
  std::shared_ptr<Template> t(new Template);
  t->name_ = name;
  t->source_ = source;
  t->style_ = style;
  t->ast_ = Parser(source, name, style).run();
  return t;
}

bool Template::reads(std::string_view variable) const {
  const auto it = ast_->ids.find(std::string(variable));
  return it != ast_->ids.end() && ast_->read[it->second];
}

bool Template::has_generation() const { return ast_->generation; }
bool Template::has_text(std::string_view part) const { return source_.find(part) != std::string::npos; }

bool Template::reads_member(std::string_view name) const {
  for (size_t at = source_.find(name); at != std::string::npos; at = source_.find(name, at + 1)) {
    const size_t end = at + name.size();
    const char before = at > 0 ? source_[at - 1] : ' ', after = end < source_.size() ? source_[end] : ' ';
    const bool goes_on =
        after == '_' || (after >= '0' && after <= '9') || ((after | 0x20) >= 'a' && (after | 0x20) <= 'z');
    if ((before == '.' && !goes_on) || ((before == '"' || before == '\'') && after == before)) return true;
  }
  return false;
}

std::string render(const Template& t, const OrderedJson& variables, const Limits& limits, int64_t now) {
  if (!variables.is_object()) fail_input("{}: the variables of a template are a JSON object", t.name());
  Machine m(t.name(), limits);
  m.strict_undefined = t.style().strict_undefined;
  Variables values;
  for (const auto& [name, value] : variables.items()) values.emplace_back(name, from_json(m, value));
  return Interp(m, t.ast(), values, now).run().text;
}

}  // namespace mxt::jinja
