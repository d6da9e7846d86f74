// What tokenizer_config.json changes of a tokenizer.json, as transformers' tokenizer classes do it when they load one.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "tokenizer/io/load.h"

namespace mxt::tokenizer {
namespace {

std::optional<bool> flag_at(const Json& config, const char* key) {
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

bool has_class(Json& part, const char* type) {
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

// transformers' classes keep a file's vocabulary and make the rest anew, whatever it says (transformers 5:
// tokenization_llama.py, tokenization_code_llama.py, tokenization_gemma.py): the mark stands before a text, not after
// each control token in it, but for LlamaTokenizer's `legacy`; Gemma has none.
void make_llama(const std::string& kind, const Json& config, Spec& spec) {
  const bool gemma = kind.starts_with("Gemma"), prefix = !gemma && flag_at(config, "add_prefix_space").value_or(true);
  const bool always = kind.starts_with("Llama") && flag_at(config, "legacy").value_or(false);
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

}  // namespace

void apply_class_flags(const Json& config, std::string_view model_type, Spec& spec) {
  spec.split_special = flag_at(config, "split_special_tokens").value_or(false);
  std::string kind = config.value("tokenizer_class", "");
  if (kind.ends_with("Fast")) kind.resize(kind.size() - 4);
  // Classes without rules of their own take the file as it is.
  if (kind.empty() || kind == "PreTrainedTokenizer" || kind == "TokenizersBackend") return;
  Json pre = parse_json(spec.pre_tokenizer, spec.source), normalizer = parse_json(spec.normalizer, spec.source);
  const bool llama = kind.starts_with("Llama") || kind.starts_with("CodeLlama") || kind.starts_with("Gemma");
  if (llama) {
    // A file of byte-level BPE is not LLaMA's, whatever class it names.
    if (!is_loaded_as_it_is(model_type) && spec.model.kind == ModelSpec::Kind::kBpe && !has_class(pre, "ByteLevel"))
      make_llama(kind, config, spec);
    return;
  }
  if (const auto prefix = flag_at(config, "add_prefix_space"))
    each(pre, "ByteLevel", [&](Json& b) { b["add_prefix_space"] = *prefix; });
  if (kind.starts_with("Bert") || kind.starts_with("DistilBert") || kind.starts_with("Electra") ||
      kind.starts_with("MobileBert"))
    each(normalizer, "BertNormalizer", [&](Json& n) {
      n["lowercase"] = flag_at(config, "do_lower_case").value_or(true);
      n["handle_chinese_chars"] = flag_at(config, "tokenize_chinese_chars").value_or(true);
      n["strip_accents"] = config.contains("strip_accents") ? config["strip_accents"] : Json();
    });
  spec.pre_tokenizer = pre.dump();
  spec.normalizer = normalizer.dump();
}

}  // namespace mxt::tokenizer
