// Reward models as a run that samples uses them.
#pragma once

#include <string>

#include "kernels/api.h"
#include "model_files.h"
#include "train/rewards/rewards.h"

namespace mxt::app {

// Where a reward model's head must be: the model itself, or its adapter's base; "" where the adapter has one, or names
// no base.
std::string model_with_head(const std::string& named);
// Its folder: of a Hub id the one that it was fetched to. Errors (kBadInput): it holds no head, and would be found out
// when its first answers are judged.
std::string require_reward_model(const std::string& named, Fetch fetch);

// A folder: a classifier, or an adapter, whose base is the one that its adapter_config.json names. Errors (kBadInput):
// no reward model; one with another tokenizer than `policy`, whose tokens it would misread.
train::RewardServices::ScoreSequences open_reward_model(const std::string& folder, const tokenizer::Tokenizer& policy,
                                                        DType type, int64_t longest, kernels::Ops& ops);

}  // namespace mxt::app
