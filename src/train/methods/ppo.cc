// Proximal policy optimisation (Schulman et al. 2017; with a reward at the end, Ouyang et al. 2022), by TRL's
// definition of its last PPOTrainer. Of an answer with n tokens, V_t being the estimate before token t and V_n that
// after the last:
//   r_t = −β·(ln π_old − ln π₀)_t, and the answer's reward on top of r_n (of r_{n−1} where it was cut off, whose state
//         n was never reached)
//   δ_t = r_t + γ·V_{t+1} − V_t,   Â_t = δ_t + γλ·Â_{t+1},   R_t = Â_t + V_t
//   A   = (Â − mean Â)/√(var Â + 1e-8) over the tokens of the step, var with n − 1
//   policy loss of a token  max(−A·w, −A·clip(w, 1 − ε, 1 + ε)),  w = exp(ln π − ln π_old)
//   value loss of a state   ½·max((V − R)², (clip(V, V_old ± ε) − R)²)
// each a mean over a device batch, then over the step's; the loss is their sum, the value's by its weight. Two models
// train, each by its own part: the policy, and the one that V is the score of (value_model.h).
// Tokens are the policy's own: what tools said in an answer (Completion::own) is the world's doing between two of them,
// so it has no reward, advantage, estimate or loss, and the state before the next own token has read it.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "train/methods/group.h"

namespace mxt::train {
namespace {

class Ppo : public GroupMethod {
 public:
  explicit Ppo(const config::Method& m) : GroupMethod(m) {}
  bool wants_values() const override { return true; }

  void begin(const StepRows& s, std::span<const double> policy, std::span<const double> reference) override {
    Method::begin(s, policy, reference);
    MXT_ASSERT(completions_.size() == s.rows.size());
    estimate();
    whiten();
    count();
    note_completions();
  }

  double loss(std::span<Sequence> all) override {
    double total = 0;
    for (Sequence& s : all) total += completion(s);
    return total;
  }

  double value_loss(int64_t row, std::span<const float> values, std::span<float> gradient) override {
    const Completion& c = *completions_[static_cast<size_t>(row)];
    const Trajectory& t = trajectories_[static_cast<size_t>(row)];
    const int64_t batch = step().batch_of(row);
    const double per_state =
        m_.value_coef / (static_cast<double>(step().batches()) * states_[static_cast<size_t>(batch)]);
    double sum = 0;
    for (size_t k = 0; k < t.rewards.size(); ++k) {
      const double v = static_cast<double>(values[k]), old = static_cast<double>(c.old_values[k]), r = t.returns[k];
      const double held = std::clamp(v, old - m_.clip_range, old + m_.clip_range);
      const double plain_loss = (v - r) * (v - r), held_loss = (held - r) * (held - r);
      sum += 0.5 * std::max(plain_loss, held_loss);
      gradient[k] = plain_loss >= held_loss ? static_cast<float>(per_state * (v - r)) : 0;
      means_.add("loss/value_avg", batch, 0.5 * std::max(plain_loss, held_loss));
      means_.add("val/clipfrac_avg", batch, held_loss > plain_loss ? 1 : 0);
    }
    return per_state * sum;
  }

 private:
  struct Trajectory {
    std::vector<double> rewards, advantages, returns;  // one a state; advantages of tokens are whitened
  };

  // States that an answer went through: one a token, and the one behind the last where it ended by itself, not amid
  // what a tool said.
  size_t states_of(const Completion& c) const {
    const bool result = !c.own.empty() && !c.own.back(), cut = result || is_cut(c);
    return tokens_of(c) + (static_cast<int64_t>(c.ids.size()) < m_.max_new_tokens && !cut ? 1 : 0);
  }
  static size_t tokens_of(const Completion& c) { return static_cast<size_t>(c.trained()); }

  void estimate() {
    trajectories_.assign(completions_.size(), {});
    std::vector<double> all_scores, divergences, non_score;
    for (size_t i = 0; i < completions_.size(); ++i) {
      const Completion& c = *completions_[i];
      const size_t n = tokens_of(c);
      MXT_ASSERT(c.old_logp.size() == n && c.old_values.size() == n + 1 &&
                 (m_.kl_coef == 0 || c.reference.size() == n));
      Trajectory& t = trajectories_[i];
      t.rewards.assign(states_of(c), 0.0);
      double divergence = 0;
      for (size_t k = 0; k < n && m_.kl_coef > 0; ++k) {
        const double kl = static_cast<double>(c.old_logp[k]) - static_cast<double>(c.reference[k]);
        t.rewards[k] = -m_.kl_coef * kl;
        divergence += kl;
      }
      divergences.push_back(divergence);
      non_score.push_back(-m_.kl_coef * divergence);
      const double score = c.reward.value_or(0);
      all_scores.push_back(score);
      t.rewards.back() += score;
    }
    for (size_t i = 0; i < completions_.size(); ++i) add_up(*completions_[i], trajectories_[i]);
    noted_["reward"] = mean_of(all_scores);
    noted_["reward_std"] = deviation_of(all_scores);
    noted_["objective/scores"] = mean_of(all_scores);
    noted_["objective/rlhf_reward"] = mean_of(all_scores) + mean_of(non_score);
    if (m_.kl_coef == 0) return;  // nobody was asked
    noted_["objective/kl"] = mean_of(divergences);
    noted_["objective/non_score_reward"] = mean_of(non_score);
  }

  static double inverse_deviation(const std::vector<double>& of) {
    const double d = deviation_of(of);
    return 1 / std::sqrt(d * d + 1e-8);
  }

  void add_up(const Completion& c, Trajectory& t) const {
    const size_t states = t.rewards.size();
    t.advantages.resize(states);
    t.returns.resize(states);
    double later = 0, next = 0;
    for (size_t k = states; k-- > 0;) {
      const double value = static_cast<double>(c.old_values[k]);
      later = t.rewards[k] + m_.gamma * next - value + m_.gamma * m_.gae_lambda * later;
      t.advantages[k] = later;
      t.returns[k] = later + value;
      next = value;
    }
  }

  void whiten() {
    std::vector<double> all;
    for (size_t i = 0; i < completions_.size(); ++i)
      all.insert(all.end(), trajectories_[i].advantages.begin(),
                 trajectories_[i].advantages.begin() + static_cast<ptrdiff_t>(tokens_of(*completions_[i])));
    const double mean = mean_of(all), scale = inverse_deviation(all);
    for (size_t i = 0; i < completions_.size(); ++i) {
      Completion& c = *completions_[i];
      for (double& a : trajectories_[i].advantages) a = (a - mean) * scale;
      c.advantage = mean_of(std::span(trajectories_[i].advantages).first(tokens_of(c)));
    }
  }

  void count() {
    tokens_.assign(static_cast<size_t>(step().batches()), 0);
    states_ = tokens_;
    for (size_t i = 0; i < completions_.size(); ++i) {
      const auto b = static_cast<size_t>(step().batch_of(static_cast<int64_t>(i)));
      tokens_[b] += static_cast<double>(tokens_of(*completions_[i]));
      states_[b] += static_cast<double>(trajectories_[i].rewards.size());
    }
  }

  double completion(Sequence& s) {
    const Completion& c = completion_of(s);
    const Trajectory& t = trajectories_[static_cast<size_t>(s.row)];
    const int64_t batch = step().batch_of(s.row);
    const double per_token = 1 / (static_cast<double>(step().batches()) * tokens_[static_cast<size_t>(batch)]);
    double policy = 0;
    for (size_t k = 0; k < s.logp.size(); ++k) {
      const double d = static_cast<double>(s.logp[k]) - static_cast<double>(c.old_logp[k]), w = std::exp(d);
      const double plain = -t.advantages[k] * w,
                   held = -t.advantages[k] * std::clamp(w, 1 - m_.clip_range, 1 + m_.clip_range);
      policy += std::max(plain, held);
      s.gradient[k] = plain >= held ? static_cast<float>(per_token * plain) : 0;
      means_.add("loss/policy_avg", batch, std::max(plain, held));
      means_.add("policy/approxkl_avg", batch, 0.5 * d * d);
      means_.add("policy/clipfrac_avg", batch, held > plain ? 1 : 0);
      means_.add("val/ratio", batch, w);
      means_.add("entropy", batch, static_cast<double>(s.entropy[k]));
    }
    return per_token * policy;
  }

  std::vector<Trajectory> trajectories_;  // in the order of completions_
  std::vector<double> tokens_, states_;   // of each device batch
};

}  // namespace

std::unique_ptr<Method> make_ppo(const config::Method& m) { return std::make_unique<Ppo>(m); }

}  // namespace mxt::train
