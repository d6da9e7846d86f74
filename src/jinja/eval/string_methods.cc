// The methods of str. Pieces of the text keep their origin.
#include <algorithm>
#include <utility>

#include "jinja/eval/builtins.h"
#include "jinja/eval/interp.h"
#include "jinja/text/repr.h"
#include "jinja/text/strings.h"
#include "jinja/values/operators.h"
#include "pytext/unicode.h"

namespace mxt::jinja {
namespace {

using Call = Value (*)(Machine&, const StrRef&, const Args&);

// The text of an argument that must be a string.
const Str& text_arg(Machine& m, const Value& v, std::string_view what) {
  if (v.is_undefined()) m.fail_undefined(v);
  if (!v.is_string()) m.fail("{}: argument must be str, not {}", what, type_name(v));
  return v.str();
}

// strip(), strip(None) and strip("chars").
template <bool left, bool right>
Value strip_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, "strip", args, {"chars"});
  if (!b.given(0) || b[0].is_none()) return Value::string(strip(m, s, nullptr, left, right));
  const Str& chars = text_arg(m, b[0], "strip");
  return Value::string(strip(m, s, &chars.text, left, right));
}

template <bool from_right>
Value split_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, "split", args, {"sep", "maxsplit"});
  const int64_t most = b.integer(1, -1);
  if (!b.given(0) || b[0].is_none()) return m.list(split_space(m, s, most, from_right));
  const Str& separator = text_arg(m, b[0], "split");
  if (separator.text.empty()) m.fail("empty separator");
  return m.list(split_on(m, s, separator.text, most, from_right));
}

Value splitlines_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, "splitlines", args, {"keepends"});
  return m.list(split_lines(m, s, b.flag(0, false)));
}

// Bytes of the part that `start` and `end` (in characters, as a slice) leave.
std::pair<size_t, size_t> window(Machine& m, const StrRef& s, const Bound& b, size_t first) {
  m.touch_bytes(s->text.size());
  const auto n = static_cast<int64_t>(pytext::length(s->text));
  const auto clamp = [n](int64_t i) { return i < 0 ? std::max<int64_t>(i + n, 0) : i; };
  const auto at = [&](size_t i, int64_t otherwise) {
    return b.given(i) && !b[i].is_none() ? clamp(b.integer(i, otherwise)) : otherwise;
  };
  const int64_t start = at(first, 0), end = std::min(at(first + 1, n), n);
  if (start > n || start > end) return {1, 0};
  return {pytext::byte_offset(s->text, static_cast<size_t>(start)),
          pytext::byte_offset(s->text, static_cast<size_t>(end))};
}

template <bool at_end>
Value affix_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, at_end ? "endswith" : "startswith", args, {"prefix", "start", "end"}, 1);
  const auto [begin, end] = window(m, s, b, 1);
  const auto matches = [&, begin = begin, end = end](const Value& v) {
    const std::string& affix = text_arg(m, v, at_end ? "endswith" : "startswith").text;
    if (begin > end) return false;
    const std::string_view part = std::string_view(s->text).substr(begin, end - begin);
    return at_end ? part.ends_with(affix) : part.starts_with(affix);
  };
  if (!b[0].is(Kind::kTuple)) return Value::boolean(matches(b[0]));
  for (const Value& v : b[0].as<List>().items)
    if (matches(v)) return Value::boolean(true);
  return Value::boolean(false);
}

template <bool last, bool must>
Value find_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, "find", args, {"sub", "start", "end"}, 1);
  const auto [begin, end] = window(m, s, b, 1);
  const std::string& sub = text_arg(m, b[0], "find").text;
  size_t at = std::string::npos;
  if (begin <= end) {
    const std::string_view part = std::string_view(s->text).substr(begin, end - begin);
    at = last ? pytext::rfind_text(part, sub) : pytext::find_text(part, sub, 0);
  }
  if (at == std::string::npos) {
    if (must) m.fail("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(static_cast<Int>(pytext::length(std::string_view(s->text).substr(0, begin + at))));
}

Value count_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, "count", args, {"sub", "start", "end"}, 1);
  const auto [begin, end] = window(m, s, b, 1);
  const std::string& sub = text_arg(m, b[0], "count").text;
  if (begin > end) return Value::integer(0);
  const std::string_view part = std::string_view(s->text).substr(begin, end - begin);
  if (sub.empty()) return Value::integer(static_cast<Int>(pytext::length(part)) + 1);
  Int n = 0;
  for (size_t i = pytext::find_text(part, sub, 0); i != std::string_view::npos;
       i = pytext::find_text(part, sub, i + sub.size()))
    ++n;
  return Value::integer(n);
}

Value replace_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, "replace", args, {"old", "new", "count"}, 2);
  text_arg(m, b[0], "replace");
  text_arg(m, b[1], "replace");
  const StrRef with = s->markup ? html_escape(m, b[1]) : b[1].ref();
  return Value::string(replace(m, s, b[0].text(), *with, b.integer(2, -1)));
}

Value join_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, "join", args, {"iterable"}, 1);
  Builder out(m);
  out.set_markup(s->markup);
  auto next = iterate(m, b[0]);
  size_t i = 0;
  for (Value v; next(v); ++i) {
    if (i) out.add(*s);
    if (s->markup) {
      out.add(*html_escape(m, v));
      continue;
    }
    if (!v.is_string()) m.fail("sequence item {}: expected str instance, {} found", i, type_name(v));
    out.add(v.str());
  }
  return Value::string(out.finish());
}

template <CaseMap map>
Value case_method(Machine& m, const StrRef& s, const Args& args) {
  Bound none(m, "case", args, {});
  return Value::string(change_case(m, s, map));
}

template <bool (*test)(char32_t), bool empty = false>
Value all_method(Machine& m, const StrRef& s, const Args& args) {
  Bound none(m, "is…", args, {});
  m.touch_bytes(s->text.size());
  if (s->text.empty()) return Value::boolean(empty);
  for (size_t i = 0, size = 0; i < s->text.size(); i += size)
    if (!test(pytext::code_point(s->text, i, size))) return Value::boolean(false);
  return Value::boolean(true);
}

bool below_128(char32_t c) { return c < 0x80; }

template <bool upper>
Value is_case_method(Machine& m, const StrRef& s, const Args& args) {
  Bound none(m, upper ? "isupper" : "islower", args, {});
  m.touch_bytes(s->text.size());
  return Value::boolean(is_all_case(s->text, upper));
}

Value istitle_method(Machine& m, const StrRef& s, const Args& args) {
  Bound none(m, "istitle", args, {});
  m.touch_bytes(s->text.size());
  bool cased = false, inside = false;
  for (size_t i = 0, size = 0; i < s->text.size(); i += size) {
    const char32_t c = pytext::code_point(s->text, i, size);
    if (pytext::is_upper(c) || pytext::is_title(c)) {
      if (inside) return Value::boolean(false);
      cased = inside = true;
    } else if (pytext::is_lower(c)) {
      if (!inside) return Value::boolean(false);
      cased = true;
    } else {
      inside = false;
    }
  }
  return Value::boolean(cased);
}

Value isidentifier_method(Machine& m, const StrRef& s, const Args& args) {
  Bound none(m, "isidentifier", args, {});
  m.touch_bytes(s->text.size());
  for (size_t i = 0, size = 0; i < s->text.size(); i += size) {
    const char32_t c = pytext::code_point(s->text, i, size);
    if (i == 0 ? !pytext::is_name_start(c) : !pytext::is_name_part(c)) return Value::boolean(false);
  }
  return Value::boolean(!s->text.empty());
}

template <char align>
Value justify_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, "just", args, {"width", "fillchar"}, 1);
  const std::string fill = b.given(1) ? text_arg(m, b[1], "just").text : " ";
  if (pytext::length(fill) != 1) m.fail("The fill character must be exactly one character long");
  return Value::string(justify(m, s, b.integer(0, 0), align, fill));
}

Value zfill_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, "zfill", args, {"width"}, 1);
  const auto missing = b.integer(0, 0) - static_cast<int64_t>(pytext::length(s->text));
  if (missing <= 0) return Value::string(s);
  if (missing > 100000) m.fail_limit("pads a string by more than 100000 characters");
  Builder out(m);
  const size_t sign = !s->text.empty() && (s->text[0] == '-' || s->text[0] == '+') ? 1 : 0;
  out.add(*s, 0, sign);
  out.add(std::string(static_cast<size_t>(missing), '0'));
  out.add(*s, sign, s->text.size());
  return Value::string(out.finish());
}

template <bool last>
Value partition_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, "partition", args, {"sep"}, 1);
  const std::string& sep = text_arg(m, b[0], "partition").text;
  if (sep.empty()) m.fail("empty separator");
  m.touch_bytes(s->text.size());
  const size_t at = last ? pytext::rfind_text(s->text, sep) : pytext::find_text(s->text, sep, 0);
  const Value whole = Value::string(s), nothing = Value::string(slice(m, s, 0, 0));
  if (at == std::string::npos)
    return m.list(last ? std::vector<Value>{nothing, nothing, whole} : std::vector<Value>{whole, nothing, nothing},
                  Kind::kTuple);
  const size_t after = at + sep.size();
  return m.list({Value::string(slice(m, s, 0, at)), Value::string(slice(m, s, at, after)),
                 Value::string(slice(m, s, after, s->text.size()))},
                Kind::kTuple);
}

template <bool suffix>
Value remove_affix_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, suffix ? "removesuffix" : "removeprefix", args, {"affix"}, 1);
  const std::string& affix = text_arg(m, b[0], "remove").text;
  const size_t n = s->text.size();
  if (suffix) return Value::string(s->text.ends_with(affix) ? slice(m, s, 0, n - affix.size()) : s);
  return Value::string(s->text.starts_with(affix) ? slice(m, s, affix.size(), n) : s);
}

Value expandtabs_method(Machine& m, const StrRef& s, const Args& args) {
  Bound b(m, "expandtabs", args, {"tabsize"});
  const int64_t width = b.integer(0, 8);
  if (width > 1000) m.fail_limit("expands tabs to more than 1000 columns");
  Builder out(m);
  int64_t column = 0;
  for (size_t i = 0, size = 0; i < s->text.size(); i += size) {
    const char32_t c = pytext::code_point(s->text, i, size);
    if (c == '\t') {
      const int64_t n = width > 0 ? width - column % width : 0;
      out.add(std::string(static_cast<size_t>(n), ' '), tag_at(*s, i));
      column += n;
      continue;
    }
    out.add(*s, i, i + size);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return Value::string(out.finish());
}

constexpr FieldAccess kAccess{get_attribute, get_item};

Value format_method(Machine& m, const StrRef& s, const Args& args) { return brace_format(m, s, args, kAccess); }

Value format_map_method(Machine& m, const StrRef& s, const Args& args) {
  if (!args.named.empty() || args.positional.size() != 1) m.fail("format_map() takes exactly one argument");
  if (!args.positional[0].is(Kind::kDict)) m.fail("format_map() argument must be a mapping");
  Args named;
  m.touch_items(args.positional[0].as<Dict>().items.size());
  for (const auto& [key, value] : args.positional[0].as<Dict>().items)
    if (key.is_string()) named.named.emplace_back(key.text(), value);
  return brace_format(m, s, named, kAccess);
}

constexpr std::pair<std::string_view, Call> kMethods[] = {
    {"capitalize", case_method<CaseMap::kCapitalize>},
    {"casefold", case_method<CaseMap::kFold>},
    {"center", justify_method<'^'>},
    {"count", count_method},
    {"endswith", affix_method<true>},
    {"expandtabs", expandtabs_method},
    {"find", find_method<false, false>},
    {"format", format_method},
    {"format_map", format_map_method},
    {"index", find_method<false, true>},
    {"isalnum", all_method<pytext::is_alnum>},
    {"isalpha", all_method<pytext::is_alpha>},
    {"isascii", all_method<below_128, true>},
    {"isdecimal", all_method<pytext::is_decimal>},
    {"isdigit", all_method<pytext::is_digit>},
    {"isidentifier", isidentifier_method},
    {"islower", is_case_method<false>},
    {"isnumeric", all_method<pytext::is_numeric>},
    {"isprintable", all_method<pytext::is_printable, true>},
    {"isspace", all_method<pytext::is_space>},
    {"istitle", istitle_method},
    {"isupper", is_case_method<true>},
    {"join", join_method},
    {"ljust", justify_method<'<'>},
    {"lower", case_method<CaseMap::kLower>},
    {"lstrip", strip_method<true, false>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_affix_method<false>},
    {"removesuffix", remove_affix_method<true>},
    {"replace", replace_method},
    {"rfind", find_method<true, false>},
    {"rindex", find_method<true, true>},
    {"rjust", justify_method<'>'>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"splitlines", splitlines_method},
    {"startswith", affix_method<false>},
    {"strip", strip_method<true, true>},
    {"swapcase", case_method<CaseMap::kSwap>},
    {"title", case_method<CaseMap::kTitle>},
    {"upper", case_method<CaseMap::kUpper>},
    {"zfill", zfill_method},
};

const Call* find_call(std::string_view name) {
  const auto* it = std::lower_bound(std::begin(kMethods), std::end(kMethods), name,
                                    [](const auto& entry, std::string_view n) { return entry.first < n; });
  return it != std::end(kMethods) && it->first == name ? &it->second : nullptr;
}

}  // namespace

bool is_string_method(std::string_view name) {
  return find_call(name) != nullptr || name == "encode" || name == "translate" || name == "maketrans";
}

Value call_string_method(Machine& m, const StrRef& self, std::string_view name, const Args& args) {
  const Call* f = find_call(name);
  if (!f) m.fail("str.{} is not supported in templates here", name);
  m.touch_bytes(self->text.size() / 8);
  return (*f)(m, self, args);
}

}  // namespace mxt::jinja
