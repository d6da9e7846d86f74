#include "data/encode/mask.h"

#include "base/error.h"
#include "data/dataset.h"

namespace mxt::data {

std::vector<int32_t> mask_labels(std::span<const int32_t> ids, std::span<const ByteSpan> offsets,
                                 std::span<const ByteSpan> trained) {
  MXT_ASSERT(ids.size() == offsets.size());
  std::vector<int32_t> labels(ids.size(), kNoTarget);
  size_t s = 0;
  for (size_t t = 0; t < ids.size(); ++t) {
    while (s < trained.size() && trained[s].end <= offsets[t].begin) ++s;
    if (s == trained.size()) break;
    if (offsets[t].begin >= trained[s].begin) labels[t] = ids[t];
  }
  return labels;
}

void mark_parts(std::span<const ByteSpan> offsets, std::span<const tokenizer::CallSpan> calls,
                std::vector<int32_t>& labels) {
  size_t s = 0;
  for (size_t t = 0; t < labels.size(); ++t) {
    while (s < calls.size() && calls[s].span.end <= offsets[t].begin) ++s;
    if (s == calls.size()) return;
    if (labels[t] != kNoTarget && offsets[t].begin >= calls[s].span.begin)
      labels[t] |= static_cast<int32_t>(calls[s].part) << kPartShift;
  }
}

int64_t count_targets(std::span<const int32_t> labels) {
  int64_t n = 0;
  for (size_t t = 1; t < labels.size(); ++t) n += labels[t] != kNoTarget;
  return n;
}

}  // namespace mxt::data
