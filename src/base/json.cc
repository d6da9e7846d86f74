#include "base/json.h"

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
constexpr size_t kMostDigits = 4300;  // as Python reads them

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

// Makes the value from the parser's events. nlohmann's own maker looks through all keys of an object for each new one,
// which a hostile megabyte of keys turns into minutes.
template <typename J>
class Maker {
 public:
  using number_integer_t = typename J::number_integer_t;
  using number_unsigned_t = typename J::number_unsigned_t;
  using number_float_t = typename J::number_float_t;
  using string_t = typename J::string_t;
  using binary_t = typename J::binary_t;

  Maker(std::string_view text, std::string_view source) : text_(text), source_(source) {}
  J take() { return std::move(root_); }

  bool null() { return put(nullptr), true; }
  bool boolean(bool v) { return put(v), true; }
  bool number_integer(number_integer_t v) { return put(v), true; }
  bool number_unsigned(number_unsigned_t v) { return put(v), true; }
  bool number_float(number_float_t v, const string_t& text) {
    if (!kOrdered || text.find_first_of(".eE") != std::string::npos) return put(v), true;
    if (text.size() > kMostDigits) fail_input("{}: an integer of more than {} digits", source_, kMostDigits);
    return put(J::binary(binary_t(std::vector<uint8_t>(text.begin(), text.end())))), true;
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
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& e) {
    if (e.id == 406)  // a number larger than a double holds
      fail_input("{}: not valid JSON: {}", source_, std::string_view(e.what()).substr(0, 200));
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

template <typename J>
J parse(std::string_view text, std::string_view source) {
  Maker<J> maker(text, source);
  J::sax_parse(text.begin(), text.end(), &maker);
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

Json read_json_file(const std::string& path) { return parse_json(read_file(path), path); }

std::string canonical_json(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace mxt
