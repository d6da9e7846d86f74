#include "train/adapter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "formats/family.h"
#include "train/setup.h"

namespace mxt::train {

using config::MethodKind;

namespace {

// The last part of a module's name decides, as PEFT's target_modules; a name with dots must match from a dot on.
bool names_module(const std::string& module, const std::string& target) {
  return module == target || module.ends_with("." + target);
}

bool is_head(std::string_view last) { return last == "lm_head"; }
bool is_table(std::string_view last) { return last == "embed_tokens" || last == "wte"; }
std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

std::string module_of_embedding(const formats::ModelConfig& model) {
  const std::string_view table = model.family->embedding;  // with ".weight"
  return std::string(table.substr(0, table.rfind('.')));
}

void check_patterns(const config::Recipe& r, const char* field, const std::map<std::string, int64_t>& pattern) {
  for (const auto& [key, value] : pattern) try {
      formats::AdapterConfig alone;
      alone.rank_pattern = {{key, value}};
      alone.rank("model.layers.0");
    } catch (const Error& e) {
      fail_input("{}: train.method.{}: {}", r.source, field, e.what());
    }
}

}  // namespace

formats::AdapterConfig adapter_config(const config::Recipe& recipe) {
  const config::Lora& lora = *recipe.train.method.lora;
  formats::AdapterConfig a;
  a.base_model_name_or_path = recipe.model.name;
  a.revision = recipe.model.revision.value_or("");
  a.r = lora.r;
  a.lora_alpha = static_cast<double>(lora.alpha);
  // As TRL: what a preference compares is said without noise.
  a.lora_dropout = recipe.train.method.is_preference() ? 0 : lora.dropout;
  a.use_rslora = lora.use_rslora;
  a.use_dora = lora.use_dora;
  a.bias = std::string(config::text_of(lora.bias));
  a.target_modules = lora.target_modules;
  a.modules_to_save = lora.modules_to_save;
  a.layers_to_transform = lora.layers_to_transform;
  for (const auto& [key, rank] : lora.rank_pattern) a.rank_pattern.emplace_back(key, rank);
  for (const auto& [key, alpha] : lora.alpha_pattern) a.alpha_pattern.emplace_back(key, static_cast<double>(alpha));
  return a;
}

models::LoraPlan lora_plan(const config::Recipe& recipe) {
  models::LoraPlan plan;
  const formats::AdapterConfig adapter = adapter_config(recipe);
  plan.target = [adapter](const std::string& module) -> std::optional<models::LoraTarget> {
    if (!adapter.selects(module)) return std::nullopt;
    return models::LoraTarget{adapter.rank(module), adapter.alpha(module), adapter.use_rslora};
  };
  plan.dropout = static_cast<float>(adapter.lora_dropout);
  plan.dora = adapter.use_dora;
  if (!adapter.modules_to_save.empty() || adapter.bias != "none")
    plan.trains = [adapter](const std::string& tensor) {
      const std::string module = tensor.substr(0, tensor.rfind('.'));
      if (std::any_of(adapter.modules_to_save.begin(), adapter.modules_to_save.end(),
                      [&](const std::string& m) { return names_module(module, m); }))
        return true;
      return tensor.ends_with("bias") &&
             (adapter.bias == "all" || (adapter.bias == "lora_only" && adapter.selects(module)));
    };
  return plan;
}

void check_adapter(const config::Recipe& recipe, const formats::ModelConfig& model) {
  const config::Method& method = recipe.train.method;
  const config::Lora& lora = *method.lora;
  const auto known = models::lora_modules(model);
  bool on_head = false, on_table = false;
  for (const auto& t : lora.target_modules) {
    const std::string last(last_part(t));
    on_head = on_head || is_head(last), on_table = on_table || is_table(last);
    if (is_head(last) || is_table(last)) continue;
    if (model.num_experts > 0 && (last == "gate" || last == "router"))
      fail_missing(
          "{}: train.method.target_modules: \"{}\" is the experts' router, whose adapters are read, served and merged, "
          "and not trained: leave it out",
          recipe.source, t);
    if (std::find(known.begin(), known.end(), last) == known.end())
      fail_input("{}: train.method.target_modules: the model has no linear module \"{}\" (it has {}, lm_head and {})",
                 recipe.source, t, fmt::join(known, " "), last_part(module_of_embedding(model)));
  }
  for (const auto& m : lora.modules_to_save)
    if (!is_head(last_part(m)) && m != last_part(module_of_embedding(model)) && m != module_of_embedding(model))
      fail_missing(
          "{}: train.method.modules_to_save: \"{}\" is not built in: lm_head and {} are; method full trains all",
          recipe.source, m, last_part(module_of_embedding(model)));
  for (const int64_t layer : lora.layers_to_transform)
    if (layer >= model.num_layers)
      fail_input("{}: train.method.layers_to_transform: the model has layers 0 to {}, and not {}", recipe.source,
                 model.num_layers - 1, layer);
  const bool wide = on_head || on_table || !lora.modules_to_save.empty() || lora.bias != config::LoraBias::kNone;
  const auto lacks = [&](bool asked, const char* what, const char* where) {
    if (asked) fail_missing("{}: train.method.{} is not built in {}: leave it out", recipe.source, what, where);
  };
  lacks(on_head && (method.is_preference() || method.is_rl()), "target_modules: lm_head",
        "for methods that compare log-probabilities");
  lacks(wide && method.is_rl(), "target_modules on head and embeddings, modules_to_save and bias",
        "for methods that sample, whose reference is the base alone");
  lacks(lora.use_dora && lora.dropout > 0, "use_dora with dropout", "(the base then sees dropout too)");
  lacks(lora.use_dora && method.is_rl(), "use_dora", "for methods that sample");
  const bool fp8 = recipe.train.base_precision == config::Precision::kFp8E4M3,
             few_bits = method.kind == MethodKind::kQLora || fp8;
  lacks(fp8 && lora.use_dora, "use_dora", "over a base that is held in FP8");
  const bool pissa = lora.init_lora_weights == config::LoraInit::kPissa;
  lacks(pissa && few_bits, "init_lora_weights: pissa", "over a base that is held in few bits");
  lacks(pissa && (lora.use_dora || on_head || on_table), "init_lora_weights: pissa",
        "with use_dora, nor on head and embeddings");
  lacks(pissa && (method.is_preference() || method.is_rl()), "init_lora_weights: pissa",
        "for methods with a reference");
}

void require_targets(const Setup& s) {
  const config::Lora& lora = *s.recipe.train.method.lora;
  const auto& targets = lora.target_modules;
  const formats::AdapterConfig adapter = adapter_config(s.recipe);
  check_patterns(s.recipe, "rank_pattern", lora.rank_pattern);
  check_patterns(s.recipe, "alpha_pattern", lora.alpha_pattern);
  std::vector<bool> met(targets.size(), false);
  std::vector<std::string> adapted;
  models::LoraPlan asked = s.lora;
  asked.target = [&](const std::string& module) {
    for (size_t i = 0; i < targets.size(); ++i)
      if (names_module(module, targets[i])) met[i] = true;
    auto target = s.lora.target(module);
    if (target) adapted.push_back(module);
    return target;
  };
  models::BuildOptions o = s.options;
  o.lora = &asked;
  models::build(s.model, o);
  for (size_t i = 0; i < targets.size(); ++i)
    if (!met[i])
      fail_input("{}: train.method.target_modules: none of the model's {} layers has a module \"{}\"", s.recipe.source,
                 s.model.num_layers, targets[i]);
  if (adapted.empty())
    fail_input("{}: train.method.layers_to_transform: no module of target_modules stands in those layers",
               s.recipe.source);
  const auto matches = [&](const char* field, const auto& pattern) {
    for (const auto& [key, value] : pattern) {
      formats::AdapterConfig alone;
      alone.r = value == 1 ? 2 : 1;  // another rank than the key's
      alone.rank_pattern = {{key, value}};
      if (std::none_of(adapted.begin(), adapted.end(), [&](const auto& m) { return alone.rank(m) == value; }))
        fail_input("{}: train.method.{}: \"{}\" matches no module that gets an adapter (as {})", s.recipe.source, field,
                   key, adapted.front());
    }
  };
  matches("rank_pattern", lora.rank_pattern);
  matches("alpha_pattern", lora.alpha_pattern);
}

bool parts_head(const config::Recipe& recipe) {
  if (!recipe.train.method.lora) return false;
  const auto named = [](const std::vector<std::string>& modules) {
    return std::any_of(modules.begin(), modules.end(),
                       [](const std::string& m) { return is_head(last_part(m)) || is_table(last_part(m)); });
  };
  return named(recipe.train.method.lora->target_modules) || named(recipe.train.method.lora->modules_to_save);
}

namespace {

// Whether it holds for this matrix of some layer's experts, whose modules have such names.
template <typename F>
bool some_expert(const formats::ModelConfig& model, const char* part, F&& holds) {
  for (size_t i = 0; i < model.layers.size(); ++i)
    if (model.layers[i].mlp != formats::LayerSpec::Mlp::kDense &&
        holds(fmt::format("{}{}.mlp.experts.0.{}", model.family->blocks, i, part)))
      return true;
  return false;
}

bool adapts(const config::Lora& lora, const formats::ModelConfig& model, const char* part) {
  return some_expert(model, part, [&](const std::string& module) {
    return std::any_of(lora.target_modules.begin(), lora.target_modules.end(),
                       [&](const std::string& t) { return names_module(module, t) || t == "all-linear"; });
  });
}

// PEFT turns single experts' adapters of the families whose checkpoints hold single experts into stacked ones: gate's
// and up's where down has one too, and by the rank and alpha of all.
bool needs_stacks(const config::Lora& lora, const formats::ModelConfig& model) {
  if (model.num_experts == 0) return false;
  formats::AdapterConfig scales;
  scales.r = lora.r, scales.lora_alpha = static_cast<double>(lora.alpha);
  for (const auto& [key, rank] : lora.rank_pattern) scales.rank_pattern.emplace_back(key, rank);
  for (const auto& [key, alpha] : lora.alpha_pattern)
    scales.alpha_pattern.emplace_back(key, static_cast<double>(alpha));
  const auto own = [&](const std::string& module) {
    return scales.rank(module) != scales.r || scales.alpha(module) != scales.lora_alpha;
  };
  return model.family->stacked_adapters || !adapts(lora, model, "down_proj") || some_expert(model, "gate_proj", own) ||
         some_expert(model, "up_proj", own);
}

}  // namespace

bool stacks_experts(const config::Lora& lora, const formats::ModelConfig& model) {
  return lora.stack_experts.value_or(needs_stacks(lora, model));
}

void say_beyond_peft(const config::Recipe& recipe, const formats::ModelConfig& model) {
  if (!recipe.train.method.lora) return;
  const config::Lora& lora = *recipe.train.method.lora;
  if (lora.stack_experts && model.num_experts == 0)
    log::warn("{}: stack_experts: not read, for the model has no experts: remove it", recipe.source);
  if (model.num_experts == 0) return;
  const bool gate = adapts(lora, model, "gate_proj"), up = adapts(lora, model, "up_proj"),
             experts = gate || up || adapts(lora, model, "down_proj");
  if (experts && needs_stacks(lora, model) && !stacks_experts(lora, model))
    log::warn(
        "{}: train.method.stack_experts: false: PEFT reads these experts' adapters stacked alone, and leaves single "
        "ones out: remove it where PEFT is to read them",
        recipe.source);
  // It holds gate and up of stacked experts in one matrix.
  if (gate != up)
    log::warn(
        "{}: train.method.target_modules names {} and not {}: the adapters train here as they are, but PEFT, which "
        "stacks the two of experts, reads no adapter of one alone: name both where it is to read them",
        recipe.source, gate ? "gate_proj" : "up_proj", gate ? "up_proj" : "gate_proj");
  if (model.family->turned_experts &&
      (lora.bias == config::LoraBias::kAll || (lora.bias == config::LoraBias::kLoraOnly && experts)))
    log::warn(
        "{}: train.method.bias: the experts' biases train here, but PEFT neither saves nor reads those of stacked "
        "experts, and leaves them out: `merge` for it",
        recipe.source);
}

}  // namespace mxt::train
