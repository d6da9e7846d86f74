#include "eval/core/core.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "eval/python/literal.h"
#include "eval/python/random.h"

namespace mxt::eval {
namespace {

using Type = CoreTask::Type;

std::string text_in(const OrderedJson& item, const char* key) { return item[key].get<std::string>(); }

// What stands before the delimiter and after it; of the item that is asked, with option `k`.
std::pair<std::string, std::string> sides(const CoreTask& task, const OrderedJson& item, size_t k) {
  switch (task.type) {
    case Type::kMultipleChoice:
      return {text_in(item, "query"), item["choices"][k]};
    case Type::kSchema:
      return {item["context_options"][k], text_in(item, "continuation")};
    case Type::kLanguageModeling:
      return {strip(text_in(item, "context")), text_in(item, "continuation")};
  }
  MXT_ASSERT(false);
}

size_t options(const CoreTask& task, const OrderedJson& item) {
  return task.type == Type::kMultipleChoice ? item["choices"].size()
         : task.type == Type::kSchema       ? item["context_options"].size()
                                            : 1;
}

size_t gold(const CoreTask& task, const OrderedJson& item) {
  return task.type == Type::kLanguageModeling ? 0 : item["gold"].get<size_t>();
}

// Tokens that all begin with, or all end with.
size_t common(const std::vector<std::vector<int32_t>>& rows, bool at_end) {
  size_t shortest = rows[0].size();
  for (const auto& r : rows) shortest = std::min(shortest, r.size());
  for (size_t n = 0; n < shortest; ++n)
    for (const auto& r : rows) {
      const auto at = [&](const std::vector<int32_t>& x) { return at_end ? x[x.size() - 1 - n] : x[n]; };
      if (at(r) != at(rows[0])) return n;
    }
  return shortest;
}

// Python's min(): the first, until one is less; NaN (nothing was scored) is never less.
size_t lowest(const std::vector<double>& losses) {
  size_t best = 0;
  for (size_t i = 1; i < losses.size(); ++i)
    if (losses[i] < losses[best]) best = i;
  return best;
}

const char* name_of(Type type) {
  return type == Type::kMultipleChoice ? "multiple_choice" : type == Type::kSchema ? "schema" : "language_modeling";
}

// One line of the samples file; `right` is the verdict.
OrderedJson sample_of(const CoreTask& task, size_t item, const std::vector<std::string>& prompts,
                      const std::vector<infer::Continuation>& rows, const infer::ContinuationScore* scores,
                      bool* right) {
  OrderedJson s = {{"doc_id", item}, {"type", name_of(task.type)}, {"prompts", prompts}};
  if (task.type == Type::kLanguageModeling) {
    *right = scores[0].greedy;
  } else {
    std::vector<double> losses;
    for (size_t k = 0; k < rows.size(); ++k)
      losses.push_back(rows[k].scored == 0 ? std::numeric_limits<double>::quiet_NaN()
                                           : -scores[k].logprob / static_cast<double>(rows[k].scored));
    const size_t answer = lowest(losses);
    *right = answer == gold(task, task.items[item]);
    OrderedJson shown = OrderedJson::array();
    for (const double x : losses) shown.push_back(std::isnan(x) ? OrderedJson() : OrderedJson(x));
    s.update({{"losses", shown}, {"answer", answer}, {"gold", gold(task, task.items[item])}});
  }
  s["correct"] = *right;
  return s;
}

}  // namespace

std::vector<std::string> core_prompts(const CoreTask& task, size_t item) {
  std::string before;
  if (task.shots > 0) {
    PythonRandom random(1234 + item);
    for (size_t i : random.sample(task.items.size() - 1, task.shots)) {
      const OrderedJson& example = task.items[i < item ? i : i + 1];  // the item itself is no example
      const auto [left, right] = sides(task, example, gold(task, example));
      before += left + task.delimiter + right + "\n\n";
    }
  }
  std::vector<std::string> out;
  const OrderedJson& asked = task.items[item];
  for (size_t k = 0; k < options(task, asked); ++k) {
    const auto [left, right] = sides(task, asked, k);
    if (task.type == Type::kLanguageModeling) out.push_back(strip(before + left + task.delimiter));
    out.push_back(before + left + task.delimiter + right);
  }
  return out;
}

std::vector<infer::Continuation> core_rows(const CoreTask& task, size_t item, const std::vector<std::string>& prompts,
                                           const EncodePrompt& encode) {
  std::vector<std::vector<int32_t>> tokens;
  for (const std::string& p : prompts) tokens.push_back(encode(p));
  if (task.type == Type::kLanguageModeling) {
    const std::vector<int32_t>&without = tokens[0], &with = tokens[1];
    if (without.size() >= with.size() || !std::equal(without.begin(), without.end(), with.begin()))
      fail_input(
          "{}: item {} (of the shuffled ones): the tokens of its context are no beginning of those with the "
          "continuation",
          task.source, item);
    return {{with, static_cast<int64_t>(with.size() - without.size())}};
  }
  const size_t same = common(tokens, task.type == Type::kSchema);
  std::vector<infer::Continuation> rows;
  for (auto& t : tokens) {
    const size_t n = task.type == Type::kSchema ? std::min(same, t.size() - 1) : t.size() - same;
    rows.push_back({std::move(t), static_cast<int64_t>(n)});
  }
  return rows;
}

Evaluation evaluate_core(const std::vector<CoreTask>& tasks, const EncodePrompt& encode, const ScoreRows& score) {
  Evaluation out;
  out.results = {{"results", OrderedJson::object()}, {"centered_results", OrderedJson::object()}};
  double sum = 0;
  for (const CoreTask& task : tasks) {
    std::vector<std::vector<std::string>> prompts;
    std::vector<std::vector<infer::Continuation>> by_item;
    std::vector<infer::Continuation> asked;
    for (size_t i = 0; i < task.items.size(); ++i) {
      prompts.push_back(core_prompts(task, i));
      by_item.push_back(core_rows(task, i, prompts.back(), encode));
      for (const auto& r : by_item.back())
        if (r.scored > 0) asked.push_back(r);
    }
    std::vector<infer::ContinuationScore> scores;
    if (!score(asked, &scores)) {
      out.finished = false;
      return out;
    }
    TaskSamples samples{task.label, {}};
    size_t at = 0, correct = 0;
    for (size_t i = 0; i < task.items.size(); ++i) {
      std::vector<infer::ContinuationScore> mine;
      for (const auto& r : by_item[i]) mine.push_back(r.scored > 0 ? scores[at++] : infer::ContinuationScore{});
      bool right = false;
      samples.samples.push_back(sample_of(task, i, prompts[i], by_item[i], mine.data(), &right));
      correct += right;
    }
    out.samples.push_back(std::move(samples));
    const double accuracy = static_cast<double>(correct) / static_cast<double>(task.items.size());
    const double centred = (accuracy - 0.01 * task.baseline) / (1 - 0.01 * task.baseline);
    out.results["results"][task.label] = accuracy;
    out.results["centered_results"][task.label] = centred;
    sum += centred;
  }
  out.results["core_metric"] = sum / static_cast<double>(tasks.size());
  return out;
}

std::string core_table(const OrderedJson& r) {
  std::string out = fmt::format("{:<35} {:>10} {:>10}\n", "task", "accuracy", "centred");
  for (const auto& [label, accuracy] : r["results"].items())
    out += fmt::format("{:<35} {:>10.4f} {:>10.4f}\n", label, accuracy.get<double>(),
                       r["centered_results"][label].get<double>());
  return out + fmt::format("{:<35} {:>10} {:>10.4f}\n", "CORE", "", r["core_metric"].get<double>());
}

}  // namespace mxt::eval
