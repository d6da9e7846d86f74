#include "serve/grammar/characters.h"

#include <algorithm>
#include <map>

namespace mxt::serve {
namespace {

using pytext::CodePoints;

constexpr uint32_t kSurrogates[2] = {0xD800, 0xDFFF};

class Maker {
 public:
  explicit Maker(Grammar& g) : g_(g) {}

  Grammar::Rule make(const CodePoints& points) {
    const Grammar::Rule r = g_.add();
    struct Length {
      uint32_t first, last;
      int behind;  // bytes behind the first
      unsigned char lead;
    };
    for (const Length& l : {Length{0x80, 0x7FF, 1, 0xC0}, Length{0x800, kSurrogates[0] - 1, 2, 0xE0},
                            Length{kSurrogates[1] + 1, 0xFFFF, 2, 0xE0}, Length{0x10000, 0x10FFFF, 3, 0xF0}})
      choices(r, within(points, l.first, l.last), l.behind, l.lead, 0);
    return r;
  }

 private:
  static CodePoints within(const CodePoints& points, uint32_t first, uint32_t last) {
    CodePoints out;
    for (const auto& [low, high] : points)
      if (std::max(low, first) <= std::min(high, last)) out.emplace_back(std::max(low, first), std::min(high, last));
    return out;
  }
  // Alternatives of `r`: a byte `lead` + n and `behind` more say the points from base + n·64^behind on.
  void choices(Grammar::Rule r, const CodePoints& points, int behind, unsigned char lead, uint32_t base) {
    std::map<CodePoints, ByteSet> leads;  // by what may stand behind them
    const uint32_t size = uint32_t{1} << (6 * behind);
    for (uint32_t n = 0; n < 64 && !points.empty(); ++n) {
      CodePoints rest = within(points, base + n * size, base + n * size + size - 1);
      for (auto& [low, high] : rest) low -= base + n * size, high -= base + n * size;
      if (!rest.empty()) leads[std::move(rest)].set(lead + n);
    }
    for (const auto& [rest, bytes] : leads) {
      Grammar::Sequence s{g_.bytes(bytes)};
      if (behind > 0) s.push_back(Grammar::call(tail(rest, behind - 1)));
      g_.choice(r, s);
    }
  }
  Grammar::Rule tail(const CodePoints& points, int behind) {
    const auto [at, is_new] = tails_.try_emplace({behind, points}, -1);
    if (is_new) {
      const Grammar::Rule r = at->second = g_.add();
      choices(r, points, behind, 0x80, 0);
      return r;
    }
    return at->second;
  }

  Grammar& g_;
  std::map<std::pair<int, CodePoints>, Grammar::Rule> tails_;
};

}  // namespace

Grammar::Rule characters(Grammar& g, const CodePoints& points) { return Maker(g).make(points); }

}  // namespace mxt::serve
