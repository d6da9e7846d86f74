// Byte-pair merges from counted words: at every step the most frequent pair of neighbours, among equals the one with
// the lower ids, left first.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/stop.h"
#include "tokenizer/train/words.h"

namespace mxt::tokenizer {

// What two trainers do differently once ids are given.
enum class MergeRules {
  // Hugging Face's BpeTrainer: a merge that spells a known token takes its id, and a pair that was merged keeps its
  // count, so that where a later merge spells one of its parts anew it is merged again at once.
  kHuggingFace,
  kRustBpe,  // every merge gets an id of its own
};

struct LearnOptions {
  MergeRules rules = MergeRules::kHuggingFace;
  size_t tokens = 0;      // ends when there are so many
  int64_t min_count = 0;  // kHuggingFace: ends at a pair that is seen less often
  StopFlag stop = nullptr;
};

struct Learned {
  std::vector<std::string> tokens;  // the first ones, then the new ones, by id
  std::vector<std::pair<int32_t, int32_t>> merges;
  size_t memory = 0;  // bytes of the tables at their largest
};

// `tokens` are those known before, by id; byte_id the id of each byte. Takes the words (their memory is freed on the
// way). The result does not depend on the number of threads.
Learned learn_merges(WordCounts words, std::vector<std::string> tokens, const std::array<int32_t, 256>& byte_id,
                     const LearnOptions& options);

}  // namespace mxt::tokenizer
