#include "data/filter/redact.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "data/shape/row.h"
#include "data/shape/row_text.h"

namespace mxt::data {
namespace {

using config::Redact;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'z'); }
bool is_wide(char c) { return static_cast<signed char>(c) < 0; }

// Each matcher is asked at position i and answers where the match ends, or i where there is none. None looks further
// than a bounded number of bytes before it fails, but for PEM blocks, whose head is rare.

size_t match_email(std::string_view s, size_t i) {
  constexpr size_t kName = 64, kHost = 253;
  const auto in_name = [](char c) { return is_alnum(c) || c == '.' || c == '_' || c == '%' || c == '+' || c == '-'; };
  if (!is_alnum(s[i]) || (i > 0 && (in_name(s[i - 1]) || is_wide(s[i - 1])))) return i;
  size_t at = i;
  while (at < s.size() && at - i <= kName && in_name(s[at])) ++at;
  if (at == s.size() || s[at] != '@' || at - i > kName) return i;
  size_t end = i, label = ++at;  // of the last place where the host may end
  for (const size_t host = at; at < s.size() && at - host <= kHost;) {
    while (at < s.size() && (is_alnum(s[at]) || s[at] == '-') && at - label < 64) ++at;
    if (at == label) break;
    const std::string_view last = s.substr(label, at - label);
    if (label > host && last.size() >= 2 &&
        std::all_of(last.begin(), last.end(), [](char c) { return is_alnum(c) && !is_digit(c); }))
      end = at;
    if (at == s.size() || s[at] != '.') break;
    label = ++at;
  }
  return end;
}

size_t match_international(std::string_view s, size_t i) {
  if (s[i] != '+' || (i > 0 && (is_alnum(s[i - 1]) || s[i - 1] == '+'))) return i;
  size_t at = i + 1, digits = 0, end = i;
  bool gap = true;  // no separator right after the plus
  while (at < s.size() && digits <= 15) {
    if (is_digit(s[at])) {
      ++digits;
      ++at;
      gap = false;
      // Where a group ends the number may: another that follows it after a space would make both too long.
      if (digits >= 8 && digits <= 15 && (at == s.size() || !is_alnum(s[at]))) end = at;
    } else if (!gap && (s[at] == ' ' || s[at] == '-' || s[at] == '.' || s[at] == '(' || s[at] == ')')) {
      ++at;
      gap = s[at - 1] != ')' && !(at < s.size() && s[at] == '(');  // " (" and ") " are two separators
    } else {
      break;
    }
  }
  return end;
}

size_t match_american(std::string_view s, size_t i) {
  if (i > 0 && (is_alnum(s[i - 1]) || s[i - 1] == '.' || s[i - 1] == '-' || s[i - 1] == '+')) return i;
  const auto fits = [&](std::string_view form) {
    if (s.size() - i < form.size()) return false;
    for (size_t k = 0; k < form.size(); ++k)
      if (form[k] == '0' ? !is_digit(s[i + k]) : s[i + k] != form[k]) return false;
    const size_t end = i + form.size();
    // 555-123-4567-8 and 555.123.4567.8 are other numbers.
    return end == s.size() ||
           !(is_alnum(s[end]) || ((s[end] == '-' || s[end] == '.') && end + 1 < s.size() && is_digit(s[end + 1])));
  };
  for (std::string_view form : {"(000) 000-0000", "(000)000-0000", "000-000-0000", "000.000.0000"})
    if (fits(form)) return i + form.size();
  return i;
}

size_t match_phone(std::string_view s, size_t i) {
  const size_t end = match_international(s, i);
  return end > i ? end : match_american(s, i);
}

size_t match_key(std::string_view s, size_t i) {
  struct Form {
    std::string_view head;
    size_t least, most;  // characters after the head
    bool capitals;       // only A–Z and 0–9 follow
  };
  static constexpr Form kForms[] = {
      {"AKIA", 16, 16, true},   {"ASIA", 16, 16, true},          {"ghp_", 36, 255, false}, {"gho_", 36, 255, false},
      {"ghs_", 36, 255, false}, {"github_pat_", 22, 255, false}, {"hf_", 30, 60, false},   {"sk-", 20, 255, false},
      {"AIza", 35, 35, false},  {"xoxb-", 20, 255, false},       {"xoxp-", 20, 255, false}};
  if (s.substr(i).starts_with("-----BEGIN ")) {
    constexpr size_t kHead = 64, kBlock = 16384;
    const size_t head = s.substr(i, kHead).find("PRIVATE KEY-----");
    if (head == std::string_view::npos) return i;
    const std::string_view block = s.substr(i, kBlock);
    const size_t end = block.find("-----END ", head);
    if (end == std::string_view::npos) return i + block.size();
    const size_t tail = block.find("-----", end + 9);
    return i + (tail == std::string_view::npos ? block.size() : tail + 5);
  }
  if (i > 0 && (is_alnum(s[i - 1]) || s[i - 1] == '_' || s[i - 1] == '-')) return i;
  for (const Form& f : kForms) {
    if (!s.substr(i).starts_with(f.head)) continue;
    size_t at = i + f.head.size(), digits = 0, small = 0, capitals = 0, joints = 0;
    const size_t from = at;
    for (; at < s.size() && at - from <= f.most; ++at) {
      const char c = s[at];
      if (f.capitals ? !(is_digit(c) || (c >= 'A' && c <= 'Z')) : !(is_alnum(c) || c == '_' || c == '-')) break;
      digits += is_digit(c);
      small += c >= 'a' && c <= 'z';
      capitals += c >= 'A' && c <= 'Z';
      joints += c == '_' || c == '-';
    }
    // Hugging Face's tokens have no digits; names of programs are words with joints between them.
    const bool random = digits > 0 || (small > 0 && capitals > 0 && joints == 0);
    if (at - from >= f.least && at - from <= f.most && random && (at == s.size() || !is_alnum(s[at]))) return at;
  }
  return i;
}

using Match = size_t (*)(std::string_view, size_t);
constexpr Match kMatch[] = {match_email, match_phone, match_key};
constexpr std::string_view kMark[] = {"<EMAIL>", "<PHONE>", "<KEY>"};

// What may begin a match of each kind, one bit a kind: all else is passed over at once.
constexpr uint8_t kMailBit = 1 << static_cast<int>(Redact::kEmail), kPhoneBit = 1 << static_cast<int>(Redact::kPhone),
                  kKeyBit = 1 << static_cast<int>(Redact::kKey);
constexpr std::array<uint8_t, 256> kMayBegin = [] {
  std::array<uint8_t, 256> m{};
  for (const auto& [first, last] : {std::pair('0', '9'), std::pair('a', 'z'), std::pair('A', 'Z')})
    for (int c = first; c <= last; ++c) m[static_cast<size_t>(c)] |= kMailBit;
  for (size_t c = '0'; c <= '9'; ++c) m[c] |= kPhoneBit;
  for (unsigned char c : {'+', '('}) m[c] |= kPhoneBit;
  for (unsigned char c : {'-', 'A', 'g', 'h', 's', 'x'}) m[c] |= kKeyBit;  // of match_key's heads
  return m;
}();

void add(const Redacted& n, Redacted* sum) {
  for (size_t k = 0; k < n.size(); ++k) (*sum)[k] += n[k];
}

void redact_json(OrderedJson* j, std::span<const Redact> kinds, Redacted* sum) {
  if (j->is_string()) {
    add(redact_text(&j->get_ref<std::string&>(), kinds), sum);
  } else if (j->is_object()) {
    for (auto it = j->begin(); it != j->end(); ++it)
      if (it.key() != "role" && it.key() != "from") redact_json(&it.value(), kinds, sum);
  } else if (j->is_array()) {
    for (OrderedJson& x : *j) redact_json(&x, kinds, sum);
  }
}

}  // namespace

Redacted redact_text(std::string* text, std::span<const Redact> kinds) {
  Redacted count{};
  std::string out;
  const std::string_view s = *text;
  uint8_t wanted = 0;
  for (const Redact kind : kinds)
    if (kind != Redact::kEmail || s.find('@') != std::string_view::npos)
      wanted = static_cast<uint8_t>(wanted | 1 << static_cast<int>(kind));
  if (wanted == 0) return count;
  size_t done = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    const uint8_t here = kMayBegin[static_cast<unsigned char>(s[i])] & wanted;
    if (here == 0) continue;
    for (const Redact kind : kinds) {
      const size_t k = static_cast<size_t>(kind);
      if (!(here >> k & 1)) continue;
      const size_t end = kMatch[k](s, i);
      if (end == i) continue;
      out.append(s.substr(done, i - done)).append(kMark[k]);
      ++count[k];
      done = end;
      i = end - 1;
      break;
    }
  }
  if (done > 0) {
    out.append(s.substr(done));
    *text = std::move(out);
  }
  return count;
}

Redacted redact_record(Record* r, const Layout& layout, std::span<const Redact> kinds) {
  if (layout.shape == Shape::kTokens || layout.shape == Shape::kTokenPair || layout.shape == Shape::kTokenAnswer)
    fail_input("{}: the row is finished tokens, which data.filter.redact cannot read; remove it, or give text",
               r->where());
  Redacted sum{};
  thread_local RowText text;  // most rows have nothing to replace: seen without building values
  read_row_text(*r, layout, &text);
  add(redact_text(&text.text, kinds), &sum);
  add(redact_text(&text.context, kinds), &sum);
  if (sum == Redacted{}) return sum;
  sum = {};
  OrderedJson row = open_row(*r, layout);
  for (const auto& [ours, theirs] : layout.columns)
    if (const auto it = row.find(theirs); it != row.end()) redact_json(&*it, kinds, &sum);
  r->text = json_text(row);
  r->header = nullptr;
  r->cells.clear();
  return sum;
}

}  // namespace mxt::data
