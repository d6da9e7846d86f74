#include "train/methods/method.h"

#include <cmath>

namespace mxt::train {

int64_t StepRows::batch_size(int64_t batch) const {
  return std::min<int64_t>(per_batch, static_cast<int64_t>(rows.size()) - batch * per_batch);
}

void Method::begin(const StepRows& step, std::span<const double>, std::span<const double>) {
  step_ = step;
  means_.clear();
}

double Method::row_weight(int64_t row) const {
  return 1.0 / static_cast<double>(step_.batches() * step_.batch_size(step_.batch_of(row)));
}

void Method::BatchMeans::add(const std::string& name, int64_t batch, double value, double weight) {
  auto& [sum, weights] = sums_[name][batch];
  sum += weight * value;
  weights += weight;
}

double Method::BatchMeans::get(const std::string& name) const {
  const auto it = sums_.find(name);
  double total = 0;
  int64_t batches = 0;
  if (it != sums_.end())
    for (const auto& [batch, s] : it->second)
      if (s.second > 0) total += s.first / s.second, ++batches;
  return batches > 0 ? total / static_cast<double>(batches) : 0;
}

std::map<std::string, double> Method::BatchMeans::all() const {
  std::map<std::string, double> out;
  for (const auto& [name, batches] : sums_) out[name] = get(name);
  return out;
}

double log_sigmoid(double x) { return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x)); }
double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

double sum_of(std::span<const float> logp) {
  double sum = 0;
  for (float x : logp) sum += static_cast<double>(x);
  return sum;
}

std::unique_ptr<Method> make_method(const config::Method& m) {
  switch (m.kind) {
    case config::MethodKind::kDpo:
      return make_dpo(m);
    case config::MethodKind::kOrpo:
      return make_orpo(m);
    case config::MethodKind::kKto:
      return make_kto(m);
    case config::MethodKind::kReward:
      return make_reward(m);
    case config::MethodKind::kRloo:
      return make_rloo(m);
    case config::MethodKind::kPpo:
      return make_ppo(m);
    case config::MethodKind::kGrpo:
    case config::MethodKind::kGspo:
      return make_grpo(m);
    default:
      return nullptr;
  }
}

}  // namespace mxt::train
