#define PCRE2_CODE_UNIT_WIDTH 8
#include "pytext/python_regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace mxt::pytext {
namespace {

constexpr size_t kMaxPattern = 1 << 16;
constexpr uint32_t kMatchLimit = 20'000'000, kDepthLimit = 100'000, kHeapKiB = 256 << 10;

// What Python spells otherwise than PCRE2: \Z, \uXXXX, \UXXXXXXXX and {,n}.
std::string translate(std::string_view p) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == '\\' && i + 1 < p.size()) {
      const char c = p[++i];
      const size_t digits = c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (c == 'Z' && !in_class)
        out += "\\z";
      else if (digits && i + digits < p.size()) {
        out += fmt::format("\\x{{{}}}", p.substr(i + 1, digits));
        i += digits;
      } else {
        out += '\\';
        out += c;
      }
      continue;
    }
    if (p[i] == '[' && in_class) {  // Python has no POSIX classes: a bracket inside brackets is itself
      out += "\\[";
      continue;
    }
    if (p[i] == '[') {
      in_class = true;
      out += '[';
      if (i + 1 < p.size() && p[i + 1] == '^') out += p[++i];
      if (i + 1 < p.size() && p[i + 1] == ']') {
        out += "\\]";
        ++i;
      }
      continue;
    }
    if (p[i] == ']') in_class = false;
    out += p[i];
    if (p[i] == '{' && !in_class && i + 1 < p.size() && p[i + 1] == ',') out += '0';
  }
  return out;
}

}  // namespace

struct PythonRegex::Code {
  std::string where;
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  uint32_t groups = 0;
  ~Code() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

PythonRegex::PythonRegex(std::string_view pattern, std::string_view where, bool ignore_case, bool multiline)
    : code_(std::make_unique<Code>()) {
  code_->where = where;
  if (pattern.size() > kMaxPattern)
    fail_input("{}: a regular expression of {} bytes is refused", where, pattern.size());
  if (!is_valid_utf8(pattern)) fail_input("{}: the regular expression is not valid UTF-8", where);
  const std::string p = translate(pattern);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_compile_context* cc = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | (ignore_case ? PCRE2_CASELESS : 0) |
                           (multiline ? PCRE2_MULTILINE : 0);
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(p.data()), p.size(), options, &error, &at, cc);
  pcre2_compile_context_free(cc);
  if (!code_->code) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof message);
    fail_input("{}: the regular expression \"{}\" is not valid at byte {}: {}", where, pattern, at,
               reinterpret_cast<const char*>(message));
  }
  pcre2_pattern_info(code_->code, PCRE2_INFO_CAPTURECOUNT, &code_->groups);
  code_->context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(code_->context, kMatchLimit);
  pcre2_set_depth_limit(code_->context, kDepthLimit);
  pcre2_set_heap_limit(code_->context, kHeapKiB);
}

PythonRegex::~PythonRegex() = default;
PythonRegex::PythonRegex(PythonRegex&&) noexcept = default;

std::vector<PythonRegex::Match> PythonRegex::find_all(std::string_view text, size_t limit) const {
  std::vector<Match> out;
  pcre2_match_data* data = pcre2_match_data_create_from_pattern(code_->code, nullptr);
  size_t at = 0;
  uint32_t options = 0;
  int rc = 0;
  while (at <= text.size()) {
    rc = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options, data,
                     code_->context);
    if (rc < 0) break;
    options = PCRE2_NO_UTF_CHECK;
    const PCRE2_SIZE* o = pcre2_get_ovector_pointer(data);
    Match m;
    m.groups.resize(code_->groups + 1);
    for (size_t g = 0; g < m.groups.size(); ++g)
      if (o[2 * g] != PCRE2_UNSET) m.groups[g] = {true, o[2 * g], o[2 * g + 1]};
    at = m.end();
    if (m.begin() == m.end()) options |= PCRE2_NOTEMPTY_ATSTART;  // the next one may not be empty here again
    out.push_back(std::move(m));
    if (limit && out.size() == limit) break;
  }
  pcre2_match_data_free(data);
  if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT)
    fail_input("{}: the regular expression backtracks too much on a text of {} bytes", code_->where, text.size());
  if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
    fail_input("{}: the regular expression fails on a text of {} bytes (PCRE2 error {})", code_->where, text.size(),
               rc);
  return out;
}

std::vector<std::vector<std::string>> PythonRegex::findall(std::string_view text) const {
  std::vector<std::vector<std::string>> out;
  for (const Match& m : find_all(text)) {
    std::vector<std::string> row;
    for (size_t g = code_->groups > 0 ? 1 : 0; g < m.groups.size(); ++g)
      row.emplace_back(m.groups[g].set ? text.substr(m.groups[g].begin, m.groups[g].end - m.groups[g].begin)
                                       : std::string_view());
    out.push_back(std::move(row));
  }
  return out;
}

std::string PythonRegex::sub(std::string_view replacement, std::string_view text, size_t count) const {
  auto expand = [&](const Match& m) {
    std::string out;
    auto group = [&](size_t g) {
      if (g >= m.groups.size())
        fail_input("{}: the replacement \"{}\" names group {}, the expression has {}", code_->where, replacement, g,
                   code_->groups);
      if (m.groups[g].set) out += text.substr(m.groups[g].begin, m.groups[g].end - m.groups[g].begin);
    };
    for (size_t i = 0; i < replacement.size(); ++i) {
      if (replacement[i] != '\\' || i + 1 >= replacement.size()) {
        out += replacement[i];
        continue;
      }
      const char c = replacement[++i];
      if (c == 'g' && i + 1 < replacement.size() && replacement[i + 1] == '<') {
        const size_t end = replacement.find('>', i);
        if (end == std::string_view::npos)
          fail_input("{}: the replacement \"{}\" lacks a >", code_->where, replacement);
        const std::string name(replacement.substr(i + 2, end - i - 2));
        size_t g = 0;
        const auto [p, ec] = std::from_chars(name.data(), name.data() + name.size(), g);
        if (ec != std::errc() || p != name.data() + name.size()) {
          const int n = pcre2_substring_number_from_name(code_->code, reinterpret_cast<PCRE2_SPTR>(name.c_str()));
          if (n <= 0)
            fail_input("{}: the replacement \"{}\" names no group of the expression", code_->where, replacement);
          g = static_cast<size_t>(n);
        }
        group(g);
        i = end;
      } else if (c >= '1' && c <= '9') {
        size_t g = static_cast<size_t>(c - '0');
        if (i + 1 < replacement.size() && replacement[i + 1] >= '0' && replacement[i + 1] <= '9')
          g = g * 10 + static_cast<size_t>(replacement[++i] - '0');
        group(g);
      } else {
        static constexpr std::string_view kFrom = "ntrfvab\\", kTo = "\n\t\r\f\v\a\b\\";
        const size_t k = kFrom.find(c);
        if (k == std::string_view::npos && ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'))
          fail_input("{}: bad escape \\{} in the replacement \"{}\"", code_->where, c, replacement);
        if (k == std::string_view::npos) out += '\\';
        out += k == std::string_view::npos ? c : kTo[k];
      }
    }
    return out;
  };
  std::string out;
  size_t at = 0;
  for (const Match& m : find_all(text, count)) {
    out += text.substr(at, m.begin() - at);
    out += expand(m);
    at = m.end();
  }
  out += text.substr(at);
  return out;
}

std::vector<std::string> PythonRegex::split(std::string_view text) const {
  std::vector<std::string> out;
  size_t at = 0;
  for (const Match& m : find_all(text)) {
    out.emplace_back(text.substr(at, m.begin() - at));
    at = m.end();
  }
  out.emplace_back(text.substr(at));
  return out;
}

}  // namespace mxt::pytext
