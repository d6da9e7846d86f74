// New byte-level BPE vocabularies from texts.
//
// The merges are those of Hugging Face's BpeTrainer with the byte alphabet, or those of rustbpe (nanochat's): at every
// step the most frequent pair of neighbours, among equals the one with the lower ids (left first), and the two number
// the bytes differently. Deterministic: neither the order of texts nor the number of threads matters.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/stop.h"
#include "tokenizer/spec.h"

namespace mxt::tokenizer {

enum class Ties {
  kHuggingFace,  // ids: the special tokens, the bytes by their spelling, the merges
  kRustBpe,      // ids: the bytes by value, the merges, the special tokens; encodes as tiktoken does with these ranks
};

struct TrainOptions {
  int32_t vocab_size = 32768;               // with special tokens and the 256 bytes
  std::vector<std::string> special_tokens;  // in the order of their ids
  Ties ties = Ties::kHuggingFace;
  // How text is cut before counting: a split pattern with a scanner or any that PCRE2 takes; "" is GPT-2's own.
  // The names "gpt2", "qwen" (also "qwen3"), "nanochat", "cl100k" and "smollm" stand for those patterns.
  std::string pattern = "nanochat";
  bool nfc = false;                                            // normalise texts, now and when encoding
  int64_t min_count = 0;                                       // a pair must be seen this often to be merged
  std::string bos_token, eos_token, pad_token, chat_template;  // tokens must be among special_tokens
  size_t memory_limit = SIZE_MAX;                              // bytes, of the distinct pieces while they are counted
  StopFlag stop = nullptr;
};

struct Trained {
  Spec spec;
  int64_t text_bytes = 0, distinct_pieces = 0;
  size_t table_bytes = 0;  // of what was learned from, at its largest
};

// Calls `next` until it returns false (a text is valid until the next call); each text is counted by itself. Invalid
// UTF-8 counts as U+FFFD. Memory grows with the distinct pieces, not with the texts. Errors (kBadInput): vocab_size
// smaller than the alphabet and the special tokens; the memory limit; with kRustBpe a special token that was learned.
// The result may be smaller than vocab_size where the texts hold no more pairs.
Trained train_byte_level_bpe(const TrainOptions& options, const std::function<bool(std::string_view& text)>& next);

}  // namespace mxt::tokenizer
