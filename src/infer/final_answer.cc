#include "infer/final_answer.h"

#include "base/text.h"

namespace mxt::infer {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

// A number without commas, with neither zeros after its last decimal nor before its first digit.
std::string normal(std::string_view number) {
  std::string s;
  bool negative = false, point = false;
  for (char c : number) {
    if (c == '-' && s.empty()) negative = true;
    if (digit(c) || c == '.') s += c;
    point = point || c == '.';
  }
  while (point && !s.empty() && s.back() == '0') s.pop_back();
  if (!s.empty() && s.back() == '.') s.pop_back();
  const size_t first = s.find_first_not_of('0');
  s = first == std::string::npos ? "0" : s.substr(first);
  if (s[0] == '.') s = "0" + s;
  return negative && s != "0" ? "-" + s : s;
}

// The last number of the text: digits with commas between groups and a decimal point between digits.
std::string last_number(std::string_view text) {
  for (size_t end = text.size(); end > 0; --end) {
    if (!digit(text[end - 1])) continue;
    size_t begin = end - 1;
    while (begin > 0) {
      const char c = text[begin - 1];
      const bool inside = (c == ',' || c == '.') && begin > 1 && digit(text[begin - 2]);
      if (!digit(c) && !inside) break;
      --begin;
    }
    if (begin > 0 && text[begin - 1] == '-' && (begin == 1 || !digit(text[begin - 2]))) --begin;
    return normal(text.substr(begin, end - begin));
  }
  return "";
}

}  // namespace

std::string final_answer(std::string_view text) {
  constexpr std::string_view kBox = "\\boxed{";
  if (const size_t at = text.rfind(kBox); at != std::string_view::npos) {
    int depth = 1;
    for (size_t i = at + kBox.size(); i < text.size(); ++i) {
      depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
      if (depth > 0) continue;
      const std::string inside(trim(text.substr(at + kBox.size(), i - at - kBox.size())));
      const std::string number = last_number(inside);
      const bool plain = inside.find_first_not_of("0123456789.,-+$ ") == std::string::npos;
      return plain && !number.empty() ? number : inside;
    }
  }
  return last_number(text);
}

}  // namespace mxt::infer
