#include "data/curate.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "data/dedupe/copies.h"
#include "data/filter/filter.h"
#include "data/filter/redact.h"
#include "data/settings.h"
#include "data/shape/row_text.h"

namespace mxt::data {
namespace {

constexpr const char* kExact = "exact_copy";
constexpr const char* kNear = "near_copy";
constexpr size_t kSamplesOfEach = 5;

// What the first pass keeps of a row besides what the copy finder keeps: the check that it failed, −1 = none.
using Failed = std::vector<int8_t>;

// Reads and examines rows. Reading is one thread's work, so it goes on beside the examination of the rows before.
class FirstPass {
 public:
  FirstPass(const config::Data& data, const RowFilter* filter, CopyFinder* copies)
      : data_(data),
        filter_(filter),
        copies_(copies),
        prints_(copies ? kPieces : 0, Fingerprinter(data.dedupe.minhash)) {}

  Failed run(RecordReader& rows) {
    Batch now, next, before;
    fill(rows, &now);
    while (now.size > 0) {
      const size_t piece = (now.size + kPieces - 1) / kPieces;
      // The first piece of work is the reading; on one thread it comes first too.
      parallel_for(0, static_cast<int64_t>(kPieces) + 1, 1, [&](int64_t k, int64_t) {
        if (k == 0) {
          keep(before);
          fill(rows, &next);
          return;
        }
        const size_t slot = static_cast<size_t>(k) - 1, b = std::min(now.size, slot * piece),
                     e = std::min(now.size, b + piece);
        for (size_t i = b; i < e; ++i) examine(slot, now, i);
      });
      std::swap(before, now);
      std::swap(now, next);
    }
    keep(before);
    return std::move(failed_);
  }

 private:
  static constexpr size_t kPieces = 64, kRows = 8192, kBytes = size_t{8} << 20;
  struct Batch {
    size_t size = 0;
    std::vector<Record> rows;
    std::vector<RowPrint> prints;
    std::vector<int8_t> failed;
  };

  void fill(RecordReader& rows, Batch* b) {
    b->size = 0;
    b->rows.resize(kRows);
    for (size_t bytes = 0; b->size < kRows && bytes < kBytes && rows.next(&b->rows[b->size]); ++b->size) {
      const Record& r = b->rows[b->size];
      if (r.kind == FileKind::kText)
        fail_input(
            "{}: is plain text, which has no rows; data.dedupe and data.filter work on rows: remove them, or write the "
            "texts as {{\"text\": …}} lines",
            r.where());
      if (!layout_) layout_ = find_layout(r, data_.columns);
      bytes += r.text.size();
      for (const std::string& c : r.cells) bytes += c.size();
    }
    b->prints.resize(copies_ ? b->size : 0);
    b->failed.assign(filter_ ? b->size : 0, -1);
  }

  void examine(size_t slot, Batch& b, size_t i) {
    thread_local RowText text;
    read_row_text(b.rows[i], *layout_, &text);
    if (copies_) prints_[slot].print(text, &b.prints[i]);
    if (filter_) b.failed[i] = static_cast<int8_t>(filter_->check(text));
  }

  void keep(const Batch& b) {
    if (copies_) copies_->add(std::span(b.prints).first(copies_ ? b.size : 0));
    failed_.insert(failed_.end(), b.failed.begin(), b.failed.end());
    if (!filter_) failed_.resize(failed_.size() + b.size, -1);
  }

  const config::Data& data_;
  const RowFilter* filter_;
  CopyFinder* copies_;
  std::vector<Fingerprinter> prints_;  // one a piece
  std::optional<Layout> layout_;
  Failed failed_;
};

std::string excerpt(const std::string& text) {
  constexpr size_t kBytes = 200;
  if (text.size() <= kBytes) return text;
  size_t n = kBytes;
  while ((static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  return text.substr(0, n) + "…";
}

}  // namespace

class Curation::Stay : public RecordReader {
 public:
  Stay(Curation& c, std::unique_ptr<RecordReader> rows) : c_(c), rows_(std::move(rows)) {}
  bool next(Record* out) override {
    while (rows_->next(out)) {
      if (at_ == c_.stays_.size())
        fail_input("{}: more rows than in the first reading; the file has changed, start again", out->where());
      const size_t row = at_++;
      if (const auto it = c_.wanted_.find(static_cast<uint32_t>(row)); it != c_.wanted_.end()) sample(*out, it->second);
      if (!c_.stays_[row]) continue;
      if (!c_.redact_.empty()) redact(out);
      return true;
    }
    return false;
  }
  double done() const override { return rows_->done(); }

 private:
  void sample(const Record& r, const std::vector<std::pair<size_t, bool>>& wanted) {
    if (!layout_) layout_ = find_layout(r, c_.columns_);
    RowText text;
    read_row_text(r, *layout_, &text);
    for (const auto& [i, as_stays] : wanted) {
      CurationReport::Sample& s = c_.report_.samples[i];
      (as_stays ? s.stays_where : s.where) = r.where();
      (as_stays ? s.stays_text : s.text) = excerpt(text.text);
    }
  }
  void redact(Record* r) {
    if (!layout_) layout_ = find_layout(*r, c_.columns_);
    const Redacted n = redact_record(r, *layout_, c_.redact_);
    for (const config::Redact kind : c_.redact_)
      c_.report_.redacted[std::string(config::text_of(kind))] += n[static_cast<size_t>(kind)];
  }
  Curation& c_;
  std::unique_ptr<RecordReader> rows_;
  std::optional<Layout> layout_;
  size_t at_ = 0;
};

int64_t CurationReport::total_dropped() const {
  int64_t n = 0;
  for (const auto& [reason, rows] : dropped) n += rows;
  return n;
}

std::string CurationReport::text() const {
  std::string s;
  for (const auto& [reason, rows] : dropped)
    if (rows > 0) s += fmt::format(", {} dropped: {}", rows, reason);
  for (const auto& [kind, n] : redacted)
    if (n > 0) s += fmt::format(", {} redacted: {}", n, kind);
  return s;
}

std::unique_ptr<RecordReader> Curation::stay(std::unique_ptr<RecordReader> rows) {
  if (!active()) return rows;
  return std::make_unique<Stay>(*this, std::move(rows));
}

Curation curate(const RowSource& source, const config::Data& data, const std::string& folder, const Models& models,
                const std::atomic<bool>* cancel) {
  Curation c;
  const bool dedupe = data.dedupe.exact || data.dedupe.minhash || data.dedupe.semdedup;
  if (!dedupe && !data.filter) return c;
  c.columns_ = data.columns;
  if (data.filter) c.redact_ = data.filter->redact;
  std::optional<RowFilter> filter;
  std::optional<CopyFinder> finder;
  if (data.filter) filter.emplace(*data.filter);
  if (dedupe) finder.emplace(data.dedupe.minhash, folder);
  const Failed failed = FirstPass(data, filter ? &*filter : nullptr, finder ? &*finder : nullptr).run(*source.open());
  Copies copies;
  if (finder) copies = finder->find();

  CurationReport& r = c.report_;
  r.rows_in = static_cast<int64_t>(failed.size());
  r.groups = copies.groups;
  r.largest_group = copies.largest;
  if (dedupe) r.dropped[kExact] = 0;
  if (data.dedupe.minhash) r.dropped[kNear] = 0;
  if (filter)
    for (const std::string& reason : filter->reasons()) r.dropped[reason] = 0;
  std::map<std::string, size_t> samples;
  const auto drop = [&](uint32_t row, const std::string& reason, std::optional<uint32_t> stays, double similarity) {
    ++r.dropped[reason];
    if (samples[reason]++ >= kSamplesOfEach) return;
    c.wanted_[row].emplace_back(r.samples.size(), false);
    if (stays) c.wanted_[*stays].emplace_back(r.samples.size(), true);
    r.samples.push_back({reason, "", "", "", "", similarity});
  };
  c.stays_.resize(failed.size());
  for (uint32_t i = 0; i < failed.size(); ++i) {
    const bool copy = dedupe && copies.stays[i] != i;
    c.stays_[i] = !copy && failed[i] < 0;
    if (c.stays_[i]) continue;
    if (!copy) drop(i, filter->reasons()[static_cast<size_t>(failed[i])], std::nullopt, 0);
    else if (copies.exact[i]) drop(i, kExact, copies.stays[i], 0);
    else drop(i, kNear, copies.stays[i], finder->similarity(i, copies.stays[i]));
  }
  finder.reset();
  if (data.dedupe.semdedup) r.dropped[kSemanticCopy] = 0;
  if (data.filter && data.filter->max_perplexity) r.dropped[kMaxPerplexity] = 0;
  drop_by_models(source, data, models, folder, cancel, &c.stays_,
                 [&](const ModelDrop& d) { drop(d.row, d.reason, d.stays, d.similarity); }, &r.semantic);
  const int64_t left = r.rows_in - r.total_dropped();
  if (r.rows_in > 0 && left == 0) {
    std::string why;
    for (const auto& [reason, rows] : r.dropped)
      if (rows > 0) why += fmt::format("{}{} {}", why.empty() ? "" : ", ", rows, reason);
    fail_input("{}: no row is left: {} rows read, dropped: {}; loosen data.filter", source.text(), r.rows_in, why);
  }
  log::info("data: {} of {} rows stay", left, r.rows_in);
  return c;
}

}  // namespace mxt::data
