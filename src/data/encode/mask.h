// From an example to its tokens and labels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/coder.h"

namespace mxt::data {

// A token is trained when its first byte lies in one of the trained spans (sorted, disjoint). So a token that reaches
// over the end of a span is trained, one that begins before a span is not. In a chat the span ends after the
// end-of-turn token: that is trained, the newline after it is not. Labels are unshifted; not trained = kNoTarget.
std::vector<int32_t> mask_labels(std::span<const int32_t> ids, std::span<const ByteSpan> offsets,
                                 std::span<const ByteSpan> trained);

// Writes the part of a tool call that a trained token's first byte lies in into its label (dataset.h).
void mark_parts(std::span<const ByteSpan> offsets, std::span<const tokenizer::CallSpan> calls,
                std::vector<int32_t>& labels);

// Positions that have a loss: labels other than kNoTarget after the first token.
int64_t count_targets(std::span<const int32_t> labels);

}  // namespace mxt::data
