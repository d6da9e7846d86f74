// Numbers between bounds, as decimal digits: no automaton could compare values, but it can compare digits from the
// left.
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/grammar/json_grammar.h"

namespace mxt::serve {
namespace {

constexpr int64_t kLimit = 999'999'999'999'999;  // 15 digits: all of them a double holds
constexpr int64_t kFraction = 15;

double read(const OrderedJson& s, const char* key, const std::string& at) {
  if (!s[key].is_number()) fail_input("{}/{}: a number is wanted", at, key);
  return s[key].get<double>();
}

}  // namespace

// A bound that is not negative: its digits before and after the point.
struct JsonGrammar::Bound {
  uint64_t whole = 0;
  std::string fraction;
  bool inclusive = true;
  Bound(double value, bool with) : inclusive(with) {
    char text[400];
    const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed).ptr;
    const std::string_view all(text, static_cast<size_t>(end - text));
    const size_t point = all.find('.');
    std::from_chars(text, text + std::min(point, all.size()), whole);
    if (point != std::string_view::npos) fraction = all.substr(point + 1);
  }
};

// [low, high] as decimal digits without leading zeros: cut where the number of digits changes, then digit by digit.
JsonGrammar::Rule JsonGrammar::between(uint64_t low, uint64_t high) {
  const Rule digit = g_.of({{g_.bytes(byte_range('0', '9'))}});
  auto range = [&](const std::string& a, const std::string& b, auto&& self) -> Rule {
    if (a.empty()) return g_.of({{}});
    const bool free = a.find_first_not_of('0') == std::string::npos && b.find_first_not_of('9') == std::string::npos;
    if (free) return repeat(digit, static_cast<int64_t>(a.size()), static_cast<int64_t>(a.size()));
    const std::string zeros(a.size() - 1, '0'), nines(a.size() - 1, '9');
    const Rule r = g_.add();
    auto take = [&](char first, char last, const std::string& x, const std::string& y) {
      if (first <= last)
        g_.choice(r, {g_.bytes(byte_range(static_cast<unsigned char>(first), static_cast<unsigned char>(last))),
                      Grammar::call(self(x, y, self))});
    };
    if (a[0] == b[0]) {
      take(a[0], a[0], a.substr(1), b.substr(1));
    } else {
      take(a[0], a[0], a.substr(1), nines);
      take(static_cast<char>(a[0] + 1), static_cast<char>(b[0] - 1), zeros, nines);
      take(b[0], b[0], zeros, b.substr(1));
    }
    return r;
  };
  const Rule all = g_.add();
  for (uint64_t from = low; from <= high;) {
    uint64_t limit = 10;
    while (limit <= from) limit *= 10;
    const uint64_t to = std::min(high, limit - 1);
    g_.choice(all, {Grammar::call(range(std::to_string(from), std::to_string(to), range))});
    from = to + 1;
  }
  return all;
}

// low ≤ x ≤ high, both ≥ 0. Where whole parts differ from the bounds' any fraction will do; where they are equal the
// fraction is compared digit by digit.
JsonGrammar::Rule JsonGrammar::magnitude(const Bound& low, const Bound& high) {
  const Rule digit = g_.of({{g_.bytes(byte_range('0', '9'))}}), any = repeat(digit, 0, kFraction);
  const size_t length = std::max(low.fraction.size(), high.fraction.size());
  std::string a = low.fraction, b = high.fraction;
  a.resize(length, '0');
  b.resize(length, '0');
  // What may follow after p digits that equal those of the bounds still in force. `empty`: nothing more is read, the
  // rest is zeros.
  auto follow = [&](size_t p, bool lower, bool upper, bool may_end, auto&& self) -> Rule {
    const Rule r = g_.add();
    const bool a_over = a.find_first_not_of('0', p) == std::string::npos,
               b_over = b.find_first_not_of('0', p) == std::string::npos;
    const bool low_holds = !lower || (a_over && low.inclusive), high_holds = !upper || !b_over || high.inclusive;
    if (may_end && low_holds && high_holds) g_.choice(r, {});
    if (!lower && !upper) {
      g_.choice(r, {Grammar::call(may_end ? any : repeat(digit, 1, kFraction))});
      return r;
    }
    if (p == length) {  // the digits are used up: zeros change nothing, anything else is more than both
      const Rule zeros = repeat(g_.of({{g_.bytes(byte_range('0', '0'))}}), may_end ? 0 : 1, kFraction);
      if (low_holds && high_holds) g_.choice(r, {Grammar::call(zeros)});
      if (lower && !upper) {
        const Rule leading = repeat(g_.of({{g_.bytes(byte_range('0', '0'))}}), 0, kFraction);
        g_.choice(r, {Grammar::call(leading), g_.bytes(byte_range('1', '9')), Grammar::call(any)});
      }
      return r;
    }
    const char from = lower ? a[p] : '0', to = upper ? b[p] : '9';
    for (char c = from; c <= to; ++c)
      g_.choice(r, {g_.bytes(byte_range(static_cast<unsigned char>(c), static_cast<unsigned char>(c))),
                    Grammar::call(self(p + 1, lower && c == from, upper && c == to, true, self))});
    return r;
  };
  auto with_fraction = [&](bool lower, bool upper) {
    const bool low_holds = !lower || (low.inclusive && a.find_first_not_of('0') == std::string::npos);
    const bool high_holds = !upper || high.inclusive || b.find_first_not_of('0') != std::string::npos;
    const Rule r = g_.of({{g_.bytes(byte_range('.', '.')), Grammar::call(follow(0, lower, upper, false, follow))}});
    if (low_holds && high_holds) g_.choice(r, {});
    return r;
  };
  const Rule all = g_.add();
  auto numbers = [&](uint64_t first, uint64_t last, bool lower, bool upper) {
    if (first <= last)
      g_.choice(all, {Grammar::call(between(first, last)), Grammar::call(with_fraction(lower, upper))});
  };
  if (low.whole == high.whole) {
    numbers(low.whole, low.whole, true, true);
  } else {
    numbers(low.whole, low.whole, true, false);
    numbers(low.whole + 1, high.whole - 1, false, false);
    numbers(high.whole, high.whole, false, true);
  }
  return all;
}

// Multiples of a whole number: the remainder of what has been read so far decides. Of 0.1, 0.01 … those with so many
// digits after the point.
JsonGrammar::Rule JsonGrammar::multiples(const OrderedJson& s, const std::string& at) {
  const double step = read(s, "multipleOf", at);
  for (int64_t places = 1; places <= 9; ++places)
    if (step == std::pow(10.0, static_cast<double>(-places)) || step == std::stod(fmt::format("1e-{}", places))) {
      const Rule digit = g_.of({{g_.bytes(byte_range('0', '9'))}});
      const Rule fraction = g_.of({{}, {g_.bytes(byte_range('.', '.')), Grammar::call(repeat(digit, 1, places))}});
      return g_.of({{Grammar::call(integer_), Grammar::call(fraction)}});
    }
  constexpr double kMost = 1000;
  if (step < 1 || step > kMost || step != std::floor(step))
    fail_input("{}/multipleOf: a whole number up to {} or 0.1, 0.01 … is supported", at, kMost);
  const auto n = static_cast<size_t>(step);
  spend(n * 33, at);
  std::vector<Rule> after;
  for (size_t r = 0; r < n; ++r) after.push_back(g_.add());
  auto digit = [&](Rule from, size_t d, size_t to) {
    const auto c = static_cast<unsigned char>('0' + d);
    g_.choice(from, {g_.bytes(byte_range(c, c)), Grammar::call(after[to])});
  };
  for (size_t r = 0; r < n; ++r)
    for (size_t d = 0; d < 10; ++d) digit(after[r], d, (10 * r + d) % n);
  g_.choice(after[0], {});
  const Rule positive = g_.add();
  for (size_t d = 1; d < 10; ++d) digit(positive, d, d % n);
  Sequence zero, negative;
  g_.text(zero, "0");
  g_.text(negative, "-");
  negative.push_back(Grammar::call(positive));
  return g_.of({zero, {Grammar::call(positive)}, negative});
}

JsonGrammar::Rule JsonGrammar::number(const OrderedJson& s, const std::string& at) {
  if (s.contains("multipleOf")) {
    OrderedJson rest = s;
    rest.erase("multipleOf");
    return intersection(multiples(s, at), number(rest, at), at);
  }
  double low = -INFINITY, high = INFINITY;
  bool with_low = true, with_high = true;
  if (s.contains("minimum")) low = read(s, "minimum", at);
  if (s.contains("maximum")) high = read(s, "maximum", at);
  if (s.contains("exclusiveMinimum") && read(s, "exclusiveMinimum", at) >= low)
    low = read(s, "exclusiveMinimum", at), with_low = false;
  if (s.contains("exclusiveMaximum") && read(s, "exclusiveMaximum", at) <= high)
    high = read(s, "exclusiveMaximum", at), with_high = false;
  if (low == -INFINITY && high == INFINITY) return number_;
  if (low > high || (low == high && !(with_low && with_high)))
    throw NothingLeft(at + ": no number lies between minimum and maximum");
  constexpr double kMost = static_cast<double>(kLimit);
  if (low > kMost || high < -kMost) fail_input("{}: bounds of more than 15 digits are not supported", at);
  if (low < -kMost) low = -kMost, with_low = true;
  if (high > kMost) high = kMost, with_high = true;
  for (double x : {low, high})
    if (Bound(std::abs(x), true).fraction.size() > 30)
      fail_input("{}: a bound has more than 30 digits after its point", at);
  const Rule r = g_.add();
  spend(4000, at);
  if (high > 0 || (high == 0 && with_high))
    g_.choice(r, {Grammar::call(magnitude(Bound(std::max(low, 0.0), low < 0 || with_low), Bound(high, with_high)))});
  if (low < 0)
    g_.choice(r, {g_.bytes(byte_range('-', '-')),
                  Grammar::call(magnitude(Bound(std::max(-high, 0.0), high > 0 || with_high), Bound(-low, with_low)))});
  return r;
}

JsonGrammar::Rule JsonGrammar::integer(const OrderedJson& s, const std::string& at) {
  if (s.contains("multipleOf")) {
    OrderedJson rest = s;
    rest.erase("multipleOf");
    return intersection(multiples(s, at), integer(rest, at), at);
  }
  constexpr double kMost = static_cast<double>(kLimit);
  double low = -kMost, high = kMost;
  if (s.contains("minimum")) low = std::max(low, std::ceil(read(s, "minimum", at)));
  if (s.contains("exclusiveMinimum")) low = std::max(low, std::floor(read(s, "exclusiveMinimum", at)) + 1);
  if (s.contains("maximum")) high = std::min(high, std::floor(read(s, "maximum", at)));
  if (s.contains("exclusiveMaximum")) high = std::min(high, std::ceil(read(s, "exclusiveMaximum", at)) - 1);
  if (low == -kMost && high == kMost) return integer_;
  if (low > kMost || high < -kMost) fail_input("{}: bounds of more than 15 digits are not supported", at);
  if (low > high) throw NothingLeft(at + ": no integer lies between minimum and maximum");
  const auto least = static_cast<int64_t>(low), most = static_cast<int64_t>(high);
  const Rule r = g_.add();
  if (most >= 0)
    g_.choice(
        r, {Grammar::call(between(static_cast<uint64_t>(std::max<int64_t>(least, 0)), static_cast<uint64_t>(most)))});
  if (least < 0)
    g_.choice(
        r, {g_.bytes(byte_range('-', '-')),
            Grammar::call(between(static_cast<uint64_t>(std::max<int64_t>(-most, 1)), static_cast<uint64_t>(-least)))});
  return r;
}

}  // namespace mxt::serve
