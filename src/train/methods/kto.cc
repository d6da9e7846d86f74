// Kahneman-Tversky optimisation (Ethayarajh et al. 2024), as TRL computes it. With d = Σ ln π − Σ ln π₀ of an answer
// and κ = max(0, mean of d over the device batch's mismatched pairs), without gradient:
//   good  w₊ · (1 − σ(β(d − κ)))        bad  w₋ · (1 − σ(β(κ − d)))        loss: mean over the device batch's rows
// A mismatched pair is a row's prompt with the answer of the row before it in its device batch (of the first: the
// last's).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/dataset.h"
#include "train/methods/method.h"

namespace mxt::train {
namespace {

class Kto : public Method {
 public:
  explicit Kto(const config::Method& m)
      : beta_(m.beta), good_weight_(m.desirable_weight), bad_weight_(m.undesirable_weight) {}
  bool has_reference() const override { return true; }

  bool scores_policy() const override { return true; }
  std::vector<AheadSequence> ahead(const StepRows& s, const std::vector<AheadSequence>& rows) const override {
    std::vector<AheadSequence> out;
    for (int64_t i = 0; i < static_cast<int64_t>(rows.size()); ++i) {
      const int64_t first = s.batch_of(i) * s.per_batch, n = s.batch_size(s.batch_of(i));
      out.push_back(mismatch(rows[static_cast<size_t>(i)], rows[static_cast<size_t>(first + (i - first + n - 1) % n)]));
    }
    return out;
  }

  void begin(const StepRows& s, std::span<const double> policy, std::span<const double> reference) override {
    Method::begin(s, policy, reference);
    MXT_ASSERT(policy.size() == s.rows.size() && reference.size() == s.rows.size());
    kl_.assign(static_cast<size_t>(s.batches()), 0);
    for (size_t i = 0; i < s.rows.size(); ++i) {
      const int64_t batch = s.batch_of(static_cast<int64_t>(i));
      kl_[static_cast<size_t>(batch)] += (policy[i] - reference[i]) / static_cast<double>(s.batch_size(batch));
    }
    for (size_t b = 0; b < kl_.size(); ++b) {
      kl_[b] = std::max(0.0, kl_[b]);
      means_.add("kl", static_cast<int64_t>(b), kl_[b]);
    }
  }

  double loss(std::span<Sequence> all) override {
    double total = 0;
    for (Sequence& s : all) total += answer(s);
    return total;
  }

  std::map<std::string, double> metrics() override {
    std::map<std::string, double> out = means_.all();
    // Of the batches that hold both kinds.
    double margin = 0;
    int64_t both = 0;
    for (const auto& [batch, sums] : by_batch_)
      if (sums.good > 0 && sums.bad > 0) margin += sums.good_reward / sums.good - sums.bad_reward / sums.bad, ++both;
    if (both > 0) out["rewards/margins"] = margin / static_cast<double>(both);
    by_batch_.clear();
    return out;
  }

 private:
  struct Sums {
    double good = 0, bad = 0, good_reward = 0, bad_reward = 0;
  };

  // The prompt of one row, the answer of another.
  static AheadSequence mismatch(const AheadSequence& prompt, const AheadSequence& answer) {
    AheadSequence out;
    for (size_t t = 0; t < prompt.ids.size() && prompt.labels[t] == data::kNoTarget; ++t) {
      out.ids.push_back(prompt.ids[t]);
      out.labels.push_back(data::kNoTarget);
    }
    for (size_t t = 0; t < answer.ids.size(); ++t) {
      if (answer.labels[t] == data::kNoTarget) continue;
      out.ids.push_back(answer.ids[t]);
      out.labels.push_back(answer.labels[t]);
    }
    return out;
  }

  double answer(Sequence& s) {
    const double logp = sum_of(s.logp), d = logp - sum_of(s.reference);
    const int64_t batch = step().batch_of(s.row);
    const double x = beta_ * (d - kl_[static_cast<size_t>(batch)]);
    const bool good = s.mark > 0;
    const double weight = row_weight(s.row) * (good ? good_weight_ : bad_weight_);
    // d/dd of 1 − σ(±x) is ∓β σ(x) σ(−x).
    const double slope = (good ? -1 : 1) * beta_ * sigmoid(x) * sigmoid(-x);
    std::fill(s.gradient.begin(), s.gradient.end(), static_cast<float>(weight * slope));
    const double reward = beta_ * d;
    means_.add(good ? "rewards/chosen" : "rewards/rejected", batch, reward);
    means_.add(good ? "logps/chosen" : "logps/rejected", batch, logp);
    Sums& sums = by_batch_[batch];
    (good ? sums.good : sums.bad) += 1;
    (good ? sums.good_reward : sums.bad_reward) += reward;
    return weight * sigmoid(good ? -x : x);
  }

  double beta_, good_weight_, bad_weight_;
  std::vector<double> kl_;  // of each batch
  std::map<int64_t, Sums> by_batch_;
};

}  // namespace

std::unique_ptr<Method> make_kto(const config::Method& m) { return std::make_unique<Kto>(m); }

}  // namespace mxt::train
