// What tokenizer_config.json changes of a tokenizer.json, as transformers' tokenizer classes do it when they load one.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "tokenizer/io/load.h"

namespace mxt::tokenizer {
namespace {

std::optional<bool> flag(const Json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end() || !it->is_boolean()) return std::nullopt;
  return it->get<bool>();
}

// Every step of this type, in a Sequence too.
template <typename F>
void each(Json& part, const char* type, const F& f) {
  if (!part.is_object()) return;
  for (const char* list : {"pretokenizers", "normalizers"})
    if (part.contains(list) && part[list].is_array())
      for (Json& step : part[list]) each(step, type, f);
  if (part.value("type", "") == type) f(part);
}

bool has(Json& part, const char* type) {
  bool found = false;
  each(part, type, [&](Json&) { found = true; });
  return found;
}

// Families whose tokenizers AutoTokenizer loads as their files say, whatever class of LLaMA's they name.
bool is_loaded_as_it_is(std::string_view model_type) {
  constexpr std::array<std::string_view, 11> kFamilies = {"mistral", "mistral3", "mixtral",  "ministral",
                                                          "phi3",    "granite",  "olmo2",    "olmo3",
                                                          "glm4",    "stablelm", "internlm2"};
  return std::find(kFamilies.begin(), kFamilies.end(), model_type) != kFamilies.end();
}

// Whether all that is done to a text is LLaMA's: spaces become marks, and one may be put before it.
bool is_llama(const Json& pre, const Json& normalizer, const ModelSpec& model) {
  const auto step = [](const Json& n) {
    const std::string type = n.value("type", "");
    return type == "Prepend" || (type == "Replace" && n.value("content", "") == "\u2581" &&
                                 n.value("pattern", Json()) == Json{{"String", " "}});
  };
  const Json steps = normalizer.is_null()                         ? Json::array()
                     : normalizer.value("type", "") == "Sequence" ? normalizer["normalizers"]
                                                                  : Json::array({normalizer});
  return model.kind == ModelSpec::Kind::kBpe && std::all_of(steps.begin(), steps.end(), step) &&
         (pre.is_null() || pre.value("type", "") == "Metaspace");
}

// transformers' classes keep a file's vocabulary and make the rest anew (transformers 5: tokenization_llama.py,
// tokenization_code_llama.py, tokenization_gemma.py): the mark stands before a text, not after each control token in
// it, but for LlamaTokenizer's `legacy`; Gemma has none.
void make_llama(const std::string& kind, const Json& config, Spec& spec) {
  const bool gemma = kind.starts_with("Gemma"), prefix = !gemma && flag(config, "add_prefix_space").value_or(true);
  const bool always = kind.starts_with("Llama") && flag(config, "legacy").value_or(false);
  Json decoders = Json::array({{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                               {{"type", "ByteFallback"}},
                               {{"type", "Fuse"}}});
  if (prefix || kind.starts_with("CodeLlama"))
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  spec.decoder = Json{{"type", "Sequence"}, {"decoders", decoders}}.dump();
  spec.normalizer = spec.pre_tokenizer = "null";
  if (gemma)
    spec.normalizer = Json{{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}.dump();
  else
    spec.pre_tokenizer = Json{
        {"type", "Metaspace"},
        {"replacement", "\u2581"},
        {"prepend_scheme", !prefix  ? "never"
                           : always ? "always"
                                    : "first"},
        {"split", false}}.dump();
  spec.model.byte_fallback = spec.model.fuse_unk = true;
  if (kind.starts_with("Llama")) spec.model.unk_token = "";
}

// The mark of a file that does more than LLaMA's: a Metaspace, or a normalizer that puts it there.
void set_llama_prefix(bool prefix, Json& pre, Json& normalizer) {
  each(pre, "Metaspace", [&](Json& m) {
    const std::string scheme = m.value("prepend_scheme", m.value("add_prefix_space", true) ? "always" : "never");
    if (prefix != (scheme == "never")) return;
    m["prepend_scheme"] = prefix ? "first" : "never";
    m.erase("add_prefix_space");
  });
  if (prefix || !has(normalizer, "Prepend")) return;
  if (normalizer.value("type", "") == "Prepend") {
    normalizer = nullptr;
    return;
  }
  Json rest = Json::array();
  for (const Json& step : normalizer["normalizers"])
    if (step.value("type", "") != "Prepend") rest.push_back(step);
  normalizer["normalizers"] = std::move(rest);
}

}  // namespace

void apply_class_flags(const Json& config, std::string_view model_type, Spec& spec) {
  spec.split_special = flag(config, "split_special_tokens").value_or(false);
  std::string kind = config.value("tokenizer_class", "");
  if (kind.ends_with("Fast")) kind.resize(kind.size() - 4);
  // Classes without rules of their own take the file as it is.
  if (kind.empty() || kind == "PreTrainedTokenizer" || kind == "TokenizersBackend") return;
  Json pre = parse_json(spec.pre_tokenizer, spec.source), normalizer = parse_json(spec.normalizer, spec.source);
  const bool llama = kind.starts_with("Llama") || kind.starts_with("CodeLlama") || kind.starts_with("Gemma");
  if (llama && is_loaded_as_it_is(model_type)) return;
  if (llama && is_llama(pre, normalizer, spec.model)) return make_llama(kind, config, spec);
  if (const auto prefix = flag(config, "add_prefix_space")) {
    if (llama)
      set_llama_prefix(*prefix, pre, normalizer);
    else
      each(pre, "ByteLevel", [&](Json& b) { b["add_prefix_space"] = *prefix; });
  }
  if (kind.starts_with("Bert") || kind.starts_with("DistilBert") || kind.starts_with("Electra") ||
      kind.starts_with("MobileBert"))
    each(normalizer, "BertNormalizer", [&](Json& n) {
      n["lowercase"] = flag(config, "do_lower_case").value_or(true);
      n["handle_chinese_chars"] = flag(config, "tokenize_chinese_chars").value_or(true);
      n["strip_accents"] = config.contains("strip_accents") ? config["strip_accents"] : Json();
    });
  spec.pre_tokenizer = pre.dump();
  spec.normalizer = normalizer.dump();
}

}  // namespace mxt::tokenizer
