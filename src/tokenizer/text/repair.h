// Invalid UTF-8 becomes U+FFFD, one for each maximal invalid part, with the map back.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/text/normalize.h"
#include "tokenizer/tokenizer.h"

namespace mxt::tokenizer {

std::string repair_utf8(std::string_view text, OffsetMap& map);
// Spans of the source as spans of the changed text.
std::vector<Span> carry_spans(std::span<const Span> spans, const OffsetMap& map);

}  // namespace mxt::tokenizer
