#include "tokenizer/text/unicode.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace mxt::tokenizer::unicode {

Table::Table() {
  std::map<std::vector<uint16_t>, uint16_t> seen;
  std::vector<const std::vector<uint16_t>*> kept;
  std::vector<uint16_t> block(256);
  size_t run = 0;
  for (uint32_t b = 0; b < 0x1100; ++b) {
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t c = b * 256 + i;
      while (run + 1 < std::size(kRuns) && kRuns[run + 1].first <= c) ++run;
      block[i] = kRuns[run].classes;
    }
    const auto [it, fresh] = seen.emplace(block, static_cast<uint16_t>(kept.size()));
    if (fresh) kept.push_back(&it->first);
    index_[b] = it->second;
  }
  blocks_ = std::make_unique<uint16_t[]>(kept.size() * 256);
  for (size_t k = 0; k < kept.size(); ++k) std::copy(kept[k]->begin(), kept[k]->end(), blocks_.get() + k * 256);
}

const Table& Table::get() {
  static const Table table;
  return table;
}

uint32_t to_lower(uint32_t c) {
  const Lower* it =
      std::upper_bound(std::begin(kLower), std::end(kLower), c, [](uint32_t v, const Lower& l) { return v < l.first; });
  if (it == std::begin(kLower)) return c;
  --it;
  if (c > it->last || (c - it->first) % it->stride != 0) return c;
  return static_cast<uint32_t>(static_cast<int32_t>(c) + it->delta);
}

}  // namespace mxt::tokenizer::unicode
