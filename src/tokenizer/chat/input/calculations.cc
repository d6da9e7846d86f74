#include "tokenizer/chat/input/calculations.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace mxt::tokenizer {
namespace {

bool is_expression(std::string_view s) {
  constexpr std::string_view kSums = "0123456789*+-/.() ,";
  constexpr std::string_view kCounts = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'\"()._ ,";
  if (s.find_first_of("0123456789'\"") == std::string_view::npos) return false;
  if (s.find_first_not_of(kSums) == std::string_view::npos) return true;
  return s.find(".count(") != std::string_view::npos && s.find_first_not_of(kCounts) == std::string_view::npos;
}

OrderedJson part(const char* type, std::string_view text) { return {{"type", type}, {"text", std::string(text)}}; }

}  // namespace

bool has_calculations(const OrderedJson& content) {
  return content.is_array() && std::any_of(content.begin(), content.end(), [](const OrderedJson& p) {
           return p.is_object() && p.contains("type") && (p["type"] == "python" || p["type"] == "python_output");
         });
}

OrderedJson split_calculations(std::string_view text) {
  OrderedJson parts;
  size_t said = 0;  // what is in parts already
  for (size_t at = 0; (at = text.find("<<", at)) != std::string_view::npos;) {
    const size_t end = text.find(">>", at);
    if (end == std::string_view::npos) break;
    const std::string_view inside = text.substr(at + 2, end - at - 2);
    const size_t equals = inside.rfind('=');
    if (equals == std::string_view::npos || inside.find_first_of("<>\n") != std::string_view::npos ||
        !is_expression(inside.substr(0, equals))) {
      ++at;
      continue;
    }
    if (at > said) parts.push_back(part("text", text.substr(said, at - said)));
    parts.push_back(part("python", inside.substr(0, equals)));
    parts.push_back(part("python_output", inside.substr(equals + 1)));
    said = at = end + 2;
  }
  if (!parts.is_null() && said < text.size()) parts.push_back(part("text", text.substr(said)));
  return parts;
}

}  // namespace mxt::tokenizer
