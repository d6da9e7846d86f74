// Mixtures: how many documents of each source are trained on, and which.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "config/enums.h"

namespace mxt::data {

struct MixPart {
  double weight = 1;
  std::span<const uint32_t> documents;  // in file order
};

// The documents to train on, source by source, each source's in file order (and as often as it is passed). A source's
// tokens are in proportion to its weight, to within one document:
//   first_exhausted  no document twice; the source that is scarcest for its weight is used up
//   all_exhausted    every document at least once; the source that is most plentiful for its weight is used up, the
//                    others are passed as often as needed
//   once             every document of every source, whatever the weights
// Of a pass that is not whole, documents are drawn by the seed. `length`: tokens of a document. Errors (kBadInput): a
// source would be passed more than 100 times.
std::vector<std::vector<uint32_t>> mix(std::span<const MixPart> parts, config::MixtureStop stop,
                                       const std::function<uint32_t(uint32_t)>& length, uint64_t seed);

}  // namespace mxt::data
