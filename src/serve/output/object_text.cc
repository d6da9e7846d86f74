#include "serve/output/object_text.h"

#include <cctype>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace mxt::serve {
namespace {

constexpr std::string_view kJsonSpace = " \t\r\n";

bool is_number(std::string_view s) {
  size_t i = 0;
  auto digits = [&] {
    const size_t from = i;
    while (i < s.size() && s[i] >= '0' && s[i] <= '9') ++i;
    return i - from;
  };
  if (i < s.size() && s[i] == '-') ++i;
  const size_t first = i, whole = digits();
  if (whole == 0 || (whole > 1 && s[first] == '0')) return false;
  if (i < s.size() && s[i] == '.' && (++i, digits() == 0)) return false;
  if (i < s.size() && (s[i] == 'e' || s[i] == 'E')) {
    ++i;
    if (i < s.size() && (s[i] == '+' || s[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == s.size();
}

// A number as other languages write it: +5, 007, .5, 5.
std::string number_text(std::string_view s) {
  std::string out;
  if (s.starts_with('+') || s.starts_with('-')) {
    if (s[0] == '-') out = "-";
    s.remove_prefix(1);
  }
  while (s.size() > 1 && s[0] == '0' && s[1] >= '0' && s[1] <= '9') s.remove_prefix(1);
  if (s.starts_with('.')) out += '0';
  const size_t point = s.find('.'), behind = point + 1;
  if (point == s.npos) return out + std::string(s);
  out += s.substr(0, behind);
  if (behind == s.size() || s[behind] < '0' || s[behind] > '9') out += '0';
  return out + std::string(s.substr(behind));
}

// As JSON spells it; empty for what is no value.
std::string scalar(const std::string& s) {
  if (s == "true" || s == "True") return "true";
  if (s == "false" || s == "False") return "false";
  for (const char* none : {"null", "None", "undefined", "NaN", "nan", "Infinity", "inf", "-Infinity", "-inf"})
    if (s == none) return "null";
  if (is_number(s)) return s;
  const std::string plain = number_text(s);
  return s.find_first_of("0123456789") != s.npos && is_number(plain) ? plain : "";
}

// None of the values above, which are short where they are no numbers.
bool is_word(const std::string& s) {
  constexpr size_t kLongestName = 16;
  if (s.size() > kLongestName && std::isalpha(static_cast<unsigned char>(s[0]))) return true;
  return scalar(s).empty();
}

// What may stand in words without quotation marks.
bool of_words(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80 ||
         std::string_view(" -+._/:'@").find(c) != std::string_view::npos;
}

bool of_scalar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '+' || c == '.'; }

std::string control(char c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      constexpr char kHex[] = "0123456789abcdef";
      return std::string("\\u00") + kHex[static_cast<unsigned char>(c) >> 4] + kHex[c & 15];
  }
}

}  // namespace

std::string ObjectText::push(char c) {
  std::string out;
  if (done() || broken()) return out;
  if (state_ == State::kScalar) {
    const bool goes_on = of_scalar(c) || (of_words(c) && is_word(held_));
    if (goes_on && held_.size() < kMaxScalar) return held_ += c, out;
    out = scalar(held_);
    if (out.empty() && std::string_view(",}]\r\n").find(c) != std::string_view::npos)
      out = '"' + held_.substr(0, held_.find_last_not_of(' ') + 1) + '"';
    before_ = State::kValue;
    state_ = out.empty() ? State::kBroken : State::kAfter;
    held_.clear();
    if (skips()) out.clear();
    if (broken()) return out;
    if (open_.size() == skip_) skip_ = 0;
  }
  std::string more;
  const bool in_key = state_ == State::kString && key_;
  if (state_ == State::kString)
    string(c, more);
  else
    structure(c, more);
  if (skips()) {
    if (state_ == State::kAfter && open_.size() == skip_) skip_ = 0;  // the value's last character
    key_text_.clear();
    return out;
  }
  if (!in_key) return out + more;
  key_text_ += more;
  if (state_ == State::kColon) end_key(out);
  return out;
}

void ObjectText::end_key(std::string& out) {
  const auto key = OrderedJson::parse(key_text_.substr(key_text_.find('"')), nullptr, false);
  if (keys_.back().insert(key.is_string() ? key.get<std::string>() : key_text_).second)
    out += key_text_;
  else
    skip_ = open_.size();
  key_text_.clear();
}

void ObjectText::open(char bracket, std::string& out) {
  if (open_.size() >= kMaxDepth) {
    before_ = state_, state_ = State::kBroken;
    return;
  }
  open_.push_back(bracket);
  keys_.emplace_back();
  state_ = State::kFirst;
  out += bracket;
}

void ObjectText::pop(char bracket, std::string& out) {
  open_.pop_back();
  keys_.pop_back();
  state_ = open_.empty() ? State::kDone : State::kAfter;
  certain_ = true;
  out += bracket;
}

void ObjectText::value(char c, std::string& out) {
  if (c == '"') {
    state_ = State::kString, key_ = false;
    out += c;
  } else if (c == '{' || c == '[') {
    open(c, out);
  } else if (of_scalar(c)) {
    state_ = State::kScalar;
    held_ = c;
  } else {
    before_ = state_, state_ = State::kBroken;
  }
}

void ObjectText::structure(char c, std::string& out) {
  const bool space = kJsonSpace.find(c) != std::string_view::npos,
             closes = !open_.empty() && c == (in_object() ? '}' : ']');
  auto fail = [&] { before_ = state_, state_ = State::kBroken; };
  switch (state_) {
    case State::kStart:
      return space ? void() : c == '{' ? open(c, out) : fail();
    case State::kFirst:
    case State::kNext: {
      const bool next = state_ == State::kNext;
      if (space) return next ? void(held_ += c) : void(out += c);
      if (closes) return held_.clear(), pop(c, out);
      // A comma is written once something follows that can be written too.
      if (in_object() ? c != '"' : c != '"' && c != '{' && c != '[' && !of_scalar(c)) return fail();
      if (!in_object()) {
        out += held_;
        held_.clear();
        return value(c, out);
      }
      key_text_ = held_ + c;
      held_.clear();
      state_ = State::kString, key_ = certain_ = true;
      return;
    }
    case State::kColon:
      if (!space && c != ':') return fail();
      out += c;
      if (!space) state_ = State::kValue;
      return;
    case State::kValue:
      return space ? void(out += c) : value(c, out);
    case State::kAfter:
      if (space) return void(out += c);
      if (closes) return pop(c, out);
      if (c != ',') return fail();
      held_ = c;
      state_ = State::kNext;
      return;
    default:
      return;
  }
}

// The first half of a pair whose second never came.
void ObjectText::half(std::string& out) {
  if (!high_.empty()) out += "\\ufffd";
  high_.clear();
}

// A whole \uXXXX.
void ObjectText::end_escape(std::string& out) {
  const int code = std::stoi(escape_.substr(2), nullptr, 16);
  if (code >= 0xDC00 && code <= 0xDFFF) {
    out += high_.empty() ? "\\ufffd" : high_ + escape_;
    high_.clear();
  } else {
    half(out);
    if (code >= 0xD800 && code <= 0xDBFF)
      high_ = escape_;
    else
      out += escape_;
  }
  escape_.clear();
}

void ObjectText::string(char c, std::string& out) {
  if (!escape_.empty()) {
    const bool unicode = escape_.size() >= 2;
    if (unicode ? std::isxdigit(static_cast<unsigned char>(c)) != 0 : c == 'u') {
      escape_ += c;
      if (escape_.size() == 6) end_escape(out);
      return;
    }
    half(out);
    if (!unicode && std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
      out += escape_ + c;
      escape_.clear();
      return;
    }
    out += "\\" + escape_;  // no escape that JSON knows: a backslash as it stands
    escape_.clear();
  }
  if (c == '\\') {
    escape_ = c;
    return;
  }
  half(out);
  if (c == '"') {
    state_ = key_ ? State::kColon : State::kAfter;
    out += c;
  } else if (static_cast<unsigned char>(c) < 0x20) {
    out += control(c);
  } else {
    out += c;
  }
}

std::string ObjectText::close(bool ended) {
  std::string out;
  if (skips()) open_.resize(skip_), before_ = state_ = State::kAfter;
  switch (broken() ? before_ : state_) {
    case State::kStart:
      out = "{}";
      break;
    case State::kString:
      half(out);
      out += '"';
      if (!key_) break;
      key_text_ += out;
      out.clear();
      end_key(out);
      if (!skips()) out += ": null";
      break;
    case State::kColon:
      out = ": null";
      break;
    case State::kScalar:
      if (ended) out = scalar(held_);
      if (out.empty()) out = "null";
      break;
    case State::kValue:
      out = "null";
      break;
    default:
      break;
  }
  for (; !open_.empty(); open_.pop_back()) out += in_object() ? '}' : ']';
  state_ = State::kDone;
  return out;
}

}  // namespace mxt::serve
