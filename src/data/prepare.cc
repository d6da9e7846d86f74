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
#include "data/curate.h"
#include "data/encode/encode.h"
#include "data/encode/mix.h"
#include "data/encode/pack.h"
#include "data/inputs.h"
#include "data/jobs.h"
#include "data/settings.h"
#include "data/shape/example.h"
#include "data/store/manifest.h"
#include "data/store/shard.h"
#include "data/store/spill.h"
#include "data/streams.h"
#include "data/token_pass.h"

namespace mxt::data {
namespace {

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

Packing pack(const Settings& s, std::span<const uint32_t> lengths) {
  const auto seq_len = static_cast<uint32_t>(s.seq_len);
  if (!s.packing || s.answers != Answers::kNone) return one_per_row(lengths.size());
  if (s.crop) return pack_bos_crop(lengths, seq_len + 1);
  return s.best_fit ? pack_by_buffer(lengths, seq_len + 1) : pack_best_fit(lengths, seq_len);
}

// Parts are made within the work folder (`work`): what is refused on the way leaves an older dataset as it was.
constexpr const char* kMadeFolder = "made";
std::string made_in(const fs::path& work) { return (work / kMadeFolder).string(); }

Part write_rows(const fs::path& work, std::string_view name, const Settings& s, const Spill& spill,
                const std::vector<uint32_t>& documents, Prepared* counts) {
  std::vector<uint32_t> lengths;
  Part part;
  int64_t all = 0;
  for (uint32_t d : documents) lengths.push_back(spill.length(d)), all += spill.length(d);
  Packing p = pack(s, lengths);
  for (uint32_t& d : p.documents) d = documents[d];
  std::vector<RowDocuments> rows;
  for (size_t r = 0; r < p.rows(); ++r) {
    const uint32_t b = p.begin[r], n = p.begin[r + 1] - b;
    rows.push_back({std::span(p.documents).subspan(b, n),
                    p.kept.empty() ? std::span<const uint32_t>() : std::span(p.kept).subspan(b, n)});
    int64_t tokens = 0;
    for (uint32_t i = 0; i < n; ++i) {
      tokens += rows.back().length(i, spill);
      part.info.targets += p.kept.empty() ? spill.targets(rows.back().documents[i]) : p.kept[b + i] - 1;
      if (!p.kept.empty()) counts->cut += p.kept[b + i] < spill.length(rows.back().documents[i]);
    }
    // What is joined trains what its documents begin with too.
    for (uint32_t i = 1; s.join_row && i < n; ++i) {
      const uint32_t d = rows.back().documents[i];
      part.info.targets += !spill.labelled(d) || spill.view(d).labels[0] != kNoTarget;
    }
    part.info.tokens += tokens;
    part.info.longest = std::max(part.info.longest, s.crop ? s.seq_len : std::min(tokens, s.seq_len));
  }
  if (s.crop) counts->cut_tokens += all - part.info.tokens;
  if (rows.empty())
    fail_input(
        "data: the {} part has {} tokens, one row of data.pack: bos_crop needs {} (data.seq_len + 1); use more text or "
        "a "
        "shorter seq_len{}",
        name, all, s.seq_len + 1, name == "eval" ? ", or hold out more (data.eval_fraction)" : "");
  part.info.rows = static_cast<int64_t>(rows.size());
  part.info.documents = static_cast<int64_t>(p.documents.size());
  const PictureStore pictures((work / "pictures").string());
  const size_t shards = std::clamp<size_t>(static_cast<size_t>(s.num_shards), 1, rows.size());
  for (size_t i = 0; i < shards; ++i) {
    const std::string file = part_file_name(name, i, shards);
    const size_t b = rows.size() * i / shards, e = rows.size() * (i + 1) / shards;
    write_shard((work / kMadeFolder / file).string(), std::span(rows).subspan(b, e - b), spill, s.join_row, &pictures);
    part.files.push_back(described(made_in(work), file));
  }
  return part;
}

Part write_windows(const fs::path& work, std::string_view name, const Settings& s, const Spill& spill,
                   std::span<const int32_t> ids) {
  const int64_t n = static_cast<int64_t>(ids.size());
  if (n <= s.seq_len)
    fail_input(
        "data: the {} part has {} tokens, one window needs {} (data.seq_len + 1); use more text or a shorter seq_len",
        name, n, s.seq_len + 1);
  const std::string file = part_file_name(name, 0, 1);
  constexpr size_t kPiece = size_t{4} << 20;
  write_array((work / kMadeFolder / file).string(), n, [&](size_t k) {
    spill.forget();
    const size_t at = std::min(k * kPiece, ids.size());
    return ids.subspan(at, std::min(kPiece, ids.size() - at));
  });
  Part part{{0, 0, n, n - 1, 0}, {}};
  part.files.push_back(described(made_in(work), file));
  return part;
}

// Of each source of a mixture the documents that its weight asks for; `documents`: those not held out, in file order.
std::vector<uint32_t> mix_sources(const Settings& s, const Spill& spill, const std::vector<uint32_t>& documents,
                                  std::vector<MixedSource>* sources) {
  std::vector<MixPart> parts;
  size_t at = 0;
  uint32_t end = 0;
  for (MixedSource& m : *sources) {
    end += static_cast<uint32_t>(m.documents);
    const size_t begin = at;
    for (m.tokens = 0; at < documents.size() && documents[at] < end; ++at) m.tokens += spill.length(documents[at]);
    m.documents = static_cast<int64_t>(at - begin);
    if (at == begin)
      fail_input("{}: no document of this source of data.mixture is left to train on ({} rows read); remove it",
                 m.source, m.rows_in);
    parts.push_back({m.weight, std::span(documents).subspan(begin, at - begin)});
  }
  std::vector<uint32_t> all;
  const auto mixed = mix(parts, s.mixture_stop, [&](uint32_t d) { return spill.length(d); }, s.seed);
  for (size_t i = 0; i < mixed.size(); ++i) {
    (*sources)[i].used_documents = static_cast<int64_t>(mixed[i].size());
    for (uint32_t d : mixed[i]) (*sources)[i].used_tokens += spill.length(d);
    all.insert(all.end(), mixed[i].begin(), mixed[i].end());
  }
  return all;
}

void write_documents(const fs::path& work, const Settings& s, const Spill& train, const Spill* eval, Manifest* m) {
  const std::vector<bool> held = choose_held_out(train.documents(), s.eval_fraction, s.seed);
  std::vector<uint32_t> in_train, in_eval;
  for (uint32_t d = 0; d < train.documents(); ++d) (held[d] ? in_eval : in_train).push_back(d);
  if (!m->counts.mixture.empty()) in_train = mix_sources(s, train, in_train, &m->counts.mixture);
  m->train = write_rows(work, "train", s, train, in_train, &m->counts);
  if (eval) {
    in_eval.resize(eval->documents());
    for (uint32_t d = 0; d < in_eval.size(); ++d) in_eval[d] = d;
    m->eval = write_rows(work, "eval", s, *eval, in_eval, &m->counts);
  } else if (!in_eval.empty()) {
    m->eval = write_rows(work, "eval", s, train, in_eval, &m->counts);
  }
}

void write_arrays(const fs::path& work, const Settings& s, const Spill& train, const Spill* eval, Manifest* m) {
  const std::span<const int32_t> ids = train.all_ids();
  const size_t cut = static_cast<size_t>(static_cast<double>(ids.size()) * (1 - s.eval_fraction));
  m->train = write_windows(work, "train", s, train, ids.first(cut));
  if (eval)
    m->eval = write_windows(work, "eval", s, *eval, eval->all_ids());
  else if (s.eval_fraction > 0)
    m->eval = write_windows(work, "eval", s, train, ids.subspan(cut));
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

void move_parts(const std::string& out, const fs::path& work, const Manifest& m) {
  for (const Part* p : {&m.train, m.part("eval")})
    if (p)
      for (const ShardFile& f : p->files) fs::rename(work / kMadeFolder / f.name, fs::path(out) / f.name);
}

// What a killed run left half-written. Blocks are whole, and stay.
void remove_leftovers(const std::string& out) {
  const std::set<fs::path> whole = {"prints", "models", "tokens", kJobsFolder};
  std::error_code ignored;
  make_folders((fs::path(out) / kWorkFolder).string());
  for (const auto& e : fs::directory_iterator(fs::path(out) / kWorkFolder))
    if (!whole.contains(e.path().filename())) fs::remove_all(e.path(), ignored);
  remove_unfinished(out);
}

// What is wrong with the files of a finished folder, or "".
std::string damage_of(const std::string& out, const Manifest& m) {
  for (const Part* p : {&m.train, m.part("eval")})
    if (p)
      if (std::string wrong = check_files(out, *p, true); !wrong.empty()) return wrong;
  return "";
}

// What data.seq_len was too short for, of so many rows.
std::string too_long(const config::Recipe& recipe, const Settings& s, const Prepared& counts) {
  const bool whole = recipe.train.method.kind == config::MethodKind::kReward;
  const char* what = s.answers == Answers::kPrompts ? "a prompt that leaves no room for an answer in data.seq_len"
                     : whole                        ? "a sequence that is longer than data.seq_len"
                                                    : "nothing to train on within data.seq_len";
  return fmt::format("{} have {} ({}); raise it (the shortest of them needs {}) or shorten the rows", counts.too_long,
                     what, s.seq_len, counts.long_enough);
}

void need_rows(const Spill& spill, const config::Recipe& recipe, const Settings& s, const RowSource& source,
               const Prepared& counts) {
  if (spill.documents() > 0) return;
  const std::string rows = fmt::format("{}: no row is left to train on: {} rows read, ", source.text(), counts.rows_in);
  if (counts.too_long > 0) fail_input("{}{}", rows, too_long(recipe, s, counts));
  fail_input("{}{} without a trained token; check the columns, seq_len and the assistant turns", rows,
             counts.dropped_no_target);
}

void need_both_marks(const Settings& s, const Spill& spill) {
  if (s.answers != Answers::kLabelled || spill.documents() == 0) return;
  bool good = false, bad = false;
  for (size_t i = 0; i < spill.documents(); ++i) (spill.mark(i) > 0 ? good : bad) = true;
  if (!good || !bad)
    fail_input(
        "{}: every answer's \"label\" is {}: this method needs good and bad answers; add rows with the other label",
        s.train.text(), good ? "true" : "false");
}

}  // namespace

std::string Prepared::text() const {
  std::string s = fmt::format("{} rows in ({})", rows_in, shape);
  if (curation) s += curation->text();
  if (dropped_no_target) s += fmt::format(", {} dropped with nothing to train on within seq_len", dropped_no_target);
  if (cut) s += fmt::format(", {} cut{} ({} tokens lost)", cut, cropped ? " to fill rows" : " at seq_len", cut_tokens);
  const auto part = [&](const char* name, const PartInfo& p) {
    if (p.rows)
      s += fmt::format("; {}: {} documents in {} rows, {} tokens, {} trained", name, p.documents, p.rows, p.tokens,
                       p.targets);
    else if (p.tokens)
      s += fmt::format("; {}: {} tokens", name, p.tokens);
  };
  part("train", train);
  for (const MixedSource& m : mixture)
    s += fmt::format(
        "; {}: {:.1f} % of it ({} tokens, {} documents of {})", m.source,
        100.0 * static_cast<double>(m.used_tokens) / static_cast<double>(std::max<int64_t>(train.tokens, 1)),
        m.used_tokens, m.used_documents, m.documents);
  part("eval", eval);
  return s;
}

namespace {

// Of a finished folder for the same inputs. Only who holds the folder prepares it again, and says so.
std::optional<Prepared> find_prepared(const std::string& out, const std::string& key, bool held) {
  if (!has_manifest(out)) return std::nullopt;
  const Manifest old = read_manifest(out);
  if (old.key != key) return std::nullopt;
  if (const std::string wrong = damage_of(out, old); !wrong.empty()) {
    if (held) log::warn("data: {}; preparing again", wrong);
    return std::nullopt;
  }
  Prepared kept = old.counts;
  kept.kept = true;
  log::info("data: {} is already prepared", out);
  return kept;
}

// `jobs` > 0: they have done all blocks.
Prepared prepare(const config::Recipe& recipe, const Settings& s, const SampleEncoder& coder, const std::string& out,
                 const Access& access, int jobs) {
  Manifest m;
  const OrderedJson inputs = inputs_of(s, coder);
  m.inputs = inputs.dump();
  m.key = key_of(inputs);
  m.windows = s.windows;
  m.seq_len = s.seq_len;
  m.counts.cropped = s.crop;
  if (const auto kept = find_prepared(out, m.key, false)) return *kept;
  make_folders(out);
  const FolderLock lock(out);
  if (const auto kept = find_prepared(out, m.key, true)) return *kept;  // by whoever had the lock before
  remove_leftovers(out);

  const fs::path folder = fs::path(out) / kWorkFolder;
  BlockWork work{folder.string(), access.cancel, {}};
  if (jobs > 0) work.missing = missing_part(s, jobs);
  Spill train(folder.string()), eval(folder.string());
  for (const RowSource& source : s.train.mixture) m.counts.mixture.push_back({source.text(), source.weight});
  TokenPass tokens(s, coder, recipe, work, &m.counts);
  if (s.eval) {
    tokens.run(*s.eval, nullptr, &eval);
    eval.finish();
    need_rows(eval, recipe, s, *s.eval, m.counts);
  }
  Curation curation = curate(s.train, recipe.data, out, &s, &work);
  tokens.run(s.train, curation.active() ? &curation : nullptr, &train);
  if (curation.active()) {
    m.counts.curation = curation.report();
    m.counts.rows_in += curation.report().total_dropped();
  }
  train.finish();
  need_both_marks(s, train);
  need_rows(train, recipe, s, s.train, m.counts);
  std::error_code ignored;
  try {
    make_folders(made_in(folder));
    (s.windows ? write_arrays : write_documents)(folder, s, train, s.eval ? &eval : nullptr, &m);
  } catch (...) {
    fs::remove_all(made_in(folder), ignored);
    throw;
  }
  remove_old(out);
  move_parts(out, folder, m);
  m.counts.train = m.train.info;
  if (m.eval) m.counts.eval = m.eval->info;
  write_manifest(out, m);
  fs::remove_all(folder, ignored);
  log::info("data: {}", m.counts.text());
  return m.counts;
}

}  // namespace

namespace {

// Given rollouts are finished rows: the folder holds the file as it is.
Prepared prepare_rollouts(const config::Recipe& recipe, const std::string& out) {
  const std::string& path = *recipe.train.rollouts.path;
  if (!fs::is_regular_file(path)) fail_input("{}: train.rollouts.path: {} is no file", recipe.source, path);
  Manifest m;
  const OrderedJson inputs = inputs_of_rollouts(recipe);
  m.inputs = inputs.dump();
  m.key = key_of(inputs);
  m.seq_len = recipe.data.seq_len;
  if (const auto kept = find_prepared(out, m.key, false)) return *kept;
  make_folders(out);
  const FolderLock lock(out);
  remove_old(out);
  const std::string text = read_file(path);
  write_file_atomic((fs::path(out) / kRolloutsName).string(), text);
  m.train.info.rows = std::count(text.begin(), text.end(), '\n') + (!text.empty() && text.back() != '\n');
  m.train.files.push_back(described(out, kRolloutsName));
  m.counts.shape = "rollouts";
  m.counts.rows_in = m.train.info.rows;
  m.counts.train = m.train.info;
  write_manifest(out, m);
  log::info("data: {}", m.counts.text());
  return m.counts;
}

}  // namespace

Prepared prepare(const config::Recipe& recipe, const SampleEncoder& coder, const std::string& out,
                 const Access& access) {
  if (recipe.train.rollouts.path) return prepare_rollouts(recipe, out);
  return prepare(recipe, read_settings(recipe, access, out), coder, out, access, 0);
}

Prepared merge_jobs(const config::Recipe& recipe, const SampleEncoder& coder, const std::string& out,
                    const Access& access) {
  const Settings s = read_settings(recipe, access, out);
  const MergeLock lock(out);  // two jobs may be the last to finish: one waits, and finds the other's work
  if (has_manifest(out))
    if (const auto kept = find_prepared(out, key_of(inputs_of(s, coder)), false)) return *kept;
  const int jobs = check_done((fs::path(out) / kWorkFolder).string(), jobs_key(s, coder));
  return prepare(recipe, s, coder, out, access, jobs);
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
      if (!layout) layout = find_layout(r, source->columns);
      if (layout->shape != Shape::kText)
        fail_input("{}: rows are {}; a character tokenizer is built from text rows", r.where(), name_of(layout->shape));
      const Example e = read_example(r, *layout);
      for (size_t i = 0; i < e.text.size();) seen.insert(next_code_point(e.text, i));
    }
  }
  std::string all;
  for (uint32_t c : seen) append_utf8(all, c);
  if (all.empty())
    fail_input("{}: no text is left to build a character tokenizer from: {} is empty", recipe.source,
               recipe.data.path.value_or("the data"));
  return all;
}

}  // namespace mxt::data
