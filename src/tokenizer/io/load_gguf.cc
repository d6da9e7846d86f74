#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/io/load.h"
#include "tokenizer/split/scanner.h"

namespace mxt::tokenizer {
namespace {

constexpr size_t kMostTokens = size_t{1} << 21;
constexpr size_t kLongestToken = size_t{1} << 16;
enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Qwen3.5's: cl100k's with marks among the letters. GPT-4o's and gpt-oss's (o200k): words part at a capital letter.
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// tokenizer.ggml.pre → the parts of the tokenizer.json that such models have on the Hub.
void set_pre(const GgufTokenizerData& g, Spec& spec) {
  const auto cl100k = [&](int digits) { return pattern_of({ScanRule::Kind::kCl100k, digits}); };
  if (g.pre == "qwen2" || g.pre == "deepseek-r1-qwen") {
    set_byte_level(spec, cl100k(1), false);
    spec.normalizer = R"({"type":"NFC"})";
  } else if (g.pre == "qwen35") {
    set_byte_level(spec, kQwen35, false);
    spec.normalizer = R"({"type":"NFC"})";
  } else if (g.pre == "gpt-4o") {
    set_byte_level(spec, kO200k, false);
    spec.model.ignore_merges = true;
  } else if (g.pre == "llama-bpe" || g.pre == "llama3" || g.pre == "llama-v3") {
    set_byte_level(spec, cl100k(3), false);
    spec.model.ignore_merges = true;
  } else if (g.pre == "smollm" || g.pre == "starcoder") {
    set_byte_level(spec, "", true);
  } else if (g.pre == "gpt-2" || g.pre == "gpt2" || g.pre == "phi-2" || g.pre == "olmo") {
    set_byte_level(spec, "", false);
  } else {
    fail_missing(
        "{}: tokenizer.ggml.pre \"{}\" is not built in (qwen2, qwen35, llama-bpe, gpt-4o, smollm, starcoder, "
        "gpt-2, phi-2, olmo are): use the model's Hugging Face folder",
        g.source, g.pre);
  }
}

void read_bpe(const GgufTokenizerData& g, Spec& spec) {
  set_pre(g, spec);
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t i = 0; i < g.tokens.size(); ++i) ids.emplace(g.tokens[i], static_cast<int32_t>(i));
  const auto find = [&](std::string_view t, size_t k) {
    const auto it = ids.find(t);
    if (it == ids.end()) fail_input("{}: merge {}: \"{}\" is not a token", g.source, k, t);
    return it->second;
  };
  for (const auto& m : g.merges) {
    const size_t k = spec.model.merges.size(), blank = m.find(' ', 1);
    if (blank == std::string::npos) fail_input("{}: merge {}: \"{}\" has no space", g.source, k, m);
    const std::string_view s = m;
    spec.model.merges.emplace_back(find(s.substr(0, blank), k), find(s.substr(blank + 1), k));
  }
}

// llama.cpp writes "▁word" for a word's start and "part" for "##part"; names in brackets stay.
std::string wordpiece_spelling(const std::string& t) {
  static constexpr std::string_view kStart = "\xE2\x96\x81";
  if (t.starts_with(kStart)) return t.substr(kStart.size());
  if (t.starts_with('[') && t.ends_with(']') && t.size() > 2) return t;
  return "##" + t;
}

void read_wordpiece(const GgufTokenizerData& g, Spec& spec) {
  spec.model.kind = ModelSpec::Kind::kWordPiece;
  spec.model.unk_token = spec.unk_token.empty() ? "[UNK]" : spec.unk_token;
  bool upper = false;  // a vocabulary without capitals belongs to an uncased model
  for (size_t i = 0; i < g.tokens.size(); ++i) {
    const bool normal = g.token_type.empty() || g.token_type[i] == kNormal;
    upper = upper || (normal && !g.tokens[i].starts_with('[') &&
                      std::any_of(g.tokens[i].begin(), g.tokens[i].end(), [](char c) { return c >= 'A' && c <= 'Z'; }));
  }
  spec.normalizer = Json{
      {"type", "BertNormalizer"},
      {"clean_text", true},
      {"handle_chinese_chars", true},
      {"strip_accents", nullptr},
      {"lowercase",
       !upper}}.dump();
  spec.pre_tokenizer = R"({"type":"BertPreTokenizer"})";
  spec.decoder = R"({"type":"WordPiece","prefix":"##","cleanup":true})";
}

}  // namespace

Spec spec_from_gguf(const GgufTokenizerData& g) {
  Spec spec;
  spec.source = g.source;
  if (g.tokens.empty() || g.tokens.size() > kMostTokens)
    fail_input("{}: tokenizer.ggml.tokens has {} entries", g.source, g.tokens.size());
  if (!g.token_type.empty() && g.token_type.size() != g.tokens.size())
    fail_input("{}: tokenizer.ggml.token_type has {} entries for {} tokens", g.source, g.token_type.size(),
               g.tokens.size());
  const auto name = [&](const char* key, int32_t id) -> std::string {
    if (id < 0) return "";
    if (static_cast<size_t>(id) >= g.tokens.size())
      fail_input("{}: tokenizer.ggml.{} is {}, beyond the {} tokens", g.source, key, id, g.tokens.size());
    return g.tokens[static_cast<size_t>(id)];
  };
  spec.bos_token = name("bos_token_id", g.bos_id);
  spec.eos_token = name("eos_token_id", g.eos_id);
  spec.pad_token = name("padding_token_id", g.pad_id);
  spec.unk_token = name("unknown_token_id", g.unk_id);
  spec.chat_template = g.chat_template;
  spec.tool_template = g.tool_template;
  const bool bert = g.model == "bert";
  if (bert)
    read_wordpiece(g, spec);
  else if (g.model == "gpt2")
    read_bpe(g, spec);
  else
    fail_missing(
        "{}: tokenizer.ggml.model \"{}\" is not built in (gpt2 and bert are): use the model's Hugging Face folder",
        g.source, g.model);
  for (size_t i = 0; i < g.tokens.size(); ++i) {
    const std::string& t = g.tokens[i];
    if (t.size() > kLongestToken) fail_input("{}: token {} has {} bytes", g.source, i, t.size());
    if (!is_valid_utf8(t)) fail_input("{}: token {} is not valid UTF-8", g.source, i);
    const int32_t type = g.token_type.empty() ? kNormal : g.token_type[i];
    const auto id = static_cast<int32_t>(i);
    if (type == kControl || type == kUserDefined) {
      spec.added.push_back({id, t, type == kControl, false, false, false, false});
      if (bert) spec.model.put(id, t);  // its model finds [UNK] there
    } else if (type != kUnused) {
      spec.model.put(id, bert ? wordpiece_spelling(t) : t);
    }
  }
  Json config{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (g.add_bos) config["add_bos_token"] = true;
  spec.config = config.dump();
  return spec;
}

}  // namespace mxt::tokenizer
