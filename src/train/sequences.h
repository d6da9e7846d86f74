// The sequences of a pass, as a method sees them, and where their numbers lie in the pass's arrays.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "runtime/program.h"
#include "train/batches.h"
#include "train/methods/method.h"

namespace mxt::train {

// Rows of a method, packed for a program: documents of different rows and parts never see each other.
class SequencePass {
 public:
  // Sequences are cut at seq_len tokens. `share_prompts`: those that follow one another with one prompt have it once
  // (PackedBatch::add_answer); a sequence's numbers do not depend on who else has it.
  SequencePass(const Method& method, const graph::Graph& g, int64_t seq_len, bool share_prompts = false);
  void clear();
  // All sequences of one row; `row` is its number within the step.
  void add_row(int64_t row, const data::Row& r);
  void add(int64_t row, int part, int32_t mark, std::span<const int32_t> ids, std::span<const int32_t> labels);
  void pad(int64_t max_tokens) { batch_.pad(max_tokens); }
  PackedBatch& batch() { return batch_; }
  size_t sequences() const { return places_.size(); }

  // Reads what the forward pass of `program` made. `reference(i)`: of sequence i; may be null.
  std::span<Sequence> read(const runtime::Program& program,
                           const std::function<std::span<const float>(size_t)>& reference = nullptr);
  // Writes the gradients that the method filled in.
  void write(runtime::Program& program);

 private:
  struct Place {
    Sequence sequence;
    std::vector<int64_t> at;  // positions in the pass's arrays of what it has a number for
    size_t first = 0;         // of its numbers in values_
  };
  const Method& method_;
  size_t seq_len_;
  bool share_prompts_;
  graph::ValueId root_, seed_, entropy_ = graph::kNone;
  PackedBatch batch_;
  std::vector<Place> places_;
  std::vector<Sequence> view_;
  std::vector<float> values_, entropies_, gradients_, tokens_;
};

// The answer's targets and all targets of each sequence of a row, as StepRows wants them.
StepRows::Row describe_row(const Method& method, const data::Row& r, int64_t seq_len);

// A micro-batch's rows are `row(i)` for i in [first, last): runs them without a backward pass and gives each sequence's
// numbers to `take`.
void score_rows(runtime::Program& scorer, SequencePass& pass, int64_t rows, int64_t micro_batch, int64_t max_tokens,
                const std::function<void(int64_t row, SequencePass&)>& add,
                const std::function<void(const Sequence&)>& take);

}  // namespace mxt::train
