#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/split/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <iterator>

#include "base/error.h"
#include "tokenizer/text/unicode.h"

namespace mxt::tokenizer {
namespace {

constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr size_t kMaxPattern = 8192;

// The oracle's \w, as ranges.
const std::string& word_ranges() {
  static const std::string text = [] {
    std::string s;
    for (size_t i = 0; i < std::size(unicode::kRuns); ++i) {
      if (!(unicode::kRuns[i].classes & unicode::kWord)) continue;
      const uint32_t last = i + 1 < std::size(unicode::kRuns) ? unicode::kRuns[i + 1].first - 1 : 0x10FFFF;
      s += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", unicode::kRuns[i].first, last);
    }
    return s;
  }();
  return text;
}

// Walks an Oniguruma pattern, refuses what PCRE2 would read differently and writes the classes out.
class Translator {
 public:
  Translator(std::string_view p, std::string_view source) : p_(p), source_(source) {}

  std::string run() {
    while (i_ < p_.size()) {
      const char c = p_[i_];
      if (c == '\\')
        escape(false);
      else if (c == '[')
        bracket();
      else if (c == '(')
        group();
      else if (c == '{')
        repeat();
      else if (c == '^' || c == '$')
        copy(1);  // of a line, in Ruby's syntax always (PCRE2_MULTILINE)
      else if (c == '+' || c == '*' || c == '?')
        quantifier();
      else
        copy(1);
    }
    return bounds_ ? fmt::format("{}(?(DEFINE)(?<w>[{}]))", out_, word_ranges()) : out_;
  }

 private:
  // What Oniguruma reads and this does not.
  [[noreturn]] void refuse(std::string_view what) const {
    fail_missing("{}: split pattern at byte {}: {} is not built in: {}", source_, i_, what, p_);
  }
  [[noreturn]] void broken(std::string_view what) const {
    fail_input("{}: split pattern at byte {}: {}: {}", source_, i_, what, p_);
  }
  void copy(size_t n) {
    out_.append(p_.substr(i_, n));
    i_ += n;
  }
  // A class written as ranges: bare inside brackets, bracketed outside.
  void put_class(std::string_view ranges, bool negated, bool inside) {
    if (inside && negated) refuse("a negated class inside brackets");
    if (inside)
      out_ += ranges;
    else
      (out_ += negated ? "[^" : "[").append(ranges).append("]");
  }
  // Between a character of a word and another, or the text's end; as \w here, which is not PCRE2's. The long class
  // stands once, as a group that is called.
  void put_boundary(bool there) {
    bounds_ = true;
    out_ += there ? "(?:(?<=(?&w))(?!(?&w))|(?<!(?&w))(?=(?&w)))" : "(?:(?<=(?&w))(?=(?&w))|(?<!(?&w))(?!(?&w)))";
  }
  void escape(bool inside) {
    if (i_ + 1 >= p_.size()) broken("a lone backslash");
    const char c = p_[i_ + 1];
    if (c == 'p' || c == 'P') return property(c == 'P', inside);
    if (c == 's' || c == 'S')
      put_class(kSpaces, c == 'S', inside);
    else if (c == 'w' || c == 'W')
      put_class(word_ranges(), c == 'W', inside);
    else if (c == 'd' || c == 'D')
      put_class("\\p{Nd}", c == 'D', inside);
    else if ((c == 'A' || c == 'z') && !inside)
      return copy(2);
    else if ((c == 'b' || c == 'B') && !inside)
      put_boundary(c == 'b');
    else if (c == 'r' || c == 'n' || c == 't' || c == 'f' || (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(c)))
      return copy(2);
    else if (c == 'u' || c == 'x')
      return code_point(c);
    else
      refuse(fmt::format("\\{}", c));
    i_ += 2;
  }
  void code_point(char kind) {
    size_t k = i_ + 2;
    const bool braces = kind == 'x' && k < p_.size() && p_[k] == '{';
    if (braces) ++k;
    const size_t most = braces ? 8 : kind == 'u' ? 4 : 2;
    uint32_t v = 0;
    size_t n = 0;
    for (; n < most && k < p_.size() && std::isxdigit(static_cast<unsigned char>(p_[k])); ++n, ++k)
      v = v * 16 + static_cast<uint32_t>(std::stoi(std::string(1, p_[k]), nullptr, 16));
    if (n == 0 || (kind == 'u' && n != 4) || (braces && (k >= p_.size() || p_[k] != '}')) || v > 0x10FFFF)
      broken("a broken code point");
    if (kind == 'x' && !braces && v > 0x7F) refuse("a raw byte");
    out_ += fmt::format("\\x{{{:x}}}", v);
    i_ = k + (braces ? 1 : 0);
  }
  void property(bool negated, bool inside) {
    const size_t close = p_.find('}', i_);
    if (i_ + 2 >= p_.size() || p_[i_ + 2] != '{' || close == std::string_view::npos) broken("a broken property");
    std::string name(p_.substr(i_ + 3, close - i_ - 3));
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.erase(0, 1);
    }
    static constexpr std::string_view kKnown[] = {
        "L",  "Lu",  "Ll",       "Lt",       "Lm",     "Lo",    "M",     "Mn",       "Mc",     "Me",     "N",
        "Nd", "Nl",  "No",       "P",        "Pc",     "Pd",    "Ps",    "Pe",       "Pi",     "Pf",     "Po",
        "S",  "Sm",  "Sc",       "Sk",       "So",     "Z",     "Zs",    "Zl",       "Zp",     "C",      "Cc",
        "Cf", "Han", "Hiragana", "Katakana", "Hangul", "Latin", "Greek", "Cyrillic", "Arabic", "Hebrew", "Thai"};
    bool known = false;
    for (const auto k : kKnown) known = known || k == name;
    if (!known) refuse(fmt::format("\\p{{{}}}", name));
    std::string ranges = fmt::format("\\p{{{}}}", name);
    if (name == "L") ranges += unicode::kNewLetters;
    if (name == "N") ranges += unicode::kNewNumbers;
    if (inside && negated && name != "L" && name != "N")
      out_ += fmt::format("\\P{{{}}}", name);
    else
      put_class(ranges, negated, inside);
    i_ = close + 1;
  }
  void bracket() {
    copy(1);
    if (i_ < p_.size() && p_[i_] == '^') copy(1);
    if (i_ < p_.size() && p_[i_] == ']') refuse("an empty bracket");
    while (i_ < p_.size() && p_[i_] != ']') {
      if (p_[i_] == '\\')
        escape(true);
      else if (p_[i_] == '[')
        refuse("a bracket inside brackets");
      else if (p_[i_] == '&' && i_ + 1 < p_.size() && p_[i_ + 1] == '&')
        refuse("&& inside brackets");
      else
        copy(1);
    }
    if (i_ >= p_.size()) broken("a bracket without end");
    copy(1);
  }
  void group() {
    static constexpr std::string_view kKnown[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
    if (i_ + 1 < p_.size() && p_[i_ + 1] == '?') {
      for (const auto k : kKnown)
        if (p_.substr(i_, k.size()) == k) return copy(k.size());
      refuse("this kind of group");
    }
    if (i_ + 1 < p_.size() && p_[i_ + 1] == '*') refuse("(*");
    out_ += "(?:";
    ++i_;
  }
  void quantifier() {
    copy(1);
    if (i_ < p_.size() && (p_[i_] == '+' || p_[i_] == '?')) copy(1);
    if (i_ < p_.size() && (p_[i_] == '+' || p_[i_] == '*' || p_[i_] == '?')) refuse("a stacked quantifier");
  }
  // {n}, {n,}, {n,m}; a following + repeats again in Ruby and is possessive in PCRE2.
  void repeat() {
    const size_t close = p_.find('}', i_);
    if (close == std::string_view::npos || close == i_ + 1 || !std::isdigit(static_cast<unsigned char>(p_[i_ + 1])))
      refuse("a bare {");
    for (size_t k = i_ + 1; k < close; ++k)
      if (!std::isdigit(static_cast<unsigned char>(p_[k])) && p_[k] != ',') refuse("a bare {");
    copy(close + 1 - i_);
    if (i_ < p_.size() && (p_[i_] == '+' || p_[i_] == '*' || p_[i_] == '?')) refuse("a stacked quantifier");
  }

  std::string_view p_, source_;
  size_t i_ = 0;
  bool bounds_ = false;
  std::string out_;
};

struct MatchState {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(64 * 1024, 16 * 1024 * 1024, nullptr);
  MatchState() {
    if (context && stack) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, std::string_view source)
    : code_(std::make_unique<Code>()), pattern_(pattern), source_(source) {
  if (pattern.size() > kMaxPattern)
    fail_input("{}: split pattern of {} bytes: at most {} are accepted", source, pattern.size(), kMaxPattern);
  const std::string p = Translator(pattern, source).run();
  int error = 0;
  PCRE2_SIZE at = 0;
  auto* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(p.data()), p.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, context);
  pcre2_compile_context_free(context);
  if (!code_->code) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof message);
    fail_input("{}: split pattern is not valid: {}: {}", source, reinterpret_cast<const char*>(message), pattern);
  }
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);  // without JIT the interpreter gives the same matches
  size_t b, e;
  find("", 0, b, e);  // refuses a pattern that matches nothing at all
}

Regex::~Regex() = default;

bool Regex::find(std::string_view text, size_t from, size_t& begin, size_t& end) const {
  static thread_local MatchState state;
  const char* base = text.data() ? text.data() : "";
  const int rc = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(base), text.size(), from, PCRE2_NO_UTF_CHECK,
                             state.data, state.context);
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) fail_input("{}: split pattern gave up on this text (PCRE2 error {}): {}", source_, rc, pattern_);
  const PCRE2_SIZE* v = pcre2_get_ovector_pointer(state.data);
  begin = v[0];
  end = v[1];
  if (begin >= end) fail_input("{}: split pattern matches the empty string: {}", source_, pattern_);
  return true;
}

}  // namespace mxt::tokenizer
