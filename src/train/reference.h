// What a method compares its policy with: the policy as it was before the first step, which is the base with a fresh
// adapter (its B is zero), the adapter that training starts from, or the starting weights of full training. Its
// log-probabilities are computed once, ahead of time, and kept in a file that names what they were made of; or its
// weights are kept, and asked in every step (keeps_reference).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "runtime/params.h"
#include "train/batches.h"
#include "train/sequences.h"

namespace mxt::train {

// Whether the reference's weights stay in memory and are asked in the step: of a policy that samples, whose rows are
// not known before, and by the recipe's choice.
bool keeps_reference(const config::Recipe& recipe);
// Whether a kept reference has the run's own base, and only its adapter for itself: nothing of `training`'s base
// trains.
bool shares_base(const graph::Graph& training);

class Reference {
 public:
  struct Inputs {
    std::string path;    // of the file
    std::string digest;  // of all that the numbers depend on
    int64_t micro_batch = 1, max_tokens = 0, seq_len = 0, steps = 0, per_batch = 1;
    bool share_prompts = false;  // SequencePass
  };
  // Reads the file where it was made of the same; else computes (the scorer's weights must be those that training
  // starts from) and writes it. `eval` may be null.
  Reference(const Inputs& inputs, const Method& method, const graph::Graph& scoring, runtime::Program& scorer,
            StepData& rows, const EvalRows* eval);
  // Of one sequence of a row of the data: its targets' log-probabilities.
  std::span<const float> train(int64_t row, int part) const { return of(train_, row, part); }
  std::span<const float> eval(int64_t row, int part) const { return of(eval_, row, part); }
  // Of Method::ahead()'s sequences of a step, and of the held-out part's rows: sums.
  std::span<const double> ahead(int64_t step) const;
  std::span<const double> eval_ahead() const { return eval_ahead_; }
  const std::string& digest() const { return values_digest_; }  // BLAKE3 of the numbers

 private:
  struct Part {
    std::vector<float> logp;
    std::vector<int64_t> first{0};  // [sequences + 1]
  };
  std::span<const float> of(const Part& p, int64_t row, int part) const;
  bool load(const Inputs& inputs);  // false leaves any of the numbers
  std::string hash() const;
  void save(const Inputs& inputs) const;

  int parts_ = 1;
  Part train_, eval_;
  std::vector<double> ahead_, eval_ahead_;
  std::vector<int64_t> ahead_first_{0};  // [steps + 1]
  std::string values_digest_;
};

// The policy's starting weights beside those that train, and a program that asks them. Of an adapter whose base does
// not train that is the adapter alone, over the same base.
class KeptReference {
 public:
  // Copies what `from`, the store of `training`, holds now; it must outlive this. `scoring` is kept by reference.
  KeptReference(const graph::Graph& training, const graph::Graph& scoring, const runtime::ParamStore& from,
                const kernels::KernelPlan& plan, kernels::Ops& ops, runtime::ProgramSettings settings);
  runtime::Program& scorer() { return *scorer_; }
  // The targets' log-probabilities of each sequence of row(first) to row(first + rows − 1), in one pass.
  std::vector<std::vector<float>> ask(const Method& method, int64_t first, int64_t rows, int64_t seq_len,
                                      int64_t max_tokens, const std::function<data::Row(int64_t)>& row);

 private:
  const graph::Graph& scoring_;
  std::unique_ptr<runtime::ParamStore> params_;
  std::unique_ptr<runtime::Program> scorer_;
};

// The rows of a step as StepRows and, where the method scores some ahead, the sequences for that.
StepRows rows_of(const Method& method, int64_t per_batch, int64_t count, int64_t seq_len,
                 const std::function<data::Row(int64_t)>& row);
std::vector<AheadSequence> ahead_of(const Method& method, const StepRows& step, int64_t seq_len,
                                    const std::function<data::Row(int64_t)>& row);
// Sums of the log-probabilities of `sequences` under the scorer's weights.
std::vector<double> score_ahead(const Method& method, const graph::Graph& scoring, runtime::Program& scorer,
                                const std::vector<AheadSequence>& sequences, int64_t micro_batch, int64_t max_tokens,
                                bool share_prompts);

}  // namespace mxt::train
