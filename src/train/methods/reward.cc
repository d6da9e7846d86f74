// A reward model (Bradley & Terry 1952; Ouyang et al. 2022): with c, r the scores of the chosen and the rejected
// answer,
//   loss = mean over pairs of −ln σ(c − r) + a·(c + r)²
// where a = center_rewards keeps scores around 0 (Eisenstein et al. 2023).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "train/methods/method.h"

namespace mxt::train {
namespace {

class RewardModel : public Method {
 public:
  explicit RewardModel(const config::Method& m) : center_(m.center_rewards) {}
  models::Head head() const override { return models::Head::kScore; }
  int sequences_per_row() const override { return 2; }

  void begin(const StepRows& s, std::span<const double> policy, std::span<const double> reference) override {
    Method::begin(s, policy, reference);
    least_.clear();
    most_.clear();
  }

  double loss(std::span<Sequence> all) override {
    double total = 0;
    for (size_t i = 0; i + 1 < all.size(); i += 2) total += pair(all[i], all[i + 1]);
    return total;
  }

  std::map<std::string, double> metrics() override {
    std::map<std::string, double> out = means_.all();
    const auto mean = [](const std::map<int64_t, double>& of) {
      double sum = 0;
      for (const auto& [batch, x] : of) sum += x;
      return of.empty() ? 0 : sum / static_cast<double>(of.size());
    };
    out["min_reward"] = mean(least_);
    out["max_reward"] = mean(most_);
    return out;
  }

 private:
  double pair(Sequence& chosen, Sequence& rejected) {
    const double c = static_cast<double>(chosen.logp[0]), r = static_cast<double>(rejected.logp[0]);
    const double weight = row_weight(chosen.row), sum = c + r;
    const double by_margin = -weight * sigmoid(r - c), by_sum = 2 * weight * center_ * sum;
    chosen.gradient[0] = static_cast<float>(by_margin + by_sum);
    rejected.gradient[0] = static_cast<float>(-by_margin + by_sum);
    const int64_t batch = step().batch_of(chosen.row);
    means_.add("accuracy", batch, c > r ? 1 : 0);
    means_.add("margin", batch, c - r);
    for (const double x : {c, r}) {
      means_.add("mean_reward", batch, x);
      least_[batch] = least_.contains(batch) ? std::min(least_[batch], x) : x;
      most_[batch] = most_.contains(batch) ? std::max(most_[batch], x) : x;
    }
    return weight * (-log_sigmoid(c - r) + center_ * sum * sum);
  }

  double center_;
  std::map<int64_t, double> least_, most_;
};

}  // namespace

std::unique_ptr<Method> make_reward(const config::Method& m) { return std::make_unique<RewardModel>(m); }

}  // namespace mxt::train
