#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json_check.h"
#include "base/json_text.h"

namespace mxt {

void json_check_failed(const char* check) {
  throw std::logic_error(std::string("a value of JSON is not what was read of it: ") + check);
}

namespace {

constexpr size_t kMaxDepth = 256;
constexpr size_t kMostDigits = 4300;  // of an integer, as Python reads them

struct Position {
  size_t line = 1, column = 1;
};

Position position_of(std::string_view text, size_t byte) {
  Position p;
  for (size_t i = 0; i < byte && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++p.line;
      p.column = 1;
    } else {
      ++p.column;
    }
  }
  return p;
}

// The parser reads numbers as long doubles: it gives up at what its float does not hold, and integers of kMostDigits
// digits are far beyond a double.
using Events =
    nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, int64_t, uint64_t, long double>;

// Makes the value from the parser's events. nlohmann's own maker looks through all keys of an object for each new one,
// which a hostile megabyte of keys turns into minutes.
template <typename J>
class Maker {
 public:
  using number_integer_t = Events::number_integer_t;
  using number_unsigned_t = Events::number_unsigned_t;
  using number_float_t = Events::number_float_t;
  using string_t = Events::string_t;
  using binary_t = Events::binary_t;

  Maker(std::string_view text, std::string_view source) : text_(text), source_(source) {}
  J take() { return std::move(root_); }

  bool null() { return put(nullptr), true; }
  bool boolean(bool v) { return put(v), true; }
  bool number_integer(number_integer_t v) { return put(v), true; }
  bool number_unsigned(number_unsigned_t v) { return put(v), true; }
  bool number_float(number_float_t v, const string_t& text) {
    if (kOrdered && is_integer(text)) {
      if (text.size() > kMostDigits) too_long(text);
      return put(J::binary(binary_t(std::vector<uint8_t>(text.begin(), text.end())))), true;
    }
    double d = 0;  // from the digits: a long double would be rounded twice
    if (std::from_chars(text.data(), text.data() + text.size(), d).ec == std::errc::result_out_of_range) {
      if (std::abs(v) > 1) too_large(text);
      d = std::copysign(0.0, static_cast<double>(v));
    }
    return put(d), true;
  }
  bool string(string_t& v) { return put(std::move(v)), true; }
  bool binary(binary_t&) { return false; }  // JSON text has none
  bool start_object(size_t) {
    open_.push_back({put(J::object()), {}});
    return true;
  }
  bool key(string_t& k) {
    Open& o = open_.back();
    bool first;
    if constexpr (kOrdered) {
      first = o.keys.insert(k).second;
      if (first) o.member = &static_cast<Members&>(members(o)).emplace_back(std::move(k), nullptr).second;
    } else {
      const auto [it, inserted] = members(o).try_emplace(std::move(k), nullptr);
      first = inserted, o.member = &it->second;
    }
    if (!first) fail_input("{}: key \"{}\" stands twice in one object", source_, k);
    return true;
  }
  bool end_object() { return open_.pop_back(), true; }
  bool start_array(size_t) {
    open_.push_back({put(J::array()), {}});
    return true;
  }
  bool end_array() { return open_.pop_back(), true; }
  bool parse_error(size_t byte, const std::string& last, const nlohmann::detail::exception& e) {
    if (e.id == 406) is_integer(last) ? too_long(last) : too_large(last);  // not even a long double holds it
    const Position p = position_of(text_, byte > 0 ? byte - 1 : 0);
    std::string why = e.what();
    if (auto at = why.find("syntax error"); at != std::string::npos) why = why.substr(at);
    if (auto at = why.find("; last read"); at != std::string::npos) why = why.substr(0, at);
    for (char& c : why)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    fail_input("{}:{}:{}: not valid JSON: {}", source_, p.line, p.column, why);
  }

 private:
  static constexpr bool kOrdered = std::is_same_v<J, OrderedJson>;
  using Members = std::vector<std::pair<const std::string, J>>;  // what an ordered object is
  struct Open {
    J* value;
    std::unordered_set<std::string> keys;  // of an ordered object, so far
    J* member = nullptr;                   // of an object: the one that the last key names
  };
  static auto& members(Open& o) { return *o.value->template get_ptr<typename J::object_t*>(); }

  static bool is_integer(std::string_view number) { return number.find_first_of(".eE") == std::string_view::npos; }

  // Where the first such number stands, outside of texts.
  std::string place_of(std::string_view number) const {
    size_t i = 0;
    for (bool in_text = false; i < text_.size(); ++i) {
      if (in_text && text_[i] == '\\')
        ++i;
      else if (text_[i] == '"')
        in_text = !in_text;
      else if (!in_text && text_.substr(i).starts_with(number) &&
               (i == 0 || std::string_view("0123456789.-+eE").find(text_[i - 1]) == std::string_view::npos))
        break;
    }
    const Position p = position_of(text_, i);
    return fmt::format("{}:{}:{}", source_, p.line, p.column);
  }
  static std::string shown(std::string_view number) {
    return std::string(number.substr(0, 40)) + (number.size() > 40 ? "…" : "");
  }
  [[noreturn]] void too_large(std::string_view number) const {
    fail_input("{}: {} is beyond the largest number of a 64-bit float (1.8e308): write it as text, or a smaller one",
               place_of(number), shown(number));
  }
  [[noreturn]] void too_long(std::string_view number) const {
    if constexpr (!kOrdered) too_large(number);
    fail_input("{}: {} is an integer of more than {} digits: write it as text", place_of(number), shown(number),
               kMostDigits);
  }

  template <typename V>
  J* put(V&& v) {
    // The parser is flat, but destroying a deep value is not.
    if (open_.size() > kMaxDepth) fail_input("{}: JSON is nested deeper than {} levels", source_, kMaxDepth);
    if (open_.empty()) {
      root_ = J(std::forward<V>(v));
      return &root_;
    }
    Open& o = open_.back();
    if (o.value->is_array()) {
      auto& list = *o.value->template get_ptr<typename J::array_t*>();
      return &list.emplace_back(std::forward<V>(v));
    }
    *o.member = J(std::forward<V>(v));
    return o.member;
  }

  std::string_view text_, source_;
  J root_;
  std::vector<Open> open_;
};

bool holds_big_integer(const OrderedJson& j) {
  if (!j.is_structured()) return j.is_binary();
  for (const OrderedJson& item : j)
    if (holds_big_integer(item)) return true;
  return false;
}

std::string dump(const OrderedJson& j, int indent) {
  return j.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

// As nlohmann writes it: only what holds big integers is gone through here.
void write_json(const OrderedJson& j, int indent, int depth, std::string& out) {
  if (j.is_binary()) {
    out += *big_integer(j);
    return;
  }
  if (!j.is_structured() || j.empty() || (indent < 0 && !holds_big_integer(j))) {
    out += dump(j, -1);
    return;
  }
  const auto line = [&](int level) {
    if (indent >= 0) out += "\n" + std::string(static_cast<size_t>(indent * level), ' ');
  };
  out += j.is_array() ? '[' : '{';
  bool first = true;
  for (auto it = j.begin(); it != j.end(); ++it) {
    if (!first) out += ',';
    first = false;
    line(depth + 1);
    if (j.is_object()) out += dump(OrderedJson(it.key()), -1) + (indent >= 0 ? ": " : ":");
    write_json(*it, indent, depth + 1, out);
  }
  line(depth);
  out += j.is_array() ? ']' : '}';
}

// A number's one spelling: 5.0 is 5, and whole doubles are all their digits.
std::string spelled(const OrderedJson& number) {
  if (const auto digits = big_integer(number)) return std::string(*digits);
  if (!number.is_number_float()) return number.dump();
  const double d = number.get<double>();
  return d == 0 ? "0" : d == std::floor(d) ? fmt::format("{:.0f}", d) : number.dump();
}

bool is_number(const OrderedJson& j) { return j.is_number() || j.is_binary(); }

template <typename J>
J parse(std::string_view text, std::string_view source) {
  Maker<J> maker(text, source);
  Events::sax_parse(text.begin(), text.end(), &maker);
  return maker.take();
}

}  // namespace

Json parse_json(std::string_view text, std::string_view source) { return parse<Json>(text, source); }
OrderedJson parse_ordered_json(std::string_view text, std::string_view source) {
  return parse<OrderedJson>(text, source);
}
std::optional<std::string_view> big_integer(const OrderedJson& j) {
  if (!j.is_binary()) return std::nullopt;
  const auto& digits = j.get_binary();
  return std::string_view(reinterpret_cast<const char*>(digits.data()), digits.size());
}

std::string json_text(const OrderedJson& j, int indent) {
  std::string out;
  write_json(j, indent, 0, out);
  return out;
}

std::optional<OrderedJson> read_ordered_json(std::string_view text) {
  try {
    return parse_ordered_json(text, "");
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool same_json(const OrderedJson& a, const OrderedJson& b) {
  if (is_number(a) && is_number(b)) return spelled(a) == spelled(b);
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), same_json);
  if (!a.is_object()) return a == b;
  for (const auto& [key, value] : a.items())
    if (const auto other = b.find(key); other == b.end() || !same_json(value, *other)) return false;
  return true;
}

Json read_json_file(const std::string& path) { return parse_json(read_file(path), path); }

std::string canonical_json(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace mxt
