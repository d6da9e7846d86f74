// A tokenizer.json from outside and a text from outside: the input is "JSON \0 text". Without a JSON part a fixed
// tokenizer with every hand-written path reads the text. What loads must encode, decode and agree with itself.
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/train.h"

namespace {

using mxt::tokenizer::Span;
using mxt::tokenizer::Tokenizer;

std::shared_ptr<const Tokenizer> fixed(size_t which) {
  static const auto all = [] {
    std::vector<std::shared_ptr<const Tokenizer>> v;
    for (const char* pattern : {"qwen", "gpt2", "smollm", "nanochat", R"(\p{Lu}?\p{Ll}+|\s+|[^\s\p{L}]+)"}) {
      mxt::tokenizer::TrainOptions o;
      o.vocab_size = 320;
      o.pattern = pattern;
      o.nfc = true;
      o.special_tokens = {"<|a|>", "<|"};
      bool once = true;
      v.push_back(Tokenizer::from_spec(train_byte_level_bpe(o, [&once](std::string_view& t) {
                                         t = "the cat's hat and  the\n bat in 1234 h\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87 "
                                             "\xE4\xB8\xAD the the cat cat and "
                                             "in";
                                         return std::exchange(once, false);
                                       }).spec));
    }
    return v;
  }();
  return all[which % all.size()];
}

void check(const Tokenizer& t, std::string_view text) {
  const auto ids = t.encode(text);
  std::vector<Span> spans;
  if (t.encode_with_offsets(text, {}, spans) != ids || spans.size() != ids.size()) __builtin_trap();
  for (const auto& s : spans)
    if (s.begin > s.end || s.end > text.size()) __builtin_trap();
  const Span all{0, text.size() / 2};
  t.encode(text, std::span(&all, 1));
  t.decode(ids);
  for (const int32_t id : ids) t.token_bytes(id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  const size_t zero = in.find('\0');
  try {
    if (zero == std::string_view::npos || zero < 2) {
      check(*fixed(size), in);
    } else {
      check(*Tokenizer::from_json(in.substr(0, zero), "fuzz"), in.substr(zero + 1));
    }
  } catch (const mxt::Error&) {
  }
  return 0;
}
