// Metrics, their aggregation over documents and their standard errors, as lm-evaluation-harness defines them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace mxt::eval {

struct MetricInfo {
  std::string aggregation;  // by default
  bool higher_is_better = true;
};
// Errors: kMissing for a metric of lm-evaluation-harness that is not here (rouge, squad…), kBadInput for an unknown
// one.
MetricInfo metric_info(const std::string& metric, const std::string& where);
std::vector<std::string> default_metrics(const std::string& output_type);

// Options of exact_match in a task's metric_list.
struct ExactMatchOptions {
  std::vector<std::string> regexes_to_ignore;
  bool ignore_case = false, ignore_punctuation = false, ignore_numbers = false;
};
ExactMatchOptions exact_match_options(const OrderedJson& metric, const std::string& where);
bool exact_match(const std::string& prediction, const std::string& reference, const ExactMatchOptions& options);

// One value a document. How an aggregation's standard error is had: sd/√n for a mean, bootstrap for what resampling can
// tell, none else.
struct Aggregation {
  enum class StdErr { kNone, kMean, kBootstrap };
  std::string name;
  std::function<double(const std::vector<OrderedJson>& items)> compute;
  StdErr std_err = StdErr::kNone;
};
// mean, nanmean, median, perplexity, weighted_perplexity, bits_per_byte, f1, matthews_corrcoef, brier_score, bleu,
// chrf, ter, bypass.
Aggregation aggregation(const std::string& name, const std::string& where);

// Null where there is none ("N/A" in results): fewer than two items, or iterations = 0. The bootstrap draws what
// Python's random.Random(i).choices draws in lm-evaluation-harness (pieces of 1,000), so it is equal, not only alike.
OrderedJson standard_error(const Aggregation& a, const std::vector<OrderedJson>& items, int64_t bootstrap_iterations);

// Of a group: of means weighted by size, and of plain means.
double pooled_standard_error(const std::vector<double>& errors, const std::vector<double>& sizes);
double unweighted_standard_error(const std::vector<double>& errors);

}  // namespace mxt::eval
