#include "data/shape/ascii.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/shape/ascii.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mxt::data::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Bytes = hn::CappedTag<uint8_t, 64>;

const uint8_t* bytes(const char* p) { return reinterpret_cast<const uint8_t*>(p); }

size_t json_plain_run(const char* p, size_t n) {
  const Bytes d;
  const size_t lanes = hn::Lanes(d);
  const auto quote = hn::Set(d, uint8_t{'"'}), slash = hn::Set(d, uint8_t{'\\'}), space = hn::Set(d, uint8_t{' '});
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, bytes(p) + i);
    const auto stop = hn::Or(hn::Or(hn::Eq(v, quote), hn::Eq(v, slash)), hn::Lt(v, space));
    if (const intptr_t at = hn::FindFirstTrue(d, stop); at >= 0) return i + static_cast<size_t>(at);
  }
  for (; i < n; ++i)
    if (p[i] == '"' || p[i] == '\\' || static_cast<unsigned char>(p[i]) < ' ') return i;
  return n;
}

bool is_plain_line(const char* p, size_t n) {
  const Bytes d;
  const size_t lanes = hn::Lanes(d);
  const auto first = hn::Set(d, uint8_t{' '}), past = hn::Set(d, uint8_t{0x7F});
  size_t i = 1;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, bytes(p) + i), before = hn::LoadU(d, bytes(p) + i - 1);
    const auto two = hn::And(hn::Eq(v, first), hn::Eq(before, first));
    if (!hn::AllFalse(d, hn::Or(hn::Or(hn::Lt(v, first), hn::Gt(v, past)), two))) return false;
  }
  for (; i < n; ++i)
    if (static_cast<unsigned char>(p[i]) - 32u > 0x7Fu - 32u || (p[i] == ' ' && p[i - 1] == ' ')) return false;
  return n == 0 || (static_cast<unsigned char>(p[0]) - 33u <= 0x7Fu - 33u && p[n - 1] != ' ');
}

void lower_and_mark_words(const char* p, size_t n, char* out, uint64_t* bits) {
  const Bytes d;
  const size_t lanes = hn::Lanes(d);
  const auto mark = [&](const uint8_t* from, uint8_t* to, uint8_t* mask) HWY_ATTR {
    for (size_t k = 0; k < 64; k += lanes) {
      const auto v = hn::LoadU(d, from + k);
      const auto upper = hn::Lt(hn::Sub(v, hn::Set(d, uint8_t{'A'})), hn::Set(d, uint8_t{26}));
      const auto low = hn::Add(v, hn::IfThenElseZero(upper, hn::Set(d, uint8_t{32})));
      const auto letter = hn::Lt(hn::Sub(low, hn::Set(d, uint8_t{'a'})), hn::Set(d, uint8_t{26}));
      const auto digit = hn::Lt(hn::Sub(v, hn::Set(d, uint8_t{'0'})), hn::Set(d, uint8_t{10}));
      hn::StoreU(low, d, to + k);
      hn::StoreMaskBits(d, hn::Or(letter, digit), mask + k / 8);
    }
  };
  uint8_t mask[8];
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    mark(bytes(p) + i, reinterpret_cast<uint8_t*>(out) + i, mask);
    std::memcpy(&bits[i / 64], mask, 8);
  }
  if (i == n) return;
  uint8_t last[64] = {};
  std::memcpy(last, p + i, n - i);
  mark(last, reinterpret_cast<uint8_t*>(out) + i, mask);
  std::memcpy(&bits[i / 64], mask, 8);
}

}  // namespace
}  // namespace mxt::data::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::data {
namespace {
HWY_EXPORT(json_plain_run);
HWY_EXPORT(is_plain_line);
HWY_EXPORT(lower_and_mark_words);
}  // namespace

size_t json_plain_run(const char* p, size_t n) { return HWY_DYNAMIC_DISPATCH(json_plain_run)(p, n); }
bool is_plain_line(const char* p, size_t n) { return HWY_DYNAMIC_DISPATCH(is_plain_line)(p, n); }
void lower_and_mark_words(const char* p, size_t n, char* out, uint64_t* bits) {
  HWY_DYNAMIC_DISPATCH(lower_and_mark_words)(p, n, out, bits);
}

}  // namespace mxt::data
#endif  // HWY_ONCE
