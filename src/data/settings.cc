#include "data/settings.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "config/field.h"
#include "data/prepare.h"

namespace mxt::data {
namespace {

using config::DataSource;

// The recipe's spelling of a choice.
template <typename E>
std::string spelling(E e) {
  const std::string_view s = config::enum_names(e)[static_cast<size_t>(e)];
  return std::string(s.substr(s.starts_with('+')));
}

// Files one after another.
class AllFiles : public RecordReader {
 public:
  AllFiles(std::vector<SourceFile> files, int64_t max_rows) : files_(std::move(files)), left_(max_rows) {}
  bool next(Record* out) override {
    if (left_ <= 0) return false;
    while (at_ < files_.size()) {
      if (!reader_) reader_ = open_records(files_[at_]);
      if (reader_->next(out)) {
        left_ -= out->last_piece;
        return true;
      }
      reader_.reset();
      ++at_;
    }
    return false;
  }

 private:
  std::vector<SourceFile> files_;
  int64_t left_;
  size_t at_ = 0;
  std::unique_ptr<RecordReader> reader_;
};

class TaskRows : public RecordReader {
 public:
  TaskRows(const RowSource::Task& t, int64_t max_rows)
      : rows_(synth_rows(t.name, t.split, std::min(t.rows, max_rows), t.seed)),
        path_(std::make_shared<const std::string>("synth " + t.name)) {}
  bool next(Record* out) override {
    if (at_ == rows_.size()) return false;
    *out = Record();
    out->text = rows_[at_++].json();
    out->path = path_;
    out->line = at_;
    return true;
  }

 private:
  std::vector<SynthRow> rows_;
  std::shared_ptr<const std::string> path_;
  size_t at_ = 0;
};

RowSource::Task synth_task(const config::Recipe& r, Split split) {
  const config::Synth& s = *r.data.synth;
  return {spelling(s.task), split, split == Split::kTrain ? s.rows : s.test_rows,
          static_cast<uint64_t>(s.seed.value_or(r.meta.seed))};
}

std::string curation_of(const config::Data& d) {
  OrderedJson j = OrderedJson::object();
  if (d.dedupe.exact || d.dedupe.minhash || d.dedupe.semdedup)
    j["dedupe"] = config::declare(static_cast<const config::Dedupe*>(nullptr)).write(&d.dedupe);
  if (d.filter) j["filter"] = config::declare(static_cast<const config::Filter*>(nullptr)).write(&*d.filter);
  if (d.filter && !d.filter->decontaminate.empty()) {
    RowSource benchmarks;
    for (const std::string& path : d.filter->decontaminate)
      for (SourceFile& f : find_source_files(path, "test")) benchmarks.files.push_back(std::move(f));
    j["benchmarks"] = benchmarks.describe();
  }
  return j.dump();
}

}  // namespace

std::unique_ptr<RecordReader> RowSource::open() const {
  if (task) return std::make_unique<TaskRows>(*task, max_rows);
  return std::make_unique<AllFiles>(files, max_rows);
}

std::string RowSource::text() const {
  if (task) return "synth " + task->name;
  return files.size() == 1 ? files[0].path : fmt::format("{} (and {} more files)", files[0].path, files.size() - 1);
}

OrderedJson RowSource::describe() const {
  OrderedJson j = OrderedJson::array();
  if (task) {
    j.push_back(OrderedJson{{"synth", task->name},
                            {"split", task->split == Split::kTrain ? "train" : "test"},
                            {"rows", task->rows},
                            {"seed", task->seed}});
    return j;
  }
  for (const SourceFile& f : files) {
    const FileDigests d = hash_file(f.path);
    j.push_back(OrderedJson{{"path", f.path}, {"kind", name_of(f.kind)}, {"bytes", d.bytes}, {"blake3", d.blake3}});
  }
  return j;
}

void check_supported(const config::Recipe& r) {
  const config::Data& d = r.data;
  if (d.source != DataSource::kLocal && d.source != DataSource::kSynth)
    fail_missing(
        "data.source: {}: this build reads local files and synth tasks; download the rows and set data.source: local "
        "with data.path",
        spelling(d.source));
  const config::Method& m = r.train.method;
  if (m.is_preference() || m.is_rl())
    fail_missing("train.method.kind: {}: this build prepares data for lora, qlora, full, cpt and pretrain only",
                 spelling(m.kind));
  const char* step = d.dedupe.semdedup                       ? "dedupe.semdedup"
                     : d.filter && d.filter->max_perplexity ? "filter.max_perplexity"
                     : d.sql                                ? "sql"
                                                            : nullptr;
  if (step)
    fail_missing("data.{}: this build does not have that cleaning step yet; clean the rows beforehand and remove it",
                 step);
}

Settings read_settings(const config::Recipe& r) {
  check_supported(r);
  const config::Data& d = r.data;
  Settings s;
  s.columns = d.columns;
  s.seq_len = d.seq_len;
  s.num_shards = d.shard.num_shards;
  s.packing = d.packing;
  s.windows = d.sampling == config::Sampling::kRandomWindows;
  s.train_all = d.train_on == config::TrainOn::kAll;
  s.eval_fraction = d.eval_fraction;
  s.seed = static_cast<uint64_t>(r.meta.seed);
  s.curation = curation_of(d);
  if (d.filter) s.redact = d.filter->redact;
  if (d.max_samples) s.train.max_rows = *d.max_samples;
  if (d.source == DataSource::kSynth) {
    s.train.task = synth_task(r, Split::kTrain);
    if (d.synth->test_rows > 0 && !d.eval_path && d.eval_fraction == 0) {
      s.eval.emplace();
      s.eval->task = synth_task(r, Split::kTest);
    }
  } else {
    s.train.files = find_source_files(*d.path, d.split);
  }
  if (d.eval_path) {
    s.eval.emplace();
    s.eval->files = find_source_files(*d.eval_path, "test");
  }
  return s;
}

}  // namespace mxt::data
