#include "formats/gguf_tokenizer.h"

#include "base/error.h"
#include "base/text.h"
#include "formats/gguf.h"

namespace mxt::formats {
namespace {

// A longer token has overflowed other readers' buffers (CVE-2025-49847); real ones stay far below.
constexpr size_t kMaxToken = 65'536;

std::string text_or_empty(const Gguf& g, std::string_view key) {
  const std::string* s = g.text(key);
  return s ? *s : std::string();
}

int32_t token_id(const Gguf& g, std::string_view key, size_t vocabulary) {
  const auto id = g.integer(key);
  if (!id || *id == 0xffffffff || *id == -1) return -1;  // llama.cpp's way to say "none"
  if (*id < 0 || static_cast<uint64_t>(*id) >= vocabulary)
    fail_input("{}: {} is {}, outside of the vocabulary of {}", g.path(), key, *id, vocabulary);
  return static_cast<int32_t>(*id);
}

void check_texts(const Gguf& g, const char* what, const std::vector<std::string>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() > kMaxToken)
      fail_input("{}: {} {} has {} bytes, over the limit of {}", g.path(), what, i, texts[i].size(), kMaxToken);
    if (!is_valid_utf8(texts[i])) fail_input("{}: {} {} is not valid UTF-8", g.path(), what, i);
  }
}

}  // namespace

GgufTokenizerData gguf_tokenizer(const Gguf& g) {
  GgufTokenizerData t;
  if (text_or_empty(g, "general.architecture") == "clip")
    fail_input(
        "{}: is the part of a model that sees pictures (mmproj), without a tokenizer: name the file of its language "
        "model",
        g.path());
  t.model = text_or_empty(g, "tokenizer.ggml.model");
  const auto* tokens = g.strings("tokenizer.ggml.tokens");
  if (t.model.empty() || !tokens || tokens->empty())
    fail_input("{}: holds no tokenizer: name one by model.tokenizer", g.path());
  t.pre = text_or_empty(g, "tokenizer.ggml.pre");
  t.tokens = *tokens;
  check_texts(g, "token", t.tokens);
  const size_t n = t.tokens.size();
  if (const GgufTensor* e = g.find("token_embd.weight"); e && static_cast<int64_t>(n) > e->rows())
    fail_input("{}: {} tokens but {} embedding rows: tokenizer and weights do not belong together", g.path(), n,
               e->rows());
  if (const auto types = g.integers("tokenizer.ggml.token_type")) {
    if (types->size() != n) fail_input("{}: {} token types for {} tokens", g.path(), types->size(), n);
    for (int64_t v : *types) {
      if (v < 0 || v > 6) fail_input("{}: token type {} does not exist", g.path(), v);
      t.token_type.push_back(static_cast<int32_t>(v));
    }
  }
  if (const GgufValue* v = g.find_value("tokenizer.ggml.scores")) {
    const auto* scores = std::get_if<std::vector<double>>(&v->value);
    if (!scores || scores->size() != n) fail_input("{}: tokenizer.ggml.scores does not fit {} tokens", g.path(), n);
    t.scores.assign(scores->begin(), scores->end());
  }
  if (const auto* merges = g.strings("tokenizer.ggml.merges")) {
    t.merges = *merges;
    check_texts(g, "merge", t.merges);
  }
  t.bos = token_id(g, "tokenizer.ggml.bos_token_id", n);
  t.eos = token_id(g, "tokenizer.ggml.eos_token_id", n);
  t.pad = token_id(g, "tokenizer.ggml.padding_token_id", n);
  t.unk = token_id(g, "tokenizer.ggml.unknown_token_id", n);
  t.add_bos = g.boolean("tokenizer.ggml.add_bos_token").value_or(false);
  t.chat_template = text_or_empty(g, "tokenizer.chat_template");
  t.tool_template = text_or_empty(g, "tokenizer.chat_template.tool_use");
  if (!is_valid_utf8(t.chat_template) || !is_valid_utf8(t.tool_template))
    fail_input("{}: the chat template is not valid UTF-8", g.path());
  return t;
}

}  // namespace mxt::formats
