// What models say about the rows that have stayed so far: copies in meaning first, then text that a model finds
// unlikely. Part of curate(). Like the other readings it goes block by block and keeps what it has found out (work.h);
// which rows stay up to here is known only for a whole source, so jobs leave it to the merge.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "data/semantic/models.h"
#include "data/work.h"

namespace mxt::data {

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
// by rising number, and clears it there. `folder` takes an unnamed file; `work` may be null: nothing is kept. Errors
// (kBadInput): bad rows, a source that has changed, a model whose numbers are not finite; kInterrupted.
void drop_by_models(const RowSource& source, const config::Data& data, const Models& models, const std::string& folder,
                    const BlockWork* work, std::vector<bool>* stays, const std::function<void(const ModelDrop&)>& drop,
                    std::optional<SemanticReport>* report);

}  // namespace mxt::data
