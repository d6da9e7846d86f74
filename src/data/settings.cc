#include "data/settings.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "config/field.h"
#include "data/own_source.h"
#include "data/prepare.h"
#include "data/source/fetch.h"
#include "data/source/splits.h"
#include "data/source/table.h"
#include "data/synth/teacher.h"

namespace mxt::data {
namespace {

using config::DataSource;

// The recipe's spelling of a choice.
template <typename E>
std::string spelling(E e) {
  const std::string_view s = config::enum_names(e)[static_cast<size_t>(e)];
  return std::string(s.substr(s.starts_with('+')));
}

// Streams one after another.
class AllStreams : public RecordReader {
 public:
  explicit AllStreams(std::vector<RowStream> streams) : streams_(std::move(streams)) {
    for (const RowStream& s : streams_) begin_.push_back(begin_.back() + static_cast<double>(s.bytes()));
  }
  bool next(Record* out) override {
    for (; at_ < streams_.size(); ++at_) {
      if (!reader_) reader_ = streams_[at_].open();
      if (reader_->next(out)) return true;
      reader_.reset();
    }
    return false;
  }
  double done() const override {
    if (begin_.back() == 0) return 0;
    const double part = reader_ ? reader_->done() * (begin_[at_ + 1] - begin_[at_]) : 0;
    return (begin_[at_] + part) / begin_.back();
  }

 private:
  std::vector<RowStream> streams_;
  std::vector<double> begin_{0};  // bytes of the streams before
  size_t at_ = 0;
  std::unique_ptr<RecordReader> reader_;
};

class FirstRows : public RecordReader {
 public:
  FirstRows(std::unique_ptr<RecordReader> rows, int64_t n) : rows_(std::move(rows)), n_(n) {}
  bool next(Record* out) override {
    if (read_ >= n_ || !rows_->next(out)) return false;
    read_ += out->last_piece;
    return true;
  }
  double done() const override {
    return n_ == INT64_MAX ? rows_->done()
                           : std::max(rows_->done(), static_cast<double>(read_) / static_cast<double>(n_));
  }

 private:
  std::unique_ptr<RecordReader> rows_;
  int64_t n_, read_ = 0;
};

class TaskRows : public RecordReader {
 public:
  TaskRows(const RowSource::Task& t, int64_t max_rows)
      : turns_(static_cast<size_t>(t.turns)),
        rows_(synth_rows(t.name, t.split, std::min(t.rows, max_rows) * t.turns, t.seed)),
        path_(std::make_shared<const std::string>("synth " + t.name)) {}
  bool next(Record* out) override {
    if (at_ * turns_ == rows_.size()) return false;
    *out = Record();
    out->text = conversation(std::span(rows_).subspan(at_++ * turns_, turns_));
    out->path = path_;
    out->line = at_;
    return true;
  }

 private:
  size_t turns_;
  std::vector<SynthRow> rows_;
  std::shared_ptr<const std::string> path_;
  size_t at_ = 0;
};

RowSource::Task synth_task(const config::Recipe& r, const config::Synth& s, Split split) {
  const bool train = split == Split::kTrain;
  return {spelling(s.task), split, train ? s.rows : s.test_rows, train ? s.turns : 1,
          static_cast<uint64_t>(s.seed.value_or(r.meta.seed))};
}

// The teacher's answers: a file in the prepared folder, since they were paid for.
std::string teacher_rows(const config::Data& d, const Access& access, const std::string& out) {
  const config::Teacher& t = *d.synth->teacher;
  if (out.empty()) fail_input("data.synth.teacher: its rows make no character tokenizer; set model.tokenizer");
  std::string key;
  if (!t.api_key_env.empty()) {
    key = access.variable ? access.variable(t.api_key_env) : "";
    if (key.empty())
      fail_missing(
          "data.synth.teacher: the environment variable {} is not set; export the endpoint's key in it (any text for "
          "an "
          "endpoint that wants none), or name another by api_key_env",
          t.api_key_env);
  }
  net::HttpOptions o;
  o.ca_file = access.hub.ca_file;
  o.proxies = access.hub.proxies;
  o.retry_base_seconds = access.hub.retry_base_seconds;
  o.cancel = access.cancel;
  const std::string file = (fs::path(out) / "teacher.jsonl").string();
  ask_teacher(t, d.synth->rows, key, o, file);
  return file;
}

// Of a source that may be missing: no files.
std::vector<SourceFile> find_optional(const config::MixtureSource& m, const Access& access) {
  const std::string path = access.shipped ? access.shipped(*m.path) : *m.path;
  std::error_code ec;
  if (m.optional && !fs::exists(path, ec) && glob_files(path).empty()) {
    log::info("data: {}: is not there, and optional: left out", *m.path);
    return {};
  }
  return find_source_files(path, m.split);
}

std::vector<RowSource> mixture_of(const config::Recipe& r, const Access& access) {
  const config::Data& d = r.data;
  std::vector<RowSource> all;
  for (const config::MixtureSource& m : d.mixture) {
    RowSource s;
    if (m.synth) {
      s.task = synth_task(r, *m.synth, Split::kTrain);
    } else if (m.path) {
      s.files = find_optional(m, access);
      if (s.files.empty()) continue;
    } else {
      config::Data one;
      one.hf_id = m.hf_id;
      one.hf_config = m.hf_config;
      one.hf_revision = m.hf_revision;
      one.split = m.split;
      s.files = fetch_hub_dataset(one, access.hub);
    }
    if (m.max_samples) s.max_rows = *m.max_samples;
    s.columns = m.columns;
    s.weight = m.weight;
    all.push_back(std::move(s));
  }
  if (all.empty()) fail_input("{}: data.mixture: none of its sources is there: name one that is", r.source);
  return all;
}

// The base model scores where no other is named.
std::string perplexity_model(const config::Recipe& r) {
  const config::Filter& f = *r.data.filter;
  if (!f.perplexity_model && r.model.init != config::Init::kPretrained)
    fail_input(
        "data.filter.max_perplexity: the model starts from random weights, which know no text; name a pretrained one "
        "by perplexity_model");
  return f.perplexity_model.value_or(r.model.name);
}

Models models_of(const config::Recipe& r, const Access& access) {
  const config::Data& d = r.data;
  Models m;
  if (d.dedupe.semdedup) {
    if (!access.embedder) fail_missing("data.dedupe.semdedup: this program brings no embedding models; use mindxtrain");
    m.embedder = access.embedder(d.dedupe.semdedup->model);
  }
  if (d.filter && d.filter->max_perplexity) {
    if (!access.scorer) fail_missing("data.filter.max_perplexity: this program brings no models; use mindxtrain");
    m.scorer = access.scorer(perplexity_model(r));
  }
  return m;
}

std::string curation_of(const config::Recipe& r, const std::vector<std::string>& eval_texts, const Models& models) {
  const config::Data& d = r.data;
  OrderedJson j = OrderedJson::object();
  if (r.train.method.kind == config::MethodKind::kReward) j["pairs"] = "whole";  // token_pass.cc
  if (d.dedupe.exact || d.dedupe.minhash || d.dedupe.semdedup)
    j["dedupe"] = config::declare(static_cast<const config::Dedupe*>(nullptr)).write(&d.dedupe);
  if (d.filter) j["filter"] = config::declare(static_cast<const config::Filter*>(nullptr)).write(&*d.filter);
  if (d.filter && !d.filter->decontaminate.empty()) {
    RowSource benchmarks;
    for (const std::string& path : d.filter->decontaminate)
      for (SourceFile& f : find_source_files(path, "test")) benchmarks.files.push_back(std::move(f));
    j["benchmarks"] = benchmarks.describe();
  }
  if (!eval_texts.empty()) {
    Blake3 h;
    for (const std::string& t : eval_texts) {
      const uint64_t n = t.size();
      h.update(&n, sizeof n);
      h.update(t);
    }
    j["eval_documents"] = {{"texts", eval_texts.size()}, {"blake3", h.hex()}};
  }
  if (models.embedder) j["embedding_model"] = models.embedder->digest();
  if (models.scorer) j["perplexity_model"] = models.scorer->digest();
  return j.dump();
}

}  // namespace

std::unique_ptr<RecordReader> RowStream::open() const {
  const RowSource& s = *source;
  if (file) return open_records(s.files[*file]);
  if (s.task) return std::make_unique<TaskRows>(*s.task, s.max_rows);
  std::unique_ptr<RecordReader> rows;
  if (!s.sql.empty()) {
    rows = open_query(s.sql, s.files, s.temp_folder);
  } else {
    std::vector<RowStream> files;
    for (size_t i = 0; i < s.files.size(); ++i) files.push_back({source, i});
    rows = std::make_unique<AllStreams>(std::move(files));
  }
  return std::make_unique<FirstRows>(std::move(rows), s.max_rows);
}

std::string RowStream::text() const { return file ? source->files[*file].path : source->text(); }

std::string RowStream::identity() const {
  if (file) {
    const SourceFile& f = source->files[*file];
    const bool chosen = f.kind == FileKind::kJson && f.split != "train";
    return fmt::format("{} {}{}", name_of(f.kind), source->digest(*file).blake3, chosen ? " " + f.split : "");
  }
  OrderedJson j = source->describe();
  for (OrderedJson& f : j) f.erase("path");
  return OrderedJson{{"source", std::move(j)}, {"sql", source->sql}, {"rows", source->max_rows}}.dump();
}

uint64_t RowStream::bytes() const {
  uint64_t sum = source->task ? 1 : 0;
  std::error_code ec;
  for (size_t i = 0; i < source->files.size(); ++i)
    if (!file || *file == i)
      if (const auto n = fs::file_size(source->files[i].path, ec); !ec) sum += n;
  return sum;
}

std::vector<RowStream> RowSource::streams() const {
  std::vector<RowStream> parts;
  for (const RowSource& m : mixture)
    for (const RowStream& s : m.streams()) parts.push_back(s);
  if (!mixture.empty()) return parts;
  if (task || !sql.empty() || max_rows != INT64_MAX) return {{this, std::nullopt}};
  std::vector<RowStream> all;
  for (size_t i = 0; i < files.size(); ++i) all.push_back({this, i});
  return all;
}

std::unique_ptr<RecordReader> RowSource::open() const { return std::make_unique<AllStreams>(streams()); }

const FileDigests& RowSource::digest(size_t i) const {
  const auto it = digests_.find(i);
  return it != digests_.end() ? it->second : digests_[i] = hash_file(files[i].path);
}

std::string RowSource::text() const {
  if (task) return "synth " + task->name;
  if (!mixture.empty()) return fmt::format("{} (and {} more sources)", mixture[0].text(), mixture.size() - 1);
  return files.size() == 1 ? files[0].path : fmt::format("{} (and {} more files)", files[0].path, files.size() - 1);
}

OrderedJson RowSource::describe() const {
  OrderedJson j = OrderedJson::array();
  for (const RowSource& m : mixture)
    for (OrderedJson& f : m.describe()) j.push_back(std::move(f));
  if (task) {
    j.push_back(OrderedJson{{"synth", task->name},
                            {"split", task->split == Split::kTrain ? "train" : "test"},
                            {"rows", task->rows},
                            {"turns", task->turns},
                            {"seed", task->seed}});
    return j;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const FileDigests& d = digest(i);
    j.push_back(OrderedJson{
        {"path", files[i].path}, {"kind", name_of(files[i].kind)}, {"bytes", d.bytes}, {"blake3", d.blake3}});
    if (files[i].kind == FileKind::kJson && files[i].split != "train") j.back()["split"] = files[i].split;
  }
  return j;
}

Answers answers_of(const config::Method& m) {
  if (m.is_rl()) return Answers::kPrompts;
  if (!m.is_preference()) return Answers::kNone;
  return m.kind == config::MethodKind::kKto ? Answers::kLabelled : Answers::kPairs;
}

void check_supported(const config::Recipe& r) {
  const config::Data& d = r.data;
  if (d.filter && d.filter->max_perplexity) perplexity_model(r);
}

std::vector<std::string> unused_fields(const config::Data& d) {
  std::vector<std::string> out;
  const auto unused = [&](bool given, const char* field, const char* of) {
    if (given)
      out.push_back(fmt::format("data.{}: is for {}; source {} does not use it", field, of, spelling(d.source)));
  };
  unused(d.hf_config && d.source != DataSource::kHf, "hf_config", "source hf");
  unused(d.hf_revision && d.source != DataSource::kHf, "hf_revision", "source hf");
  unused(d.gateway != config::Data{}.gateway && d.source != DataSource::kLighthouse, "gateway", "source lighthouse");
  std::error_code ec;
  if (d.source != DataSource::kLocal || !d.path || !fs::is_regular_file(*d.path, ec)) return out;
  const auto kind = kind_of(*d.path);
  if (d.split != "train" && (!kind || known_split(rows_name({*d.path, *kind, d.split})).empty()))
    out.push_back(fmt::format("data.split \"{}\": {} is one file, and all of it is read", d.split, *d.path));
  return out;
}

Settings read_settings(const config::Recipe& r, const Access& access, const std::string& out) {
  check_supported(r);
  const config::Data& d = r.data;
  Settings s;
  s.train.columns = d.columns;
  s.answers = answers_of(r.train.method);
  s.seq_len = d.seq_len;
  s.num_shards = d.shard.num_shards;
  s.packing = d.packing;
  s.crop = d.pack == config::Pack::kBosCrop;
  s.best_fit = d.pack == config::Pack::kBestFit && s.answers == Answers::kNone;
  s.join_row = d.boundaries == config::Boundaries::kRow;
  s.windows = d.sampling == config::Sampling::kRandomWindows;
  s.train_all = d.train_on == config::TrainOn::kAll;
  s.alone = r.train.method.kind == config::MethodKind::kKto || r.train.method.kind == config::MethodKind::kOrpo;
  s.parts = d.loss_weights.has_value();
  s.eval_fraction = d.eval_fraction;
  s.seed = static_cast<uint64_t>(r.meta.seed);
  if (d.filter && d.filter->decontaminate_eval) {
    if (!access.eval_texts) fail_input("data.filter.decontaminate_eval: there are no eval tasks here");
    s.eval_texts = access.eval_texts();
  }
  for (const std::string& line : unused_fields(d)) log::warn("{}", line);
  refuse_own_source(d, out);
  s.models = models_of(r, access);
  s.curation = curation_of(r, s.eval_texts, s.models);
  s.mixture_stop = d.mixture_stop;
  if (d.max_samples) s.train.max_rows = *d.max_samples;
  if (d.source == DataSource::kSynth && d.synth->teacher) {
    s.train.files = {{teacher_rows(d, access, out), FileKind::kJsonLines}};
  } else if (d.source == DataSource::kSynth) {
    s.train.task = synth_task(r, *d.synth, Split::kTrain);
    if (d.synth->test_rows > 0 && !d.eval_path && d.eval_fraction == 0) {
      s.eval.emplace();
      s.eval->task = synth_task(r, *d.synth, Split::kTest);
    }
  } else if (d.source == DataSource::kMixture) {
    s.train.mixture = mixture_of(r, access);
  } else if (d.source == DataSource::kHf) {
    s.train.files = fetch_hub_dataset(d, access.hub);
  } else if (d.source == DataSource::kLighthouse) {
    s.train.files = fetch_content(d, access.hub, access.cache_dir);
  } else if (d.source == DataSource::kMindxDreams) {
    s.train.files = find_dreams(*d.path, d.include_evolutions);
  } else {
    s.train.files = find_source_files(*d.path, d.split);
  }
  if (d.sql) {
    s.train.sql = *d.sql;
    if (!out.empty()) s.train.temp_folder = (fs::path(out) / kWorkFolder / "sql").string();
  }
  if (d.eval_path) {
    s.eval.emplace();
    s.eval->files = find_source_files(*d.eval_path, "test");
  }
  if (s.eval) s.eval->columns = d.columns;
  return s;
}

}  // namespace mxt::data
