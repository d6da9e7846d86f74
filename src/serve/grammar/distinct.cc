#include "serve/grammar/distinct.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "serve/grammar/decimal.h"

namespace mxt::serve {
namespace {

// Equal values have equal texts: members sorted, a number in one spelling, no white space.
std::string canonical(const OrderedJson& v) {
  if (const auto number = decimal_of(v)) return (number->negative ? "-" : "") + number->whole + "." + number->fraction;
  if (!v.is_structured()) return json_text(v);
  std::vector<std::string> parts;
  for (const auto& [key, x] : v.items())
    parts.push_back((v.is_object() ? json_text(OrderedJson(key)) + ":" : "") + canonical(x));
  if (v.is_object()) std::sort(parts.begin(), parts.end());
  std::string out(1, v.is_object() ? '{' : '[');
  for (const std::string& p : parts) out += p + ",";
  return out;
}
std::string canonical(const std::string& text) {
  const auto v = read_ordered_json(text);
  return v ? canonical(*v) : text;
}

}  // namespace

bool DistinctValues::Ending::push(char c) {
  if (string) {
    const bool quoted = escape;
    escape = !escape && c == '\\';
    string = quoted || c != '"';
    return !string && key && depth == 0;
  }
  if (c == '"') string = true;
  if (depth == 0 && (c == ']' || c == '}' || (c == ',' && !key))) return true;
  depth += c == '[' || c == '{';
  depth -= c == ']' || c == '}';
  return false;
}

std::optional<DistinctValues::Ending> DistinctValues::ending() const {
  for (size_t i = 0; i < open_.size(); ++i)
    if (open_[i].list && open_[i].what == Distinct::kElements)
      return Ending{false, string_, escape_, static_cast<int>(open_.size() - 1 - i)};
  if (open_.empty() || open_.back().list || open_.back().what != Distinct::kKeys || !open_.back().key)
    return std::nullopt;
  return Ending{true, string_, escape_, 0};
}

bool DistinctValues::element(Level& level) {
  if (level.what != Distinct::kElements) return true;
  const std::string text = text_.substr(level.from);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return true;  // the empty list
  return level.seen.insert(canonical(text)).second;
}

bool DistinctValues::push(char c, Distinct what) {
  if (open_.empty() && what == Distinct::kNothing) return true;
  bool fine = true;
  if (string_) {
    if (escape_) {
      escape_ = false;
    } else if (c == '\\') {
      escape_ = true;
    } else if (c == '"') {
      string_ = false;
      Level& l = open_.back();
      if (!l.list && l.key && l.what == Distinct::kKeys)
        fine = l.seen.insert(canonical(text_.substr(l.from) + c)).second;
    }
  } else if (c == '"') {
    string_ = true;
    Level& l = open_.back();
    if (!l.list && l.key) l.from = text_.size();
  } else if (c == '[' || c == '{') {
    open_.push_back({c == '[', what, text_.size() + 1, true, {}});
  } else if (c == ']' || c == '}') {
    fine = !open_.back().list || element(open_.back());
    open_.pop_back();
  } else if (c == ',') {
    Level& l = open_.back();
    fine = !l.list || element(l);
    l.from = text_.size() + 1;
    l.key = true;
  } else if (c == ':') {
    open_.back().key = false;
  }
  text_ += c;
  if (open_.empty()) text_.clear();
  return fine;
}

}  // namespace mxt::serve
