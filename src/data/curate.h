// Which rows of a source stay: copies and unwanted rows are found in a first pass over it, and left out of every later
// one. In the order of the work: exact copies, near copies, the filters, of which the first that a row fails is its
// reason; then what takes a model, for the rows that are left: copies in meaning, perplexity. So each row that goes is
// counted once.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "data/filter/redact.h"
#include "data/semantic/stage.h"
#include "data/source/records.h"
#include "data/work.h"

namespace mxt::data {

struct CurationReport {
  struct Sample {
    std::string reason, where, text;      // the row that went: "file:line" and its beginning
    std::string stays_where, stays_text;  // a copy: the row that stands for it; else ""
    double similarity = 0;  // a near copy: Jaccard of the two; it may lie below the threshold, where others join them;
                            // a copy in meaning: their cosine
  };
  int64_t rows_in = 0;                      // rows read
  std::map<std::string, int64_t> dropped;   // reason → rows, for every reason that is looked for
  int64_t groups = 0, largest_group = 0;    // of copies: groups of more than one row
  std::optional<SemanticReport> semantic;   // of copies in meaning
  std::map<std::string, int64_t> redacted;  // what data.filter.redact names → how many were replaced
  std::vector<Sample> samples;              // the first few of each reason
  int64_t total_dropped() const;
  std::string text() const;  // ", 3 dropped: near_copy, 1 redacted: email"; "" where nothing was
};

class Curation {
 public:
  // The source's rows, but for those that went, with what `redact` names replaced. The Curation and the source must
  // outlive the reader; the report gets the texts of its samples and counts of `redact` as the rows pass.
  std::unique_ptr<RecordReader> stay(const RowSource& source);
  bool active() const { return !stays_.empty(); }
  const CurationReport& report() const { return report_; }

  // The same for who reads blocks. Rows are numbered through the source.
  bool stays(size_t row) const { return stays_[row]; }
  void check_rows(const RowSource& source, size_t rows) const;  // kBadInput: more than in the first reading
  bool wants(size_t row, size_t n) const;                       // whether one of n rows is a sample of the report
  void sample(size_t row, const Record& record, const Layout& layout);
  void add_redacted(const Redacted& n);

 private:
  friend Curation curate(const RowSource&, const config::Data&, const std::string&, const Settings*, const BlockWork*);
  class Stay;
  std::vector<bool> stays_;  // [rows]; empty where nothing was asked for
  std::vector<config::Redact> redact_;
  std::map<uint32_t, std::vector<std::pair<size_t, bool>>> wanted_;  // row → its samples: index, whether as what stays
  CurationReport report_;
};

// Reads the source once where `data` asks for dedupe or filter, and once more for each step that takes a model
// (`settings` holds them); else not at all. `folder` takes unnamed files (see
// dedupe/copies.h). With `settings` and `work` findings are kept. Errors (kBadInput): bad rows, plain-text files (which
// have no rows), no row left.
Curation curate(const RowSource& source, const config::Data& data, const std::string& folder,
                const Settings* settings = nullptr, const BlockWork* work = nullptr);
// Whether `data` asks for any of it; for copies.
bool curates(const config::Data& data);
bool finds_copies(const config::Data& data);

}  // namespace mxt::data
