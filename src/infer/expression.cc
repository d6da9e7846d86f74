#include "infer/expression.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "jinja/text/repr.h"

namespace mxt::infer {
namespace {

__extension__ typedef __int128 Int;
#if __LDBL_MANT_DIG__ == 113  // arm64, which has no other name for it
using Quad = long double;
#else
__extension__ typedef __float128 Quad;
#endif

constexpr int kMostNested = 200;  // Python's own limit

Int most() {
  Int n = 1;
  for (int i = 0; i < 33; ++i) n *= 10;
  return n;
}

struct Number {
  bool whole = true;
  Int i = 0;
  double d = 0;
  double real() const { return whole ? static_cast<double>(i) : d; }
};

struct NoValue {};

Number whole(Int i) {
  static const Int kMost = most();
  if (i >= kMost || i <= -kMost) throw NoValue();
  return {true, i, 0};
}
Number real(double d) { return {false, 0, d}; }

Number product(const Number& a, const Number& b) {
  if (!a.whole || !b.whole) return real(a.real() * b.real());
  Int r;
  if (__builtin_mul_overflow(a.i, b.i, &r)) throw NoValue();
  return whole(r);
}

Number quotient(const Number& a, const Number& b) {
  if (b.real() == 0) throw NoValue();
  if (!a.whole || !b.whole) return real(a.real() / b.real());
  // Rounded once: both are exact in 113 bits.
  return real(static_cast<double>(static_cast<Quad>(a.i) / static_cast<Quad>(b.i)));
}

Number floored(const Number& a, const Number& b) {
  if (b.real() == 0) throw NoValue();
  if (a.whole && b.whole) {
    const Int q = a.i / b.i;
    return whole(q - (a.i % b.i != 0 && (a.i < 0) != (b.i < 0)));
  }
  // As CPython: from the exact remainder, so that no quotient is rounded up to the next whole number.
  const double x = a.real(), y = b.real();
  double rest = std::fmod(x, y), q = (x - rest) / y;
  if (rest != 0 && (y < 0) != (rest < 0)) q -= 1;
  if (q == 0) return real(std::copysign(0.0, x / y));
  const double down = std::floor(q);
  return real(q - down > 0.5 ? down + 1 : down);
}

// Where somebody reads in a text.
class Reader {
 protected:
  explicit Reader(std::string_view s) : s_(s) {}
  void space() {
    while (at_ < s_.size() && s_[at_] == ' ') ++at_;
  }
  // What was read is the whole text.
  template <typename T>
  T whole_text(T value) {
    space();
    if (at_ != s_.size()) throw NoValue();
    return value;
  }
  std::string_view s_;
  size_t at_ = 0;
};

class Sum : Reader {
 public:
  explicit Sum(std::string_view s) : Reader(s) {}
  Number all() { return whole_text(terms()); }

 private:
  bool take(std::string_view token) {
    space();
    if (s_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  Number terms() {
    Number n = factors();
    for (;;) {
      const bool minus = take("-");
      if (!minus && !take("+")) return n;
      const Number m = factors();
      n = n.whole && m.whole ? whole(minus ? n.i - m.i : n.i + m.i)
                             : real(minus ? n.real() - m.real() : n.real() + m.real());
    }
  }
  Number factors() {
    Number n = signs();
    for (;;) {
      if (take("//"))
        n = floored(n, signs());
      else if (take("/"))
        n = quotient(n, signs());
      else if (take("*"))
        n = product(n, signs());
      else
        return n;
    }
  }
  Number signs() {
    bool minus = false;
    for (;;) {
      if (take("-"))
        minus = !minus;
      else if (!take("+"))
        break;
    }
    const Number n = atom();
    return !minus ? n : n.whole ? whole(-n.i) : real(-n.d);
  }
  Number atom() {
    if (!take("(")) return literal();
    if (++nested_ > kMostNested) throw NoValue();
    const Number n = terms();
    if (!take(")")) throw NoValue();
    --nested_;
    return n;
  }
  Number literal() {
    const size_t begin = at_;
    const auto digits = [&] {
      while (at_ < s_.size() && s_[at_] >= '0' && s_[at_] <= '9') ++at_;
    };
    digits();
    const bool point = at_ < s_.size() && s_[at_] == '.';
    if (point) {
      ++at_;
      digits();
    }
    const std::string text(s_.substr(begin, at_ - begin));
    if (text.empty() || text == ".") throw NoValue();
    if (at_ < s_.size() && s_[at_] == '.') throw NoValue();  // 1.2.3
    if (point) return real(std::strtod(text.c_str(), nullptr));
    if (text[0] == '0' && text.find_first_not_of('0') != std::string::npos) throw NoValue();  // 007
    Int n = 0;
    for (const char c : text) n = whole(n * 10 + (c - '0')).i;
    return whole(n);
  }

  int nested_ = 0;
};

class Count : Reader {
 public:
  explicit Count(std::string_view s) : Reader(s) {}
  int64_t all() { return whole_text(counted()); }

 private:
  bool take(char c) {
    space();
    if (at_ >= s_.size() || s_[at_] != c) return false;
    ++at_;
    return true;
  }
  void need(char c) {
    if (!take(c)) throw NoValue();
  }
  // A text with its methods, ended by a count or by something else, which is left.
  std::string text(std::optional<int64_t>* count) {
    std::string t;
    if (take('(')) {
      if (++nested_ > kMostNested) throw NoValue();
      t = text(count);
      need(')');
      --nested_;
    } else {
      t = literals();
    }
    while (!*count && take('.')) {
      space();
      const size_t begin = at_;
      while (at_ < s_.size() && s_[at_] >= 'a' && s_[at_] <= 'z') ++at_;
      const std::string_view name = s_.substr(begin, at_ - begin);
      need('(');
      if (name == "count") {
        std::optional<int64_t> none;
        const std::string part = text(&none);
        if (none) throw NoValue();
        *count = occurrences(t, part);
      } else {
        t = changed(std::move(t), name);
      }
      need(')');
    }
    return t;
  }
  int64_t counted() {
    std::optional<int64_t> n;
    text(&n);
    if (!n) throw NoValue();
    return *n;
  }
  std::string literals() {  // several side by side are one
    std::string t;
    bool any = false;
    for (;; any = true) {
      space();
      if (at_ >= s_.size() || (s_[at_] != '\'' && s_[at_] != '"')) break;
      const char quote = s_[at_++];
      const size_t end = s_.find(quote, at_);
      if (end == std::string_view::npos) throw NoValue();
      t += s_.substr(at_, end - at_);
      at_ = end + 1;
    }
    if (!any) throw NoValue();
    return t;
  }
  static int64_t occurrences(const std::string& t, const std::string& part) {
    if (part.empty()) return static_cast<int64_t>(t.size()) + 1;
    int64_t n = 0;
    for (size_t at = 0; (at = t.find(part, at)) != std::string::npos; at += part.size()) ++n;
    return n;
  }
  static std::string changed(std::string t, std::string_view method) {
    const auto each = [&](char from, char to) {
      for (char& c : t)
        if (c >= from && c <= to) c ^= 0x20;
    };
    if (method == "lower") {
      each('A', 'Z');
    } else if (method == "upper") {
      each('a', 'z');
    } else if (method == "title" || method == "capitalize") {
      const auto letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
      for (size_t i = 0; i < t.size(); ++i) {
        const bool first = method == "title" ? i == 0 || !letter(t[i - 1]) : i == 0;
        if (letter(t[i])) t[i] = static_cast<char>(first ? t[i] & ~0x20 : t[i] | 0x20);
      }
    } else if (method == "strip" || method == "lstrip" || method == "rstrip") {
      if (method != "rstrip") t.erase(0, t.find_first_not_of(' '));
      if (method != "lstrip") t.erase(t.find_last_not_of(' ') + 1);
    } else {
      throw NoValue();
    }
    return t;
  }

  int nested_ = 0;
};

}  // namespace

std::optional<std::string> sum_value(std::string_view expression) try {
  const Number n = Sum(expression).all();
  return n.whole ? jinja::int_text(n.i) : jinja::float_text(n.d);
} catch (const NoValue&) {
  return std::nullopt;
}

std::optional<std::string> count_value(std::string_view expression) try {
  return std::to_string(Count(expression).all());
} catch (const NoValue&) {
  return std::nullopt;
}

}  // namespace mxt::infer
