#include "train/batches.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "runtime/pictures.h"

namespace mxt::train {
namespace {

// The row's last document, where its last token is a target alone: it is added as a window.
bool as_window(const data::Row& row, size_t d) { return row.overlaps && d + 2 == row.cu_seqlens.size(); }

int64_t count_targets(const data::Row& row) {
  int64_t n = 0;
  for (size_t d = 0; d + 1 < row.cu_seqlens.size(); ++d)
    for (int32_t t = row.cu_seqlens[d] + 1; t < row.cu_seqlens[d + 1]; ++t)
      n += row.labels[static_cast<size_t>(t)] != data::kNoTarget;
  return n;
}

void add_row(const data::Row& row, PackedBatch& out) {
  for (size_t d = 0; d + 1 < row.cu_seqlens.size(); ++d) {
    const size_t b = static_cast<size_t>(row.cu_seqlens[d]), n = static_cast<size_t>(row.cu_seqlens[d + 1]) - b;
    std::vector<data::RowPicture> pictures;
    for (data::RowPicture p : row.pictures)
      if (p.first >= static_cast<int64_t>(b) && p.first < static_cast<int64_t>(b + n))
        p.first -= static_cast<int64_t>(b), pictures.push_back(p);
    if (!as_window(row, d))
      out.add_document(row.ids.subspan(b, n), row.labels.subspan(b, n), pictures);
    else if (n > 1)  // a BOS alone predicts nothing
      out.add_window(row.ids.subspan(b, n), row.labels.subspan(b, n));
  }
}

}  // namespace

void PackedBatch::clear() {
  ids_.clear();
  positions_.clear();
  targets_.clear();
  weights_.clear();
  cu_.assign(1, 0);
  row_offsets_.assign(1, 0);
  prefix_.clear();
  prompt_ = -1;
  for (auto* list : {&time_, &down_, &across_, &grids_, &picture_rows_}) list->clear();
  pixels_.clear();
  real_ = targets_count_ = 0;
}

void PackedBatch::add_target(int32_t label) {
  targets_.push_back(data::target_of(label));
  targets_count_ += label != data::kNoTarget;
  if (weighs_) weights_.push_back(label == data::kNoTarget ? 0.0f : by_part_[data::part_of(label)]);
}

// Positions of a document's tokens on all three axes, and its pictures' pixels.
void PackedBatch::add_pictures(int64_t tokens, std::span<const data::RowPicture> pictures) {
  MXT_ASSERT(processor_ || pictures.empty());
  if (!processor_) return;
  const image::Processor& p = *processor_;
  std::vector<runtime::PlacedPicture> placed;
  const auto begin = static_cast<int32_t>(ids_.size());
  for (const data::RowPicture& x : pictures) {
    const image::Grid grid{x.rows, x.columns};
    placed.push_back({x.first, static_cast<int32_t>(x.rows), static_cast<int32_t>(x.columns)});
    const int64_t n = image::tokens_of(p, grid);
    if (x.rows % p.merge != 0 || x.columns % p.merge != 0 || x.first + n > tokens ||
        static_cast<int64_t>(x.rgb.size()) < 3 * grid.patches() * p.patch * p.patch)
      fail_input("a picture of {} x {} patches does not fit the model's processor: prepare the data again", x.rows,
                 x.columns);
    for (int64_t i = 0; i < n; ++i) picture_rows_.push_back(begin + static_cast<int32_t>(x.first + i));
    grids_.insert(grids_.end(), {static_cast<int32_t>(x.rows), static_cast<int32_t>(x.columns)});
    const size_t at = pixels_.size();
    pixels_.resize(at + static_cast<size_t>(grid.patches() * p.patch_values()));
    image::patches_of(p, grid, x.rgb.data(), pixels_.data() + at);
  }
  const size_t first = time_.size();
  for (auto* axis : {&time_, &down_, &across_}) axis->resize(first + static_cast<size_t>(tokens));
  runtime::positions_of(tokens, placed, p.merge, time_.data() + first, down_.data() + first, across_.data() + first);
}

void PackedBatch::add_document(std::span<const int32_t> ids, std::span<const int32_t> labels,
                               std::span<const data::RowPicture> pictures) {
  add_pictures(static_cast<int64_t>(ids.size()), pictures);
  add_tokens(ids, labels, 0, -1);
}

void PackedBatch::end_document(int32_t prefix) {
  cu_.push_back(static_cast<int32_t>(ids_.size()));
  if (prefix < 0 && prefix_.empty()) return;
  prefix_.resize(static_cast<size_t>(documents()) - 1, -1);
  prefix_.push_back(prefix);
}

// One document, which goes on from another where that is not −1; its first token stands at this position.
void PackedBatch::add_tokens(std::span<const int32_t> ids, std::span<const int32_t> labels, int64_t position,
                             int32_t prefix) {
  for (size_t t = 0; t < ids.size(); ++t) {
    ids_.push_back(ids[t]);
    positions_.push_back(static_cast<int32_t>(position + static_cast<int64_t>(t)));
    add_target(t + 1 < ids.size() ? labels[t + 1] : data::kNoTarget);
  }
  real_ += static_cast<int64_t>(ids.size());
  end_document(prefix);
}

int64_t PackedBatch::add_answer(std::span<const int32_t> ids, std::span<const int32_t> labels) {
  MXT_ASSERT(!processor_);
  size_t prompt = 1;  // tokens without a target, and the last of them, which predicts the answer's first token
  while (prompt < labels.size() && labels[prompt] == data::kNoTarget) ++prompt;
  const auto shared = ids.first(prompt - 1);
  const auto same = [&] {  // and the last document is the prompt's, or goes on from it
    const auto last = static_cast<int32_t>(documents()) - 1;
    if (prompt_ < 0 || (last != prompt_ && prefix_.back() != prompt_)) return false;
    const auto begin = ids_.begin() + cu_[static_cast<size_t>(prompt_)];
    const auto end = ids_.begin() + cu_[static_cast<size_t>(prompt_) + 1];
    return std::equal(begin, end, shared.begin(), shared.end());
  };
  if (shared.empty()) {
    prompt_ = -1;
  } else if (!same()) {
    prompt_ = static_cast<int32_t>(documents());
    add_tokens(shared, labels.first(shared.size()), 0, -1);
  }
  const auto position = static_cast<int64_t>(shared.size()), first = tokens() - position;
  add_tokens(ids.subspan(shared.size()), labels.subspan(shared.size()), position, prompt_);
  return first;
}

void PackedBatch::add_window(std::span<const int32_t> window, std::span<const int32_t> labels) {
  add_pictures(static_cast<int64_t>(window.size()) - 1, {});
  for (size_t t = 0; t + 1 < window.size(); ++t) {
    ids_.push_back(window[t]);
    positions_.push_back(static_cast<int32_t>(t));
    add_target(labels[t + 1]);
  }
  real_ += static_cast<int64_t>(window.size()) - 1;
  end_document();
}

void PackedBatch::pad(int64_t max_tokens) {
  const int64_t want = std::min((tokens() + kPad - 1) / kPad * kPad, max_tokens);
  if (want <= tokens()) return;
  add_pictures(want - tokens(), {});
  for (int32_t position = 0; tokens() < want; ++position) {
    ids_.push_back(0);
    positions_.push_back(position);
    add_target(data::kNoTarget);
  }
  end_document();
}

runtime::Batch PackedBatch::view() const {
  runtime::Batch b;
  b.tokens = tokens();
  b.ids = ids_.data();
  b.positions = positions_.data();
  b.cu_seqlens = cu_.data();
  b.documents = documents();
  if (!prefix_.empty()) b.prefix = prefix_.data();
  if (processor_) {
    axes_.clear();
    for (const auto* axis : {&time_, &down_, &across_}) axes_.insert(axes_.end(), axis->begin(), axis->end());
    b.axes = axes_.data();
    pictures_ = {static_cast<int64_t>(grids_.size()) / 2,
                 static_cast<int64_t>(picture_rows_.size()),
                 grids_.data(),
                 pixels_.data(),
                 nullptr,
                 picture_rows_.data()};
    if (pictures_.count > 0) b.pictures = &pictures_;
  }
  b.targets = targets_.data();
  if (weighs_) b.weights = weights_.data();
  b.row_offsets = row_offsets_.data();
  b.rows = static_cast<int64_t>(row_offsets_.size()) - 1;
  return b;
}

TrainRows::TrainRows(const std::string& folder, uint64_t seed, bool shuffle, int64_t rows_per_step)
    : seed_(seed), shuffle_(shuffle), per_step_(rows_per_step) {
  if (data::is_windows(folder))
    windows_ = data::WindowDataset::open(folder);
  else
    rows_ = data::Dataset::open(folder);
}

int64_t TrainRows::rows() const { return rows_ ? rows_->rows() : 0; }
int64_t TrainRows::steps_per_epoch() const { return rows_ ? (rows_->rows() + per_step_ - 1) / per_step_ : 0; }

int64_t TrainRows::rows_of_step(int64_t step) const {
  if (windows_) return per_step_;
  const int64_t first = (step % steps_per_epoch()) * per_step_;
  return std::min(per_step_, rows_->rows() - first);
}

int64_t TrainRows::shuffled(int64_t epoch, int64_t at, int64_t rows) {
  if (epoch != epoch_) {
    order_ = data::epoch_order(seed_, epoch, rows);
    epoch_ = epoch;
  }
  return order_[static_cast<size_t>(at)];
}

int64_t TrainRows::row_index(int64_t step, int64_t i) {
  const int64_t epoch = step / steps_per_epoch(), at = (step % steps_per_epoch()) * per_step_ + i;
  return shuffle_ ? shuffled(epoch, at, rows_->rows()) : at;
}

void TrainRows::add(int64_t step, int64_t i, PackedBatch& out) {
  if (!windows_) return add_row(rows_->row(row_index(step, i)), out);
  const int64_t draw = step * per_step_ + i, pass = draw / windows_->windows();
  const int64_t phase = data::window_phase(seed_, pass, windows_->tokens(), windows_->seq_len());
  const auto window =
      windows_->window(phase + shuffled(pass, draw % windows_->windows(), windows_->windows()) * windows_->seq_len());
  out.add_window(window, window);
}

int64_t TrainRows::targets(int64_t step, int64_t i) {
  if (windows_) return windows_->seq_len();
  return count_targets(rows_->row(row_index(step, i)));
}

double TrainRows::weight(int64_t step, int64_t i, const std::array<float, 4>& by_part) {
  if (windows_) return static_cast<double>(windows_->seq_len());
  const data::Row row = rows_->row(row_index(step, i));
  double sum = 0;
  for (size_t d = 0; d + 1 < row.cu_seqlens.size(); ++d)
    for (int32_t t = row.cu_seqlens[d] + 1; t < row.cu_seqlens[d + 1]; ++t)
      if (const int32_t label = row.labels[static_cast<size_t>(t)]; label != data::kNoTarget)
        sum += static_cast<double>(by_part[data::part_of(label)]);
  return sum;
}

RolloutRows::RolloutRows(std::vector<Rollout> all, int64_t rows_per_step, int64_t iterations)
    : all_(std::move(all)), per_step_(rows_per_step), iterations_(iterations) {
  generations_ = static_cast<int64_t>(all_.at(0).completions.size());
  MXT_ASSERT(per_step_ % generations_ == 0);
  for (const Rollout& r : all_)
    for (const Completion& c : r.completions) {
      auto [ids, labels] = labelled(r.prompt, c);
      cu_.push_back({0, static_cast<int32_t>(ids.size())});
      ids_.push_back(std::move(ids));
      labels_.push_back(std::move(labels));
    }
}

int64_t RolloutRows::rows_of_step(int64_t step) const { return std::min(per_step_, rows() - batch(step) * per_step_); }

data::Row RolloutRows::at(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  return {ids_[i], labels_[i], cu_[i]};
}

std::span<Rollout> RolloutRows::rollouts(int64_t step) {
  if (step / iterations_ != drawn_) {
    drawn_ = step / iterations_;
    const int64_t first = batch(step) * per_step_ / generations_, count = rows_of_step(step) / generations_;
    now_.assign(all_.begin() + first, all_.begin() + first + count);
  }
  return now_;
}

std::string RolloutRows::save(int64_t next_step) const {
  if (next_step % iterations_ == 0 || next_step / iterations_ != drawn_) return "";
  OrderedJson all = OrderedJson::array();
  for (const Rollout& r : now_)
    for (const Completion& c : r.completions) all.push_back(OrderedJson::array({c.old_logp, c.old_values}));
  return all.dump();
}

void RolloutRows::load(const std::string& saved, int64_t next_step) {
  if (saved.empty()) return;
  const OrderedJson all = parse_ordered_json(saved, "the saved step's rollouts");
  size_t i = 0;
  for (Rollout& r : rollouts(next_step))
    for (Completion& c : r.completions) {
      const OrderedJson& of = all.at(i++);
      c.old_logp = of.at(0).get<std::vector<float>>();
      c.old_values = of.at(1).get<std::vector<float>>();
    }
}

EvalRows::EvalRows(const std::string& folder) {
  if (data::is_windows(folder))
    windows_ = data::WindowDataset::open(folder, "eval");
  else
    rows_ = data::Dataset::open(folder, "eval");
}

int64_t EvalRows::rows() const { return windows_ ? windows_->whole_windows() : rows_->rows(); }

void EvalRows::add(int64_t i, PackedBatch& out) const {
  if (!windows_) return add_row(rows_->row(i), out);
  const auto window = windows_->window(i * windows_->seq_len());
  out.add_window(window, window);
}

}  // namespace mxt::train
