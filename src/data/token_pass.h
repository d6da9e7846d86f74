// The second reading: the rows that stay become documents.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/coder.h"
#include "data/curate.h"
#include "data/prepare.h"
#include "data/source/blocks.h"
#include "data/store/spill.h"
#include "data/store/token_blocks.h"
#include "data/work.h"

namespace mxt::data {

class TokenPass {
 public:
  // Counts go to `counts`.
  TokenPass(const Settings& settings, const SampleEncoder& coder, const config::Recipe& recipe, const BlockWork& work,
            Prepared* counts);
  // All rows of a source that stay, in their order, as documents of at most seq_len tokens (of an array of windows: as
  // they are). `curation` may be null.
  void run(const RowSource& source, Curation* curation, Spill* out);
  // For jobs: one block, whose rows `make` names (empty: all), kept under its name. has(): none where it is not there
  // or lacks a row; else whether it is its stream's last.
  std::optional<bool> has(const RowStream& stream, size_t block, const std::vector<bool>& make);
  void encode(const RowStream& stream, size_t block, const std::vector<Record>& rows, const Record& first, bool last,
              const std::vector<bool>& make, bool redact);

 private:
  std::string name(const RowStream& stream, size_t block);
  const Layout& set_layout(const RowStream& stream, const Record& first);
  void refuse_shape(const Record& first, const Layout& layout) const;
  // Tokenizes those rows of `make` that are not made yet.
  void fill(const std::vector<Record>& rows, const Layout& layout, const std::vector<bool>& make, bool redact,
            TokenBlock* block) const;
  void collect(TokenBlock::Row row, Spill* out);
  void add_text(const std::vector<int32_t>& ids, bool last, Spill* out);
  // `needs`: tokens up to the first target, before it was cut.
  void add(const Document& d, int64_t needs, Spill* out);
  void add_answer(Document d, Spill* out);
  void add_rejected(Spill* out);  // those that wait
  void add_whole(Document pair, Spill* out);
  void count_cut(int64_t lost);
  void drop(int64_t needs);

  const Settings& s_;
  const SampleEncoder& coder_;
  const bool whole_pairs_;  // of a method that reads a sequence's end: one that is longer is left out with its pair
  std::vector<config::Redact> redact_;
  std::string settings_;
  const BlockWork& work_;
  Kept kept_;
  PictureStore pictures_;
  Prepared* counts_;
  Layouts layouts_;
  std::set<const RowSource*> said_;  // whose rows were described in the log
  std::vector<int32_t> text_;        // of a plain-text file, not yet a document
  bool calls_ = false;               // of data.loss_weights: a document has parts of a call
  std::vector<Document> rejected_;   // of pairs taken apart, behind whose chosen answers they come
};

}  // namespace mxt::data
