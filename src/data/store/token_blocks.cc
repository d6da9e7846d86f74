#include "data/store/token_blocks.h"

#include <cstring>
#include <span>

#include "data/dataset.h"

namespace mxt::data {
namespace {

// The header, the counts of all rows, then ids and labels of all, then what was redacted. Labels that are the ids or
// kNoTarget, as all but finished token rows have them, are lengths of runs: not trained, trained, not trained, …
struct TokensHeader {
  char magic[8];
  uint64_t rows, ids, labels, redacted, pictures;
  uint32_t shape, last;
};
constexpr char kTokensMagic[8] = {'m', 'x', 't', 't', 'o', 'k', '0', '3'};
enum Form : uint8_t { kAllTrained, kRuns, kLabels };
struct Counts {
  uint32_t ids, labels, second, pictures;
  uint8_t form, made, text, last_piece;
  int32_t mark;
};

bool fits_runs(const Document& d) {
  for (size_t i = 0; i < d.ids.size(); ++i)
    if (d.labels[i] != kNoTarget && d.labels[i] != d.ids[i]) return false;
  return true;
}

void append_runs(const Document& d, std::vector<int32_t>* out) {
  bool trained = false;
  int32_t n = 0;
  for (int32_t label : d.labels) {
    if ((label != kNoTarget) != trained) {
      out->push_back(n);
      n = 0;
      trained = !trained;
    }
    ++n;
  }
  out->push_back(n);
}

bool expand_runs(std::span<const int32_t> runs, Document* d) {
  d->labels.reserve(d->ids.size());
  bool trained = false;
  for (int32_t n : runs) {
    if (n < 0 || static_cast<size_t>(n) > d->ids.size() - d->labels.size()) return false;
    for (int32_t i = 0; i < n; ++i) d->labels.push_back(trained ? d->ids[d->labels.size()] : kNoTarget);
    trained = !trained;
  }
  return d->labels.size() == d->ids.size();
}

}  // namespace

void put_tokens(const Kept& kept, const std::string& name, const TokenBlock& block) {
  std::vector<TokensHeader> h(1);
  std::memcpy(h[0].magic, kTokensMagic, sizeof kTokensMagic);
  std::vector<Counts> counts;
  std::vector<int32_t> ids, labels;
  std::vector<DocumentPicture> pictures;
  for (const TokenBlock::Row& r : block.rows) {
    const Document& d = r.document;
    const size_t before = labels.size();
    const Form form = d.labels.empty() ? kAllTrained : fits_runs(d) ? kRuns : kLabels;
    if (form == kRuns) append_runs(d, &labels);
    if (form == kLabels) labels.insert(labels.end(), d.labels.begin(), d.labels.end());
    ids.insert(ids.end(), d.ids.begin(), d.ids.end());
    pictures.insert(pictures.end(), d.pictures.begin(), d.pictures.end());
    counts.push_back({static_cast<uint32_t>(d.ids.size()), static_cast<uint32_t>(labels.size() - before),
                      static_cast<uint32_t>(d.second), static_cast<uint32_t>(d.pictures.size()), form, r.made, r.text,
                      r.last_piece, d.mark});
  }
  h[0].rows = counts.size();
  h[0].ids = ids.size();
  h[0].labels = labels.size();
  h[0].redacted = block.redacted.size();
  h[0].pictures = pictures.size();
  h[0].shape = static_cast<uint32_t>(block.shape);
  h[0].last = block.last;
  const std::string_view all[] = {bytes_of(h),      bytes_of(counts),   bytes_of(ids),
                                  bytes_of(labels), bytes_of(pictures), bytes_of(block.redacted)};
  kept.put(name, all);
}

std::optional<TokenBlock> find_tokens(const Kept& kept, const std::string& name) {
  const std::optional<std::string> bytes = kept.find(name);
  if (!bytes) return std::nullopt;
  KeptReader in(*bytes);
  std::vector<TokensHeader> h;
  std::vector<Counts> counts;
  std::vector<int32_t> ids, labels;
  std::vector<DocumentPicture> pictures;
  TokenBlock out;
  if (!in.take(&h, 1) || std::memcmp(h[0].magic, kTokensMagic, sizeof kTokensMagic) != 0 ||
      !in.take(&counts, h[0].rows) || !in.take(&ids, h[0].ids) || !in.take(&labels, h[0].labels) ||
      !in.take(&pictures, h[0].pictures) || !in.take(&out.redacted, h[0].redacted) || !in.done() ||
      h[0].shape > static_cast<uint32_t>(Shape::kCalls) ||
      (!out.redacted.empty() && out.redacted.size() != counts.size()))
    return std::nullopt;
  out.shape = static_cast<Shape>(h[0].shape);
  out.last = h[0].last;
  out.rows.resize(counts.size());
  size_t i = 0, l = 0, seen = 0;
  for (size_t k = 0; k < counts.size(); ++k) {
    const Counts& c = counts[k];
    TokenBlock::Row& r = out.rows[k];
    if (c.ids > ids.size() - i || c.labels > labels.size() - l) return std::nullopt;
    const auto from = ids.begin() + static_cast<ptrdiff_t>(i);
    r.document.ids.assign(from, from + c.ids);
    const std::span<const int32_t> own(labels.data() + l, c.labels);
    if (c.form == kLabels) r.document.labels.assign(own.begin(), own.end());
    if (c.form == kRuns && !expand_runs(own, &r.document)) return std::nullopt;
    if (c.form == kLabels && c.labels != c.ids) return std::nullopt;
    if (c.second > c.ids) return std::nullopt;
    if (c.pictures > pictures.size() - seen) return std::nullopt;
    for (uint32_t p = 0; p < c.pictures; ++p) {
      r.document.pictures.push_back(pictures[seen++]);
      if (r.document.pictures.back().first >= c.ids) return std::nullopt;
    }
    r.document.second = c.second;
    r.document.mark = c.mark;
    r.made = c.made;
    r.text = c.text;
    r.last_piece = c.last_piece;
    i += c.ids;
    l += c.labels;
  }
  return out;
}

}  // namespace mxt::data
