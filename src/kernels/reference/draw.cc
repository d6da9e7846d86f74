#include "kernels/draw.h"

#include <cmath>
#include <limits>

namespace mxt::kernels::reference {

void draw_tokens(const DrawTokens& d) {
  for (int64_t r = 0; r < d.logits.rows; ++r) {
    auto* out = static_cast<float*>(d.drawn.p) + r * d.drawn.ld;
    const auto* row = static_cast<const float*>(d.logits.p) + r * d.logits.ld;
    const auto z = [&](int64_t i) {
      const auto x = static_cast<double>(row[i]), cap = static_cast<double>(d.softcap);
      return cap > 0 ? cap * std::tanh(x / cap) : x;
    };
    int64_t best = 0;
    bool finite = true;
    for (int64_t i = 0; i < d.logits.cols; ++i) {
      finite = finite && std::isfinite(row[i]);
      if (z(i) > z(best)) best = i;
    }
    out[0] = -1, out[1] = std::numeric_limits<float>::quiet_NaN();
    if (!finite) continue;
    const double top = z(best), t = static_cast<double>(d.temperature[r]);
    double all = 0, shares = 0;
    for (int64_t i = 0; i < d.logits.cols; ++i) {
      all += std::exp(z(i) - top);
      if (t > 0) shares += std::exp((z(i) - top) / t);
    }
    int64_t id = best;
    if (t > 0) {
      double left = (static_cast<double>(static_cast<uint32_t>(d.bits[2 * r])) * 0x1p-32 +
                     static_cast<double>(static_cast<uint32_t>(d.bits[2 * r + 1])) * 0x1p-64) *
                    shares;
      for (int64_t i = 0; i < d.logits.cols; ++i)
        if ((left -= std::exp((z(i) - top) / t)) < 0) {
          id = i;
          break;
        }
    }
    out[0] = static_cast<float>(id);
    out[1] = static_cast<float>(z(id) - top - std::log(all));
  }
}

}  // namespace mxt::kernels::reference
