// REINFORCE with a leave-one-out baseline (Ahmadian et al. 2024), as TRL computes it. With r the rewards of one
// prompt's k completions and Σ over a completion's tokens,
//   R = r − β·Σ(ln π_old − ln π₀)
//   A = R − (mean of the other k − 1 completions' R)          normalize_advantages: (A − mean A) / (sd A + 1e-4)
//   w = exp(Σ ln π − Σ ln π_old),  loss of a completion = −min(w·A, clip(w, 1 − ε, 1 + ε_high)·A)
// and the step's loss is their mean over device batches. A completion that nothing could score is left out of the
// means, and its A is 0.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "train/methods/group.h"

namespace mxt::train {
namespace {

class Rloo : public GroupMethod {
 public:
  using GroupMethod::GroupMethod;

  // The divergence is part of the reward, so it is needed before the step.
  bool scores_policy() const override { return has_reference(); }
  std::vector<AheadSequence> ahead(const StepRows&, const std::vector<AheadSequence>& rows) const override {
    return has_reference() ? rows : std::vector<AheadSequence>();
  }

  void begin(const StepRows& s, std::span<const double> policy, std::span<const double> reference) override {
    Method::begin(s, policy, reference);
    MXT_ASSERT(completions_.size() == s.rows.size());
    if (has_reference()) {
      double all = 0, tokens = 0;
      divergence_.assign(completions_.size(), 0);
      for (size_t i = 0; i < completions_.size(); ++i) {
        const Completion& c = *completions_[i];
        const double old = c.old_logp.empty() ? policy[i] : sum_of(c.old_logp),
                     ref = c.reference.empty() ? reference[i] : sum_of(c.reference);
        divergence_[i] = old - ref;
        all += divergence_[i];
        tokens += static_cast<double>(c.trained());
      }
      noted_["kl"] = all / std::max(tokens, 1.0);
    }
    set_advantages();
    note_completions();
  }

  double loss(std::span<Sequence> all) override {
    double total = 0;
    for (Sequence& s : all) total += completion(s);
    return total;
  }

 private:
  void set_advantages() {
    std::vector<double> rewards, advantages, deviations;
    size_t at = 0, flat = 0;
    for (const auto& group : groups_) {
      std::vector<double> penalized;
      for (size_t k = 0; k < group.size(); ++k)
        if (group[k]->reward) {
          rewards.push_back(*group[k]->reward);
          penalized.push_back(*group[k]->reward - (has_reference() ? m_.kl_coef * divergence_[at + k] : 0));
        }
      const double sum = std::accumulate(penalized.begin(), penalized.end(), 0.0);
      const auto others = static_cast<double>(penalized.size()) - 1;
      size_t next = 0;
      for (Completion* c : group) {
        c->advantage = 0;
        if (!c->reward) continue;
        const double own = penalized[next++];
        if (others > 0) c->advantage = own - (sum - own) / others;
        if (others > 0) advantages.push_back(c->advantage);
      }
      flat += penalized.size() > 1 && deviation_of(penalized) < 1e-8;
      at += group.size();
    }
    if (m_.normalize_advantages) {
      const double center = mean_of(advantages), scale = deviation_of(advantages) + 1e-4;
      for (const auto& group : groups_) {
        const auto scored = std::count_if(group.begin(), group.end(), [](const Completion* c) { return c->reward; });
        for (Completion* c : group)
          if (c->reward && scored > 1) c->advantage = (c->advantage - center) / scale;
      }
    }
    if (!rewards.empty()) {  // else nothing could be scored
      noted_["reward"] = mean_of(rewards);
      noted_["reward_std"] = deviation_of(rewards);
    }
    noted_["frac_reward_zero_std"] =
        groups_.empty() ? 0 : static_cast<double>(flat) / static_cast<double>(groups_.size());
  }

  double completion(Sequence& s) {
    const Completion& c = completion_of(s);
    const double advantage = c.advantage, low = 1 - m_.clip_range, high = 1 + m_.epsilon_high.value_or(m_.clip_range),
                 weight = row_weight(s.row);
    const double w = std::exp(sum_of(s.logp) - sum_of(c.old_logp)), clipped = std::clamp(w, low, high);
    const bool inside = w * advantage <= clipped * advantage;
    std::fill(s.gradient.begin(), s.gradient.end(), static_cast<float>(inside ? -weight * w * advantage : 0));
    const int64_t batch = step().batch_of(s.row);
    for (float x : s.entropy) means_.add("entropy", batch, static_cast<double>(x));
    const bool low_clip = w < low && advantage<0, high_clip = w> high && advantage > 0;
    means_.add("clip_ratio/low_mean", batch, low_clip);
    means_.add("clip_ratio/high_mean", batch, high_clip);
    means_.add("clip_ratio/region_mean", batch, low_clip || high_clip);
    return -weight * (inside ? w : clipped) * advantage;
  }

  std::vector<double> divergence_;  // from the reference, of each completion: Σ(ln π_old − ln π₀)
};

}  // namespace

std::unique_ptr<Method> make_rloo(const config::Method& m) { return std::make_unique<Rloo>(m); }

}  // namespace mxt::train
