#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "kernels/optimizer_calls.h"

namespace mxt::kernels {
namespace {

std::array<float, 256> make_map(bool is_signed) {
  std::array<float, 256> map{};  // one of its values is 0, the next 1
  size_t at = 1;
  map[at++] = 1;
  for (int decade = 0; decade < 7; ++decade) {
    const int values = (is_signed ? 1 : 2) << decade;
    const double top = std::pow(10.0, decade - 6);
    for (int i = 0; i < values; ++i) {
      const auto middle = static_cast<float>(top * (0.1 + 0.9 * (i + 0.5) / values));
      map[at++] = middle;
      if (is_signed) map[at++] = -middle;
    }
  }
  MXT_ASSERT(at == map.size());
  std::sort(map.begin(), map.end());
  return map;
}

}  // namespace

const float* dynamic_map(bool is_signed) {
  static const std::array<float, 256> with = make_map(true), without = make_map(false);
  return (is_signed ? with : without).data();
}

}  // namespace mxt::kernels
