#include "data/prepare.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/text.h"
#include "base/threads.h"
#include "data/curate.h"
#include "data/encode/encode.h"
#include "data/encode/pack.h"
#include "data/settings.h"
#include "data/shape/example.h"
#include "data/store/manifest.h"
#include "data/store/pieces.h"
#include "data/store/shard.h"
#include "data/store/spill.h"
#include "data/streams.h"

namespace mxt::data {
namespace {

constexpr int kRevision = 2;  // counts changes of this code that change the prepared bytes

// All that decides the prepared bytes.
OrderedJson inputs_of(const Settings& s, const Coder& coder) {
  OrderedJson j = {{"revision", kRevision},
                   {"sources", s.train.describe()},
                   {"tokenizer", coder.digest()},
                   {"columns", s.columns},
                   {"seq_len", s.seq_len},
                   {"packing", s.packing},
                   {"sampling", s.windows ? "random_windows" : "documents"},
                   {"train_on", s.train_all ? "all" : "assistant"},
                   {"num_shards", s.num_shards},
                   {"eval_fraction", s.eval_fraction}};
  if (!s.train.sql.empty()) j["sql"] = s.train.sql;
  j.update(parse_ordered_json(s.curation, "curation"));
  if (s.eval) j["eval_sources"] = s.eval->describe();
  if (s.train.max_rows != INT64_MAX) j["max_samples"] = s.train.max_rows;
  if (s.eval_fraction > 0) j["seed"] = s.seed;
  return j;
}

// Where a file stands does not change what it becomes.
std::string key_of(OrderedJson inputs) {
  for (const char* list : {"sources", "eval_sources"})
    if (inputs.contains(list))
      for (OrderedJson& source : inputs[list]) source.erase("path");
  return blake3_hex(canonical_json(Json::parse(inputs.dump())));
}

// Reads one source into a spill file, piece by piece.
class Reader {
 public:
  Reader(const Settings& s, const Coder& coder, const Pieces& pieces, const Access& access, Prepared* counts)
      : s_(s), coder_(coder), pieces_(pieces), access_(access), counts_(counts) {}

  void read(const RowSource& source, std::unique_ptr<RecordReader> rows, Spill* out) {
    std::vector<Record> batch;
    layout_.reset();
    int64_t before = counts_->rows_in, tokens = 0, found = 0;
    log::Progress progress("data: " + source.text(), 1);
    while (take_batch(*rows, &batch)) {
      if (!layout_) set_layout(batch[0]);
      const std::string digest = digest_of(batch);
      std::optional<std::vector<Document>> documents = pieces_.find(digest);
      if (documents && documents->size() == batch.size()) {
        ++found;
      } else {
        documents = encode(batch);
        pieces_.put(digest, *documents);
      }
      for (size_t i = 0; i < batch.size(); ++i) {
        tokens += static_cast<int64_t>((*documents)[i].ids.size());
        collect(batch[i], std::move((*documents)[i]), out);
      }
      progress.update(rows->done(), fmt::format("{} rows, {} tokens", counts_->rows_in - before, tokens));
      if (access_.cancel && *access_.cancel)
        throw Error(Exit::kInterrupted, "interrupted; what is tokenized is kept, the same command goes on from there");
    }
    if (found) log::info("data: {} pieces were tokenized before", found);
    if (counts_->rows_in == before) fail_input("{}: holds no rows; check data.path", source.text());
  }

 private:
  void set_layout(const Record& first) {
    layout_ = find_layout(first, s_.columns);
    const Shape shape = layout_->shape;
    log::info("data: rows are {}", first.kind == FileKind::kText ? "plain text" : layout_->text());
    counts_->shape = name_of(shape);
    if (shape == Shape::kPreference || shape == Shape::kReference) {
      check_row(first, *layout_);
      fail_missing(
          "{}: rows are {}, for preference or reinforcement methods, which this build does not have; to train on "
          "answers name them by data.columns, as {{prompt: prompt, {}: completion}}",
          first.where(), name_of(shape), shape == Shape::kPreference ? "chosen" : "answer");
    }
    if (s_.windows && shape != Shape::kText)
      fail_input("{}: rows are {}; data.sampling: random_windows reads text only, use documents", first.where(),
                 name_of(shape));
  }

  // Some MiB of rows: work for all threads, little memory, and seldom more than a second that a crash can cost. Where a
  // piece ends depends on the rows of its own file alone, so a file that changes leaves the pieces of the others as
  // they are.
  bool take_batch(RecordReader& rows, std::vector<Record>* batch) {
    constexpr size_t kRows = 32768, kBytes = size_t{16} << 20;
    batch->clear();
    size_t bytes = 0;
    while (batch->size() < kRows && bytes < kBytes) {
      if (!ahead_) {
        ahead_.emplace();
        if (!rows.next(&*ahead_)) {
          ahead_.reset();
          break;
        }
      }
      if (!batch->empty() && *batch->back().path != *ahead_->path) break;
      bytes += ahead_->text.size();
      for (const std::string& c : ahead_->cells) bytes += c.size();
      batch->push_back(std::move(*ahead_));
      ahead_.reset();
    }
    return !batch->empty();
  }

  // Of all that decides the documents of a piece.
  std::string digest_of(const std::vector<Record>& batch) const {
    Blake3 h;
    const auto add = [&](std::string_view s) {
      const uint64_t n = s.size();
      h.update(&n, sizeof n);
      h.update(s);
    };
    add(fmt::format("{} {} {} {}", kRevision, coder_.digest(), s_.train_all, s_.windows));
    add(layout_->text());
    for (const Record& r : batch) {
      const uint8_t kind[2] = {static_cast<uint8_t>(r.kind), r.last_piece};
      h.update(kind, sizeof kind);
      add(r.text);
      if (!r.header) continue;
      for (const std::string& c : *r.header) add(c);
      for (const std::string& c : r.cells) add(c);
    }
    return h.hex();
  }

  std::vector<Document> encode(const std::vector<Record>& batch) const {
    std::vector<Document> out(batch.size());
    std::vector<std::exception_ptr> errors(batch.size());
    parallel_for(0, static_cast<int64_t>(batch.size()), 4, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) {
        const Record& r = batch[static_cast<size_t>(i)];
        const bool end_text = r.kind != FileKind::kText || (r.last_piece && !s_.windows);
        try {
          out[static_cast<size_t>(i)] =
              encode_example(read_example(r, *layout_), coder_, {s_.train_all, end_text}, r.where());
        } catch (...) {
          errors[static_cast<size_t>(i)] = std::current_exception();
        }
      }
    });
    for (const auto& e : errors)  // the first bad row is named, whichever thread met one first
      if (e) std::rethrow_exception(e);
    return out;
  }

  void collect(const Record& r, Document d, Spill* out) {
    counts_->rows_in += r.last_piece;
    if (s_.windows) {
      if (!d.ids.empty()) out->add(d);
    } else if (r.kind == FileKind::kText) {
      add_text(d.ids, r.last_piece, out);
    } else {
      const int64_t length = static_cast<int64_t>(d.ids.size());
      if (cut(d, s_.seq_len)) {
        ++counts_->cut;
        counts_->cut_tokens += length - s_.seq_len;
      }
      add(d, out);
    }
  }

  // A file of plain text has no rows of its own: consecutive pieces of seq_len tokens are its documents.
  void add_text(const std::vector<int32_t>& ids, bool last, Spill* out) {
    text_.insert(text_.end(), ids.begin(), ids.end());
    const size_t n = static_cast<size_t>(s_.seq_len);
    size_t at = 0;
    for (; text_.size() - at >= n || (last && at < text_.size()); at += std::min(n, text_.size() - at)) {
      const auto from = text_.begin() + static_cast<ptrdiff_t>(at);
      add({{from, from + static_cast<ptrdiff_t>(std::min(n, text_.size() - at))}, {}}, out);
    }
    text_.erase(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at));
  }

  void add(const Document& d, Spill* out) {
    if (count_targets(d) == 0)
      ++counts_->dropped_no_target;
    else
      out->add(d);
  }

  const Settings& s_;
  const Coder& coder_;
  const Pieces& pieces_;
  const Access& access_;
  Prepared* counts_;
  std::optional<Record> ahead_;  // read, and not yet in a piece
  std::optional<Layout> layout_;
  std::vector<int32_t> text_;
};

// The documents held out: exactly round(fraction · n) of them, at least one, never all; chosen by the seed.
std::vector<bool> choose_held_out(size_t n, double fraction, uint64_t seed) {
  std::vector<bool> held(n, false);
  if (fraction <= 0) return held;
  if (n < 2) fail_input("data.eval_fraction: {} document is too few to hold one out; remove it", n);
  std::vector<uint32_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = static_cast<uint32_t>(i);
  Philox(seed, streams::kHeldOut).shuffle(order);
  const size_t k = std::clamp<size_t>(static_cast<size_t>(fraction * static_cast<double>(n) + 0.5), 1, n - 1);
  for (size_t i = 0; i < k; ++i) held[order[i]] = true;
  return held;
}

ShardFile described(const std::string& out, std::string name) {
  const FileDigests d = hash_file((fs::path(out) / name).string());
  return {std::move(name), d.bytes, d.blake3};
}

int64_t targets_of(const DocumentView& v) {
  const auto& labels = v.labels.empty() ? v.ids : v.labels;
  return static_cast<int64_t>(labels.size()) - 1 - std::count(labels.begin() + 1, labels.end(), kNoTarget);
}

Part write_rows(const std::string& out, std::string_view name, const Settings& s, const Spill& spill,
                const std::vector<uint32_t>& documents) {
  std::vector<uint32_t> lengths;
  Part part;
  for (uint32_t d : documents) {
    lengths.push_back(spill.length(d));
    part.info.tokens += spill.length(d);
    part.info.targets += targets_of(spill.view(d));
  }
  const Packing p = s.packing ? pack_best_fit(lengths, static_cast<uint32_t>(s.seq_len)) : one_per_row(lengths.size());
  std::vector<std::span<const uint32_t>> rows;
  for (size_t r = 0; r < p.rows(); ++r) {
    rows.emplace_back(p.documents.data() + p.begin[r], p.begin[r + 1] - p.begin[r]);
    int64_t n = 0;
    for (uint32_t d : rows.back()) n += lengths[d];
    part.info.longest = std::max(part.info.longest, n);
  }
  part.info.rows = static_cast<int64_t>(rows.size());
  part.info.documents = static_cast<int64_t>(documents.size());
  const size_t shards = std::clamp<size_t>(static_cast<size_t>(s.num_shards), 1, rows.size());
  for (size_t i = 0; i < shards; ++i) {
    const std::string file = part_file_name(name, i, shards);
    const size_t b = rows.size() * i / shards, e = rows.size() * (i + 1) / shards;
    write_shard((fs::path(out) / file).string(), std::span(rows).subspan(b, e - b),
                [&](uint32_t d) { return spill.view(documents[d]); });
    part.files.push_back(described(out, file));
  }
  return part;
}

Part write_windows(const std::string& out, std::string_view name, const Settings& s, const Spill& spill,
                   std::span<const int32_t> ids) {
  const int64_t n = static_cast<int64_t>(ids.size());
  if (n <= s.seq_len)
    fail_input(
        "data: the {} part has {} tokens, one window needs {} (data.seq_len + 1); use more text or a shorter seq_len",
        name, n, s.seq_len + 1);
  const std::string file = part_file_name(name, 0, 1);
  constexpr size_t kPiece = size_t{4} << 20;
  write_array((fs::path(out) / file).string(), n, [&](size_t k) {
    spill.forget();
    const size_t at = std::min(k * kPiece, ids.size());
    return ids.subspan(at, std::min(kPiece, ids.size() - at));
  });
  Part part{{0, 0, n, n - 1, 0}, {}};
  part.files.push_back(described(out, file));
  return part;
}

void write_documents(const std::string& out, const Settings& s, const Spill& train, const Spill* eval, Manifest* m) {
  const std::vector<bool> held = choose_held_out(train.documents(), s.eval_fraction, s.seed);
  std::vector<uint32_t> in_train, in_eval;
  for (uint32_t d = 0; d < train.documents(); ++d) (held[d] ? in_eval : in_train).push_back(d);
  m->train = write_rows(out, "train", s, train, in_train);
  if (eval) {
    in_eval.resize(eval->documents());
    for (uint32_t d = 0; d < in_eval.size(); ++d) in_eval[d] = d;
    m->eval = write_rows(out, "eval", s, *eval, in_eval);
  } else if (!in_eval.empty()) {
    m->eval = write_rows(out, "eval", s, train, in_eval);
  }
}

void write_arrays(const std::string& out, const Settings& s, const Spill& train, const Spill* eval, Manifest* m) {
  const std::span<const int32_t> ids = train.all_ids();
  const size_t cut = static_cast<size_t>(static_cast<double>(ids.size()) * (1 - s.eval_fraction));
  m->train = write_windows(out, "train", s, train, ids.first(cut));
  if (eval)
    m->eval = write_windows(out, "eval", s, *eval, eval->all_ids());
  else if (s.eval_fraction > 0)
    m->eval = write_windows(out, "eval", s, train, ids.subspan(cut));
}

// The manifest goes first and comes last: a folder with a manifest is whole.
void remove_old(const std::string& out) {
  std::error_code ignored;
  if (!has_manifest(out)) return;
  try {
    const Manifest old = read_manifest(out);
    fs::remove(fs::path(out) / kManifestName, ignored);
    for (const Part* p : {&old.train, old.part("eval")})
      if (p)
        for (const ShardFile& f : p->files)
          if (f.name.ends_with(".safetensors")) fs::remove(fs::path(out) / f.name, ignored);
  } catch (const Error& e) {
    fail_input("{} (or choose another folder)", e.what());
  }
}

// What a killed run left half-written. Pieces are whole, and stay.
void remove_leftovers(const std::string& out) {
  std::error_code ignored;
  make_folders((fs::path(out) / kWorkFolder).string());
  for (const auto& e : fs::directory_iterator(fs::path(out) / kWorkFolder))
    if (e.path().filename() != "pieces") fs::remove_all(e.path(), ignored);
  for (const auto& e : fs::directory_iterator(out)) {
    const std::string name = e.path().filename().string();
    const bool shard =
        (name.starts_with("train-") || name.starts_with("eval-")) && name.find(".safetensors.") != std::string::npos;
    if (name.ends_with(".tmp") && (shard || name.starts_with(std::string(kManifestName) + ".")))
      fs::remove(e.path(), ignored);
  }
}

bool still_good(const std::string& out, const Manifest& m) {
  for (const Part* p : {&m.train, m.part("eval")})
    if (p)
      if (const std::string wrong = check_files(out, *p, true); !wrong.empty()) {
        log::warn("data: {}; preparing again", wrong);
        return false;
      }
  return true;
}

void need_rows(const Spill& spill, const RowSource& source, const Prepared& counts) {
  if (spill.documents() == 0)
    fail_input(
        "{}: no row is left to train on: {} rows read, {} without a trained token; check the columns, seq_len and the "
        "assistant turns",
        source.text(), counts.rows_in, counts.dropped_no_target);
}

}  // namespace

std::string Prepared::text() const {
  std::string s = fmt::format("{} rows in ({})", rows_in, shape);
  if (curation) s += curation->text();
  if (dropped_no_target) s += fmt::format(", {} dropped without a trained token", dropped_no_target);
  if (cut) s += fmt::format(", {} cut at seq_len ({} tokens lost)", cut, cut_tokens);
  const auto part = [&](const char* name, const PartInfo& p) {
    if (p.rows)
      s += fmt::format("; {}: {} documents in {} rows, {} tokens, {} trained", name, p.documents, p.rows, p.tokens,
                       p.targets);
    else if (p.tokens)
      s += fmt::format("; {}: {} tokens", name, p.tokens);
  };
  part("train", train);
  part("eval", eval);
  return s;
}

Prepared prepare(const config::Recipe& recipe, const Coder& coder, const std::string& out, const Access& access) {
  const Settings s = read_settings(recipe, access, out);
  Manifest m;
  const OrderedJson inputs = inputs_of(s, coder);
  m.inputs = inputs.dump();
  m.key = key_of(inputs);
  m.windows = s.windows;
  m.seq_len = s.seq_len;
  if (has_manifest(out)) {
    const Manifest old = read_manifest(out);
    if (old.key == m.key && still_good(out, old)) {
      Prepared kept = old.counts;
      kept.kept = true;
      log::info("data: {} is already prepared", out);
      return kept;
    }
  }
  make_folders(out);
  const FolderLock lock(out);
  remove_old(out);
  remove_leftovers(out);

  const fs::path work = fs::path(out) / kWorkFolder;
  Spill train((work / "train-documents").string()), eval((work / "eval-documents").string());
  const Pieces pieces((work / "pieces").string());
  Reader reader(s, coder, pieces, access, &m.counts);
  if (s.eval) {
    reader.read(*s.eval, s.eval->open(), &eval);
    eval.finish();
    need_rows(eval, *s.eval, m.counts);
  }
  Curation curation = curate(s.train, recipe.data, out, s.models, access.cancel);
  reader.read(s.train, curation.stay(s.train.open()), &train);
  if (curation.active()) {
    m.counts.curation = curation.report();
    m.counts.rows_in += curation.report().total_dropped();
  }
  train.finish();
  need_rows(train, s.train, m.counts);
  (s.windows ? write_arrays : write_documents)(out, s, train, s.eval ? &eval : nullptr, &m);
  m.counts.train = m.train.info;
  if (m.eval) m.counts.eval = m.eval->info;
  write_manifest(out, m);
  std::error_code ignored;
  fs::remove_all(work, ignored);
  log::info("data: {}", m.counts.text());
  return m.counts;
}

std::string corpus_characters(const config::Recipe& recipe, const Access& access) {
  const Settings s = read_settings(recipe, access, "");
  std::set<uint32_t> seen;
  for (const RowSource* source : {&s.train, s.eval ? &*s.eval : nullptr}) {
    if (!source) continue;
    const auto rows = source->open();
    Record r;
    std::optional<Layout> layout;
    while (rows->next(&r)) {
      if (!layout) layout = find_layout(r, s.columns);
      if (layout->shape != Shape::kText)
        fail_input("{}: rows are {}; a character tokenizer is built from text rows", r.where(), name_of(layout->shape));
      const Example e = read_example(r, *layout);
      for (size_t i = 0; i < e.text.size();) seen.insert(next_code_point(e.text, i));
    }
  }
  std::string all;
  for (uint32_t c : seen) append_utf8(all, c);
  return all;
}

}  // namespace mxt::data
