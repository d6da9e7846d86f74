#include "train/tools/tools.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/text.h"
#include "infer/calculator.h"

namespace mxt::train {
namespace {

Tools::Result failed(const std::string& why) { return {Json{{"error", why}}.dump(), true}; }

std::string as_text(const OrderedJson& j) { return j.is_string() ? j.get<std::string>() : json_text(j); }

std::map<std::string, std::string> read_table(const std::string& path) {
  const OrderedJson j = parse_ordered_json(read_file(path), path);
  if (!j.is_object()) fail_input("{}: a table is a JSON object, key to result", path);
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : j.items()) out[key] = as_text(value);
  return out;
}

// What a tool reads before it can answer. Errors (kBadInput) begin with `at`, its key.
template <typename F>
auto read_for(const std::string& at, F&& read) {
  try {
    return read();
  } catch (const Error& e) {
    fail_input("{}: {}", at, e.what());
  }
}

std::map<std::string, std::string> table_of(const config::RolloutTool& tool, size_t i) {
  if (!tool.table) return {};
  return read_for(fmt::format("train.method.tools[{}].table", i), [&] { return read_table(*tool.table); });
}

std::string source_of(const config::RolloutTool& tool, size_t i) {
  if (tool.command.empty()) return "";
  return read_for(fmt::format("train.method.tools[{}].command", i), [&] { return read_file(tool.command[0]); });
}

}  // namespace

std::vector<std::string> wrong_tools(const config::Method& m) {
  std::vector<std::string> out;
  for (size_t i = 0; i < m.tools.size(); ++i) {
    try {
      table_of(m.tools[i], i), source_of(m.tools[i], i);
    } catch (const Error& e) {
      out.emplace_back(e.what());
    }
  }
  return out;
}

Tools::Tools(const config::Method& m, const ToolServices& services)
    : services_(services), max_turns_(m.max_tool_turns) {
  for (size_t i = 0; i < m.tools.size(); ++i) {
    const config::RolloutTool& tool = m.tools[i];
    tools_.emplace(tool.name.value_or(std::string(config::text_of(tool.kind))),
                   Entry{tool, table_of(tool, i), source_of(tool, i)});
  }
  const auto outside = [](const config::RolloutTool& t) { return t.kind == config::RolloutToolKind::kCommand; };
  if (std::any_of(m.tools.begin(), m.tools.end(), outside))
    services_.run("", {"probe"}, "", 10);  // says now where there is no sandbox
  if (!m.tools.empty() && !services_.turn)
    fail_input("train.method.tools: the policy has no chat template to show results in");
}

Tools::Result Tools::answer(const infer::Call& call) const {
  Result result = ask(call);
  if (services_.cut) result.text = services_.cut(result.text);
  return result;
}

Tools::Result Tools::ask(const infer::Call& call) const {
  const auto it = tools_.find(call.name);
  if (it == tools_.end()) return failed(fmt::format("there is no tool {}", call.name));
  const Entry& e = it->second;
  const auto text_of = [&](const char* key) {
    const auto given = call.arguments.find(key);
    return given == call.arguments.end() ? std::nullopt : std::optional(as_text(*given));
  };
  switch (e.settings.kind) {
    case config::RolloutToolKind::kCalculator: {
      const auto expression = text_of("expression");
      if (!expression) return failed("the argument expression is missing");
      const auto value = infer::calculate(*expression);
      return value ? Result{*value, false} : failed(fmt::format("{} has no value", *expression));
    }
    case config::RolloutToolKind::kLookup: {
      const auto key = text_of("key");
      if (!key) return failed("the argument key is missing");
      const auto found = e.table.find(*key);
      return found != e.table.end() ? Result{found->second, false} : failed(fmt::format("there is no {}", *key));
    }
    case config::RolloutToolKind::kCommand: {
      const OrderedJson line{{"name", call.name}, {"arguments", call.arguments}};
      const auto said = services_.run(e.source, e.settings.command, json_text(line) + "\n", e.settings.timeout_seconds);
      return said ? Result{std::string(trim(*said)), false} : failed("it failed");
    }
  }
  return failed("");
}

// Results that leave no room for another turn are not asked for: the answer ends with its calls.
bool AnswerTurns::told(int32_t id, float logp) {
  answer_.ids.push_back(id);
  answer_.own.push_back(given_ == 0);
  if (given_ > 0) {
    --given_;
    return true;
  }
  answer_.sampled_logp.push_back(logp);
  turn_.push_back(id);
  if (std::find(ends_.begin(), ends_.end(), id) == ends_.end()) return true;
  note_turn(true);
  if (turns_ == tools_.max_turns()) return false;
  const auto calls = infer::calls_of(answer_.turns.back().text);
  if (!calls || calls->empty()) return false;
  ++turns_;
  std::vector<std::string> results;
  std::vector<bool> failed;
  for (const infer::Call& call : *calls) {
    Tools::Result r = tools_.answer(call);
    results.push_back(std::move(r.text));
    failed.push_back(r.failed);
  }
  results_ = tools_.turn(*calls, results);
  if (static_cast<int64_t>(answer_.ids.size() + results_.size()) >= room_) {
    results_.clear();
    return false;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    answer_.turns.push_back({"tool", results[i]});
    ++answer_.calls;
    answer_.failed_calls += failed[i];
  }
  return true;
}

std::vector<int32_t> AnswerTurns::after(int32_t) {
  given_ = results_.size();
  return std::exchange(results_, {});
}

void AnswerTurns::finish() {
  if (!turn_.empty()) note_turn(false);
}

void AnswerTurns::note_turn(bool ended) {
  std::span<const int32_t> said(turn_);
  answer_.turns.push_back({"assistant", decode_(ended ? said.first(said.size() - 1) : said)});
  turn_.clear();
}

}  // namespace mxt::train
