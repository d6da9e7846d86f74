#include "data/first_pass.h"

#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "data/shape/row_text.h"

namespace mxt::data {
namespace {

constexpr std::string_view kFindingsRevision = "first 2";  // changes with what findings say of equal rows

// The header, then arrays over all rows: content and spelling of their prints, checks, numbers of shingles, shingles,
// band keys (of rows that have shingles).
struct FindingsHeader {
  char magic[8];
  uint64_t rows, shingles, keys;
  uint32_t printed, last;
};
constexpr char kFindingsMagic[8] = {'m', 'x', 't', 'f', 'n', 'd', '0', '1'};
struct Print {
  uint8_t content[16];
  uint64_t spelling;
  uint32_t shingles, keys;
};

}  // namespace

void put_findings(const Kept& kept, const std::string& name, const Findings& f) {
  std::vector<FindingsHeader> h(1);
  std::memcpy(h[0].magic, kFindingsMagic, sizeof kFindingsMagic);
  std::vector<Print> prints;
  std::vector<uint32_t> shingles, keys;
  for (const RowPrint& r : f.prints) {
    Print& p = prints.emplace_back();
    std::memcpy(p.content, r.content, sizeof p.content);
    p.spelling = r.spelling;
    p.shingles = static_cast<uint32_t>(r.shingles.size());
    p.keys = static_cast<uint32_t>(r.band_keys.size());
    shingles.insert(shingles.end(), r.shingles.begin(), r.shingles.end());
    keys.insert(keys.end(), r.band_keys.begin(), r.band_keys.end());
  }
  h[0].rows = f.failed.size();
  h[0].shingles = shingles.size();
  h[0].keys = keys.size();
  h[0].printed = !f.prints.empty();
  h[0].last = f.last;
  const std::string_view all[] = {bytes_of(h), bytes_of(f.failed), bytes_of(prints), bytes_of(shingles),
                                  bytes_of(keys)};
  kept.put(name, all);
}

bool find_findings(const Kept& kept, const std::string& name, Findings* out) {
  const std::optional<std::string> bytes = kept.find(name);
  if (!bytes) return false;
  KeptReader in(*bytes);
  std::vector<FindingsHeader> h;
  std::vector<Print> prints;
  std::vector<uint32_t> shingles, keys;
  if (!in.take(&h, 1) || std::memcmp(h[0].magic, kFindingsMagic, sizeof kFindingsMagic) != 0 ||
      !in.take(&out->failed, h[0].rows) || !in.take(&prints, h[0].printed ? h[0].rows : 0) ||
      !in.take(&shingles, h[0].shingles) || !in.take(&keys, h[0].keys) || !in.done())
    return false;
  out->last = h[0].last;
  out->prints.resize(prints.size());
  size_t s = 0, k = 0;
  for (size_t i = 0; i < prints.size(); ++i) {
    const Print& p = prints[i];
    RowPrint& r = out->prints[i];
    if (p.shingles > shingles.size() - s || p.keys > keys.size() - k) return false;
    std::memcpy(r.content, p.content, sizeof p.content);
    r.spelling = p.spelling;
    const auto from = shingles.begin() + static_cast<ptrdiff_t>(s);
    r.shingles.assign(from, from + p.shingles);
    const auto key = keys.begin() + static_cast<ptrdiff_t>(k);
    r.band_keys.assign(key, key + p.keys);
    s += p.shingles;
    k += p.keys;
  }
  return true;
}

FirstPass::FirstPass(const config::Data& data, const RowFilter* filter, bool copies, std::string settings,
                     const BlockWork* work)
    : filter_(filter),
      copies_(copies),
      settings_(std::string(kFindingsRevision) + std::move(settings)),
      work_(work),
      prints_(copies ? kPieces : 0, Fingerprinter(data.dedupe.minhash)) {
  if (work) kept_.emplace(work->folder + "/prints");
}

std::string FirstPass::name(const RowStream& stream, size_t block) {
  return block_name(stream, block, settings_, &layouts_);
}

std::optional<Findings> FirstPass::find(const RowStream& stream, size_t block) {
  Findings f;
  if (!kept_ || !find_findings(*kept_, name(stream, block), &f)) return std::nullopt;
  return f;
}

void FirstPass::begin(const RowStream& stream, const std::vector<Record>& rows, const Record& first, Findings* out) {
  if (!rows.empty()) {
    if (rows[0].kind == FileKind::kText)
      fail_input(
          "{}: is plain text, which has no rows; data.dedupe and data.filter work on rows: remove them, or write the "
          "texts as {{\"text\": …}} lines",
          rows[0].where());
    if (stream.file)
      layouts_.of(*stream.source);
    else
      layouts_.offer(*stream.source, first);
  }
  out->prints.resize(copies_ ? rows.size() : 0);
  out->failed.assign(rows.size(), -1);
}

void FirstPass::examine_piece(size_t slot, const RowStream& stream, const std::vector<Record>& rows, Findings* out) {
  if (rows.empty()) return;
  const Layout& layout = layouts_.of(*stream.source);
  const size_t piece = (rows.size() + kPieces - 1) / kPieces, b = std::min(rows.size(), slot * piece),
               e = std::min(rows.size(), b + piece);
  thread_local RowText text;
  for (size_t i = b; i < e; ++i) {
    read_row_text(rows[i], layout, &text);
    if (copies_) prints_[slot].print(text, &out->prints[i]);
    if (filter_) out->failed[i] = static_cast<int8_t>(filter_->check(text));
  }
}

Findings FirstPass::examine(const RowStream& stream, size_t block, const std::vector<Record>& rows, const Record& first,
                            bool last) {
  Findings f;
  begin(stream, rows, first, &f);
  f.last = last;
  parallel_for(0, static_cast<int64_t>(kPieces), 1,
               [&](int64_t k, int64_t) { examine_piece(static_cast<size_t>(k), stream, rows, &f); });
  if (kept_) put_findings(*kept_, name(stream, block), f);
  return f;
}

// A block on its way through run().
struct FirstPass::Block {
  bool there = false, kept = false;
  std::string name;
  std::vector<Record> rows;
  Findings found;
};

void FirstPass::run(const RowSource& source, const std::function<void(const Findings&)>& take) {
  const std::vector<RowStream> streams = source.streams();
  double bytes = 0, before_bytes = 0;
  for (const RowStream& s : streams) bytes += static_cast<double>(s.bytes());
  size_t rows = 0, kept = 0;
  log::Progress progress("data: looking for copies and unwanted rows: " + source.text(), 1);
  for (const RowStream& stream : streams) {
    BlockReader reader(stream);
    Block now, next, before;
    size_t block = 0;
    const auto fill = [&](Block* b, bool more) {
      b->there = more;
      if (!more) return;
      b->kept = false;
      if (kept_) {
        b->name = name(stream, block);
        b->kept = find_findings(*kept_, b->name, &b->found);
        kept += b->kept;
        if (!b->kept && work_->missing) work_->missing(stream, block);
      }
      if (!b->kept) reader.read(block, &b->rows, &b->found.last);
      ++block;
    };
    const auto finish = [&](Block& b) {
      if (!b.there) return;
      if (kept_ && !b.kept) put_findings(*kept_, b.name, b.found);
      take(b.found);
      rows += b.found.failed.size();
    };
    fill(&now, true);
    while (now.there) {
      if (!now.kept) begin(stream, now.rows, now.rows.empty() ? Record() : reader.first(), &now.found);
      // The first pieces of work are reading and writing; on one thread they come first too.
      parallel_for(0, static_cast<int64_t>(kPieces) + 2, 1, [&](int64_t k, int64_t) {
        if (k == 0)
          fill(&next, !now.found.last);
        else if (k == 1)
          finish(before);
        else if (!now.kept)
          examine_piece(static_cast<size_t>(k) - 2, stream, now.rows, &now.found);
      });
      std::swap(before, now);
      std::swap(now, next);
      progress.update(bytes > 0 ? (before_bytes + reader.done() * static_cast<double>(stream.bytes())) / bytes : 0,
                      fmt::format("{} rows", rows));
      if (work_) work_->check_cancel();
    }
    finish(before);
    before_bytes += static_cast<double>(stream.bytes());
  }
  if (kept) log::info("data: {} blocks were looked through before", kept);
}

}  // namespace mxt::data
