#include "data/encode/mix.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "data/streams.h"

namespace mxt::data {

std::vector<std::vector<uint32_t>> mix(std::span<const MixPart> parts, config::MixtureStop stop,
                                       const std::function<uint32_t(uint32_t)>& length, uint64_t seed) {
  if (stop == config::MixtureStop::kOnce) {
    std::vector<std::vector<uint32_t>> all;
    for (const MixPart& p : parts) all.emplace_back(p.documents.begin(), p.documents.end());
    return all;
  }
  constexpr int kPasses = 100;
  std::vector<double> tokens;
  size_t exhausted = 0;  // the source that decides the size
  for (size_t i = 0; i < parts.size(); ++i) {
    double sum = 0;
    for (uint32_t d : parts[i].documents) sum += length(d);
    MXT_ASSERT(sum > 0);
    tokens.push_back(sum);
    const double mine = sum / parts[i].weight, best = tokens[exhausted] / parts[exhausted].weight;
    if (stop == config::MixtureStop::kFirstExhausted ? mine < best : mine > best) exhausted = i;
  }
  std::vector<std::vector<uint32_t>> out(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    // Of the source that decides exactly one pass, whatever rounding says.
    const double passes =
        i == exhausted ? 1 : tokens[exhausted] / parts[exhausted].weight * parts[i].weight / tokens[i];
    if (passes > kPasses)
      fail_input(
          "data.mixture[{}]: its {} tokens would be repeated {:.0f} times; lower its weight, or write "
          "mixture_stop: first_exhausted",
          i, tokens[i], passes);
    const int whole = static_cast<int>(std::floor(passes));
    double left = (passes - whole) * tokens[i];
    std::vector<uint32_t> drawn(parts[i].documents.begin(), parts[i].documents.end());
    Philox(seed, streams::kMixture | i).shuffle(drawn);
    size_t n = 0;
    for (; n < drawn.size() && length(drawn[n]) <= 2 * left; ++n) left -= length(drawn[n]);
    drawn.resize(n);
    std::sort(drawn.begin(), drawn.end());
    for (int k = 0; k < whole; ++k) out[i].insert(out[i].end(), parts[i].documents.begin(), parts[i].documents.end());
    out[i].insert(out[i].end(), drawn.begin(), drawn.end());
  }
  return out;
}

}  // namespace mxt::data
