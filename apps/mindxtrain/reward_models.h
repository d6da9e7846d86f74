// Reward models as a run that samples uses them.
#pragma once

#include <string>

#include "kernels/api.h"
#include "model_files.h"
#include "train/rewards/rewards.h"

namespace mxt::app {

// A folder: a classifier, or an adapter, whose base is the one that its adapter_config.json names. Errors (kBadInput):
// no reward model; one with another tokenizer than `policy`, whose tokens it would misread.
train::RewardServices::ScoreSequences open_reward_model(const std::string& folder, const tokenizer::Tokenizer& policy,
                                                        DType type, int64_t longest, kernels::Ops& ops);

}  // namespace mxt::app
