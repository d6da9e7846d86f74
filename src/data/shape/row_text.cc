#include "data/shape/row_text.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "data/shape/ascii.h"
#include "data/shape/row.h"
#include "tokenizer/text/unicode.h"

namespace mxt::data {
namespace {

constexpr int kMaxDepth = 256;

// One pass over JSON text. Every function is false where the text is not what it should be: the caller then lets the
// real parser name the error.
class Scan {
 public:
  explicit Scan(std::string_view s) : p_(s.data()), end_(s.data() + s.size()) {}

  void skip_space() {
    while (p_ < end_ && (*p_ == ' ' || *p_ == '\t' || *p_ == '\n' || *p_ == '\r')) ++p_;
  }
  bool at_end() {
    skip_space();
    return p_ == end_;
  }
  char peek() {
    skip_space();
    return p_ < end_ ? *p_ : '\0';
  }
  bool take(char c) {
    if (peek() != c || p_ == end_) return false;
    ++p_;
    return true;
  }

  // Appends the string's text.
  bool string(std::string* out) {
    if (!take('"')) return false;
    for (;;) {
      const char* from = p_;
      p_ += json_plain_run(p_, static_cast<size_t>(end_ - p_));
      out->append(from, static_cast<size_t>(p_ - from));
      if (p_ == end_ || static_cast<unsigned char>(*p_) < 0x20) return false;
      if (*p_++ == '"') return true;
      if (!escape(out)) return false;
    }
  }
  // Passes a value over; its JSON text is appended where `out` is given.
  bool value(std::string* out, int depth = 0) {
    skip_space();
    const char* from = p_;
    if (!pass(depth)) return false;
    if (out) out->append(from, static_cast<size_t>(p_ - from));
    return true;
  }
  // Calls f(key) at each member's value, which f must pass.
  template <typename F>
  bool object(std::string* key, F&& f) {
    if (!take('{')) return false;
    if (take('}')) return true;
    do {
      key->clear();
      if (!string(key) || !take(':') || !f(std::string_view(*key))) return false;
    } while (take(','));
    return take('}');
  }
  template <typename F>
  bool array(F&& f) {
    if (!take('[')) return false;
    if (take(']')) return true;
    do {
      if (!f()) return false;
    } while (take(','));
    return take(']');
  }

 private:
  bool pass(int depth) {
    if (depth > kMaxDepth) return false;
    const char c = peek();
    if (c == '"') return pass_string();
    if (c == '{') {
      ++p_;
      if (take('}')) return true;
      do {
        skip_space();
        if (!pass_string() || !take(':') || !pass(depth + 1)) return false;
      } while (take(','));
      return take('}');
    }
    if (c == '[') return array([&] { return pass(depth + 1); });
    const char* from = p_;
    while (p_ < end_ && *p_ != ',' && *p_ != ']' && *p_ != '}' && static_cast<unsigned char>(*p_) > ' ') ++p_;
    const std::string_view word(from, static_cast<size_t>(p_ - from));
    return word == "true" || word == "false" || word == "null" || is_number(word);
  }
  // -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
  static bool is_number(std::string_view s) {
    size_t i = s.starts_with('-');
    const auto digits = [&] {
      const size_t from = i;
      while (i < s.size() && s[i] >= '0' && s[i] <= '9') ++i;
      return i > from;
    };
    const bool zero = i < s.size() && s[i] == '0';
    if (zero ? ++i, false : !digits()) return false;
    if (i < s.size() && s[i] == '.' && (++i, !digits())) return false;
    if (i < s.size() && (s[i] == 'e' || s[i] == 'E')) {
      ++i;
      if (i < s.size() && (s[i] == '+' || s[i] == '-')) ++i;
      if (!digits()) return false;
    }
    return i == s.size();
  }
  bool pass_string() {
    passed_.clear();
    return string(&passed_);
  }
  bool hex4(uint32_t* out) {
    if (end_ - p_ < 4) return false;
    *out = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = *p_++;
      const int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
      if (d < 0) return false;
      *out = *out * 16 + static_cast<uint32_t>(d);
    }
    return true;
  }
  bool escape(std::string* out) {
    if (p_ == end_) return false;
    const char c = *p_++;
    if (c == 'u') {
      uint32_t code, low;
      if (!hex4(&code) || (code >= 0xDC00 && code < 0xE000)) return false;
      if (code >= 0xD800 && code < 0xDC00) {
        if (end_ - p_ < 2 || *p_++ != '\\' || *p_++ != 'u' || !hex4(&low) || low < 0xDC00 || low >= 0xE000)
          return false;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      }
      append_utf8(*out, code);
      return true;
    }
    static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    const size_t i = kFrom.find(c);
    if (i == std::string_view::npos) return false;
    out->push_back(kTo[i]);
    return true;
  }

  const char* p_;
  const char* end_;
  std::string passed_;
};

// Buffers of one thread, kept between rows.
struct Buffers {
  std::string key, inner_key, role, content;
  std::vector<std::string> columns;
  bool opened = false;  // the row is open_row()'s: what is a text stays one
};

void append_part(std::string_view part, bool context, RowText* out) {
  std::string& to = context ? out->context : out->text;
  if (!to.empty()) {
    to += '\n';
    if (!context) out->parts.push_back(to.size());
  }
  to += part;
}

// {"role"/"from": …, "content"/"value": text or parts, anything else as JSON}
bool scan_message(Scan& s, Buffers& b, RowText* out) {
  if (s.peek() == '"' && !b.opened) return false;
  if (s.peek() != '{') return s.value(&out->text);
  b.role.clear();
  b.content.clear();
  const bool ok = s.object(&b.inner_key, [&](std::string_view key) {
    if (s.peek() == '"') {
      if (key == "role" || key == "from") return b.role.clear(), s.string(&b.role);
      if (!b.content.empty()) b.content += '\n';
      return s.string(&b.content);
    }
    const char c = s.peek();
    if (c == 'n') return s.value(nullptr);                                                          // null
    if (c == 't' || c == 'f' || c == '-' || (c >= '0' && c <= '9')) return s.value(&out->context);  // no words: flags
    if (!b.content.empty()) b.content += '\n';
    if (key == "content" && s.peek() == '[') {  // parts: their texts
      std::string part_key;
      return s.array([&] {
        if (s.peek() != '{') return s.value(&b.content);
        return s.object(&part_key, [&](std::string_view k) {
          if (k == "text" && s.peek() == '"') return s.string(&b.content);
          return s.value(&out->context);
        });
      });
    }
    return s.value(&b.content);
  });
  append_part(b.content, b.role == "system", out);
  out->context += '\n';
  out->context += b.role;
  return ok;
}

bool is_context(std::string_view ours) {
  return ours == "tools" || ours == "system" || ours == "labels" || ours == "label";
}

void add_column(std::string_view ours, std::string_view text, RowText* out) {
  append_part(text, is_context(ours), out);
}

bool is_list(std::string_view ours) {
  return ours == "messages" || ours == "conversations" || ours == "input_ids" || ours == "labels" ||
         ours.ends_with("_ids");
}
bool is_text_or_list(std::string_view ours) {
  return ours == "prompt" || ours == "completion" || ours == "answers" || ours == "chosen" || ours == "rejected" ||
         ours == "tools" || ours == "history";
}
bool is_optional(std::string_view ours, Shape shape) {
  return ours == "tools" || ours == "system" || ours == "input" || ours == "history" ||
         (ours == "prompt" && shape == Shape::kPreference);
}

// Whether messages stand in a text.
bool is_closed(std::string_view ours, std::string_view text) {
  if (ours == "messages" || ours == "conversations") return trim(text).starts_with('[');
  if (ours == "prompt" && trim(text).starts_with('{')) return true;  // perhaps OpenAI's input
  return (ours == "prompt" || ours == "completion" || ours == "chosen" || ours == "rejected") && says_turns(text);
}

// `plain` is false where a column that must be there is not, or one may be of a wrong type. The whole is false, too,
// where the row needs opening.
bool scan_row(std::string_view json, const Layout& layout, Buffers& b, RowText* out, bool* plain) {
  Scan s(json);
  b.columns.resize(layout.columns.size());
  for (std::string& c : b.columns) c.clear();
  uint64_t seen = 0;
  *plain = true;
  const bool ok = s.object(&b.key, [&](std::string_view key) {
    for (size_t i = 0; i < layout.columns.size(); ++i) {
      const auto& [ours, theirs] = layout.columns[i];
      if (theirs != key) continue;
      const char c = s.peek();
      const bool right = is_text_or_list(ours) ? c == '"' || c == '[' : c == (is_list(ours) ? '[' : '"');
      if (!right && !(c == 'n' && is_optional(ours, layout.shape))) *plain = false;
      seen |= uint64_t{1} << i;
      if (c == '"') return s.string(&b.columns[i]) && (b.opened || !is_closed(ours, b.columns[i]));
      if (c == '{' && ours == "prompt" && !b.opened) return false;
      if (s.peek() == '[' && ours != "tools" && ours != "history" && ours != "labels" && !ours.ends_with("_ids"))
        return s.array([&] { return scan_message(s, b, out); });
      return s.peek() == 'n' ? s.value(nullptr) : s.value(&b.columns[i]);
    }
    return s.value(nullptr);
  });
  if (!ok || !s.at_end()) return false;
  for (size_t i = 0; i < layout.columns.size(); ++i) {
    const std::string& ours = layout.columns[i].first;
    if (!(seen >> i & 1) && !is_optional(ours, layout.shape)) *plain = false;
    if (!b.columns[i].empty()) add_column(ours, b.columns[i], out);
  }
  return true;
}

// Says which column is missing or of a wrong type.
void check_types(const Record& record, const Layout& layout) { read_example(record, layout); }

void read_opened(const Record& record, const Layout& layout, Buffers& b, RowText* out, bool* plain) {
  const std::string text = json_text(open_row(record, layout));  // says what is wrong
  *out = RowText();
  b.opened = true;
  const bool read = scan_row(text, layout, b, out, plain);
  b.opened = false;
  MXT_ASSERT(read);
}

}  // namespace

void read_row_text(const Record& record, const Layout& layout, RowText* out) {
  MXT_ASSERT(record.kind != FileKind::kText);
  out->text.clear();
  out->parts.clear();
  out->context.clear();
  thread_local Buffers buffers;
  bool plain = true;
  if (record.header) {
    const auto each_cell = [&](const auto& take) {
      for (const auto& [ours, theirs] : layout.columns)
        for (size_t i = 0; i < record.cells.size(); ++i)
          if ((*record.header)[i] == theirs && !record.cells[i].empty()) take(ours, record.cells[i]);
    };
    bool closed = false;
    each_cell([&](const std::string& ours, const std::string& cell) { closed = closed || is_closed(ours, cell); });
    if (closed) {
      read_opened(record, layout, buffers, out, &plain);
    } else {
      each_cell([&](const std::string& ours, const std::string& cell) { add_column(ours, cell, out); });
      if (!is_valid_utf8(out->text) || !is_valid_utf8(out->context)) row_object(record);  // names the column
    }
  } else {
    const size_t ascii = tokenizer::unicode::ascii_run(record.text.data(), record.text.size());
    if (!is_valid_utf8(std::string_view(record.text).substr(ascii)) ||
        !scan_row(record.text, layout, buffers, out, &plain))
      read_opened(record, layout, buffers, out, &plain);
  }
  if (!plain) check_types(record, layout);
}

bool read_flat_text(const Record& record, const Layout& layout, std::string* out) {
  const std::string_view column = layout.columns[0].second;
  if (record.header) return false;
  const std::string_view json = record.text;
  const size_t ascii = tokenizer::unicode::ascii_run(json.data(), json.size());
  if (!is_valid_utf8(json.substr(ascii))) return false;
  thread_local std::string key;
  thread_local std::array<std::string, 16> seen;  // a key that stands twice is an error
  Scan s(json);
  bool found = false;
  size_t keys = 0;
  const bool ok = s.object(&key, [&](std::string_view name) {
    if (keys == seen.size() || std::find(seen.begin(), seen.begin() + keys, name) != seen.begin() + keys) return false;
    seen[keys++] = name;
    const char c = s.peek();
    if (name != column) return c != '{' && c != '[' && is_known(layout, name) && s.value(nullptr);
    if (c != '"') return false;
    found = true;
    return s.string(out);
  });
  if (ok && found && s.at_end()) return true;
  out->clear();
  return false;
}

}  // namespace mxt::data
