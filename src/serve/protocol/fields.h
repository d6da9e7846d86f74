// Reading a request's JSON object: types and ranges, with errors that name the parameter. An absent field and a null
// one are the same.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace mxt::serve {

// The body of a request. Errors: ApiError 400 for what is no JSON object in UTF-8 (or has duplicate keys, or is nested
// too deeply).
OrderedJson parse_body(const std::string& body);

class Fields {
 public:
  explicit Fields(const OrderedJson& object, std::string inside = {}) : j_(object), inside_(std::move(inside)) {}
  const OrderedJson* get(std::string_view name) const;  // null where absent or null
  bool has(std::string_view name) const { return get(name) != nullptr; }
  int64_t integer(std::string_view name, int64_t otherwise, int64_t least, int64_t most) const;
  double number(std::string_view name, double otherwise, double least, double most) const;
  bool flag(std::string_view name, bool otherwise) const;
  std::string text(std::string_view name, std::string otherwise = {}) const;
  // Refuses every name that is in neither list, with what it is called here, or the nearest.
  void only(std::initializer_list<std::string_view> known, std::span<const std::string_view> also = {}) const;
  std::string path(std::string_view name) const { return inside_ + std::string(name); }

 private:
  const OrderedJson& j_;
  std::string inside_;  // "tools[0].function."
};

// {"prompt": …}: one text, several, one list of token ids, or several.
struct Prompt {
  std::optional<std::string> text;
  std::vector<int32_t> ids;
};
std::vector<Prompt> read_prompts(const OrderedJson& value, const std::string& name, size_t most);
std::vector<int32_t> read_ids(const OrderedJson& list, const std::string& name);

}  // namespace mxt::serve
