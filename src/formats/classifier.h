// Sequence classifiers of one output, as transformers' *ForSequenceClassification classes have them: the layout of
// reward models. `score.weight` [1, hidden] stands in the head's place, read at one token of a sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "formats/model_config.h"

namespace mxt::formats {

inline constexpr const char* kScoreWeight = "score.weight";

// Whether the configuration names a class of Family::classifier.
bool is_classifier(const ModelConfig& config);
// The id that pads: the configuration's, else its end token (as TRL has it); −1 where it has neither.
int64_t score_pad(const ModelConfig& config);
// Where a sequence's score is read: at its last token that is not `pad`, or its first where all are. Where the end
// token pads, that is the one before it: transformers cannot tell the two apart, and a score must be the same there.
size_t score_position(std::span<const int32_t> ids, int64_t pad);
// The configuration of the classifier made of a model. Errors: kMissing where transformers has no such class.
ModelConfig as_classifier(const ModelConfig& config);

}  // namespace mxt::formats
