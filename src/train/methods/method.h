// What a training method is to the trainer: which sequences a row has, what the graph ends in, and the loss with its
// derivative by what the graph gives. SFT's loss is part of the graph (fused with the head, logits never kept); every
// other method's is a few lines over the log-probabilities of a pass.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "models/model.h"
#include "train/rollouts.h"

namespace mxt::train {

// One document of a pass.
struct Sequence {
  int64_t row = 0;     // of the step
  int part = 0;        // its number within the row (of a pair: 0 chosen, 1 rejected)
  int32_t mark = 0;    // of a labelled answer: 1 good, -1 bad
  int64_t answer = 0;  // targets before this one are the prompt's (only where the method trains on prompts)
  // Of its targets in their order: ln p(target), and the same under the reference where the method has one, in nats;
  // the entropy of each one's distribution where it wants that. Of Head::kScore: one number, the sequence's score.
  std::span<const float> logp, reference, entropy;
  std::span<float> gradient;  // out: dloss/dlogp (dloss/dscore)
};

// The rows of one optimizer step, known before its first pass.
struct StepRows {
  struct Row {
    std::vector<int64_t> answer_targets;  // of each sequence
    std::vector<int64_t> targets;         // the same with the prompt's, where the method trains on prompts
    int32_t mark = 0;
  };
  std::vector<Row> rows;
  int64_t per_batch = 1;  // rows of a device batch (train.batch.per_device): some methods normalise by it
  int64_t batches() const { return (static_cast<int64_t>(rows.size()) + per_batch - 1) / per_batch; }
  int64_t batch_of(int64_t row) const { return row / per_batch; }
  int64_t batch_size(int64_t batch) const;
};

// A sequence that the method wants scored before the step, by the policy and the reference.
struct AheadSequence {
  std::vector<int32_t> ids, labels;
};

class Method {
 public:
  virtual ~Method() = default;
  virtual models::Head head() const { return models::Head::kLogProb; }
  virtual int sequences_per_row() const { return 1; }
  virtual bool has_reference() const { return false; }
  virtual bool wants_entropy() const { return false; }
  // Whether it compares what comes of an answer with an estimate of that (value_model.h). Its completions have old_logp
  // and old_values before begin() is called.
  virtual bool wants_values() const { return false; }
  // Whether the policy is scored before a step: ahead() has sequences, or old_logp is wanted.
  virtual bool scores_policy() const { return wants_values(); }
  // The part of the step's loss that the estimates for a row's answer make, and its derivative by each; as many as
  // old_values.
  virtual double value_loss(int64_t /*row*/, std::span<const float> /*values*/, std::span<float> /*gradient*/) {
    return 0;
  }
  virtual float logit_scale() const { return 1; }
  // Whether all tokens of the row's part are targets, the prompt's too.
  virtual bool trains_prompt(int /*part*/) const { return false; }
  // Of reinforcement: the step's prompts and completions, in the order of the step's rows; the method fills in their
  // advantages (and old log-probabilities, where they have none). They stay until the step has ended. `first`: the step
  // is the first on them.
  virtual void take_rollouts(std::span<Rollout>, bool /*first*/) {}
  virtual void set_ends(std::span<const int32_t> /*end tokens*/) {}
  // Of Head::kScore: the id that pads (formats::score_pad).
  void set_pad(int64_t pad) { pad_ = pad; }
  int64_t pad() const { return pad_; }
  virtual bool skips(int64_t /*row*/) const { return false; }  // of the step: no sequence for it
  // Sequences to score before the step, one a row; empty: none. `rows`: ids and labels of each row's sequence.
  virtual std::vector<AheadSequence> ahead(const StepRows&, const std::vector<AheadSequence>& /*rows*/) const {
    return {};
  }
  // Begins a step. `policy`, `reference`: of ahead()'s sequences, the sums of their targets' log-probabilities.
  virtual void begin(const StepRows& step, std::span<const double> policy, std::span<const double> reference);
  // The part of the step's loss that these sequences make; fills their gradients. All sequences of a row come together.
  // Sums are over rows in their order, so the cut into passes changes nothing.
  virtual double loss(std::span<Sequence> sequences) = 0;
  // After the step's passes: what the step's metrics.jsonl line says beside the loss, by TRL's names.
  virtual std::map<std::string, double> metrics() { return {}; }

 protected:
  // Means over the device batches of means over their rows: how TRL logs. A batch without a value for a name is left
  // out of that name's mean.
  class BatchMeans {
   public:
    void clear() { sums_.clear(); }
    void add(const std::string& name, int64_t batch, double value, double weight = 1);
    double get(const std::string& name) const;
    std::map<std::string, double> all() const;

   private:
    std::map<std::string, std::map<int64_t, std::pair<double, double>>> sums_;
  };
  const StepRows& step() const { return step_; }
  // 1 / (batches · rows of this row's batch): a mean over rows of a device batch, then over the step's batches.
  double row_weight(int64_t row) const;
  BatchMeans means_;

 private:
  StepRows step_;
  int64_t pad_ = -1;
};

// null for the methods whose loss the graph holds (full, lora, qlora, cpt, pretrain).
std::unique_ptr<Method> make_method(const config::Method& method);

// methods/NAME.cc
std::unique_ptr<Method> make_dpo(const config::Method& method);
std::unique_ptr<Method> make_orpo(const config::Method& method);
std::unique_ptr<Method> make_kto(const config::Method& method);
std::unique_ptr<Method> make_reward(const config::Method& method);
std::unique_ptr<Method> make_grpo(const config::Method& method);
std::unique_ptr<Method> make_rloo(const config::Method& method);
std::unique_ptr<Method> make_ppo(const config::Method& method);

// ln σ(x), without overflow.
double log_sigmoid(double x);
double sigmoid(double x);
// Sum of a sequence's answer.
double sum_of(std::span<const float> logp);

}  // namespace mxt::train
