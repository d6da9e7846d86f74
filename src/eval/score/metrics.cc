#include "eval/score/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/threads.h"
#include "eval/python/literal.h"
#include "eval/python/random.h"
#include "eval/score/translation.h"
#include "pytext/python_regex.h"

namespace mxt::eval {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double number(const OrderedJson& v) {
  if (v.is_boolean()) return v.get<bool>() ? 1 : 0;
  return v.is_number() ? v.get<double>() : kNan;
}

// Plain loops over doubles, so that a bootstrap of 100,000 rounds is quick. Items of two numbers stand one after the
// other.
using Numbers = std::vector<double>;

double mean(const double* x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += x[i];
  return sum / static_cast<double>(n);
}

double weighted_mean(const Numbers& pairs) {
  double a = 0, b = 0;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) a += pairs[i], b += pairs[i + 1];
  return a / b;
}

// F1 of class 1 among two (scikit-learn's default); gold and prediction alternate.
double f1(const Numbers& pairs) {
  double both = 0, gold = 0, predicted = 0;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    both += pairs[i] == 1 && pairs[i + 1] == 1;
    gold += pairs[i] == 1;
    predicted += pairs[i + 1] == 1;
  }
  return gold + predicted > 0 ? 2 * both / (gold + predicted) : 0;
}

// Matthews' coefficient over any number of classes (scikit-learn's formula over the confusion matrix).
double matthews(const Numbers& pairs) {
  std::map<double, double> gold, predicted;
  double correct = 0;
  const double n = static_cast<double>(pairs.size() / 2);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    gold[pairs[i]] += 1;
    predicted[pairs[i + 1]] += 1;
    correct += pairs[i] == pairs[i + 1];
  }
  double cross = 0, gg = 0, pp = 0;
  for (const auto& [c, count] : gold) {
    gg += count * count;
    if (const auto it = predicted.find(c); it != predicted.end()) cross += count * it->second;
  }
  for (const auto& [c, count] : predicted) pp += count * count;
  const double below = (n * n - pp) * (n * n - gg);
  return below == 0 ? 0 : (correct * n - cross) / std::sqrt(below);
}

// A metric of single numbers under an aggregation of pairs: a task file can name that.
void check_pair(const OrderedJson& item, const char* aggregation, const char* second) {
  if (!item.is_array() || item.size() != 2)
    fail_input("aggregation {}: wants a reference and {} of each document, the metric gives {}", aggregation, second,
               item.dump().substr(0, 60));
}

double brier(const std::vector<OrderedJson>& items) {
  double sum = 0;
  for (const OrderedJson& item : items) {
    check_pair(item, "brier_score", "probabilities");
    if (!item[0].is_number_integer() || !item[1].is_array())
      fail_input("aggregation brier_score: wants the index of the right choice and probabilities, the metric gives {}",
                 item.dump().substr(0, 60));
    const int64_t gold = item[0].get<int64_t>();
    for (size_t c = 0; c < item[1].size(); ++c) {
      const double d = item[1][c].get<double>() - (static_cast<int64_t>(c) == gold ? 1 : 0);
      sum += d * d;
    }
  }
  return sum / static_cast<double>(items.size());
}

struct Kernel {
  size_t width = 1;  // numbers an item
  double (*compute)(const Numbers&) = nullptr;
  // Of items that are a reference (or a list of them) and a text: the numbers that such an item comes to.
  Numbers (*of_text)(const std::string&, const std::vector<std::string>&) = nullptr;
};

Kernel kernel(const std::string& name) {
  if (name == "mean") return {1, [](const Numbers& x) { return mean(x.data(), x.size()); }};
  if (name == "nanmean")
    return {1, [](const Numbers& x) {
              double sum = 0, n = 0;
              for (double v : x)
                if (!std::isnan(v)) sum += v, ++n;
              return n > 0 ? sum / n : kNan;
            }};
  if (name == "median")
    return {1, [](const Numbers& x) {
              Numbers s = x;
              std::nth_element(s.begin(), s.begin() + static_cast<ptrdiff_t>(s.size() / 2), s.end());
              return s[s.size() / 2];
            }};
  if (name == "perplexity") return {1, [](const Numbers& x) { return std::exp(-mean(x.data(), x.size())); }};
  if (name == "weighted_perplexity") return {2, [](const Numbers& x) { return std::exp(-weighted_mean(x)); }};
  if (name == "bits_per_byte") return {2, [](const Numbers& x) { return -weighted_mean(x) / std::log(2.0); }};
  if (name == "f1") return {2, f1};
  if (name == "bleu") return {kBleuSums, bleu_score, bleu_sums};
  if (name == "chrf") return {kChrfSums, chrf_score, chrf_sums};
  if (name == "ter") return {kTerSums, ter_score, ter_sums};
  if (name == "matthews_corrcoef") return {2, matthews};
  return {};
}

Numbers flatten(const std::vector<OrderedJson>& items, const Kernel& k) {
  const size_t width = k.width;
  Numbers out;
  out.reserve(items.size() * width);
  for (const OrderedJson& item : items) {
    if (k.of_text) {
      check_pair(item, "bleu, chrf and ter", "an answer");
      if (!item[1].is_string())
        fail_input("aggregation bleu, chrf and ter: an answer is text, not {}", item[1].dump().substr(0, 60));
      const OrderedJson references = item[0].is_array() ? item[0] : OrderedJson::array({item[0]});
      const Numbers sums = k.of_text(item[1].get<std::string>(), references.get<std::vector<std::string>>());
      out.insert(out.end(), sums.begin(), sums.end());
    } else if (width == 1)
      out.push_back(number(item));
    else
      for (size_t k = 0; k < width; ++k)
        out.push_back(item.is_array() && item.size() == width ? number(item[k]) : kNan);
  }
  return out;
}

double sample_deviation(const Numbers& x) {
  const double mu = mean(x.data(), x.size());
  double sum = 0;
  for (double v : x) sum += (v - mu) * (v - mu);
  return std::sqrt(sum / static_cast<double>(x.size() - 1));
}

const std::map<std::string, MetricInfo> kMetrics = {
    {"acc", {"mean", true}},
    {"acc_norm", {"mean", true}},
    {"acc_bytes", {"mean", true}},
    {"acc_mutual_info", {"mean", true}},
    {"exact_match", {"mean", true}},
    {"perplexity", {"perplexity", false}},
    {"word_perplexity", {"weighted_perplexity", false}},
    {"byte_perplexity", {"weighted_perplexity", false}},
    {"bits_per_byte", {"bits_per_byte", false}},
    {"f1", {"f1", true}},
    {"mcc", {"matthews_corrcoef", true}},
    {"brier_score", {"brier_score", false}},
    {"bleu", {"bleu", true}},
    {"chrf", {"chrf", true}},
    {"ter", {"ter", false}},
    {"bypass", {"bypass", true}},
};

}  // namespace

MetricInfo metric_info(const std::string& metric, const std::string& where) {
  if (const auto it = kMetrics.find(metric); it != kMetrics.end()) return it->second;
  for (const char* absent :
       {"chrf++", "likelihood", "acc_all", "rouge1", "rouge2", "rougeL", "squad", "squad_v2", "code_eval"})
    if (metric == absent)
      fail_missing("{}: the metric {} is not supported here; remove it from metric_list", where, metric);
  fail_input("{}: no metric is named {}", where, metric);
}

std::vector<std::string> default_metrics(const std::string& output_type) {
  if (output_type == "loglikelihood") return {"perplexity", "acc"};
  if (output_type == "loglikelihood_rolling") return {"word_perplexity", "byte_perplexity", "bits_per_byte"};
  if (output_type == "multiple_choice") return {"acc", "acc_norm"};
  return {"exact_match"};
}

ExactMatchOptions exact_match_options(const OrderedJson& metric, const std::string& where) {
  ExactMatchOptions o;
  for (const auto& [k, v] : metric.items()) {
    if (k == "metric" || k == "aggregation" || k == "higher_is_better" || k == "hf_evaluate") continue;
    auto flag = [&](bool& to) {
      if (!v.is_boolean()) fail_input("{}: {} is true or false", where, k);
      to = v;
    };
    if (k == "ignore_case")
      flag(o.ignore_case);
    else if (k == "ignore_punctuation")
      flag(o.ignore_punctuation);
    else if (k == "ignore_numbers")
      flag(o.ignore_numbers);
    else if (k == "regexes_to_ignore") {
      if (v.is_null()) continue;
      if (!v.is_array()) fail_input("{}: regexes_to_ignore is a list", where);
      for (const OrderedJson& r : v) {
        if (!r.is_string()) fail_input("{}: regexes_to_ignore holds text, not {}", where, r.dump());
        o.regexes_to_ignore.push_back(r);
      }
    } else {
      fail_input("{}: exact_match has no option {}", where, k);
    }
  }
  return o;
}

bool exact_match(const std::string& prediction, const std::string& reference, const ExactMatchOptions& o) {
  std::string sides[2] = {prediction, reference};
  for (std::string& s : sides) {
    for (const std::string& r : o.regexes_to_ignore) s = pytext::PythonRegex(r, "regexes_to_ignore").sub("", s);
    if (o.ignore_case) s = lower(s);
    auto remove = [&](std::string_view set) {
      std::erase_if(s, [&](char c) { return set.find(c) != std::string_view::npos; });
    };
    if (o.ignore_punctuation) remove("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~");
    if (o.ignore_numbers) remove("0123456789");
  }
  return sides[0] == sides[1];
}

Aggregation aggregation(const std::string& name, const std::string& where) {
  Aggregation a;
  a.name = name;
  if (name == "bypass") {
    a.compute = [](const std::vector<OrderedJson>&) { return 999.0; };
    return a;
  }
  if (name == "brier_score") {
    a.compute = brier;
    return a;
  }
  const Kernel k = kernel(name);
  if (!k.compute) {
    if (name == "chrf++") fail_missing("{}: the aggregation {} is not supported here", where, name);
    fail_input("{}: no aggregation is named {}", where, name);
  }
  a.compute = [k](const std::vector<OrderedJson>& items) { return k.compute(flatten(items, k)); };
  if (name == "mean") a.std_err = Aggregation::StdErr::kMean;
  for (const char* b : {"median", "matthews_corrcoef", "f1", "perplexity", "nanmean", "bleu", "chrf", "ter"})
    if (name == b) a.std_err = Aggregation::StdErr::kBootstrap;
  return a;
}

OrderedJson standard_error(const Aggregation& a, const std::vector<OrderedJson>& items, int64_t iterations) {
  if (items.size() < 2 || iterations <= 0 || a.std_err == Aggregation::StdErr::kNone) return nullptr;
  const Kernel k = kernel(a.name);
  const Numbers all = flatten(items, k);
  if (a.std_err == Aggregation::StdErr::kMean)
    return sample_deviation(all) / std::sqrt(static_cast<double>(items.size()));
  if (k.of_text) iterations = std::min<int64_t>(iterations, 100);  // the harness's limit for these
  const int64_t piece = std::min<int64_t>(1000, iterations), pieces = iterations / piece;
  Numbers estimates(static_cast<size_t>(piece * pieces));
  parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
    std::vector<size_t> picks(items.size());
    Numbers drawn(all.size());
    for (int64_t p = begin; p < end; ++p) {
      PythonRandom random(static_cast<uint64_t>(p));
      for (int64_t i = 0; i < piece; ++i) {
        random.choices(items.size(), picks);
        for (size_t j = 0; j < picks.size(); ++j)
          for (size_t w = 0; w < k.width; ++w) drawn[j * k.width + w] = all[picks[j] * k.width + w];
        estimates[static_cast<size_t>(p * piece + i)] = k.compute(drawn);
      }
    }
  });
  return sample_deviation(estimates);
}

double pooled_standard_error(const std::vector<double>& errors, const std::vector<double>& sizes) {
  double sum = 0, total = 0;
  for (size_t i = 0; i < errors.size(); ++i) {
    sum += (sizes[i] - 1) * errors[i] * errors[i] * sizes[i];
    total += sizes[i];
  }
  return std::sqrt(sum / (total - static_cast<double>(sizes.size())) / total);
}

double unweighted_standard_error(const std::vector<double>& errors) {
  double sum = 0;
  for (double e : errors) sum += e * e;
  return std::sqrt(sum) / static_cast<double>(errors.size());
}

}  // namespace mxt::eval
