// Requests put together from bytes: every field, every kind of value, whole and broken schemas. One maker for the
// fuzzer and for the test that draws from a random generator.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mxt::serve {

class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}
  bool over() const { return at_ == end_; }
  uint8_t byte() { return over() ? uint8_t{0} : *at_++; }
  size_t below(size_t n) { return byte() % n; }
  bool often() { return byte() % 4 != 3; }
  bool rarely() { return byte() % 8 == 7; }
  template <typename T>
  T one(const std::vector<T>& of) {
    return of[below(of.size())];
  }

 private:
  const uint8_t *at_, *end_;
};

using Any = nlohmann::ordered_json;

inline Any any_value(Choices& c, int depth = 0) {
  switch (c.below(depth > 3 ? 8 : 10)) {
    case 0:
      return nullptr;
    case 1:
      return c.often();
    case 2:
      return static_cast<int>(c.byte()) - 100;
    case 3:
      return c.one<double>({0.5, -1e-9, 1e300, 3.0, 0.1});
    case 4:
      return std::string(c.below(20), static_cast<char>('a' + c.below(26)));
    case 5:
      return c.one<std::string>({"", "</s>", "<tool_call>", "\"\\\n", "é😀", "<think>", "{", "null"});
    case 6:
      return c.one<int64_t>({INT64_MIN, INT64_MAX, 0, 1, -1});
    case 7:
      return UINT64_MAX;
    case 8: {
      Any list = Any::array();
      for (size_t n = c.below(4); n-- > 0;) list.push_back(any_value(c, depth + 1));
      return list;
    }
    default: {
      Any object = Any::object();
      for (size_t n = c.below(4); n-- > 0;)
        object[c.one<std::string>({"a", "b", "type", "é"})] = any_value(c, depth + 1);
      return object;
    }
  }
}

inline Any any_schema(Choices& c, int depth = 0) {
  if (c.rarely()) return any_value(c, 2);
  Any s = Any::object();
  auto inner = [&] { return depth > 3 ? Any(true) : any_schema(c, depth + 1); };
  auto list = [&](size_t most) {
    Any l = Any::array();
    for (size_t n = 1 + c.below(most); n-- > 0;) l.push_back(inner());
    return l;
  };
  switch (c.below(12)) {
    case 0:
      s["type"] = "object";
      for (size_t n = c.below(4); n-- > 0;) s["properties"][c.one<std::string>({"a", "b", "\"", "é"})] = inner();
      if (c.often()) s["required"] = Any::array({c.one<std::string>({"a", "b", "c"})});
      if (c.often()) s["additionalProperties"] = c.often() ? Any(false) : inner();
      if (c.rarely()) s["minProperties"] = c.below(4);
      if (c.rarely()) s["maxProperties"] = c.below(4);
      break;
    case 1:
      s["type"] = "array";
      if (c.often()) s["items"] = inner();
      if (c.rarely()) s["prefixItems"] = list(2);
      if (c.often()) s["maxItems"] = c.below(5);
      if (c.rarely()) s["minItems"] = c.below(5);
      if (c.rarely()) s["uniqueItems"] = c.often();
      break;
    case 2:
    case 3:
      s["type"] = "string";
      if (c.often()) s["maxLength"] = c.one<int64_t>({0, 1, 3, 5000, 1 << 30});
      if (c.rarely()) s["minLength"] = c.below(4);
      if (c.rarely()) s["pattern"] = c.one<std::string>({"^a+$", "b", "^(x|y){2,3}$", "[^\"]*", "(", "\\d"});
      if (c.rarely()) s["format"] = c.one<std::string>({"date", "email", "uuid", "password", "zebra"});
      break;
    case 4:
    case 5:
      s["type"] = c.one<std::string>({"integer", "number"});
      if (c.often()) s["minimum"] = static_cast<int>(c.byte()) - 128;
      if (c.often()) s["maximum"] = static_cast<int>(c.byte()) - 64;
      if (c.rarely()) s["multipleOf"] = c.one<double>({1, 7, 0.01, 0, -3});
      break;
    case 6:
      s["enum"] = Any::array({any_value(c, 2), any_value(c, 3), "x"});
      if (c.rarely()) s["type"] = "string";
      break;
    case 7:
      s[c.one<std::string>({"anyOf", "oneOf", "allOf"})] = list(3);
      if (c.rarely()) s["type"] = "string";
      break;
    case 8:
      s["$ref"] = c.one<std::string>({"#", "#/$defs/a", "#/$defs/A%20b", "#/nowhere", "x"});
      s["$defs"]["a"] = inner();
      s["$defs"]["A b"] = Any{{"$ref", "#/$defs/a"}};
      if (c.rarely()) s["maxLength"] = 3;
      break;
    case 9:
      s["type"] = Any::array({c.one<std::string>({"string", "null", "integer"}), "boolean"});
      break;
    case 10:
      s["const"] = any_value(c, 2);
      break;
    default:
      s[c.one<std::string>({"type", "minLength", "not", "nullable", "x-y", "required"})] = any_value(c, 2);
  }
  return s;
}

// A chat or completions request.
inline Any any_request(Choices& c, bool chat) {
  Any r = Any::object();
  const auto text = [&] {
    return c.rarely() ? any_value(c) : Any(c.one<std::string>({"hi", "{\"a\":", "</s>", "é", "count 1 2 3"}));
  };
  if (chat) {
    r["messages"] = Any::array();
    for (size_t n = 1 + c.below(2); n-- > 0;) {
      Any m{{"role", c.one<std::string>({"user", "user", "system", "assistant", "tool"})}, {"content", text()}};
      if (c.rarely())
        m["tool_calls"] =
            Any::array({{{"function", {{"name", "f"}, {"arguments", c.often() ? Any("{}") : any_value(c)}}}}});
      r["messages"].push_back(std::move(m));
    }
    switch (c.below(5)) {
      case 0:
        r["response_format"] = {{"type", "json_object"}};
        break;
      case 1:
      case 2:
        r["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", any_schema(c)}}}};
        break;
      case 3: {
        Any p = any_schema(c);
        if (p.is_object() && c.often())
          p = Any{{"type", "object"}, {"properties", {{"a", std::move(p)}}}, {"required", {"a"}}};
        r["tools"] = Any::array({{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", std::move(p)}}}}});
        if (c.often()) r["tool_choice"] = "required";
        if (c.rarely())
          r["tool_choice"] = {{"type", "allowed_tools"},
                              {"allowed_tools",
                               {{"mode", c.one<std::string>({"auto", "required"})},
                                {"tools", Any::array({c.often() ? Any{{"name", "f"}} : any_value(c)})}}}};
        if (c.rarely()) r["parallel_tool_calls"] = c.often();
        break;
      }
      default:
        break;
    }
    if (c.rarely()) r["chat_template_kwargs"] = {{"enable_thinking", c.often()}};
    if (c.rarely()) r["continue_final_message"] = c.often();
    if (c.rarely()) r["logprobs"] = true, r["top_logprobs"] = c.below(6);
  } else {
    r["prompt"] = c.often() ? Any(text()) : Any::array({1, static_cast<int>(c.byte())});
    if (c.rarely()) r["echo"] = true;
    if (c.rarely()) r["logprobs"] = c.below(6);
  }
  r["max_tokens"] = c.one<int>({1, 12, 40, 90});
  const std::vector<std::pair<const char*, std::vector<Any>>> kFields{
      {"min_tokens", {1, 5, 30, 500}},
      {"temperature", {0, 0.7, 2, 1e-300}},
      {"top_p", {0, 0.3, 1e-12}},
      {"top_k", {1, 2, -1, 40}},
      {"min_p", {0.5, 1, 1e-9}},
      {"repetition_penalty", {0.01, 10, 1.3}},
      {"presence_penalty", {-2, 2}},
      {"frequency_penalty", {-2, 2}},
      {"ignore_eos", {true}},
      {"stop", {"a", {"}", "\""}, "</s>", "<s>"}},
      {"stop_token_ids", {{125}, {34, 44}, {257}, {0, 1, 2}}},
      {"include_stop_str_in_output", {true}},
      {"skip_special_tokens", {false, true}},
      {"logit_bias", {{{"257", 100}}, {{"0", 100}, {"1", 100}}, {{"34", -100}, {"125", -100}}, {{"257", -100}}}},
      {"n", {1, 2, 3}},
      {"seed", {7, INT64_MIN}},
      {"stream", {true}},
      {"priority", {-5}}};
  for (const auto& [name, values] : kFields)
    if (c.byte() % 4 == 0) r[name] = c.one(values);
  if (c.rarely()) r[kFields[c.below(kFields.size())].first] = any_value(c);
  return r;
}

}  // namespace mxt::serve
