// Rows with a list of tools, of BFCL's kinds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "data/synth/tasks.h"

namespace mxt::data {
namespace {

// What a tool is told about, and what is said of its result. Short: it stands in every row that has the tool.
struct Described {
  std::string_view tool, about, parameters, result, said;
};
constexpr std::array<Described, 5> kDescribed = {{
    {"weather", "Weather of a city on a day", R"({"city":"string","date":"YYYY-MM-DD"})",
     R"({"sky":"sunny","celsius":21})", "It will be sunny, with 21 degrees."},
    {"timer", "Starts a timer", R"({"minutes":"integer","label":"string"})", R"({"started":true})",
     "The timer is running."},
    {"convert", "Converts a value between units", R"({"value":"number","from":"unit","to":"unit"})",
     R"({"converted":true})", "It is converted."},
    {"event", "Adds an event to the calendar", R"({"title":"string","date":"YYYY-MM-DD","time":"HH:MM"})",
     R"({"added":true})", "It is in your calendar."},
    {"message", "Sends a message to a person", R"({"to":"string","text":"string"})", R"({"sent":true})",
     "The message is sent."},
}};

constexpr std::string_view kNoneFits = "None of my tools can do that.";

// {"name", "description", "parameters": a JSON schema}. A type that is no JSON type is a form of text.
OrderedJson function_of(const Described& d) {
  OrderedJson properties = OrderedJson::object(), required = OrderedJson::array();
  const OrderedJson parameters = OrderedJson::parse(d.parameters);
  for (const auto& [name, type] : parameters.items()) {
    const bool plain = type == "string" || type == "integer" || type == "number";
    properties[name] = plain ? OrderedJson{{"type", type}} : OrderedJson{{"type", "string"}, {"description", type}};
    required.push_back(name);
  }
  return {{"name", d.tool},
          {"description", d.about},
          {"parameters", {{"type", "object"}, {"properties", properties}, {"required", required}}}};
}

const Described& description_of(std::string_view tool) {
  return *std::find_if(kDescribed.begin(), kDescribed.end(), [&](const Described& d) { return d.tool == tool; });
}

// Tools that are offered: `count` others than `asked`, and that one among them where it `fits`.
OrderedJson offered(Draws& draws, std::string_view asked, size_t count, bool fits) {
  std::vector<const Described*> others;
  for (const Described& d : kDescribed)
    if (d.tool != asked) others.push_back(&d);
  OrderedJson tools = OrderedJson::array();
  const size_t place = fits ? draws.below(count + 1) : count + 1;
  for (size_t i = 0; i <= count; ++i) {
    if (i == place) tools.push_back(function_of(description_of(asked)));
    if (i == count) break;
    const size_t which = draws.below(others.size());
    tools.push_back(function_of(*others[which]));
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(which));
  }
  return tools;
}

enum class ToolUse { kSimple, kMultiple, kParallel, kIrrelevance };

SynthRow draw_kind(Draws& draws, ToolUse kind) {
  const ToolRequest& asked = tool_requests()[draws.deal("tool", tool_requests().size())];
  const size_t requests = kind == ToolUse::kParallel ? 2 + draws.deal("calls", 2) : 1;
  const Described& d = description_of(asked.tool);
  SynthRow row;
  OrderedJson calls = OrderedJson::array(), results = OrderedJson::array();
  for (size_t i = 0; i < requests; ++i) {
    SynthRow one = asked.draw(draws);
    row.user += (i > 0 ? " " : "") + one.user;
    if (kind == ToolUse::kIrrelevance) break;
    calls.push_back(OrderedJson::parse(one.answer));
    results.push_back(OrderedJson::parse(d.result));
  }
  // How many tools there are says nothing of whether one fits: a model that only counted them would call or decline by
  // that.
  const size_t others = kind == ToolUse::kMultiple      ? 1 + draws.deal("others", 2)
                        : kind == ToolUse::kIrrelevance ? 1 + draws.deal("none of", 3)
                                                        : 0;
  row.tools = offered(draws, asked.tool, others, kind != ToolUse::kIrrelevance).dump();
  row.calls = calls.dump();
  row.results = results.dump();
  row.answer = kind == ToolUse::kIrrelevance ? kNoneFits : d.said;
  return row;
}

}  // namespace

SynthRow draw_tool_use(Draws& draws) {
  constexpr std::array kKinds = {ToolUse::kSimple, ToolUse::kMultiple, ToolUse::kParallel, ToolUse::kIrrelevance};
  return draw_kind(draws, kKinds[draws.deal("kind", kKinds.size())]);
}

SynthRow draw_simple_use(Draws& draws) { return draw_kind(draws, ToolUse::kSimple); }
SynthRow draw_multiple_use(Draws& draws) { return draw_kind(draws, ToolUse::kMultiple); }
SynthRow draw_parallel_use(Draws& draws) { return draw_kind(draws, ToolUse::kParallel); }
SynthRow draw_irrelevant_use(Draws& draws) { return draw_kind(draws, ToolUse::kIrrelevance); }

}  // namespace mxt::data
