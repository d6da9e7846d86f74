#include "jinja/text/strings.h"

#include <algorithm>

#include "pytext/unicode.h"

namespace mxt::jinja {
namespace {

bool has_point(std::string_view chars, char32_t c) {
  for (size_t i = 0, size = 0; i < chars.size(); i += size)
    if (pytext::code_point(chars, i, size) == c) return true;
  return false;
}

void push(Machine& m, std::vector<Value>& parts, const StrRef& s, size_t begin, size_t end) {
  m.step();
  if (parts.size() == parts.capacity()) m.reserve(2 * (parts.size() + 1) * sizeof(Value));
  parts.push_back(Value::string(slice(m, s, begin, end)));
}

}  // namespace

StrRef strip(Machine& m, const StrRef& s, const std::string* chars, bool left, bool right) {
  const std::string& t = s->text;
  const auto drop = [&](char32_t c) {
    m.step(chars ? chars->size() / 16 + 1 : 1);
    return chars ? has_point(*chars, c) : pytext::is_space(c);
  };
  size_t begin = 0, end = t.size(), size = 0;
  while (left && begin < end && drop(pytext::code_point(t, begin, size))) begin += size;
  while (right && end > begin && drop(pytext::code_point_before(t, end, size))) end -= size;
  return slice(m, s, begin, end);
}

std::vector<Value> split_space(Machine& m, const StrRef& s, int64_t most, bool from_right) {
  const std::string& t = s->text;
  m.touch_bytes(t.size());
  std::vector<Value> parts;
  size_t size = 0;
  if (!from_right) {
    size_t at = pytext::skip_space(t, 0);
    while (at < t.size()) {
      if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
        push(m, parts, s, at, t.size());  // the rest as it is
        break;
      }
      size_t end = at;
      while (end < t.size() && !pytext::is_space(pytext::code_point(t, end, size))) end += size;
      push(m, parts, s, at, end);
      at = pytext::skip_space(t, end);
    }
    return parts;
  }
  size_t end = pytext::rskip_space(t, t.size());
  while (end > 0) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      push(m, parts, s, 0, end);
      break;
    }
    size_t begin = end;
    while (begin > 0 && !pytext::is_space(pytext::code_point_before(t, begin, size))) begin -= size;
    push(m, parts, s, begin, end);
    end = pytext::rskip_space(t, begin);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> split_on(Machine& m, const StrRef& s, std::string_view separator, int64_t most, bool from_right) {
  const std::string& t = s->text;
  m.touch_bytes(t.size());
  std::vector<Value> parts;
  const auto may_split = [&] { return most < 0 || static_cast<int64_t>(parts.size()) < most; };
  if (!from_right) {
    size_t from = 0;
    for (size_t at = pytext::find_text(t, separator, 0); at != std::string::npos && may_split();
         at = pytext::find_text(t, separator, from)) {
      push(m, parts, s, from, at);
      from = at + separator.size();
    }
    push(m, parts, s, from, t.size());
    return parts;
  }
  // From the right: from the left in the mirror.
  m.reserve(t.size());
  const std::string mirror(t.rbegin(), t.rend()), mirrored(separator.rbegin(), separator.rend());
  size_t from = 0;
  for (size_t at = pytext::find_text(mirror, mirrored, 0); at != std::string::npos && may_split();
       at = pytext::find_text(mirror, mirrored, from)) {
    push(m, parts, s, t.size() - at, t.size() - from);
    from = at + separator.size();
  }
  push(m, parts, s, 0, t.size() - from);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> split_lines(Machine& m, const StrRef& s, bool keep_ends) {
  const std::string& t = s->text;
  m.touch_bytes(t.size());
  std::vector<Value> parts;
  size_t from = 0, size = 0;
  for (size_t i = 0; i < t.size();) {
    if (!pytext::is_line_break(pytext::code_point(t, i, size))) {
      i += size;
      continue;
    }
    size_t after = i + size;
    if (t[i] == '\r' && after < t.size() && t[after] == '\n') ++after;
    push(m, parts, s, from, keep_ends ? after : i);
    from = i = after;
  }
  if (from < t.size()) push(m, parts, s, from, t.size());
  return parts;
}

StrRef replace(Machine& m, const StrRef& s, std::string_view old, const Str& with, int64_t count) {
  const std::string& t = s->text;
  m.touch_bytes(t.size());
  Builder out(m);
  out.set_markup(s->markup);
  size_t from = 0;
  if (old.empty()) {  // before each character and at the end
    size_t size = 0;
    for (size_t i = 0; count != 0; i += size) {
      out.add(*s, from, i);
      out.add(with);
      from = i;
      if (count > 0) --count;
      if (i >= t.size()) break;
      pytext::code_point(t, i, size);
    }
  } else {
    for (size_t at = pytext::find_text(t, old, 0); at != std::string::npos && count != 0;
         at = pytext::find_text(t, old, from)) {
      m.step();
      out.add(*s, from, at);
      out.add(with);
      from = at + old.size();
      if (count > 0) --count;
    }
    if (from == 0) return s;
  }
  out.add(*s, from, t.size());
  return out.finish();
}

StrRef change_case(Machine& m, const StrRef& s, CaseMap map) {
  const std::string& t = s->text;
  Builder out(m);
  out.set_markup(s->markup);
  bool inside = false;  // after a cased character
  std::string piece;
  for (size_t i = 0, size = 0; i < t.size(); i += size) {
    const char32_t c = pytext::code_point(t, i, size);
    piece.clear();
    const auto lower = [&] {
      if (c == 0x3a3 && pytext::is_final_sigma(t, i))
        piece = "ς";
      else
        pytext::append_lower(piece, c);
    };
    switch (map) {
      case CaseMap::kUpper:
        pytext::append_upper(piece, c);
        break;
      case CaseMap::kLower:
        lower();
        break;
      case CaseMap::kFold:
        pytext::append_casefold(piece, c);
        break;
      case CaseMap::kSwap:
        if (pytext::is_upper(c))
          lower();
        else if (pytext::is_lower(c))
          pytext::append_upper(piece, c);
        else
          piece = t.substr(i, size);
        break;
      case CaseMap::kCapitalize:
        if (i == 0)
          pytext::append_title(piece, c);
        else
          lower();
        break;
      case CaseMap::kTitle:
        if (inside)
          lower();
        else
          pytext::append_title(piece, c);
        inside = pytext::is_cased(c);
        break;
    }
    out.add(piece, tag_at(*s, i));
  }
  return out.finish();
}

bool is_all_case(std::string_view s, bool upper) {
  bool cased = false;
  for (size_t i = 0, size = 0; i < s.size(); i += size) {
    const char32_t c = pytext::code_point(s, i, size);
    if (pytext::is_title(c) || (upper ? pytext::is_lower(c) : pytext::is_upper(c))) return false;
    cased |= upper ? pytext::is_upper(c) : pytext::is_lower(c);
  }
  return cased;
}

StrRef justify(Machine& m, const StrRef& s, int64_t width, char align, std::string_view fill) {
  m.touch_bytes(s->text.size());
  const auto n = static_cast<int64_t>(pytext::length(s->text));
  const int64_t missing = width - n;
  if (missing <= 0) return s;
  if (missing > 100000) m.fail_limit("pads a string by more than 100000 characters");
  // str.center puts the odd blank on the left where the width is odd.
  const int64_t left = align == '>' ? missing : align == '<' ? 0 : missing / 2 + (missing & width & 1);
  Builder out(m);
  out.set_markup(s->markup);
  for (int64_t i = 0; i < left; ++i) out.add(fill);
  out.add(*s);
  for (int64_t i = left; i < missing; ++i) out.add(fill);
  return out.finish();
}

}  // namespace mxt::jinja
