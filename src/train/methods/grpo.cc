// Group relative policy optimisation (Shao et al. 2024) and its kin, as TRL computes them: GSPO (Zheng et al. 2025),
// DAPO (Yu et al. 2025), Dr. GRPO (Liu et al. 2025), the bound δ of INTELLECT-2 (2025). With r the rewards of one
// prompt's completions,
//   A = (r − mean r) / (sd r + 1e-4)         sd over the group with n − 1, or over the step, or none
//   w = exp(ln π − ln π_old) a token, or exp of its mean over the completion (GSPO)
//   loss of a token = −min(min(w, δ)·A, clip(w, 1 − ε, 1 + ε_high)·A) + β·k3·(w or 1),  k3 = eᵈ − d − 1, d = ln π₀ − ln
//   π
// and the step's loss is these by loss_type: dapo: over all tokens of the step; grpo: means of completions, then their
// mean; bnpo: over the tokens of a device batch; dr_grpo: sum / (completions · longest that was allowed).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "train/methods/group.h"

namespace mxt::train {
namespace {

constexpr const char* kClipShares[] = {"clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"};

class Grpo : public GroupMethod {
 public:
  explicit Grpo(const config::Method& m)
      : GroupMethod(m), sequence_level_(m.kind == config::MethodKind::kGspo), beta_(m.kl_coef) {}

  void take_rollouts(std::span<Rollout> rollouts, bool first) override {
    GroupMethod::take_rollouts(rollouts, first);
    set_advantages();
  }

  // Whether a completion is trained on at all.
  bool masked(const Completion& c) const { return m_.mask_truncated_completions && is_cut(c); }
  bool skips(int64_t row) const override { return masked(*completions_[static_cast<size_t>(row)]); }

  void begin(const StepRows& s, std::span<const double> policy, std::span<const double> reference) override {
    Method::begin(s, policy, reference);
    MXT_ASSERT(completions_.size() == s.rows.size());
    batch_tokens_.assign(static_cast<size_t>(s.batches()), 0);
    tokens_ = 0;
    for (size_t i = 0; i < s.rows.size(); ++i) {
      if (masked(*completions_[i])) {
        if (sequence_level_)  // shares of answers are of all of them
          for (const char* name : kClipShares) means_.add(name, s.batch_of(static_cast<int64_t>(i)), 0);
        continue;
      }
      const int64_t n = completions_[i]->trained();
      tokens_ += n;
      batch_tokens_[static_cast<size_t>(s.batch_of(static_cast<int64_t>(i)))] += n;
    }
    for (int64_t b = 0; b < s.batches(); ++b)  // a batch without a trained token counts in the means
      if (batch_tokens_[static_cast<size_t>(b)] == 0) {
        means_.add("entropy", b, 0);
        for (const char* name : kClipShares) means_.add(name, b, 0);
        if (beta_ > 0) means_.add("kl", b, 0);
      }
    note_completions();
  }

  double loss(std::span<Sequence> all) override {
    double total = 0;
    for (Sequence& s : all) total += completion(s);
    return total;
  }

 private:
  using LossType = config::GrpoLoss;
  using Scale = config::ScaleRewards;

  void set_advantages() {
    constexpr double kEps = 1e-4;
    std::vector<double> every, deviations;
    int64_t flat = 0;
    std::vector<std::vector<double>> rewards;  // of each group
    for (const auto& group : groups_) {
      std::vector<double> known;
      for (const Completion* c : group)
        if (c->reward) known.push_back(*c->reward), every.push_back(*c->reward);
      deviations.push_back(deviation_of(known));
      rewards.push_back(std::move(known));
    }
    const double whole = deviation_of(every);
    for (size_t i = 0; i < rewards.size(); ++i)
      flat += m_.scale_rewards == Scale::kBatch ? whole < 1e-8 : rewards[i].size() > 1 && deviations[i] < 1e-8;
    for (size_t i = 0; i < groups_.size(); ++i) {
      const double center = mean_of(rewards[i]);
      const double scale = m_.scale_rewards == Scale::kGroup   ? deviations[i] + kEps
                           : m_.scale_rewards == Scale::kBatch ? whole + kEps
                                                               : 1;
      for (Completion* c : groups_[i]) c->advantage = c->reward ? (*c->reward - center) / scale : 0;
    }
    if (!every.empty()) {  // else nothing could be scored
      noted_["reward"] = mean_of(every);
      noted_["reward_std"] = whole;
    }
    noted_["frac_reward_zero_std"] =
        groups_.empty() ? 0 : static_cast<double>(flat) / static_cast<double>(groups_.size());
  }

  // What a completion's summed token losses are multiplied with.
  double share(const Sequence& s, int64_t batch) const {
    const auto n = static_cast<double>(s.logp.size());
    switch (m_.loss_type) {
      case LossType::kDapo:
        return 1 / static_cast<double>(tokens_);
      case LossType::kGrpo:
        return row_weight(s.row) / n;
      case LossType::kBnpo:
        return 1 /
               (static_cast<double>(step().batches()) * static_cast<double>(batch_tokens_[static_cast<size_t>(batch)]));
      case LossType::kDrGrpo:
        return row_weight(s.row) / static_cast<double>(m_.max_new_tokens);
    }
    return 0;
  }

  double completion(Sequence& s) {
    const Completion& c = completion_of(s);
    const size_t n = s.logp.size();
    const double advantage = c.advantage, low = 1 - m_.clip_range, high = 1 + m_.epsilon_high.value_or(m_.clip_range);
    const double most = m_.delta.value_or(INFINITY);  // without it a bad answer's ratio has no bound above
    const int64_t batch = step().batch_of(s.row);
    const double per = share(s, batch);
    double mean_log_ratio = 0;
    for (size_t t = 0; t < n; ++t)
      mean_log_ratio += (static_cast<double>(s.logp[t]) - static_cast<double>(c.old_logp[t])) / static_cast<double>(n);
    double value = 0, by_sequence_ratio = 0;
    for (size_t t = 0; t < n; ++t) {
      const double logp = static_cast<double>(s.logp[t]);
      const double w = std::exp(sequence_level_ ? mean_log_ratio : logp - static_cast<double>(c.old_logp[t]));
      const double bounded = std::min(w, most), clipped = std::clamp(w, low, high);
      const bool inside = bounded * advantage <= clipped * advantage;
      double token = -(inside ? bounded : clipped) * advantage;
      // By ln w, and by this token's ln π alone.
      double by_ratio = inside && w <= most ? -w * advantage : 0, own = 0;
      const bool low_clip = w < low && advantage<0, high_clip = w> high && advantage > 0;
      double k3 = 0;
      if (beta_ > 0) {
        const double d = static_cast<double>(s.reference[t]) - logp;
        k3 = std::exp(d) - d - 1;
        const double factor = m_.use_bias_correction_kl ? w : 1;
        own += beta_ * factor * (1 - std::exp(d));
        k3 *= factor;
        if (m_.use_bias_correction_kl) by_ratio += beta_ * k3;
        token += beta_ * k3;
      }
      value += token;
      if (sequence_level_)
        by_sequence_ratio += by_ratio;
      else
        own += by_ratio;
      s.gradient[t] = static_cast<float>(per * own);
      if (beta_ > 0) means_.add("kl", batch, k3);
      means_.add("entropy", batch, static_cast<double>(s.entropy[t]));
      if (!sequence_level_ || t == 0) {
        means_.add("clip_ratio/low_mean", batch, low_clip);
        means_.add("clip_ratio/high_mean", batch, high_clip);
        means_.add("clip_ratio/region_mean", batch, low_clip || high_clip);
      }
    }
    if (sequence_level_)  // d mean/d ln π of a token is 1/n
      for (size_t t = 0; t < n; ++t)
        s.gradient[t] =
            static_cast<float>(static_cast<double>(s.gradient[t]) + per * by_sequence_ratio / static_cast<double>(n));
    return per * value;
  }

  bool sequence_level_;
  double beta_;
  std::vector<int64_t> batch_tokens_;
  int64_t tokens_ = 0;
};

}  // namespace

std::unique_ptr<Method> make_grpo(const config::Method& m) { return std::make_unique<Grpo>(m); }

}  // namespace mxt::train
