// What a GGUF says of its tokenizer, as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mxt::formats {

class Gguf;

struct GgufTokenizerData {
  std::string model, pre;           // "gpt2" (byte-level BPE), "llama", "bert" …; pre-tokenizer: "qwen2", "smollm" …
  std::vector<std::string> tokens;  // by id; byte-level models spell bytes as GPT-2 does
  // By id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte. As long as tokens, or empty.
  std::vector<int32_t> token_type;
  std::vector<std::string> merges;  // "left right", in order of rank
  std::vector<float> scores;        // of unigram models; as long as tokens, or empty
  int32_t bos = -1, eos = -1, pad = -1, unk = -1;
  bool add_bos = false;
  std::string chat_template, tool_template;  // the second: the one named tool_use
};

// kBadInput where the file has no tokenizer, or ids, lists and texts that do not fit each other (a token over 64 KiB,
// an id outside the vocabulary, more tokens than embedding rows).
GgufTokenizerData gguf_tokenizer(const Gguf& gguf);

}  // namespace mxt::formats
