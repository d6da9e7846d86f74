// New byte-level BPE vocabularies from texts.
//
// The merges are those of Hugging Face's BpeTrainer with the byte alphabet: at every step the most frequent pair of
// neighbours, among equals the one with the lower ids (left first). Deterministic; the order of texts does not matter.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/spec.h"

namespace mxt::tokenizer {

struct TrainOptions {
  int32_t vocab_size = 32768;               // with special tokens and the 256 bytes
  std::vector<std::string> special_tokens;  // get the first ids, in this order
  // How text is cut before counting: a split pattern with a scanner or any that PCRE2 takes; "" is GPT-2's own.
  // The names "gpt2", "qwen", "nanochat", "cl100k" and "smollm" stand for those patterns.
  std::string pattern = "nanochat";
  bool nfc = false;                                            // normalise texts, now and when encoding
  int64_t min_count = 0;                                       // a pair must be seen this often to be merged
  std::string bos_token, eos_token, pad_token, chat_template;  // tokens must be among special_tokens
};

// Calls `next` until it returns false; each text is counted by itself. Invalid UTF-8 counts as U+FFFD. Errors
// (kBadInput): vocab_size smaller than the alphabet and the special tokens. The result may be smaller than vocab_size
// where the texts hold no more pairs.
Spec train_byte_level_bpe(const TrainOptions& options, const std::function<bool(std::string_view& text)>& next);

}  // namespace mxt::tokenizer
