// Which rows a step sees, and a micro-batch of them packed for the program.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "image/processor.h"
#include "runtime/program.h"
#include "train/rollouts.h"

namespace mxt::train {

// Token-packed rows in the form a Program reads. Tokens are padded to a multiple of kPad by a document of their own
// without targets, so that few different sizes reach the kernels and tiles are whole.
class PackedBatch {
 public:
  static constexpr int64_t kPad = 16;
  void clear();
  // One document; labels are unshifted (transformers'): position t is trained on labels[t + 1].
  void add_document(std::span<const int32_t> ids, std::span<const int32_t> labels,
                    std::span<const data::RowPicture> pictures = {});  // whose tokens count from the document's first
  // A prompt with an answer, whose first target is the answer's first token, as two documents: the prompt but for its
  // last token, which answers that are added one after another have once, and what goes on from it. The row of the
  // token ids[0] would have if the two stood side by side: that of ids[t] of the answer is t more.
  int64_t add_answer(std::span<const int32_t> ids, std::span<const int32_t> labels);
  // What a model that sees pictures makes of them; without it documents have none.
  void see(const image::Processor& processor) { processor_ = processor; }
  // A window of seq_len + 1 tokens: inputs are all but the last, targets all but the first.
  void add_window(std::span<const int32_t> window, std::span<const int32_t> labels);
  // Everything added since the last row is one row of the batch.
  void end_row() { row_offsets_.push_back(static_cast<int32_t>(tokens())); }
  void pad(int64_t max_tokens);
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }
  int64_t real_tokens() const { return real_; }
  int64_t targets() const { return targets_count_; }
  int64_t documents() const { return static_cast<int64_t>(cu_.size()) - 1; }
  const std::vector<int32_t>& target_ids() const { return targets_; }
  // Weights of targets by the part of a tool call that they are (data::part_of): then weights() has one a token.
  void weigh(const std::array<float, 4>& by_part) { by_part_ = by_part, weighs_ = true; }
  const std::vector<float>& weights() const { return weights_; }
  runtime::Batch view() const;

 private:
  void add_pictures(int64_t tokens, std::span<const data::RowPicture> pictures);
  void add_tokens(std::span<const int32_t> ids, std::span<const int32_t> labels, int64_t position, int32_t prefix);
  void end_document(int32_t prefix = -1);
  std::vector<int32_t> ids_, positions_, targets_, cu_{0}, row_offsets_{0};
  std::vector<int32_t> prefix_;  // of each document; empty: none goes on from another
  int32_t prompt_ = -1;          // the document that the last answer went on from
  std::optional<image::Processor> processor_;
  std::vector<int32_t> time_, down_, across_, grids_, picture_rows_;  // of each token; of pictures
  std::vector<float> pixels_;
  mutable std::vector<int32_t> axes_;  // of view()
  mutable runtime::PictureBatch pictures_;
  void add_target(int32_t label);
  std::vector<float> weights_;
  std::array<float, 4> by_part_{1, 1, 1, 1};
  bool weighs_ = false;
  int64_t real_ = 0, targets_count_ = 0;
};

// The rows of each step: a function of the step, so a run may stop and go on anywhere.
class StepData {
 public:
  virtual ~StepData() = default;
  virtual int64_t rows() const = 0;                        // of all the data; 0 for random windows
  virtual int64_t rows_of_step(int64_t step) const = 0;    // an epoch's last one may have fewer
  virtual data::Row row(int64_t step, int64_t i) = 0;      // row i of a step; not of windows
  virtual int64_t row_index(int64_t step, int64_t i) = 0;  // and its number in the data
  virtual data::Row at(int64_t index) const = 0;
  virtual std::span<Rollout> rollouts(int64_t /*step*/) { return {}; }  // whose completions a step's rows are
};

// The rows of the training part in the order of the run, a function of (seed, step).
class TrainRows : public StepData {
 public:
  // `rows_per_step` = per_device · grad_accum · world.
  TrainRows(const std::string& folder, uint64_t seed, bool shuffle, int64_t rows_per_step);
  int64_t rows() const override;
  int64_t steps_per_epoch() const;  // 0 for random windows: they have no epochs
  int64_t rows_of_step(int64_t step) const override;
  data::Row row(int64_t step, int64_t i) override { return rows_->row(row_index(step, i)); }
  int64_t row_index(int64_t step, int64_t i) override;
  data::Row at(int64_t index) const override { return rows_->row(index); }
  // Appends row i of step s.
  void add(int64_t step, int64_t i, PackedBatch& out);
  int64_t targets(int64_t step, int64_t i);
  // The sum of its targets' weights.
  double weight(int64_t step, int64_t i, const std::array<float, 4>& by_part);

 private:
  int64_t shuffled(int64_t epoch, int64_t at, int64_t rows);
  std::optional<data::Dataset> rows_;
  std::optional<data::WindowDataset> windows_;
  uint64_t seed_;
  bool shuffle_;
  int64_t per_step_;
  int64_t epoch_ = -1;
  std::vector<uint32_t> order_;
};

// Given rollouts in their order: a row is a completion after its prompt. The same prompts serve `iterations` steps.
class RolloutRows : public StepData {
 public:
  RolloutRows(std::vector<Rollout> all, int64_t rows_per_step, int64_t iterations);
  int64_t rows() const override { return static_cast<int64_t>(cu_.size()); }
  int64_t rows_of_step(int64_t step) const override;
  data::Row row(int64_t step, int64_t i) override { return at(row_index(step, i)); }
  int64_t row_index(int64_t step, int64_t i) override { return batch(step) * per_step_ + i; }
  data::Row at(int64_t index) const override;
  std::span<Rollout> rollouts(int64_t step) override;
  // What a step in the midst of its iterations needs of the first one: the policy's log-probabilities then.
  std::string save(int64_t next_step) const;
  void load(const std::string& saved, int64_t next_step);

 private:
  int64_t batches() const { return (rows() + per_step_ - 1) / per_step_; }
  int64_t batch(int64_t step) const { return step / iterations_ % batches(); }
  std::vector<Rollout> all_, now_;
  int64_t per_step_, iterations_, generations_, drawn_ = -1;  // drawn_: step / iterations of now_
  std::vector<std::vector<int32_t>> ids_, labels_, cu_;
};

// Every row of the held-out part, in file order.
class EvalRows {
 public:
  explicit EvalRows(const std::string& folder);
  int64_t rows() const;
  data::Row row(int64_t i) const { return rows_->row(i); }  // no windows
  void add(int64_t i, PackedBatch& out) const;

 private:
  std::optional<data::Dataset> rows_;
  std::optional<data::WindowDataset> windows_;
};

}  // namespace mxt::train
