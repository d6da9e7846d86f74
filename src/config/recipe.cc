#include "config/recipe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/hash.h"
#include "config/depth.h"
#include "config/field.h"
#include "config/model_table.h"
#include "config/recipe_file.h"
#include "config/rules.h"
#include "config/this_machine.h"
#include "config/unread.h"
#include "config/yaml.h"

namespace mxt::config {

bool Recipe::is_given(std::string_view key) const { return std::find(given.begin(), given.end(), key) != given.end(); }

std::string Issue::text() const {
  return key.empty() ? fmt::format("{}:{}:{}: {}", source, line, column, what)
                     : fmt::format("{}:{}:{}: {}: {}", source, line, column, key, what);
}

namespace {

// `model: qwen3-8b` says its name alone.
void name_alone(YamlNode& root) {
  for (auto& e : root.entries) {
    if (e.key != "model" || e.value.kind != YamlNode::Kind::kScalar) continue;
    YamlNode map;
    map.kind = YamlNode::Kind::kMap;
    map.mark = e.value.mark;
    map.entries.push_back({"name", e.value.mark, std::move(e.value)});
    e.value = std::move(map);
  }
}

// The table's id in the place of its short name: what is hashed, trained and recorded is the same for both.
void take_short_name(Recipe* r) {
  const KnownModel* known = r->model.init == Init::kPretrained ? model_of_name(r->model.name) : nullptr;
  if (!known) return;
  r->model.name = known->id;
  if (!r->model.revision && !known->revision.empty()) r->model.revision = known->revision;
}

}  // namespace

std::vector<Issue> check_recipe(std::string_view text, std::string_view source, Recipe* out, const ThisMachine& here) {
  Reader reader{std::string(source)};
  YamlResult yaml = parse_yaml(text);
  for (const auto& p : yaml.problems) reader.issue(p.mark, p.key, p.what);
  Recipe r;
  if (yaml.parsed) {
    name_alone(yaml.root);
    declare_recipe().read(&r, yaml.root, "", reader);
    if (!reader.is_given("hardware")) r.hardware.name = here ? here() : GpuName::kCpu;
    take_short_name(&r);
    apply_depth(&r, reader);
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

Recipe parse_recipe(std::string_view text, std::string_view source, const ThisMachine& here) {
  Recipe r;
  const auto issues = check_recipe(text, source, &r, here);
  if (issues.size() == 1) fail_input("{}", issues[0].text());
  if (!issues.empty())
    fail_input("{} (and {} more: `mindxtrain validate` lists them)", issues[0].text(), issues.size() - 1);
  return r;
}

std::vector<Issue> check_recipe(std::string_view text, std::string_view source, Recipe* out) {
  return check_recipe(text, source, out, {});
}

Recipe parse_recipe(std::string_view text, std::string_view source) { return parse_recipe(text, source, {}); }

Recipe load_recipe(const std::string& path) { return load_recipe(path, {}); }

Recipe load_recipe(const std::string& path, const ThisMachine& here) {
  return parse_recipe(read_recipe_file(path), path, here);
}

std::string settled_text(const Recipe& r) {
  if (r.is_given("hardware")) return r.text;
  const std::string more = fmt::format("{}hardware: {{name: {}}}  # this machine: the recipe named none\n",
                                       r.text.ends_with('\n') ? "" : "\n", text_of(r.hardware.name));
  // A document in braces, or one with an end mark, takes no further line.
  Recipe again;
  if (check_recipe(r.text + more, r.source, &again).empty() && canonical(again) == canonical(r)) return r.text + more;
  Json j = Json::parse(canonical(r));
  std::erase_if(j.get_ref<Json::object_t&>(), [](const auto& section) { return section.second.is_null(); });
  return j.dump(2) + "\n";
}

std::string canonical(const Recipe& recipe) {
  // Through Json: keys sorted, so the order of the declarations is not part of the hash.
  return canonical_json(Json(declare_recipe().write(&recipe)));
}

namespace {

// What is hashed: what earlier programs saved and signed knows a recipe by it. Fields that came later stay out at
// their defaults (Field::later); a section that could never be given, and is gone, stays in as absent.
Json hashed(const Recipe& recipe) {
  Json all(declare_recipe().write(&recipe));
  all["train"]["tool_loss"] = nullptr;
  return all;
}

}  // namespace

std::string recipe_hash(const Recipe& recipe) { return blake3_hex(canonical_json(hashed(recipe))); }

std::string hash_without_hardware(const Recipe& recipe) {
  Json all = hashed(recipe);
  all.erase("hardware");
  return blake3_hex(canonical_json(all));
}

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
  if (!r.is_given("hardware"))
    out.push_back(fmt::format("hardware: absent, so this machine: {}", text_of(r.hardware.name)));
  if (model_of_id(r.model.name) && r.text.find(r.model.name) == std::string::npos)
    out.push_back(fmt::format("model.name: a short name of {}", r.model.name));
  if (const std::string& name = r.model.name;
      r.model.init == Init::kPretrained && name.find_first_of("/.:") == std::string::npos)
    if (const std::string near = nearest_model(name); !near.empty())
      out.push_back(
          fmt::format("model.name: {} is no name of `mindxtrain models` (did you mean {}?): a folder, or of the "
                      "Hub",
                      name, near));
  const auto walk = [&](const auto& self, const Section& s, const std::string& prefix) -> void {
    for (const Field& f : s.fields) {
      if (f.hint && r.is_given(prefix + f.key))
        out.push_back(fmt::format("{}{}: a hint; the plan decides", prefix, f.key));
      if (f.section) self(self, *f.section, prefix + f.key + ".");
    }
  };
  walk(walk, declare_recipe(), "");
  if (r.pretrain) out.push_back(depth_text(r));
  // The original schema lets a source carry another one's fields: they load, and nobody reads them.
  using S = DataSource;
  const S source = r.data.source;
  for (const auto& [key, read] : {std::pair{"data.hf_id", source == S::kHf},
                                  {"data.path", source == S::kLocal || source == S::kMindxDreams},
                                  {"data.cid", source == S::kLighthouse},
                                  {"data.include_evolutions", source == S::kMindxDreams}})
    if (!read && r.is_given(key))
      out.push_back(fmt::format("{}: not read, for data.source is {}", key, text_of(source)));
  for (std::string& line : unread_fields(r)) out.push_back(std::move(line));
  if (const Method& m = r.train.method; m.is_rl() && !r.train.rollouts.path && m.max_new_tokens >= r.data.seq_len)
    out.push_back(
        fmt::format("train.method.max_new_tokens: {}, and a row has {} tokens (data.seq_len): an answer ends where it "
                    "and its prompt "
                    "fill that",
                    m.max_new_tokens, r.data.seq_len));
  if (!device_computes(r.hardware, r.model.torch_dtype))
    out.push_back(fmt::format("model.torch_dtype: {} is not this hardware's: weights are held in train.precision",
                              text_of(r.model.torch_dtype)));
  return out;
}

}  // namespace mxt::config
