// What tokenizer_config.json changes of a tokenizer.json, as transformers' tokenizer classes do it when they load one.
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

// LLaMA's mark before a text: a Metaspace, or a normalizer that puts it there (old files).
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

void apply_class_flags(const Json& config, Spec& spec) {
  spec.split_special = flag(config, "split_special_tokens").value_or(false);
  std::string kind = config.value("tokenizer_class", "");
  if (kind.ends_with("Fast")) kind.resize(kind.size() - 4);
  // Classes without rules of their own take the file as it is.
  if (kind.empty() || kind == "PreTrainedTokenizer" || kind == "TokenizersBackend") return;
  Json pre = parse_json(spec.pre_tokenizer, spec.source), normalizer = parse_json(spec.normalizer, spec.source);
  const bool llama = kind.starts_with("Llama") || kind.starts_with("CodeLlama") || kind.starts_with("Gemma");
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
