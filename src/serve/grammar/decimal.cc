#include "serve/grammar/decimal.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace mxt::serve {
namespace {

// Digits and perhaps a point, without a sign.
Decimal read_decimal(std::string_view text, bool negative) {
  const size_t point = std::min(text.find('.'), text.size());
  Decimal d;
  const std::string_view whole = text.substr(0, point);
  const size_t first = whole.find_first_not_of('0');
  d.whole = first == std::string_view::npos ? "0" : whole.substr(first);
  if (point < text.size()) d.fraction = text.substr(point + 1);
  d.fraction.erase(d.fraction.find_last_not_of('0') + 1);
  d.negative = negative && !d.is_zero();
  return d;
}

int compare_magnitudes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  if (const int c = a.whole.compare(b.whole); c != 0) return c;
  return a.fraction.compare(b.fraction);  // without trailing zeros the shorter of two that begin alike is less
}

// A whole number one further from zero, or one nearer.
void away(std::string& whole) {
  size_t i = whole.size();
  while (i > 0 && whole[i - 1] == '9') whole[--i] = '0';
  if (i == 0)
    whole.insert(whole.begin(), '1');
  else
    ++whole[i - 1];
}
void nearer(std::string& whole) {
  size_t i = whole.size();
  while (whole[i - 1] == '0') whole[--i] = '9';
  --whole[i - 1];
  if (whole.size() > 1 && whole[0] == '0') whole.erase(0, 1);
}

}  // namespace

std::optional<Decimal> decimal_of(const OrderedJson& v) {
  std::string text;
  if (const auto big = big_integer(v)) {
    text = *big;
  } else if (v.is_number_unsigned()) {
    text = std::to_string(v.get<uint64_t>());
  } else if (v.is_number_integer()) {
    text = std::to_string(v.get<int64_t>());
  } else if (v.is_number()) {
    char digits[400];
    text.assign(digits, std::to_chars(digits, digits + sizeof digits, v.get<double>(), std::chars_format::fixed).ptr);
  } else {
    return std::nullopt;
  }
  const bool negative = text.starts_with('-');
  return read_decimal(std::string_view(text).substr(negative), negative);
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  return a.negative ? -compare_magnitudes(a, b) : compare_magnitudes(a, b);
}

Decimal floor_of(const Decimal& x) {
  Decimal d = x;
  d.fraction.clear();
  if (x.negative && !x.is_whole()) away(d.whole);
  d.negative = x.negative && !d.is_zero();
  return d;
}

Decimal ceil_of(const Decimal& x) { return x.is_whole() ? x : next_whole(x); }

Decimal next_whole(const Decimal& x) {
  Decimal d = floor_of(x);
  d.negative ? nearer(d.whole) : away(d.whole);
  d.negative = d.negative && !d.is_zero();
  return d;
}

Decimal last_whole(const Decimal& x) {
  Decimal d = ceil_of(x);
  if (d.negative || d.is_zero()) {
    away(d.whole);
    d.negative = true;
  } else {
    nearer(d.whole);
  }
  return d;
}

Decimal nines(size_t digits, bool negative) { return {negative, std::string(digits, '9'), ""}; }

std::string digits_of(const Decimal& x) {
  std::string all = x.whole + x.fraction;
  const size_t first = all.find_first_not_of('0');
  return first == std::string::npos ? "0" : all.substr(first);
}

std::optional<bool> is_multiple(const Decimal& x, const Decimal& step) {
  const size_t places = std::max(x.fraction.size(), step.fraction.size());
  const std::string of = digits_of(step) + std::string(places - step.fraction.size(), '0');
  if (of.size() > 18 || step.is_zero()) return std::nullopt;
  const uint64_t n = std::stoull(of);
  uint64_t rest = 0;
  for (const char c : x.whole + x.fraction + std::string(places - x.fraction.size(), '0'))
    rest = static_cast<uint64_t>((static_cast<unsigned __int128>(rest) * 10 + static_cast<unsigned>(c - '0')) % n);
  return rest == 0;
}

}  // namespace mxt::serve
