#include "tokenizer/split/scanner.h"

#include "base/error.h"
#include "tokenizer/text/unicode.h"

namespace mxt::tokenizer {
namespace {

using ScanKind = ScanRule::Kind;

struct Known {
  std::string_view pattern;
  ScanRule rule;
};
// The spellings differ, the pieces do not: `?+` and `++` stand before classes that cannot give back, and `\s*[\r\n]`
// ends, greedy as it is, at the last newline of the run just as `\s*[\r\n]+` does.
constexpr Known kKnown[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {ScanKind::kGpt2, 0}},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {ScanKind::kGpt2, 0}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {ScanKind::kCl100k, 1}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {ScanKind::kCl100k, 2}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {ScanKind::kCl100k, 3}},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     {ScanKind::kCl100k, 2}},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     {ScanKind::kCl100k, 3}},
};

enum class Class : uint8_t { kLetter, kNumber, kSpace, kOther };

// One character of the text, as the patterns see it.
struct Reader {
  const char* text;
  size_t end;
  uint16_t number;  // which bit counts as a number
  const unicode::Table& table = unicode::Table::get();

  Class at(size_t p, size_t& next) const {
    size_t n;
    const uint16_t f = table[unicode::decode(text + p, n)];
    next = p + n;
    return f & number             ? Class::kNumber
           : f & unicode::kLetter ? Class::kLetter
           : f & unicode::kSpace  ? Class::kSpace
                                  : Class::kOther;
  }
  size_t run(size_t p, Class c) const {
    size_t next;
    while (p < end && at(p, next) == c) p = next;
    return p;
  }
  bool newline(size_t p) const { return text[p] == '\n' || text[p] == '\r'; }
};

size_t contraction(const char* t, size_t p, size_t end, bool fold) {
  if (t[p] != '\'' || p + 1 >= end) return 0;
  const auto low = [&](size_t i) { return i < end ? (fold && t[i] >= 'A' && t[i] <= 'Z' ? t[i] + 32 : t[i]) : 0; };
  const int a = low(p + 1), b = low(p + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return p + 3;
  if (fold && a == '\xC5' && b == '\xBF') return p + 3;  // ſ folds to s
  return 0;
}

// \s+(?!\S)|\s+ from p: all of the run at the end of the text, else all but its last character, else that character.
size_t spaces(const Reader& r, size_t p, size_t run_end, bool stop_is_end) {
  if (run_end == r.end || stop_is_end) return run_end;
  const size_t last = unicode::back({r.text, run_end}, run_end);
  return last > p ? last : run_end;
}

size_t next_gpt2(const Reader& r, size_t p, bool digits_apart) {
  if (const size_t e = contraction(r.text, p, r.end, false)) return e;
  size_t next, from = p;
  Class c = r.at(p, next);
  if (r.text[p] == ' ' && next < r.end) {
    size_t after;
    const Class d = r.at(next, after);
    if (d != Class::kSpace && !(digits_apart && d == Class::kNumber)) {
      from = next;
      c = d;
      next = after;
    }
  }
  if (c == Class::kNumber && digits_apart) return next;
  if (c != Class::kSpace) return r.run(from, c);
  const size_t e = r.run(p, Class::kSpace);
  size_t after;
  return spaces(r, p, e, digits_apart && e < r.end && r.at(e, after) == Class::kNumber);
}

size_t next_cl100k(const Reader& r, size_t p, int max_digits) {
  if (const size_t e = contraction(r.text, p, r.end, true)) return e;
  size_t next, after;
  const Class c = r.at(p, next);
  if (c == Class::kLetter) return r.run(p, c);
  if (c != Class::kNumber && !r.newline(p) && next < r.end && r.at(next, after) == Class::kLetter)
    return r.run(next, Class::kLetter);
  if (c == Class::kNumber) {
    for (int i = 1; i < max_digits && next < r.end && r.at(next, after) == Class::kNumber; ++i) next = after;
    return next;
  }
  const size_t mark = r.text[p] == ' ' ? next : p;
  if (mark < r.end && r.at(mark, after) == Class::kOther) {
    size_t e = r.run(mark, Class::kOther);
    while (e < r.end && r.newline(e)) ++e;
    return e;
  }
  const size_t e = r.run(p, Class::kSpace);
  for (size_t i = e; i > p; --i)
    if (r.newline(i - 1)) return i;
  return spaces(r, p, e, false);
}

}  // namespace

std::optional<ScanRule> scan_rule_of(std::string_view pattern) {
  for (const auto& k : kKnown)
    if (k.pattern == pattern) return k.rule;
  return std::nullopt;
}

std::string_view pattern_of(const ScanRule& rule) {
  for (const auto& k : kKnown)
    if (rule.kind == ScanKind::kCl100k ? (k.rule.kind == rule.kind && k.rule.max_digits == rule.max_digits)
                                       : k.rule.kind == ScanKind::kGpt2)
      return k.pattern;
  MXT_ASSERT(!"a rule without a pattern");
  return {};
}

size_t next_piece(const ScanRule& rule, const char* text, size_t p, size_t end) {
  const bool digits = rule.kind == ScanKind::kDigitsGpt2;
  const Reader r{text, end, digits ? unicode::kNumeric : unicode::kNumber};
  return rule.kind == ScanKind::kCl100k ? next_cl100k(r, p, rule.max_digits) : next_gpt2(r, p, digits);
}

}  // namespace mxt::tokenizer
