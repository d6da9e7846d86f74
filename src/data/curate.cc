#include "data/curate.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "data/dedupe/copies.h"
#include "data/filter/filter.h"
#include "data/first_pass.h"
#include "data/settings.h"
#include "data/shape/row_text.h"

namespace mxt::data {
namespace {

constexpr const char* kExact = "exact_copy";
constexpr const char* kNear = "near_copy";
constexpr size_t kSamplesOfEach = 5;

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
  Stay(Curation& c, const RowSource& source) : c_(c), source_(source), streams_(source.streams()) {}
  bool next(Record* out) override {
    for (; at_ < streams_.size(); ++at_, rows_.reset()) {
      const RowSource& mine = *streams_[at_].source;
      if (!rows_) rows_ = streams_[at_].open();
      while (rows_->next(out)) {
        layouts_.offer(mine, *out);
        const size_t row = row_++;
        c_.check_rows(source_, row_);
        c_.sample(row, *out, layouts_.of(mine));
        if (!c_.stays(row)) continue;
        if (!c_.redact_.empty()) c_.add_redacted(redact_record(out, layouts_.of(mine), c_.redact_));
        return true;
      }
    }
    return false;
  }

 private:
  Curation& c_;
  const RowSource& source_;
  std::vector<RowStream> streams_;
  std::unique_ptr<RecordReader> rows_;
  Layouts layouts_;
  size_t at_ = 0, row_ = 0;
};

void Curation::check_rows(const RowSource& source, size_t rows) const {
  if (rows > stays_.size())
    fail_input("{}: more rows than in the first reading; a file has changed, start again", source.text());
}

bool Curation::wants(size_t row, size_t n) const {
  const auto it = wanted_.lower_bound(static_cast<uint32_t>(row));
  return it != wanted_.end() && it->first < row + n;
}

void Curation::sample(size_t row, const Record& r, const Layout& layout) {
  const auto it = wanted_.find(static_cast<uint32_t>(row));
  if (it == wanted_.end()) return;
  RowText text;
  read_row_text(r, layout, &text);
  for (const auto& [i, as_stays] : it->second) {
    CurationReport::Sample& s = report_.samples[i];
    (as_stays ? s.stays_where : s.where) = r.where();
    (as_stays ? s.stays_text : s.text) = excerpt(text.text);
  }
}

void Curation::add_redacted(const Redacted& n) {
  for (const config::Redact kind : redact_)
    report_.redacted[std::string(config::text_of(kind))] += n[static_cast<size_t>(kind)];
}

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

std::unique_ptr<RecordReader> Curation::stay(const RowSource& source) {
  if (!active()) return source.open();
  return std::make_unique<Stay>(*this, source);
}

bool finds_copies(const config::Data& d) { return d.dedupe.exact || d.dedupe.minhash || d.dedupe.semdedup; }
bool curates(const config::Data& d) { return finds_copies(d) || d.filter; }

Curation curate(const RowSource& source, const config::Data& data, const std::string& folder, const Settings* settings,
                const BlockWork* work) {
  Curation c;
  if (!curates(data)) return c;
  const bool dedupe = finds_copies(data);
  if (data.filter) c.redact_ = data.filter->redact;
  std::optional<RowFilter> filter;
  std::optional<CopyFinder> finder;
  if (data.filter) filter.emplace(*data.filter, settings ? settings->eval_texts : std::vector<std::string>());
  if (dedupe) finder.emplace(data.dedupe.minhash, folder);
  std::vector<int8_t> failed;  // the check that a row failed, −1 = none
  FirstPass(data, filter ? &*filter : nullptr, dedupe, settings ? settings->curation : "", work)
      .run(source, [&](const Findings& f) {
        if (finder) finder->add(f.prints);
        failed.insert(failed.end(), f.failed.begin(), f.failed.end());
      });
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
  // `similarity()` costs more than all else here: only a sample asks for it.
  const auto drop = [&](uint32_t row, const std::string& reason, std::optional<uint32_t> stays, auto&& similarity) {
    ++r.dropped[reason];
    if (samples[reason]++ >= kSamplesOfEach) return;
    c.wanted_[row].emplace_back(r.samples.size(), false);
    if (stays) c.wanted_[*stays].emplace_back(r.samples.size(), true);
    r.samples.push_back({reason, "", "", "", "", similarity()});
  };
  const auto none = [] { return 0.0; };
  c.stays_.resize(failed.size());
  for (uint32_t i = 0; i < failed.size(); ++i) {
    const bool copy = dedupe && copies.stays[i] != i;
    c.stays_[i] = !copy && failed[i] < 0;
    if (c.stays_[i]) continue;
    if (!copy)
      drop(i, filter->reasons()[static_cast<size_t>(failed[i])], std::nullopt, none);
    else if (copies.exact[i])
      drop(i, kExact, copies.stays[i], none);
    else
      drop(i, kNear, copies.stays[i], [&] { return finder->similarity(i, copies.stays[i]); });
  }
  finder.reset();
  if (data.dedupe.semdedup) r.dropped[kSemanticCopy] = 0;
  if (data.filter && data.filter->max_perplexity) r.dropped[kMaxPerplexity] = 0;
  drop_by_models(
      source, data, settings ? settings->models : Models(), folder, work, &c.stays_,
      [&](const ModelDrop& d) { drop(d.row, d.reason, d.stays, [&] { return d.similarity; }); }, &r.semantic);
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
