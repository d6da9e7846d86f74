// What methods share whose completions are measured against the others to the same prompt.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "train/methods/method.h"

namespace mxt::train {

double mean_of(std::span<const double> values);       // of none 0
double deviation_of(std::span<const double> values);  // with n − 1; of fewer than two 0

class GroupMethod : public Method {
 public:
  explicit GroupMethod(const config::Method& m) : m_(m) {}
  bool has_reference() const override { return m_.kl_coef > 0; }
  bool wants_entropy() const override { return true; }
  float logit_scale() const override { return static_cast<float>(1.0 / m_.temperature); }
  void take_rollouts(std::span<Rollout> rollouts, bool first) override;
  void set_ends(std::span<const int32_t> ends) override { ends_.assign(ends.begin(), ends.end()); }
  std::map<std::string, double> metrics() override;

 protected:
  using Groups = std::vector<std::vector<Completion*>>;
  bool is_cut(const Completion& c) const;  // it ends without an end token; false where none are known
  // Of the step's completions: lengths, and each reward by its name.
  void note_completions();
  // The completion that a sequence of the step is. Its old log-probabilities are this pass's where it has none.
  Completion& completion_of(const Sequence& s);

  config::Method m_;
  std::vector<Completion*> completions_;  // in the order of the step's rows
  Groups groups_;
  std::map<std::string, double> noted_;  // of the step, beside the means over batches
 private:
  std::vector<int32_t> ends_;
  bool first_ = true;  // of the steps on these completions
};

}  // namespace mxt::train
