#include "base/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace mxt {
namespace {

constexpr int kMaxDepth = 256;

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

template <typename J>
J parse(std::string_view text, std::string_view source) {
  std::vector<std::set<std::string>> keys;
  auto callback = [&](int depth, typename J::parse_event_t event, J& parsed) {
    using E = typename J::parse_event_t;
    if (depth > kMaxDepth) fail_input("{}: JSON is nested deeper than {} levels", source, kMaxDepth);
    if (event == E::object_start) keys.emplace_back();
    if (event == E::object_end) keys.pop_back();
    if (event == E::key && !keys.back().insert(parsed.template get<std::string>()).second)
      fail_input("{}: key \"{}\" stands twice in one object", source, parsed.template get<std::string>());
    return true;
  };
  // The parser's own recursion is flat, but destroying a deep value is not: depth is checked while parsing.
  try {
    return J::parse(text.begin(), text.end(), callback);
  } catch (const typename J::parse_error& e) {
    const Position p = position_of(text, e.byte > 0 ? e.byte - 1 : 0);
    std::string why = e.what();
    if (auto at = why.find("syntax error"); at != std::string::npos) why = why.substr(at);
    if (auto at = why.find("; last read"); at != std::string::npos) why = why.substr(0, at);
    for (char& c : why)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    fail_input("{}:{}:{}: not valid JSON: {}", source, p.line, p.column, why);
  } catch (const typename J::out_of_range& e) {  // a number larger than a double holds
    fail_input("{}: not valid JSON: {}", source, std::string_view(e.what()).substr(0, 200));
  }
}

}  // namespace

Json parse_json(std::string_view text, std::string_view source) { return parse<Json>(text, source); }
OrderedJson parse_ordered_json(std::string_view text, std::string_view source) {
  return parse<OrderedJson>(text, source);
}
Json read_json_file(const std::string& path) { return parse_json(read_file(path), path); }

std::string canonical_json(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace mxt
