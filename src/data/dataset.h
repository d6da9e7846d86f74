// What the trainer reads: a prepared dataset on disk. Made by prepare() (data/prepare.h); a folder with `dataset.json`
// (the manifest) and token shards. Files are mapped, so opening costs nothing and a row costs no copy.
//
// Labels are unshifted, as in transformers: labels[t] is ids[t] or kNoTarget; the loss at position t compares the
// prediction made at t with labels[t + 1] of the same document. So the label of a document's first token is never used,
// and `targets` counts the labels other than kNoTarget at all later positions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mxt::data {

inline constexpr int32_t kNoTarget = -100;
// With data.loss_weights a label is the id and, from this bit on, what part of a tool call its token is
// (tokenizer::CallPart; 0: of none). Ids have 24 bits.
inline constexpr int kPartShift = 28;
inline constexpr int32_t target_of(int32_t label) {
  return label < 0 ? label : label & ((int32_t{1} << kPartShift) - 1);
}
inline constexpr size_t part_of(int32_t label) { return label < 0 ? 0 : static_cast<size_t>(label >> kPartShift); }

// A picture of a row: its tokens begin at `first`. Its grid of patches, and pixels as a model's processor fits them.
struct RowPicture {
  int64_t first = 0, rows = 0, columns = 0;
  std::span<const uint8_t> rgb;
};

// One sequence of a batch: one document, or several packed. Of a preference pair: the chosen answer after its prompt,
// then the rejected one. Spans stay valid as long as the Dataset lives.
struct Row {
  std::span<const int32_t> ids;           // [n], n ≥ 1, each in [0, vocabulary); no document of a row is longer than
                                          // seq_len, but for labelled answers, which the trainer cuts
  std::span<const int32_t> labels;        // [n], the id (with its part, target_of() apart) or kNoTarget
  std::span<const int32_t> cu_seqlens;    // [documents + 1], cu[0] = 0, cu[documents] = n, ascending
  std::span<const int32_t> marks = {};    // [documents], of labelled answers: 1 good, -1 bad; empty elsewhere
  std::vector<RowPicture> pictures = {};  // in the order of their tokens
  bool overlaps = false;                  // the last of seq_len + 1 tokens is a target alone (data.pack: bos_crop,
                                          // best_fit)
};

// The figures of one part of a prepared dataset, as its manifest states them.
struct PartInfo {
  int64_t rows = 0;  // 0 for a token array (random_windows)
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t targets = 0;  // positions with a loss
  int64_t longest = 0;  // tokens of the longest row
};

class Dataset {
 public:
  // Opens the part ("train" or "eval") of the prepared folder. Errors (kBadInput): no manifest, a missing or truncated
  // shard, a folder made for random_windows. `verify` also compares every file's digest (kVerifyFailed).
  static Dataset open(const std::string& folder, std::string_view part = "train", bool verify = false);
  ~Dataset();
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;

  int64_t rows() const;
  Row row(int64_t i) const;  // 0 ≤ i < rows()
  int64_t seq_len() const;   // the recipe's; no row is longer
  const PartInfo& info() const;
  std::string packing() const;  // how rows were made and what attention crosses in them, one line for a person

 private:
  struct State;
  explicit Dataset(std::unique_ptr<State> s);
  std::unique_ptr<State> s_;
};

// A corpus as one token array, for `sampling: random_windows` (nanoGPT's). A window holds seq_len + 1 tokens: inputs
// are the first seq_len, targets the last seq_len, so a window is used like a row with labels = ids.
class WindowDataset {
 public:
  // Errors (kBadInput): as Dataset, and a corpus shorter than one window.
  static WindowDataset open(const std::string& folder, std::string_view part = "train", bool verify = false);
  ~WindowDataset();
  WindowDataset(WindowDataset&&) noexcept;
  WindowDataset& operator=(WindowDataset&&) noexcept;

  int64_t tokens() const;
  int64_t seq_len() const;
  const PartInfo& info() const;
  // The seq_len + 1 tokens from `offset`, 0 ≤ offset < tokens() − seq_len.
  std::span<const int32_t> window(int64_t offset) const;
  // The windows of one pass over the text: offset(i) = phase + i · seq_len for i < windows(); window_phase() moves the
  // grid in every pass.
  int64_t windows() const;
  // Non-overlapping windows that cover the corpus (for an evaluation that reads all of it): window(i · seq_len).
  int64_t whole_windows() const { return (tokens() - 1) / seq_len(); }

 private:
  struct State;
  explicit WindowDataset(std::unique_ptr<State> s);
  std::unique_ptr<State> s_;
};

// True where the folder was prepared with this part / for random_windows.
bool has_part(const std::string& folder, std::string_view part);
bool is_windows(const std::string& folder);

// Order of the rows in one epoch: a permutation of 0 … rows−1 that depends on (seed, epoch, rows) alone, so a run may
// stop and go on anywhere. rows < 2^32.
std::vector<uint32_t> epoch_order(uint64_t seed, int64_t epoch, int64_t rows);
// Where the grid of windows begins in pass `epoch`: uniform in [0, min(seq_len, tokens − seq_len)). With epoch_order()
// over windows(), every offset of the text is equally likely, as in nanoGPT's get_batch, but drawn without replacement:
// a run of one and a half passes sees all of the text, where independent draws leave a fifth of it unseen (e^-1.5).
int64_t window_phase(uint64_t seed, int64_t epoch, int64_t tokens, int64_t seq_len);

}  // namespace mxt::data
