// The keys by which a GGUF says how text is cut: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/log.h"
#include "quantize/internal.h"

namespace mxt::quantize {
namespace {

using formats::GgufValue;
using formats::ModelConfig;

uint32_t u32(int64_t v) {
  MXT_ASSERT(v >= 0 && v <= UINT32_MAX);
  return static_cast<uint32_t>(v);
}

// A GGUF has places for three tokens at which an answer ends; the first is the tokenizer's where it names one.
void add_ends(formats::GgufWriter& out, const ModelConfig& c, int64_t first) {
  std::vector<int64_t> ends;
  const auto add = [&](int64_t id) {
    if (id >= 0 && id < c.vocab_size && std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  };
  add(first);
  for (const int64_t id : c.eos) add(id);
  for (const int64_t id : c.end_of_turn) add(id);
  const char* const keys[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
  for (size_t i = 0; i < std::min(ends.size(), std::size(keys)); ++i)
    out.add(std::string("tokenizer.ggml.") + keys[i], GgufValue::u32(u32(ends[i])));
  for (size_t i = std::size(keys); i < ends.size(); ++i)
    log::warn(
        "answers of the model end at token {}, too: a GGUF has places for three such tokens, it is without this one",
        ends[i]);
}

}  // namespace

void add_tokenizer_keys(formats::GgufWriter& out, const ModelConfig& c, const tokenizer::Tokenizer& tok) {
  tokenizer::GgufTokenizerData d = tok.to_gguf();
  if (static_cast<int64_t>(d.tokens.size()) > c.vocab_size)
    fail_input("the tokenizer has {} tokens, the model {} rows: they do not belong together", d.tokens.size(),
               c.vocab_size);
  // Rows without a token get a name that nothing encodes to.
  for (auto i = static_cast<int64_t>(d.tokens.size()); i < c.vocab_size; ++i) {
    d.tokens.push_back(fmt::format("[PAD{}]", i));
    d.token_type.push_back(5);
  }
  out.add("tokenizer.ggml.model", GgufValue::text(d.model));
  out.add("tokenizer.ggml.pre", GgufValue::text(d.pre));
  out.add("tokenizer.ggml.tokens", GgufValue::strings(std::move(d.tokens)));
  out.add("tokenizer.ggml.token_type", GgufValue::i32s({d.token_type.begin(), d.token_type.end()}));
  out.add("tokenizer.ggml.merges", GgufValue::strings(std::move(d.merges)));
  const auto id = [&](const char* k, int64_t v) {
    if (v >= 0) out.add(std::string("tokenizer.ggml.") + k, GgufValue::u32(u32(v)));
  };
  id("bos_token_id", d.bos_id >= 0 ? d.bos_id : c.bos);
  add_ends(out, c, d.eos_id);
  id("padding_token_id", d.pad_id >= 0 ? d.pad_id : c.pad);
  id("unknown_token_id", d.unk_id);
  out.add("tokenizer.ggml.add_bos_token", GgufValue::boolean(d.add_bos));
  if (!d.chat_template.empty()) out.add("tokenizer.chat_template", GgufValue::text(d.chat_template));
  if (!d.tool_template.empty()) {
    out.add("tokenizer.chat_templates", GgufValue::strings({"tool_use"}));
    out.add("tokenizer.chat_template.tool_use", GgufValue::text(d.tool_template));
  }
}

}  // namespace mxt::quantize
