#include "train/methods/group.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace mxt::train {

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (double x : values) sum += x;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double deviation_of(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double m = mean_of(values);
  double sum = 0;
  for (double x : values) sum += (x - m) * (x - m);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

void GroupMethod::take_rollouts(std::span<Rollout> rollouts, bool first) {
  first_ = first;
  completions_.clear();
  groups_.clear();
  noted_.clear();
  for (Rollout& r : rollouts) {
    groups_.emplace_back();
    for (Completion& c : r.completions) {
      completions_.push_back(&c);
      groups_.back().push_back(&c);
    }
  }
}

std::map<std::string, double> GroupMethod::metrics() {
  std::map<std::string, double> out = means_.all();
  for (const auto& [name, value] : noted_) out[name] = value;
  return out;
}

bool GroupMethod::is_cut(const Completion& c) const {
  return !ends_.empty() && std::find(ends_.begin(), ends_.end(), c.ids.back()) == ends_.end();
}

void GroupMethod::note_completions() {
  double length = 0, least = INFINITY, most = 0, cut = 0;
  int64_t calls = 0, failed = 0;
  std::map<std::string, std::vector<double>> rewards;
  for (const Completion* c : completions_) {
    const auto n = static_cast<double>(c->trained());
    length += n;
    least = std::min(least, n), most = std::max(most, n);
    cut += is_cut(*c);
    calls += c->calls, failed += c->failed_calls;
    for (const auto& [name, value] : c->rewards) rewards[name].push_back(value);
  }
  const auto count = static_cast<double>(completions_.size());
  noted_["completions/mean_length"] = length / count;
  noted_["completions/min_length"] = least;
  noted_["completions/max_length"] = most;
  noted_["completions/clipped_ratio"] = cut / count;
  if (!m_.tools.empty()) {
    noted_["tools/call_frequency"] = static_cast<double>(calls) / count;
    noted_["tools/failure_frequency"] = calls > 0 ? static_cast<double>(failed) / static_cast<double>(calls) : 0;
  }
  for (const auto& [name, values] : rewards) {
    noted_["rewards/" + name + "/mean"] = mean_of(values);
    noted_["rewards/" + name + "/std"] = deviation_of(values);
  }
}

Completion& GroupMethod::completion_of(const Sequence& s) {
  Completion& c = *completions_[static_cast<size_t>(s.row)];
  MXT_ASSERT(static_cast<int64_t>(s.logp.size()) == c.trained());
  if (c.old_logp.empty()) c.old_logp.assign(s.logp.begin(), s.logp.end());  // on policy: the ratio is 1
  const auto note = [&](const char* name, std::span<const float> a, std::span<const float> b) {
    for (size_t t = 0; t < a.size(); ++t)
      means_.add(name, step().batch_of(s.row), static_cast<double>(a[t]) - static_cast<double>(b[t]));
  };
  // Before the first step on its completions the policy is the one that they are of: ratios are of what counts as their
  // log-probabilities, and this is how far those are from the ones that are differentiated. Training's own count where
  // none were given, whatever was drawn from; how far that is from them stands apart.
  if (first_) note("sampler_trainer_kl", c.old_logp, s.logp);
  note("sampler_difference", c.sampled_logp, c.old_logp);
  return c;
}

}  // namespace mxt::train
