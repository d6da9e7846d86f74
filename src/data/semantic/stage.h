// What models say about the rows that have stayed so far: copies in meaning first, then text that a model finds
// unlikely. Part of curate().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "data/semantic/models.h"

namespace mxt::data {

struct RowSource;

struct ModelDrop {
  uint32_t row;                   // of the source
  const char* reason;             // kSemanticCopy, kMaxPerplexity
  std::optional<uint32_t> stays;  // a copy: the row that stays for it
  double similarity = 0;          // their cosine
};
inline constexpr const char* kSemanticCopy = "semantic_copy";
inline constexpr const char* kMaxPerplexity = "max_perplexity";

struct SemanticReport {
  int64_t rows = 0, clusters = 0, largest_cluster = 0, groups = 0, largest_group = 0;
};

// Reads the source once for each of the two that `data` asks for. Calls drop() for every row of `stays` that shall go,
// by rising number. `folder` takes an unnamed file. Errors (kBadInput): bad rows, a source that has changed;
// kInterrupted.
void drop_by_models(const RowSource& source, const config::Data& data, const Models& models, const std::string& folder,
                    const std::atomic<bool>* cancel, std::vector<bool>* stays,
                    const std::function<void(const ModelDrop&)>& drop, std::optional<SemanticReport>* report);

}  // namespace mxt::data
