// Which rows a step sees, and a micro-batch of them packed for the program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "runtime/program.h"

namespace mxt::train {

// Token-packed rows in the form a Program reads. Tokens are padded to a multiple of kPad by a document of their own
// without targets, so that few different sizes reach the kernels and tiles are whole.
class PackedBatch {
 public:
  static constexpr int64_t kPad = 16;
  void clear();
  // One document; labels are unshifted (transformers'): position t is trained on labels[t + 1].
  void add_document(std::span<const int32_t> ids, std::span<const int32_t> labels);
  // A window of seq_len + 1 tokens: inputs are all but the last, targets all but the first.
  void add_window(std::span<const int32_t> window);
  void pad(int64_t max_tokens);
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }
  int64_t real_tokens() const { return real_; }
  int64_t targets() const { return targets_count_; }
  int64_t documents() const { return static_cast<int64_t>(cu_.size()) - 1; }
  const std::vector<int32_t>& target_ids() const { return targets_; }
  runtime::Batch view() const;

 private:
  std::vector<int32_t> ids_, positions_, targets_, cu_{0};
  int64_t real_ = 0, targets_count_ = 0;
};

// The rows of the training part in the order of the run: a function of (seed, step), so a run may stop and go on
// anywhere.
class TrainRows {
 public:
  // `rows_per_step` = per_device · grad_accum · world.
  TrainRows(const std::string& folder, uint64_t seed, bool shuffle, int64_t rows_per_step);
  int64_t rows() const;             // 0 for random windows
  int64_t steps_per_epoch() const;  // 0 for random windows: they have no epochs
  // How many rows step s has (an epoch's last one may have fewer).
  int64_t rows_of_step(int64_t step) const;
  // Appends row i of step s.
  void add(int64_t step, int64_t i, PackedBatch& out);
  int64_t targets(int64_t step, int64_t i);

 private:
  int64_t row_index(int64_t step, int64_t i);
  int64_t shuffled(int64_t epoch, int64_t at, int64_t rows);
  std::optional<data::Dataset> rows_;
  std::optional<data::WindowDataset> windows_;
  uint64_t seed_;
  bool shuffle_;
  int64_t per_step_;
  int64_t epoch_ = -1;
  std::vector<uint32_t> order_;
};

// Every row of the held-out part, in file order.
class EvalRows {
 public:
  explicit EvalRows(const std::string& folder);
  int64_t rows() const;
  void add(int64_t i, PackedBatch& out) const;

 private:
  std::optional<data::Dataset> rows_;
  std::optional<data::WindowDataset> windows_;
};

}  // namespace mxt::train
