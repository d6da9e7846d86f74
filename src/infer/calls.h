// Tool calls in the text of a model, and whether they are those that were wanted: by structure, so that white space,
// the order of arguments and the order of parallel calls do not count.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace mxt::infer {

struct Call {
  std::string name;
  OrderedJson arguments = OrderedJson::object();  // long integers digit by digit (base/json_text.h)
};

// The calls of a text: in <tool_call> tags as Hermes has them, or a text that is one call (or a list of them) as JSON.
// {"name": …, "arguments" or "parameters": object or its text}. No calls: it is something else. Nothing where it opens
// a tag and no call follows.
std::optional<std::vector<Call>> calls_of(std::string_view text);

// Calls as JSON, as a row has them: a list of {"name", "arguments"}, each perhaps in {"function": …}, with
//   accept    of an argument, by name: a list of other values that are as right
//   optional  names of arguments that may be left out
// Errors (kBadInput): something else.
struct WantedCall : Call {
  OrderedJson accept = OrderedJson::object();
  std::vector<std::string> optional;
};
std::vector<WantedCall> wanted_calls(const OrderedJson& list);

// By same_json.
bool is_right(const Call& got, const WantedCall& want);
// As many as wanted, each of them right for one that no other is right for.
bool are_right(const std::vector<Call>& got, const std::vector<WantedCall>& want);

}  // namespace mxt::infer
