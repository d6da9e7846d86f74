#include "data/source/table_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace mxt::data {

std::string sql_quoted(std::string_view s, char q) {
  std::string out(1, q);
  for (char c : s) out.append(c == q ? 2 : 1, c);
  return out + q;
}

namespace {

// How a type is written ends at the first of `ends` outside brackets and quotes.
size_t end_of(std::string_view s, std::string_view ends) {
  int depth = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    if (depth == 0 && ends.find(c) != ends.npos) return i;
    if (c == '"' || c == '\'')
      for (++i; i < s.size() && s[i] != c; ++i) {
      }
    else if (c == '(')
      ++depth;
    else if (c == ')')
      --depth;
  }
  return s.size();
}

// Of "a INTEGER, "b c" VARCHAR[]": the names and types.
std::vector<std::pair<std::string, std::string_view>> fields_of(std::string_view s) {
  std::vector<std::pair<std::string, std::string_view>> out;
  while (!s.empty()) {
    std::string name;
    size_t at = 0;
    if (s[0] == '"') {
      for (at = 1; at < s.size(); ++at) {
        if (s[at] == '"' && (at + 1 == s.size() || s[++at] != '"')) break;
        name += s[at];
      }
    } else {
      for (; at < s.size() && s[at] != ' '; ++at) name += s[at];
    }
    s.remove_prefix(std::min(s.size(), at + 1));
    const size_t end = end_of(s, ",");
    out.emplace_back(std::move(name), s.substr(0, end));
    s.remove_prefix(std::min(s.size(), end + 2));
  }
  return out;
}

// JPEG, PNG, WebP, and what a picture may be by mistake: GIF, TIFF. All begin with bytes that base64 shows whole.
constexpr std::string_view kPictures[] = {"/9j/", "iVBORw0KGgo", "UklGR", "R0lGOD", "SUkqA", "TU0AK"};

std::string text_sql(const std::string& value, bool picture) {
  std::string any = picture ? fmt::format("{} IS NOT NULL", value) : "";
  for (const std::string_view begins : kPictures)
    if (!picture) any += fmt::format("{}starts_with(base64({}), '{}')", any.empty() ? "" : " OR ", value, begins);
  return fmt::format("coalesce(TRY(decode({0})), CASE WHEN {1} THEN 'data:image/any;base64,' || base64({0}) END)",
                     value, any);
}

std::string convert(std::string_view type, const std::string& value, bool picture, int depth) {
  if (type == "BLOB") return text_sql(value, picture);
  if (type.find("BLOB") == type.npos) return "";
  if (type.ends_with("]")) {
    const std::string item = fmt::format("x{}", depth);
    const std::string inner = convert(type.substr(0, type.rfind('[')), item, picture, depth + 1);
    return inner.empty() ? "" : fmt::format("[{} for {} in {}]", inner, item, value);
  }
  if (!type.starts_with("STRUCT(")) return "";
  std::string members;
  bool any = false;
  for (const auto& [name, of] : fields_of(type.substr(7, type.size() - 8))) {
    const std::string member = fmt::format("{}[{}]", value, sql_quoted(name, '\''));
    const std::string inner = convert(of, member, name == "bytes", depth);
    any = any || !inner.empty();
    members +=
        fmt::format("{}{} := {}", members.empty() ? "" : ", ", sql_quoted(name, '"'), inner.empty() ? member : inner);
  }
  return any ? fmt::format("CASE WHEN {} IS NOT NULL THEN struct_pack({}) END", value, members) : "";
}

}  // namespace

std::string bytes_as_text(std::string_view type, const std::string& value) { return convert(type, value, false, 0); }

}  // namespace mxt::data
