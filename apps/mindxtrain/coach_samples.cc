// What the steps of a policy that samples drew, for the page: OUT/rollouts.jsonl, a prompt a line.
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "coach.h"

namespace mxt::app {
namespace {

// A page shows so much of a step; the file has all of it.
constexpr size_t kMostPrompts = 16, kMostAnswers = 16, kMostText = 4096;

// The step of a line, which stands first in it; 0 where none does.
int64_t step_of(std::string_view line) {
  constexpr std::string_view kBegin = R"({"step":)";
  int64_t step = 0;
  if (line.starts_with(kBegin)) std::from_chars(line.data() + kBegin.size(), line.data() + line.size(), step);
  return step;
}

struct Lines {
  int64_t step = 0, first = 0, last = 0;
  size_t prompts = 0;             // of the step
  std::vector<std::string> text;  // the first of them
};

// `wanted` 0: the last step.
Lines lines_of(const std::string& path, int64_t wanted) {
  std::ifstream file(path);
  Lines out;
  std::string line;
  while (std::getline(file, line) && !file.eof()) {  // without its newline a line is not whole yet
    const int64_t step = step_of(line);
    if (step <= 0) continue;
    if (out.first == 0) out.first = step;
    out.last = step;
    if (wanted > 0 && step != wanted) continue;
    if (step != out.step) out.step = step, out.prompts = 0, out.text.clear();
    ++out.prompts;
    if (out.text.size() < kMostPrompts) out.text.push_back(line);
  }
  return out;
}

std::string cut(const std::string& text) { return text.size() <= kMostText ? text : text.substr(0, kMostText) + "…"; }

OrderedJson answer_of(const OrderedJson& c) {
  OrderedJson out{{"text", cut(c.value("text", std::string()))},
                  {"reward", c.value("reward", OrderedJson())},
                  {"rewards", c.value("rewards", OrderedJson::object())},
                  {"advantage", c.value("advantage", OrderedJson())},
                  {"tokens", c.at("ids").size()}};
  for (const OrderedJson& t : c.value("turns", OrderedJson::array()))
    out["turns"].push_back({{"role", t.at("role")}, {"text", cut(t.at("text").get<std::string>())}});
  return out;
}

}  // namespace

std::string CoachDesk::run_samples(const std::string& key, int64_t step) {
  const Found f = find(key);
  const Lines lines = f.has("rollouts.jsonl") ? lines_of(f.folder + "/rollouts.jsonl", step) : Lines{};
  if (lines.last == 0) fail_input("the run has sampled nothing yet");
  if (lines.text.empty())
    fail_input("step {}: nothing was sampled for it (the file has steps {} to {})", step, lines.first, lines.last);
  OrderedJson j{{"step", lines.step}, {"first", lines.first}, {"last", lines.last}, {"prompts", lines.prompts}};
  j["groups"] = OrderedJson::array();
  try {
    for (const std::string& line : lines.text) {
      const OrderedJson row = OrderedJson::parse(line);
      const OrderedJson& completions = row.at("completions");
      OrderedJson group{{"prompt", cut(row.value("prompt", std::string()))}, {"answers", completions.size()}};
      for (size_t i = 0; i < std::min(completions.size(), kMostAnswers); ++i)
        group["list"].push_back(answer_of(completions[i]));
      j["groups"].push_back(std::move(group));
    }
  } catch (const nlohmann::json::exception& e) {
    fail_input("rollouts.jsonl: step {} is not of the shape that a run writes: {}", lines.step, e.what());
  }
  return j.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace mxt::app
