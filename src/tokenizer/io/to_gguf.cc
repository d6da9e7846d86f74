// The tokenizer.ggml.* keys of a tokenizer: the way back of load_gguf.cc.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/engine.h"
#include "tokenizer/io/save.h"

namespace mxt::tokenizer {
namespace {

// Where the pre-tokenizers that llama.cpp knows differ: runs of digits, contractions in both cases, white space,
// letters beside punctuation, scripts without spaces, marks that a normaliser joins and such that it leaves, capitals
// within a word, emoji.
constexpr std::string_view kProbeText =
    "Hello, world! it's IT'S we'LL 7 42 123 1234 12345678 3.14159 a1b22c333\n\n\n  two  spaces\tand\ttabs \n \n\r\n"
    "def f(x):\n    return x**2 + {'key': [1, 20, 300]}  # !!! ??? ...\n"
    "na\xC3\xAFve cafe\xCC\x81 \xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C 2024\xE5\xB9\xB4 "
    "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7 "
    "\xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA6\xE0\xA5\x80 camelCaseWord HTTPServer "
    "\xF0\x9F\x98\x80\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD "
    "\xE0\xA5\xA7\xE0\xA5\xA8\xE0\xA5\xA9 \xC2\xBD \xE2\x85\xAB http://x.y/z?a=1&b=22 don't_stop-me.now $100,000.00   ";

// And the tokenizer's own tokens after this and that: a cut that would part one of them, or join two, shows.
std::string probe_of(const Spec& spec, const Vocab& vocab, const Tokenizer& self) {
  constexpr int32_t kTokens = 40000;
  constexpr std::string_view kBetween[] = {"", " ", "\n", "", "    ", "A", "9", "'", ".", "\t\n"};
  std::vector<bool> added(static_cast<size_t>(self.vocab_size()));
  for (const AddedToken& a : spec.added) added[static_cast<size_t>(a.id)] = true;
  std::string text(kProbeText);
  const int32_t step = std::max(1, self.vocab_size() / kTokens);
  size_t n = 0;
  for (int32_t id = 0; id < self.vocab_size(); id += step) {
    if (added[static_cast<size_t>(id)] || !vocab.has(id)) continue;
    text += self.decode(std::vector<int32_t>{id});
    text += kBetween[n++ % std::size(kBetween)];
  }
  return text;
}

// True where every text gets the beginning-of-sequence token: the file says so, or its template puts it first.
bool adds_bos(const Spec& spec) {
  const Json config = parse_json(spec.config, "tokenizer_config.json");
  if (config.is_object() && config.contains("add_bos_token") && config["add_bos_token"].is_boolean())
    return config["add_bos_token"];
  if (spec.bos_token.empty()) return false;
  const auto starts_with_bos = [&](const Json& p) {
    const auto at = "/single/0/SpecialToken/id"_json_pointer;
    return p.value("type", "") == "TemplateProcessing" && p.contains(at) && p[at] == Json(spec.bos_token);
  };
  const Json post = parse_json(spec.post_processor, "post_processor");
  if (!post.is_object()) return false;
  if (post.value("type", "") != "Sequence" || !post.contains("processors")) return starts_with_bos(post);
  return std::any_of(post["processors"].begin(), post["processors"].end(), starts_with_bos);
}

}  // namespace

GgufTokenizerData to_gguf_data(const Spec& spec, const Vocab& vocab, const Tokenizer& self) {
  if (spec.model.kind != ModelSpec::Kind::kBpe || spec.model.byte_fallback)
    fail_missing("{}: llama.cpp has no tokenizer of this kind for GGUF: byte-level BPE is what can be written",
                 spec.source);
  GgufTokenizerData d;
  d.model = "gpt2";
  d.source = spec.source;
  d.tokens.resize(static_cast<size_t>(self.vocab_size()));
  d.token_type.assign(d.tokens.size(), 5);
  for (size_t i = 0; i < d.tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    d.tokens[i] = vocab.has(id) ? vocab.token(id) : "[PAD" + std::to_string(i) + "]";
    if (vocab.has(id)) d.token_type[i] = 1;
  }
  for (const AddedToken& a : spec.added) {
    d.tokens[static_cast<size_t>(a.id)] = a.content;
    d.token_type[static_cast<size_t>(a.id)] = a.special ? 3 : 4;
  }
  d.merges.reserve(spec.model.merges.size());
  for (const auto& [a, b] : spec.model.merges) d.merges.push_back(vocab.token(a) + " " + vocab.token(b));
  const auto id_of = [&](const std::string& t) { return t.empty() ? -1 : self.id_of(t); };
  d.bos_id = id_of(spec.bos_token);
  d.eos_id = id_of(spec.eos_token);
  d.pad_id = id_of(spec.pad_token);
  d.unk_id = id_of(spec.unk_token);
  d.add_bos = adds_bos(spec);
  d.chat_template = spec.chat_template;
  d.tool_template = spec.tool_template;
  // Which of llama.cpp's pre-tokenizers this is, shown by what it does.
  const std::string probe = probe_of(spec, vocab, self);
  const std::vector<int32_t> want = self.encode(probe);
  for (const char* pre : {"qwen2", "llama-bpe", "smollm", "gpt-2", "qwen35", "gpt-4o"}) {
    d.pre = pre;
    if (Tokenizer::from_gguf(d)->encode(probe) == want) return d;
  }
  fail_missing(
      "{}: cuts text in a way that none of llama.cpp's pre-tokenizers known here does (qwen2, llama-bpe, smollm, "
      "gpt-2, qwen35, gpt-4o): "
      "no GGUF of it would read text as the model does",
      spec.source);
}

}  // namespace mxt::tokenizer
