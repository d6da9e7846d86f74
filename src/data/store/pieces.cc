#include "data/store/pieces.h"

#include <cstring>
#include <span>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "data/dataset.h"

namespace mxt::data {
namespace {

// A file: a header of Numbers, the counts of all documents (one row of Counts each), then ids and labels of all, then
// the BLAKE3 digest of everything before it. Labels that are the ids or kNoTarget, as all but finished token rows have
// them, are lengths of runs: not trained, trained, not trained, …
struct Header {
  char magic[8];
  uint64_t documents, ids, labels;
};
constexpr char kMagic[8] = {'m', 'x', 't', 'p', 'c', 's', '0', '1'};
enum Form : uint32_t { kAllTrained, kRuns, kLabels };
struct Counts {
  uint32_t ids, labels, form;
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

void Pieces::put(const std::string& digest, const std::vector<Document>& documents) const {
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  std::vector<Counts> counts;
  std::vector<int32_t> labels;
  for (const Document& d : documents) {
    const size_t before = labels.size();
    const Form form = d.labels.empty() ? kAllTrained : fits_runs(d) ? kRuns : kLabels;
    if (form == kRuns) append_runs(d, &labels);
    if (form == kLabels) labels.insert(labels.end(), d.labels.begin(), d.labels.end());
    counts.push_back({static_cast<uint32_t>(d.ids.size()), static_cast<uint32_t>(labels.size() - before), form});
    h.ids += d.ids.size();
  }
  h.documents = documents.size();
  h.labels = labels.size();
  make_folders(folder_);
  AtomicFile file((fs::path(folder_) / digest).string());
  Blake3 check;
  const auto write = [&](const void* data, size_t bytes) {
    file.write(data, bytes);
    check.update(data, bytes);
  };
  write(&h, sizeof h);
  write(counts.data(), counts.size() * sizeof(Counts));
  for (const Document& d : documents) write(d.ids.data(), d.ids.size() * sizeof(int32_t));
  write(labels.data(), labels.size() * sizeof(int32_t));
  const Digest d = check.digest();
  file.write(d.data(), d.size());
  file.commit();
}

std::optional<std::vector<Document>> Pieces::find(const std::string& digest) const {
  const std::string path = (fs::path(folder_) / digest).string();
  std::error_code ec;
  if (!fs::is_regular_file(path, ec)) return std::nullopt;
  const std::string bytes = read_file(path);
  Header h;
  constexpr size_t kEnd = sizeof(Digest);
  if (bytes.size() < sizeof h + kEnd) return std::nullopt;
  std::memcpy(&h, bytes.data(), sizeof h);
  Blake3 check;
  check.update(bytes.data(), bytes.size() - kEnd);
  const Digest wanted = check.digest();
  const uint64_t limit = bytes.size();  // no count can pass it: the sum below cannot overflow
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0 ||
      std::memcmp(wanted.data(), bytes.data() + bytes.size() - kEnd, kEnd) != 0 || h.documents > limit ||
      h.ids > limit || h.labels > limit ||
      sizeof h + h.documents * sizeof(Counts) + (h.ids + h.labels) * sizeof(int32_t) + kEnd != bytes.size())
    return std::nullopt;
  std::vector<Counts> counts(h.documents);
  std::vector<int32_t> ids(h.ids), labels(h.labels);
  const char* at = bytes.data() + sizeof h;
  const auto take = [&](auto& v) {
    const size_t n = v.size() * sizeof v[0];
    if (n) std::memcpy(v.data(), at, n);
    at += n;
  };
  take(counts);
  take(ids);
  take(labels);
  std::vector<Document> out(counts.size());
  size_t i = 0, l = 0;
  for (size_t k = 0; k < counts.size(); ++k) {
    const Counts& c = counts[k];
    Document& d = out[k];
    if (c.ids > ids.size() - i || c.labels > labels.size() - l) return std::nullopt;
    const auto from = ids.begin() + static_cast<ptrdiff_t>(i);
    d.ids.assign(from, from + c.ids);
    const std::span<const int32_t> own(labels.data() + l, c.labels);
    if (c.form == kLabels) d.labels.assign(own.begin(), own.end());
    if (c.form == kRuns && !expand_runs(own, &d)) return std::nullopt;
    i += c.ids;
    l += c.labels;
  }
  return out;
}

}  // namespace mxt::data
