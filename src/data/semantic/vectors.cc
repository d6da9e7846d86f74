#include "data/semantic/vectors.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/semantic/vectors.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mxt::data::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr size_t kPanel = 16;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
void product_rows(const int16_t* rows, size_t stride, size_t count, const int32_t* panel, int32_t* out) {
  for (size_t r = 0; r < count; ++r)
    for (size_t c = 0; c < kPanel; ++c) {
      int32_t sum = 0;
      for (size_t k = 0; k < stride / 2; ++k) {
        int16_t b[2];
        std::memcpy(b, panel + k * kPanel + c, sizeof b);
        sum += rows[r * stride + 2 * k] * b[0] + rows[r * stride + 2 * k + 1] * b[1];
      }
      out[r * kPanel + c] = sum;
    }
}
#else
int32_t pair_of(const int16_t* p) {
  int32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// kRows rows against one vector of a panel's columns at a time: the sums stay in registers.
template <size_t kRows>
void some_rows(const int16_t* rows, size_t stride, const int32_t* panel, int32_t* out) {
  const hn::CappedTag<int32_t, kPanel> d;
  const hn::Repartition<int16_t, decltype(d)> d16;
  const size_t lanes = hn::Lanes(d);
  for (size_t c = 0; c < kPanel; c += lanes) {
    hn::Vec<decltype(d)> sum[kRows], odd = hn::Zero(d);
    for (size_t r = 0; r < kRows; ++r) sum[r] = hn::Zero(d);
    for (size_t k = 0; k < stride / 2; ++k) {
      const auto b = hn::BitCast(d16, hn::LoadU(d, panel + k * kPanel + c));
      for (size_t r = 0; r < kRows; ++r)  // on x86 one instruction adds the products of a pair; `odd` stays zero
        sum[r] = hn::ReorderWidenMulAccumulate(d, hn::BitCast(d16, hn::Set(d, pair_of(rows + r * stride + 2 * k))), b,
                                               sum[r], odd);
    }
    for (size_t r = 0; r < kRows; ++r) hn::StoreU(sum[r], d, out + r * kPanel + c);
  }
}

void product_rows(const int16_t* rows, size_t stride, size_t count, const int32_t* panel, int32_t* out) {
  size_t r = 0;
  for (; r + 8 <= count; r += 8) some_rows<8>(rows + r * stride, stride, panel, out + r * kPanel);
  for (; r < count; ++r) some_rows<1>(rows + r * stride, stride, panel, out + r * kPanel);
}
#endif

}  // namespace
}  // namespace mxt::data::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::data {
namespace {
HWY_EXPORT(product_rows);
}

bool round_unit(std::span<const double> x, int16_t* out) {
  double sum = 0;
  for (double v : x) sum += v * v;
  if (!std::isfinite(sum)) return false;
  const double scale = sum > 0 ? kUnit / std::sqrt(sum) : 0;
  for (size_t i = 0; i < x.size(); ++i) out[i] = static_cast<int16_t>(std::lround(x[i] * scale));
  if (x.size() % 2) out[x.size()] = 0;
  return true;
}

void Panels::add(const int16_t* row) {
  const size_t column = size_ % kPanel, panel = stride_ / 2 * kPanel;
  if (column == 0 && packed_.size() < (size_ / kPanel + 1) * panel) packed_.resize((size_ / kPanel + 1) * panel);
  int32_t* to = packed_.data() + size_ / kPanel * panel + column;
  for (size_t k = 0; k < stride_ / 2; ++k) std::memcpy(to + k * kPanel, row + 2 * k, sizeof *to);
  ++size_;
}

void Panels::products(const int16_t* rows, size_t count, size_t panel, int32_t* out) const {
  HWY_DYNAMIC_DISPATCH(product_rows)(rows, stride_, count, packed_.data() + panel * (stride_ / 2) * kPanel, out);
}

}  // namespace mxt::data
#endif  // HWY_ONCE
