// Numbers between bounds, as decimal digits: no automaton could compare values, but it can compare digits from the
// left.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/grammar/decimal.h"
#include "serve/grammar/json_grammar.h"

namespace mxt::serve {
namespace {

constexpr size_t kDigits = 15;  // where nothing bounds a number: all such integers a double holds
constexpr size_t kMostDigits = 340;
constexpr int64_t kFraction = 15;
constexpr size_t kMostRemainders = 4096;

Decimal read(const OrderedJson& s, const char* key, const std::string& at) {
  const auto d = decimal_of(s[key]);
  if (!d) fail_input("{}/{}: a number is wanted", at, key);
  return *d;
}

// What minimum, maximum and their exclusive forms say; before 2017 these were true or false beside the others.
struct Limits {
  std::optional<Decimal> low, high;
  bool with_low = true, with_high = true;

  Limits(const OrderedJson& s, const std::string& at) {
    side(s, "minimum", "exclusiveMinimum", low, with_low, 1, at);
    side(s, "maximum", "exclusiveMaximum", high, with_high, -1, at);
  }
  size_t digits() const {
    return std::max({kDigits, low ? low->whole.size() + 1 : 0, high ? high->whole.size() + 1 : 0});
  }

 private:
  static void side(const OrderedJson& s, const char* key, const char* exclusive, std::optional<Decimal>& to, bool& with,
                   int sign, const std::string& at) {
    if (s.contains(key)) to = read(s, key, at);
    if (!s.contains(exclusive)) return;
    if (s[exclusive].is_boolean()) {
      with = !s[exclusive].get<bool>();
    } else if (const Decimal d = read(s, exclusive, at); !to || compare(d, *to) * sign >= 0) {
      to = d;
      with = false;
    }
    if (to && to->whole.size() > kMostDigits) fail_input("{}/{}: more than {} digits", at, key, kMostDigits);
  }
};

Decimal magnitude_of(Decimal d) {
  d.negative = false;
  return d;
}

}  // namespace

// A bound that is not negative, and whether it is one of the numbers.
struct JsonGrammar::Bound {
  Decimal at;
  bool inclusive = true;
};

// k decimal digits.
JsonGrammar::Rule JsonGrammar::digits(size_t k) {
  if (digits_.empty()) digits_.push_back(g_.of({{}}));
  while (digits_.size() <= k)
    digits_.push_back(g_.of({{g_.bytes(byte_range('0', '9')), Grammar::call(digits_.back())}}));
  return digits_[k];
}

// Integers ≥ 0 from low to high, without leading zeros: cut where the number of digits changes, then digit by digit.
JsonGrammar::Rule JsonGrammar::between(const std::string& low, const std::string& high) {
  auto range = [&](const std::string& a, const std::string& b, auto&& self) -> Rule {
    if (a.find_first_not_of('0') == std::string::npos && b.find_first_not_of('9') == std::string::npos)
      return digits(a.size());
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
  for (size_t n = low.size(); n <= high.size(); ++n) {
    std::string from = "1";
    from.resize(n, '0');
    g_.choice(
        all,
        {Grammar::call(range(n == low.size() ? low : from, n == high.size() ? high : std::string(n, '9'), range))});
  }
  return all;
}

// low ≤ x ≤ high, both ≥ 0. Where whole parts differ from the bounds' any fraction will do; where they are equal the
// fraction is compared digit by digit.
JsonGrammar::Rule JsonGrammar::magnitude(const Bound& low, const Bound& high) {
  const Rule digit = g_.of({{g_.bytes(byte_range('0', '9'))}}), any = repeat(digit, 0, kFraction);
  const size_t length = std::max(low.at.fraction.size(), high.at.fraction.size());
  std::string a = low.at.fraction, b = high.at.fraction;
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
  auto numbers = [&](const std::string& first, const std::string& last, bool lower, bool upper) {
    g_.choice(all, {Grammar::call(between(first, last)), Grammar::call(with_fraction(lower, upper))});
  };
  const Decimal floor{false, low.at.whole, ""}, top{false, high.at.whole, ""};
  if (compare(floor, top) == 0) {
    numbers(floor.whole, floor.whole, true, true);
  } else {
    numbers(floor.whole, floor.whole, true, false);
    if (const Decimal first = next_whole(floor); compare(first, top) < 0)
      numbers(first.whole, last_whole(top).whole, false, false);
    numbers(top.whole, top.whole, false, true);
  }
  return all;
}

// Multiples of n·10^z or of n/10^k: the remainder of the digits read so far decides.
JsonGrammar::Rule JsonGrammar::multiples(const OrderedJson& s, const std::string& at) {
  const Decimal step = read(s, "multipleOf", at);
  if (step.negative || step.is_zero()) fail_input("{}/multipleOf: a number above 0 is wanted", at);
  std::string of = digits_of(step);
  const size_t places = step.fraction.size(), zeros = places > 0 ? 0 : of.size() - of.find_last_not_of('0') - 1;
  of.erase(of.size() - zeros);
  if (of.size() > 4 || std::stoul(of) * (places + 1) > kMostRemainders || zeros > kMostDigits)
    fail_input("{}/multipleOf: {} has too many digits to hold an answer to", at, spelled(s["multipleOf"]));
  const size_t n = std::stoul(of);
  spend(n * (places + 1) * 33, at);
  auto scaled = [&](size_t r, size_t p) {  // the remainder with p more zeros
    for (; p > 0; --p) r = r * 10 % n;
    return r;
  };
  // after[p][r]: p digits behind the point, remainder r.
  std::vector<std::vector<Rule>> after(places + 1);
  for (auto& row : after)
    for (size_t r = 0; r < n; ++r) row.push_back(g_.add());
  auto digit = [&](Rule from, size_t d, Rule to) {
    const auto c = static_cast<unsigned char>('0' + d);
    g_.choice(from, {g_.bytes(byte_range(c, c)), Grammar::call(to)});
  };
  Sequence none;
  g_.text(none, std::string(zeros, '0'));
  for (size_t p = 0; p <= places; ++p)
    for (size_t r = 0; r < n; ++r) {
      if (scaled(r, places - p) == 0) g_.choice(after[p][r], none);
      for (size_t d = 0; d < 10 && (p == 0 || p < places); ++d)
        digit(after[p][r], d, after[p == 0 ? 0 : p + 1][(10 * r + d) % n]);
      if (p > 0 || places == 0) continue;
      const Rule first = g_.add();
      for (size_t d = 0; d < 10; ++d) digit(first, d, after[1][(10 * r + d) % n]);
      g_.choice(after[0][r], {g_.bytes(byte_range('.', '.')), Grammar::call(first)});
    }
  const Rule positive = g_.add();
  for (size_t d = 1; d < 10; ++d) digit(positive, d, after[0][d % n]);
  Sequence zero, negative;
  g_.text(zero, "0");
  if (places > 0) {  // 0.25, and -0.25
    const Rule fraction = g_.add(), first = g_.add();
    g_.choice(fraction, {});
    for (size_t d = 0; d < 10; ++d) digit(first, d, after[1][d % n]);
    g_.choice(fraction, {g_.bytes(byte_range('.', '.')), Grammar::call(first)});
    zero.push_back(Grammar::call(fraction));
  }
  const Rule magnitude = g_.of({zero, {Grammar::call(positive)}});
  g_.text(negative, "-");
  negative.push_back(Grammar::call(places > 0 ? magnitude : positive));
  return g_.of({{Grammar::call(magnitude)}, negative});
}

JsonGrammar::Rule JsonGrammar::number(const OrderedJson& s, const std::string& at) {
  if (s.contains("multipleOf")) {
    OrderedJson rest = s;
    rest.erase("multipleOf");
    return intersection(multiples(s, at), number(rest, at), at);
  }
  Limits l(s, at);
  if (!l.low && !l.high) return number_;
  if (l.low && l.high)
    if (const int c = compare(*l.low, *l.high); c > 0 || (c == 0 && !(l.with_low && l.with_high)))
      throw NothingLeft(at + ": no number lies between minimum and maximum");
  const Decimal low = l.low.value_or(nines(l.digits(), true)), high = l.high.value_or(nines(l.digits(), false)), zero;
  for (const Decimal& x : {low, high})
    if (x.fraction.size() > 30) fail_input("{}: a bound has more than 30 digits after its point", at);
  const Rule r = g_.add();
  spend(4000, at);
  if (const int c = compare(high, zero); c > 0 || (c == 0 && l.with_high))
    g_.choice(r,
              {Grammar::call(magnitude({low.negative ? zero : low, low.negative || l.with_low}, {high, l.with_high}))});
  if (low.negative)
    g_.choice(
        r, {g_.bytes(byte_range('-', '-')),
            Grammar::call(magnitude({high.negative ? magnitude_of(high) : zero, compare(high, zero) > 0 || l.with_high},
                                    {magnitude_of(low), l.with_low}))});
  return r;
}

JsonGrammar::Rule JsonGrammar::integer(const OrderedJson& s, const std::string& at) {
  if (s.contains("multipleOf")) {
    OrderedJson rest = s;
    rest.erase("multipleOf");
    if (const Limits l(rest, at); !l.low && !l.high)  // as many digits as the step has, and some more
      rest["maximum"] = OrderedJson::parse(fmt::format("1e{}", read(s, "multipleOf", at).whole.size() + kDigits));
    return intersection(multiples(s, at), integer(rest, at), at);
  }
  Limits l(s, at);
  if (!l.low && !l.high) return integer_;
  const Decimal zero,
      low = !l.low       ? nines(l.digits(), true)
            : l.with_low ? ceil_of(*l.low)
                         : next_whole(*l.low),
      high = !l.high       ? nines(l.digits(), false)
             : l.with_high ? floor_of(*l.high)
                           : last_whole(*l.high);
  if (compare(low, high) > 0) throw NothingLeft(at + ": no integer lies between minimum and maximum");
  const Rule r = g_.add();
  if (!high.negative) g_.choice(r, {Grammar::call(between(low.negative ? "0" : low.whole, high.whole))});
  if (low.negative)
    g_.choice(r, {g_.bytes(byte_range('-', '-')), Grammar::call(between(high.negative ? high.whole : "1", low.whole))});
  return r;
}

}  // namespace mxt::serve
