// What answers are worth: from a document and the model's filtered answers to the values of its metrics.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "eval/python/literal.h"
#include "eval/task/task.h"
#include "pytext/python_regex.h"

namespace mxt::eval {
namespace {

size_t arg_max(const std::vector<double>& x) {
  return static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

std::vector<double> softmax(const std::vector<double>& x) {
  const double top = *std::max_element(x.begin(), x.end());
  std::vector<double> out;
  double sum = 0;
  for (double v : x) sum += out.emplace_back(std::exp(v - top));
  for (double& v : out) v /= sum;
  return out;
}

// As lm-evaluation-harness scores it, but said, once a task.
void say_no_gold(const std::string& task, const OrderedJson& gold, size_t choices) {
  static std::mutex mutex;
  static std::set<std::string> said;
  std::lock_guard lock(mutex);
  if (said.insert(task).second)
    log::warn(
        "task {}: a document's right answer ({}) is none of its {} choices, so whatever is chosen counts as wrong",
        task, json_text(gold).substr(0, 60), choices);
}

// An index as a document gives it: tables that lack some hold the others as 1.0.
std::optional<int64_t> index(const OrderedJson& v) {
  if (v.is_number_integer()) return v.get<int64_t>();
  if (!v.is_number_float() || v.get<double>() != std::floor(v.get<double>()) || std::abs(v.get<double>()) > 1e9)
    return std::nullopt;
  return static_cast<int64_t>(v.get<double>());
}

// C(n, k) of the unbiased pass@k estimate: 1 − Π (1 − k / i) for i in (n − c, n].
double pass_at(int64_t n, int64_t correct, int64_t k) {
  if (n - correct < k) return 1;
  double fail = 1;
  for (int64_t i = n - correct + 1; i <= n; ++i) fail *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - fail;
}

}  // namespace

DocMetrics Task::score_choices(const OrderedJson& doc, const std::vector<OrderedJson>& results) const {
  const std::vector<std::string> choices = choices_of(doc, choice_);
  const size_t n = choices.size();
  std::vector<double> ll, by_length, by_bytes, unconditional;
  std::vector<bool> greedy;
  for (size_t i = 0; i < results.size(); ++i) {
    const double v = results[i][0].get<double>();
    if (i >= n) {
      unconditional.push_back(v);
      continue;
    }
    ll.push_back(v);
    greedy.push_back(results[i][1].get<bool>());
    by_length.push_back(v / static_cast<double>(characters(choices[i])));
    by_bytes.push_back(v / static_cast<double>(choices[i].size()));
  }
  const size_t pred = arg_max(ll), pred_norm = arg_max(by_length), pred_bytes = arg_max(by_bytes);
  OrderedJson gold = multiple_input_ ? text_of(doc, text_) : target(doc);
  // Right answers by index; −100 is none of the choices.
  std::vector<int64_t> right;
  auto index_of = [&](const OrderedJson& g) -> int64_t {
    if (g.is_boolean()) return g.get<bool>() ? 1 : 0;
    if (const auto i = index(g)) return *i < static_cast<int64_t>(n) ? *i : -100;
    if (g.is_string()) {
      const auto it = std::find(choices.begin(), choices.end(), g.get<std::string>());
      return it == choices.end() ? -100 : it - choices.begin();
    }
    return -100;
  };
  if (gold.is_array())
    for (const OrderedJson& g : gold) right.push_back(index_of(g));
  else
    right.push_back(index_of(gold));
  if (right.empty()) right.push_back(-100);
  if (std::any_of(right.begin(), right.end(), [](int64_t g) { return g < 0; })) say_no_gold(name_, gold, n);
  auto is_right = [&](size_t i) {
    return std::find(right.begin(), right.end(), static_cast<int64_t>(i)) != right.end() ? 1.0 : 0.0;
  };
  bool exact = false;
  for (int64_t g : right) {
    const int64_t i = g == -1 ? static_cast<int64_t>(n) - 1 : g;
    exact |= i >= 0 && greedy[static_cast<size_t>(i)];
  }
  DocMetrics out;
  for (const Metric& m : metrics_) {
    if (m.name == "acc")
      out.emplace_back("acc", is_right(pred));
    else if (m.name == "acc_norm")
      out.emplace_back("acc_norm", is_right(pred_norm));
    else if (m.name == "acc_bytes")
      out.emplace_back("acc_bytes", is_right(pred_bytes));
    else if (m.name == "exact_match")
      out.emplace_back("exact_match", exact ? 1 : 0);
    else if (m.name == "f1" || m.name == "mcc")
      out.emplace_back(m.name, OrderedJson::array({right[0], pred}));
    else if (m.name == "brier_score")
      out.emplace_back(m.name, OrderedJson::array({right[0], softmax(ll)}));
    else if (m.name == "bypass")
      out.emplace_back(m.name, nullptr);
    else if (m.name == "acc_mutual_info") {
      std::vector<double> gain;
      for (size_t i = 0; i < n; ++i) gain.push_back(ll[i] - unconditional.at(i));
      out.emplace_back(m.name, is_right(arg_max(gain)));
    } else
      fail(fmt::format("{} is no metric of multiple_choice", m.name));
  }
  return out;
}

DocMetrics Task::score_text(const OrderedJson& doc, const OrderedJson& result, const ProgramRunner& run) const {
  OrderedJson gold = target(doc);
  if (choice_.set()) {
    const std::vector<std::string> choices = choices_of(doc, choice_);
    int64_t i = index(gold).value_or(INT64_MIN);
    if (i < 0 && i != INT64_MIN) i += static_cast<int64_t>(choices.size());  // as Python counts
    if (i < 0 || i >= static_cast<int64_t>(choices.size()))
      fail(fmt::format("doc_to_target gives {}, which is none of the {} choices", json_text(gold), choices.size()));
    gold = choices[static_cast<size_t>(i)];
  } else if (!multiple_target_) {
    gold = python_str(gold);
  }
  DocMetrics out;
  for (const Metric& m : metrics_) {
    if (m.name == "pass_at_k") {
      if (!result.is_array() || result.empty())
        fail("pass@k needs a list of programs: a filter_fn that builds them, without take_first after it");
      std::vector<std::string> programs;
      for (const OrderedJson& p : result) programs.push_back(p.get<std::string>() + "\n" + python_str(gold));
      const std::vector<bool> passed = run(programs);
      const int64_t n = static_cast<int64_t>(passed.size()), correct = std::count(passed.begin(), passed.end(), true);
      for (int64_t k : pass_at_)
        if (k <= n) out.emplace_back(fmt::format("pass@{}", k), pass_at(n, correct, k));
      continue;
    }
    if (m.name == "bypass") {
      out.emplace_back(m.name, nullptr);
      continue;
    }
    if (!result.is_string())
      fail(fmt::format("{} compares one answer, the filters leave {}: end them with take_first", m.name,
                       result.is_null() ? "nothing" : "a list"));
    if (m.name == "bleu" || m.name == "chrf" || m.name == "ter") {
      out.emplace_back(m.name, OrderedJson::array({gold, result}));
      continue;
    }
    bool any = false;
    for (const OrderedJson& g : gold.is_array() ? gold : OrderedJson::array({gold}))
      any |= exact_match(result, python_str(g), m.exact);
    out.emplace_back(m.name, any ? 1.0 : 0.0);
  }
  return out;
}

DocMetrics Task::score(const OrderedJson& doc, const std::vector<OrderedJson>& results,
                       const ProgramRunner& run) const {
  if (process_results_) return process_results_->results(doc, results);
  DocMetrics out;
  switch (type_) {
    case OutputType::kLoglikelihood:
      if (has("perplexity")) out.emplace_back("perplexity", results[0][0]);
      if (has("acc")) out.emplace_back("acc", results[0][1].get<bool>() ? 1 : 0);
      return out;
    case OutputType::kRolling: {
      const std::string text = target(doc);
      const OrderedJson words = pytext::PythonRegex("\\s+", "words").split(text).size(), bytes = text.size();
      for (const char* m : {"word_perplexity", "byte_perplexity", "bits_per_byte"})
        if (has(m))
          out.emplace_back(m,
                           OrderedJson::array({results[0], std::string_view(m) == "word_perplexity" ? words : bytes}));
      return out;
    }
    case OutputType::kMultipleChoice:
      return score_choices(doc, results);
    case OutputType::kGenerate:
      return score_text(doc, results[0], run);
  }
  return out;
}

}  // namespace mxt::eval
