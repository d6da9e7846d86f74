#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "formats/peft.h"
#include "formats/peft/pattern.h"

namespace mxt::formats {

bool pattern_matches(const std::string& pattern, const std::string& key, std::string_view module) {
  int code = 0;
  PCRE2_SIZE at = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> compiled(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), 0, &code, &at, nullptr),
      pcre2_code_free);
  if (!compiled) fail_input("\"{}\" is not a valid pattern for names of modules", key);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_match_limit(limits.get(), 100'000);
  pcre2_set_depth_limit(limits.get(), 10'000);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(compiled.get(), nullptr), pcre2_match_data_free);
  const int n = pcre2_match(compiled.get(), reinterpret_cast<PCRE2_SPTR>(module.data()), module.size(), 0, 0,
                            data.get(), limits.get());
  if (n < 0 && n != PCRE2_ERROR_NOMATCH) fail_input("\"{}\" takes too long to match as a pattern", key);
  return n >= 0;
}

namespace {

constexpr std::string_view kWeight = ".weight";

bool is_plain(std::string_view key) {
  for (char c : key)
    if (!(std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-')) return false;
  return true;
}

// PEFT matches a pattern key by re.match("(.*\.)?(KEY)$", module). A plain key is compared as text.
bool key_matches(const std::string& key, std::string_view module) {
  if (!is_plain(key)) return pattern_matches("^(?:.*\\.)?(?:" + key + ")$", key, module);
  if (!module.ends_with(key)) return false;
  return module.size() == key.size() || module[module.size() - key.size() - 1] == '.';
}

// And exclude_modules given as text by re.fullmatch: of the whole name.
bool whole_matches(const std::string& key, std::string_view module) {
  return is_plain(key) ? module == key : pattern_matches("^(?:" + key + ")$", key, module);
}

// Keys of LoraConfig that change what an adapter computes and are not built in: any value that is not empty is refused.
constexpr std::string_view kRefused[] = {"lora_bias",
                                         "layer_replication",
                                         "use_qalora",
                                         "use_bdlora",
                                         "kasa_config",
                                         "arrow_config",
                                         "trainable_token_indices",
                                         "alora_invocation_tokens",
                                         "megatron_config",
                                         "monteclora_config"};

bool is_empty(const OrderedJson& v) {
  return v.is_null() || (v.is_boolean() && !v.get<bool>()) || ((v.is_array() || v.is_object()) && v.empty());
}

const OrderedJson* find(const OrderedJson& j, const char* key) {
  const auto it = j.find(key);
  return it == j.end() || it->is_null() ? nullptr : &*it;
}

std::string text(const OrderedJson& j, const char* key, std::string otherwise, std::string_view source) {
  const OrderedJson* v = find(j, key);
  if (!v) return otherwise;
  if (!v->is_string()) fail_input("{}: \"{}\" must be text", source, key);
  return v->get<std::string>();
}

bool boolean(const OrderedJson& j, const char* key, bool otherwise, std::string_view source) {
  const OrderedJson* v = find(j, key);
  if (!v) return otherwise;
  if (!v->is_boolean()) fail_input("{}: \"{}\" must be true or false", source, key);
  return v->get<bool>();
}

double number(const OrderedJson& v, const std::string& key, double lo, double hi, std::string_view source) {
  if (!v.is_number() || !(v.get<double>() >= lo && v.get<double>() <= hi))
    fail_input("{}: \"{}\" must be a number from {} to {}", source, key, lo, hi);
  return v.get<double>();
}

int64_t rank_of(const OrderedJson& v, const std::string& key, std::string_view source) {
  if (!v.is_number_integer()) fail_input("{}: \"{}\" must be a whole number", source, key);
  return static_cast<int64_t>(number(v, key, 1, 65536, source));
}

const OrderedJson* object(const OrderedJson& j, const char* key, std::string_view source) {
  const OrderedJson* v = find(j, key);
  if (v && !v->is_object()) fail_input("{}: \"{}\" must be an object", source, key);
  return v;
}

void parse_modules(const OrderedJson& j, const char* key, std::string_view source, std::vector<std::string>& names,
                   bool& is_pattern) {
  const OrderedJson* v = find(j, key);
  if (!v) return;
  if (v->is_string()) {
    names = {v->get<std::string>()};
    is_pattern = true;
    return;
  }
  if (!v->is_array()) fail_input("{}: \"{}\" must be text or a list of it", source, key);
  for (const auto& t : *v) {
    if (!t.is_string()) fail_input("{}: \"{}\" must hold text", source, key);
    names.push_back(t.get<std::string>());
  }
}

}  // namespace

bool AdapterConfig::wraps_weight_of(std::string_view module) const {
  const std::string weight = std::string(module) + ".weight";
  return std::any_of(target_parameters.begin(), target_parameters.end(), [&](const std::string& t) {
    return t.ends_with(kWeight) && (weight == t || weight.ends_with("." + t));
  });
}

bool AdapterConfig::selects(std::string_view module) const {
  if (wraps_weight_of(module)) return true;
  const auto named = [&](const std::vector<std::string>& names, bool pattern) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& t) {
      if (pattern) return t == "all-linear" || key_matches(t, module);
      return module == t || (module.ends_with(t) && module[module.size() - t.size() - 1] == '.');
    });
  };
  if (exclude_is_pattern ? whole_matches(exclude_modules.at(0), module) : named(exclude_modules, false)) return false;
  if (!named(target_modules, target_is_pattern) && !(target_modules.empty() && target_parameters.empty())) return false;
  // A whole name counts whatever its layer.
  if (layers_to_transform.empty() ||
      (!target_is_pattern && std::find(target_modules.begin(), target_modules.end(), module) != target_modules.end()))
    return true;
  // The layer is the first number in the name; of an expert's module a second one follows.
  std::optional<int64_t> layer;
  for (const std::string_view part : split(module, '.')) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (!layer && error == std::errc() && end == part.data() + part.size()) layer = n;
  }
  return layer &&
         std::find(layers_to_transform.begin(), layers_to_transform.end(), *layer) != layers_to_transform.end();
}

int64_t AdapterConfig::rank(std::string_view module) const {
  for (const auto& [key, value] : rank_pattern)
    if (key_matches(key, module)) return value;
  return r;
}

double AdapterConfig::alpha(std::string_view module) const {
  for (const auto& [key, value] : alpha_pattern)
    if (key_matches(key, module)) return value;
  return lora_alpha;
}

double AdapterConfig::scaling_for(double a, int64_t rank) const {
  const double n = static_cast<double>(rank);
  return use_rslora ? a / std::sqrt(n) : a / n;
}

AdapterConfig parse_adapter_config(const OrderedJson& j, std::string_view source) {
  if (!j.is_object()) fail_input("{}: must hold an object", source);
  const std::string type = text(j, "peft_type", "LORA", source);
  if (type != "LORA") fail_missing("{}: adapters of type \"{}\" are not built in: LORA is", source, type);
  for (std::string_view key : kRefused)
    if (const OrderedJson* v = find(j, std::string(key).c_str()); v && !is_empty(*v))
      fail_missing("{}: \"{}\" is not built in: merge the adapter with PEFT, or train it without", source, key);
  const std::string bias = text(j, "bias", "none", source);
  if (bias != "none" && bias != "lora_only" && bias != "all")
    fail_input("{}: \"bias\": \"{}\" is none, lora_only or all", source, bias);
  // PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA take their first adapter out of the base: an adapter so saved belongs to the
  // base that was left, and PEFT makes that one anew on loading. The other ways leave the base alone.
  if (const OrderedJson* v = find(j, "init_lora_weights"); v && !v->is_boolean()) {
    const std::string how = text(j, "init_lora_weights", "", source);
    if (how != "gaussian" && how != "eva" && how != "orthogonal" && how != "mica")
      fail_missing(
          "{}: \"init_lora_weights\": \"{}\" changes the base and is not built in: save it with PEFT's "
          "path_initial_model_for_weight_conversion",
          source, how);
  }
  AdapterConfig c;
  c.task_type = text(j, "task_type", "", source);
  c.base_model_name_or_path = text(j, "base_model_name_or_path", "", source);
  c.revision = text(j, "revision", "", source);
  if (const OrderedJson* v = find(j, "r")) c.r = rank_of(*v, "r", source);
  if (const OrderedJson* v = find(j, "lora_alpha")) c.lora_alpha = number(*v, "lora_alpha", 0, 1e9, source);
  if (const OrderedJson* v = find(j, "lora_dropout")) c.lora_dropout = number(*v, "lora_dropout", 0, 1, source);
  c.use_rslora = boolean(j, "use_rslora", false, source);
  c.use_dora = boolean(j, "use_dora", false, source);
  c.bias = bias;
  c.fan_in_fan_out = boolean(j, "fan_in_fan_out", false, source);
  c.inference_mode = boolean(j, "inference_mode", false, source);
  parse_modules(j, "modules_to_save", source, c.modules_to_save, c.saves_pattern);
  if (c.saves_pattern) fail_input("{}: \"modules_to_save\" must be a list", source);
  parse_modules(j, "target_modules", source, c.target_modules, c.target_is_pattern);
  bool pattern = false;
  parse_modules(j, "target_parameters", source, c.target_parameters, pattern);
  for (const std::string& t : c.target_parameters)
    if (const auto last = t.substr(t.rfind('.') + 1);
        pattern || (last != "gate_up_proj" && last != "down_proj" && !t.ends_with(kWeight)))
      fail_missing(
          "{}: \"target_parameters\": \"{}\" is not built in (the experts' gate_up_proj and down_proj are, and a "
          "module's weight): merge the adapter with PEFT",
          source, t);
  parse_modules(j, "exclude_modules", source, c.exclude_modules, c.exclude_is_pattern);
  if (const OrderedJson* v = find(j, "layers_to_transform"))
    for (const OrderedJson& n : v->is_array() ? *v : OrderedJson::array({*v})) {
      if (!n.is_number_integer()) fail_input("{}: \"layers_to_transform\" must hold whole numbers", source);
      c.layers_to_transform.push_back(n.get<int64_t>());
    }
  if (const OrderedJson* v = object(j, "rank_pattern", source))
    for (const auto& [k, n] : v->items()) c.rank_pattern.emplace_back(k, rank_of(n, "rank_pattern." + k, source));
  if (const OrderedJson* v = object(j, "alpha_pattern", source))
    for (const auto& [k, n] : v->items())
      c.alpha_pattern.emplace_back(k, number(n, "alpha_pattern." + k, 0, 1e9, source));
  return c;
}

OrderedJson to_json(const AdapterConfig& c) {
  const auto text_or_null = [](const std::string& s) { return s.empty() ? OrderedJson(nullptr) : OrderedJson(s); };
  const auto whole = [](double v) {  // 32, not 32.0, as PEFT writes it
    return v == std::floor(v) && std::fabs(v) < 1e15 ? OrderedJson(static_cast<int64_t>(v)) : OrderedJson(v);
  };
  OrderedJson j;
  OrderedJson& alphas = j["alpha_pattern"] = OrderedJson::object();
  for (const auto& [k, v] : c.alpha_pattern) alphas[k] = whole(v);
  j["auto_mapping"] = nullptr;
  j["base_model_name_or_path"] = text_or_null(c.base_model_name_or_path);
  j["bias"] = c.bias;
  j["fan_in_fan_out"] = c.fan_in_fan_out;
  j["inference_mode"] = c.inference_mode;
  j["init_lora_weights"] = true;
  j["layers_pattern"] = nullptr;
  j["layers_to_transform"] = c.layers_to_transform.empty() ? OrderedJson(nullptr) : OrderedJson(c.layers_to_transform);
  j["lora_alpha"] = whole(c.lora_alpha);
  j["lora_dropout"] = c.lora_dropout;
  j["modules_to_save"] = c.modules_to_save.empty() ? OrderedJson(nullptr) : OrderedJson(c.modules_to_save);
  j["peft_type"] = "LORA";
  j["r"] = c.r;
  OrderedJson& ranks = j["rank_pattern"] = OrderedJson::object();
  for (const auto& [k, v] : c.rank_pattern) ranks[k] = v;
  j["revision"] = text_or_null(c.revision);
  if (c.target_is_pattern && !c.target_modules.empty())
    j["target_modules"] = c.target_modules[0];
  else
    j["target_modules"] = c.target_modules;
  if (!c.target_parameters.empty()) j["target_parameters"] = c.target_parameters;
  j["task_type"] = text_or_null(c.task_type);
  j["use_dora"] = c.use_dora;
  j["use_rslora"] = c.use_rslora;
  return j;
}

}  // namespace mxt::formats
