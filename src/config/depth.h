// nanochat's rules from depth to everything else: the model's width and heads, tokens of a step, steps, rates, decay.
#pragma once

#include <cstdint>
#include <string>

namespace mxt::config {

struct Recipe;
class Reader;

struct DepthPlan {
  int64_t width = 0, heads = 0;    // width 64 · depth in whole heads of 128
  int64_t scaling_parameters = 0;  // weights of the blocks' matrices and of the head, padded to 64 rows
  int64_t step_tokens = 0;         // 2^round(log2(2^19 · (tokens / tokens at depth 12)^0.383))
  int64_t steps = 0;               // tokens_per_parameter · scaling_parameters / step_tokens
  double rate = 1;                 // sqrt(step_tokens / 2^19), of every rate but smear's and backout's
  double width_rate = 1;           // (width / 768)^-0.5, of head and embeddings
  double weight_decay = 0;         // of the matrices: 0.28 · rate · (depth 12's parameters / these)
};

// `step_tokens` > 0: so many instead. depth ≥ 1, vocab_size ≥ 1.
DepthPlan plan_depth(int64_t depth, int64_t vocab_size, double tokens_per_parameter, int64_t step_tokens = 0);

// Fills what the recipe leaves open of model.config, data and train from `pretrain`; what the file gives stays, and a
// given batch sets the rates. Issues: model.config beside it, a step that holds no whole number of sequences.
void apply_depth(Recipe* recipe, Reader& reader);
// What came of it, one line for a person.
std::string depth_text(const Recipe& recipe);

}  // namespace mxt::config
