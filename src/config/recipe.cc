#include "config/recipe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/hash.h"
#include "config/field.h"
#include "config/rules.h"
#include "config/yaml.h"

namespace mxt::config {

bool Recipe::is_given(std::string_view key) const { return std::find(given.begin(), given.end(), key) != given.end(); }

std::string Issue::text() const {
  return key.empty() ? fmt::format("{}:{}:{}: {}", source, line, column, what)
                     : fmt::format("{}:{}:{}: {}: {}", source, line, column, key, what);
}

std::vector<Issue> check_recipe(std::string_view text, std::string_view source, Recipe* out) {
  Reader reader{std::string(source)};
  const YamlResult yaml = parse_yaml(text);
  for (const auto& p : yaml.problems) reader.issue(p.mark, p.key, p.what);
  Recipe r;
  if (yaml.parsed) {
    declare_recipe().read(&r, yaml.root, "", reader);
    declare_recipe().derive(&r, r, "", reader);
    fill_env(&r);
    check_rules(r, reader);
  }
  std::vector<Issue> issues = std::move(reader.issues());
  std::stable_sort(issues.begin(), issues.end(), [](const Issue& a, const Issue& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  if (issues.empty()) {
    r.source = source;
    r.text = text;
    r.given = reader.given();
    if (out) *out = std::move(r);
  }
  return issues;
}

Recipe parse_recipe(std::string_view text, std::string_view source) {
  Recipe r;
  const auto issues = check_recipe(text, source, &r);
  if (issues.size() == 1) fail_input("{}", issues[0].text());
  if (!issues.empty())
    fail_input("{} (and {} more: `mindxtrain validate` lists them)", issues[0].text(), issues.size() - 1);
  return r;
}

Recipe load_recipe(const std::string& path) { return parse_recipe(read_file(path), path); }

std::string canonical(const Recipe& recipe) {
  // Through Json: keys sorted, so the order of the declarations is not part of the hash.
  return canonical_json(Json(declare_recipe().write(&recipe)));
}

std::string recipe_hash(const Recipe& recipe) { return blake3_hex(canonical(recipe)); }

std::vector<std::string> off_stages(const Recipe& r) {
  std::vector<std::string> out;
  const auto stage = [&](const char* name, bool present, bool enabled) {
    if (!present)
      out.push_back(fmt::format("{}: absent, so off", name));
    else if (!enabled)
      out.push_back(fmt::format("{}: off, as the recipe says", name));
  };
  stage("eval", r.eval.has_value(), true);
  stage("quantize", r.quantize.has_value(),
        r.quantize && r.quantize->enabled && r.quantize->scheme != QuantScheme::kNone);
  stage("serve", r.serve.has_value(), true);
  stage("publish", r.publish.has_value(), r.publish && r.publish->enabled);
  return out;
}

std::vector<std::string> hints(const Recipe& r) {
  std::vector<std::string> out;
  const auto walk = [&](const auto& self, const Section& s, const std::string& prefix) -> void {
    for (const Field& f : s.fields) {
      if (f.hint && r.is_given(prefix + f.key))
        out.push_back(fmt::format("{}{}: a hint; the plan decides", prefix, f.key));
      if (f.section) self(self, *f.section, prefix + f.key + ".");
    }
  };
  walk(walk, declare_recipe(), "");
  // The original schema lets a source carry another one's fields: they load, and nobody reads them.
  using S = DataSource;
  const S source = r.data.source;
  for (const auto& [key, read] : {std::pair{"data.hf_id", source == S::kHf},
                                  {"data.path", source == S::kLocal || source == S::kMindxDreams},
                                  {"data.cid", source == S::kLighthouse},
                                  {"data.include_evolutions", source == S::kMindxDreams}})
    if (!read && r.is_given(key))
      out.push_back(fmt::format("{}: not read, for data.source is {}", key, text_of(source)));
  if (!device_computes(r.hardware, r.model.torch_dtype))
    out.push_back(fmt::format("model.torch_dtype: {} is not this hardware's: weights are held in train.precision",
                              text_of(r.model.torch_dtype)));
  return out;
}

}  // namespace mxt::config
