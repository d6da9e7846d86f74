#include "data/synth/synth.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "data/synth/tasks.h"

namespace mxt::data {
namespace {

struct Task {
  const char* name;
  SynthRow (*draw)(Draws&);
  uint64_t stream;  // Philox stream of the train split; the test split takes the next one
};

constexpr Task kTasks[] = {{"tool_calls", draw_tool_call, 0x7359'0000},
                           {"tool_calls_made_up", draw_made_up_tool_call, 0x7359'0000},
                           {"tool_preference", draw_tool_preference, 0x7359'0040},
                           {"tool_habits", draw_tool_habit, 0x7359'0050},
                           {"tool_use", draw_tool_use, 0x7359'0080},
                           {"tool_use_simple", draw_simple_use, 0x7359'0090},
                           {"tool_use_multiple", draw_multiple_use, 0x7359'00A0},
                           {"tool_use_parallel", draw_parallel_use, 0x7359'00B0},
                           {"tool_use_irrelevance", draw_irrelevant_use, 0x7359'00C0},
                           {"arithmetic", draw_arithmetic, 0x7359'0010},
                           {"addition", draw_addition, 0x7359'0060},
                           {"sums", draw_sums, 0x7359'0070},
                           {"spelling", draw_spelling, 0x7359'0020},
                           {"sorting", draw_sorting, 0x7359'0030},
                           {"shapes", draw_shapes, 0x7359'0080}};

const Task& find_task(std::string_view name) {
  for (const Task& t : kTasks)
    if (name == t.name) return t;
  const std::string near = nearest(name, synth_tasks());
  fail_input("synth task \"{}\" is unknown{}; there are: {}", name,
             near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near), fmt::join(synth_tasks(), ", "));
}

}  // namespace

const std::vector<std::string>& synth_tasks() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> v;
    for (const Task& t : kTasks) v.emplace_back(t.name);
    return v;
  }();
  return names;
}

OrderedJson content_of(const SynthRow& row) {
  if (row.picture.empty()) return row.user;
  return OrderedJson::array(
      {OrderedJson{{"type", "image"}, {"image", row.picture}}, OrderedJson{{"type", "text"}, {"text", row.user}}});
}

namespace {

OrderedJson with_tools(const SynthRow& row) {
  OrderedJson messages = OrderedJson::array({{{"role", "user"}, {"content", row.user}}});
  const OrderedJson calls = OrderedJson::parse(row.calls), results = OrderedJson::parse(row.results);
  if (!calls.empty()) {
    OrderedJson made = OrderedJson::array();
    for (const OrderedJson& call : calls) made.push_back({{"type", "function"}, {"function", call}});
    messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(made)}});
    for (const OrderedJson& result : results) messages.push_back({{"role", "tool"}, {"content", result.dump()}});
  }
  messages.push_back({{"role", "assistant"}, {"content", row.answer}});
  OrderedJson tools = OrderedJson::array();
  for (const OrderedJson& f : OrderedJson::parse(row.tools)) tools.push_back({{"type", "function"}, {"function", f}});
  return {{"tools", std::move(tools)}, {"messages", std::move(messages)}};
}

}  // namespace

std::string conversation(std::span<const SynthRow> rows) {
  OrderedJson messages = OrderedJson::array();
  const auto add = [&](const char* role, OrderedJson content) {
    messages.push_back(OrderedJson{{"role", role}, {"content", std::move(content)}});
  };
  if (!rows.front().system.empty()) add("system", rows.front().system);
  const auto said = [](const std::string& answer) {
    return OrderedJson::array({{{"role", "assistant"}, {"content", answer}}});
  };
  if (const SynthRow& row = rows.front(); !row.rejected.empty()) {
    MXT_ASSERT(rows.size() == 1);
    add("user", content_of(row));
    return OrderedJson{{"prompt", std::move(messages)}, {"chosen", said(row.answer)}, {"rejected", said(row.rejected)}}
        .dump();
  }
  if (const SynthRow& row = rows.front(); !row.tools.empty()) {
    MXT_ASSERT(rows.size() == 1);
    return with_tools(row).dump();
  }
  for (const SynthRow& row : rows) {
    add("user", content_of(row));
    add("assistant", row.answer);
  }
  return OrderedJson{{"messages", std::move(messages)}}.dump();
}

std::vector<SynthRow> synth_rows(std::string_view task_name, Split split, int64_t count, uint64_t seed) {
  const Task& task = find_task(task_name);
  // A thousand repeats in a row means that the task is exhausted.
  constexpr int kPatience = 1000;
  Draws draws(seed, task.stream + (split == Split::kTest ? 1 : 0), split);
  std::vector<SynthRow> rows;
  std::unordered_set<std::string> seen;
  int repeats = 0;
  while (static_cast<int64_t>(rows.size()) < count) {
    SynthRow row = task.draw(draws);
    if (seen.insert(row.picture.empty() ? row.user : row.picture).second) {
      rows.push_back(std::move(row));
      repeats = 0;
    } else if (++repeats == kPatience) {
      fail_input("synth task \"{}\" has only about {} different rows, {} were asked for; ask for fewer", task_name,
                 rows.size(), count);
    }
  }
  return rows;
}

}  // namespace mxt::data
