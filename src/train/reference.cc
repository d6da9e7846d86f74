#include "train/reference.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "formats/safetensors.h"
#include "train/sampler.h"

namespace mxt::train {
namespace {

using formats::Safetensors;
using formats::SafetensorsWriter;

constexpr const char *kDigestKey = "made_of", *kValuesKey = "values";

template <typename T>
bool take(const Safetensors& file, const char* name, DType type, std::vector<T>* out) {
  const formats::TensorInfo* t = file.find(name);
  if (!t || t->type != type || t->shape.size() != 1) return false;
  const auto bytes = file.bytes(*t);
  out->resize(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(out->data(), bytes.data(), bytes.size());
  return true;
}

}  // namespace

bool keeps_reference(const config::Recipe& r) {
  const auto method = make_method(r.train.method);
  return method && method->has_reference() && (samples(r) || !r.train.method.precompute_ref_log_probs);
}

bool shares_base(const graph::Graph& training) {
  return std::none_of(training.params.begin(), training.params.end(),
                      [](const graph::Param& p) { return p.trainable && !p.adapter; });
}

KeptReference::KeptReference(const graph::Graph& training, const graph::Graph& scoring, const runtime::ParamStore& from,
                             const kernels::KernelPlan& plan, kernels::Ops& ops, runtime::ProgramSettings settings)
    : scoring_(scoring) {
  const bool shares = shares_base(training);
  params_ = shares ? std::make_unique<runtime::ParamStore>(scoring, from)
                   : std::make_unique<runtime::ParamStore>(scoring, false, ops.device());
  for (size_t i = 0; i < scoring.params.size(); ++i) {
    if (shares && !scoring.params[i].adapter) continue;
    const auto id = static_cast<graph::ParamId>(i);
    const auto read = from.read(id);
    const auto write = params_->write(id);
    const DType type = scoring.value(scoring.params[i].value).type;
    std::memcpy(write.slot.weight, read.slot.weight, static_cast<size_t>(write.slot.size) * size_of(type));
  }
  settings.packed_weights = false;  // the parameters are others
  scorer_ = std::make_unique<runtime::Program>(scoring, plan, ops, settings);
  scorer_->allocate(*params_);
}

std::vector<std::vector<float>> KeptReference::ask(const Method& method, int64_t first, int64_t rows, int64_t seq_len,
                                                   int64_t max_tokens, const std::function<data::Row(int64_t)>& row) {
  std::vector<std::vector<float>> out;
  SequencePass pass(method, scoring_, seq_len);
  score_rows(
      *scorer_, pass, rows, rows, max_tokens, [&](int64_t i, SequencePass& p) { p.add_row(first + i, row(first + i)); },
      [&](const Sequence& s) { out.emplace_back(s.logp.begin(), s.logp.end()); });
  return out;
}

StepRows rows_of(const Method& method, int64_t per_batch, int64_t count, int64_t seq_len,
                 const std::function<data::Row(int64_t)>& row) {
  StepRows s;
  s.per_batch = per_batch;
  for (int64_t i = 0; i < count; ++i) s.rows.push_back(describe_row(method, row(i), seq_len));
  return s;
}

std::vector<AheadSequence> ahead_of(const Method& method, const StepRows& step, int64_t seq_len,
                                    const std::function<data::Row(int64_t)>& row) {
  std::vector<AheadSequence> rows;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const data::Row r = row(static_cast<int64_t>(i));
    rows.push_back({{r.ids.begin(), r.ids.end()}, {r.labels.begin(), r.labels.end()}});
  }
  std::vector<AheadSequence> out = method.ahead(step, rows);
  for (AheadSequence& s : out)
    if (static_cast<int64_t>(s.ids.size()) > seq_len) {
      s.ids.resize(static_cast<size_t>(seq_len));
      s.labels.resize(static_cast<size_t>(seq_len));
    }
  return out;
}

std::vector<double> score_ahead(const Method& method, const graph::Graph& scoring, runtime::Program& scorer,
                                const std::vector<AheadSequence>& sequences, int64_t micro_batch, int64_t max_tokens,
                                bool share_prompts) {
  std::vector<double> sums;
  SequencePass pass(method, scoring, max_tokens, share_prompts);
  score_rows(
      scorer, pass, static_cast<int64_t>(sequences.size()), micro_batch, max_tokens,
      [&](int64_t i, SequencePass& p) {
        const AheadSequence& s = sequences[static_cast<size_t>(i)];
        p.add(i, 0, 0, s.ids, s.labels);
      },
      [&](const Sequence& s) { sums.push_back(sum_of(s.logp)); });
  return sums;
}

Reference::Reference(const Inputs& in, const Method& method, const graph::Graph& scoring, runtime::Program& scorer,
                     StepData& rows, const EvalRows* eval)
    : parts_(method.sequences_per_row()) {
  const bool kept = load(in);
  if (kept) {
    log::info("reference: the log-probabilities in {} are those of this run", in.path);
  } else {
    train_ = eval_ = {};
    ahead_.clear(), eval_ahead_.clear();
    ahead_first_ = {0};
    const auto score = [&](int64_t count, const std::function<data::Row(int64_t)>& row, Part* to) {
      log::Progress progress("reference", static_cast<double>(count));
      SequencePass pass(method, scoring, in.seq_len, in.share_prompts);
      score_rows(
          scorer, pass, count, in.micro_batch, in.max_tokens, [&](int64_t i, SequencePass& p) { p.add_row(i, row(i)); },
          [&](const Sequence& s) {
            to->logp.insert(to->logp.end(), s.logp.begin(), s.logp.end());
            to->first.push_back(static_cast<int64_t>(to->logp.size()));
            progress.update(static_cast<double>(s.row + 1), fmt::format("row {}/{}", s.row + 1, count));
          });
    };
    const auto mismatches = [&](int64_t count, const std::function<data::Row(int64_t)>& row) {
      return score_ahead(method, scoring, scorer,
                         ahead_of(method, rows_of(method, in.per_batch, count, in.seq_len, row), in.seq_len, row),
                         in.micro_batch, in.max_tokens, in.share_prompts);
    };
    score(rows.rows(), [&](int64_t i) { return rows.at(i); }, &train_);
    for (int64_t s = 0; s < in.steps; ++s) {
      const auto sums = mismatches(rows.rows_of_step(s), [&](int64_t i) { return rows.row(s, i); });
      ahead_.insert(ahead_.end(), sums.begin(), sums.end());
      ahead_first_.push_back(static_cast<int64_t>(ahead_.size()));
      if (sums.empty()) break;
    }
    if (eval) {
      const auto row = [&](int64_t i) { return eval->row(i); };
      score(eval->rows(), row, &eval_);
      eval_ahead_ = mismatches(eval->rows(), row);
    }
  }
  values_digest_ = hash();
  if (!kept) save(in);
}

std::string Reference::hash() const {
  Blake3 h;
  for (const Part* p : {&train_, &eval_}) h.update(p->logp.data(), p->logp.size() * sizeof(float));
  for (const auto* p : {&ahead_, &eval_ahead_}) h.update(p->data(), p->size() * sizeof(double));
  return h.hex();
}

std::span<const float> Reference::of(const Part& p, int64_t row, int part) const {
  const auto i = static_cast<size_t>(row * parts_ + part);
  MXT_ASSERT(i + 1 < p.first.size());
  return std::span(p.logp).subspan(static_cast<size_t>(p.first[i]), static_cast<size_t>(p.first[i + 1] - p.first[i]));
}

std::span<const double> Reference::ahead(int64_t step) const {
  const auto s = static_cast<size_t>(step);
  if (s + 1 >= ahead_first_.size()) return {};
  return std::span(ahead_).subspan(static_cast<size_t>(ahead_first_[s]),
                                   static_cast<size_t>(ahead_first_[s + 1] - ahead_first_[s]));
}

bool Reference::load(const Inputs& in) {
  if (!fs::exists(in.path)) return false;
  try {
    const Safetensors file = Safetensors::open(in.path);
    const auto& metadata = file.metadata();
    const auto made = metadata.find(kDigestKey);
    if (made == metadata.end() || made->second != in.digest) {
      log::info("reference: {} was made of other data, weights or settings: it is made anew", in.path);
      return false;
    }
    const bool whole =
        take(file, "train.logp", DType::kF32, &train_.logp) && take(file, "train.first", DType::kI64, &train_.first) &&
        take(file, "eval.logp", DType::kF32, &eval_.logp) && take(file, "eval.first", DType::kI64, &eval_.first) &&
        take(file, "ahead", DType::kF64, &ahead_) && take(file, "ahead.first", DType::kI64, &ahead_first_) &&
        take(file, "eval.ahead", DType::kF64, &eval_ahead_);
    const auto values = metadata.find(kValuesKey);
    if (whole && values != metadata.end() && values->second == hash()) return true;
    log::warn("reference: {} is damaged: it is made anew", in.path);
    return false;
  } catch (const Error& e) {
    log::warn("reference: {}: it is made anew", e.what());
    return false;
  }
}

void Reference::save(const Inputs& in) const {
  const auto n = [](const auto& v) { return std::vector<int64_t>{static_cast<int64_t>(v.size())}; };
  SafetensorsWriter w(
      in.path,
      {{"ahead.first", DType::kI64, n(ahead_first_)},
       {"train.first", DType::kI64, n(train_.first)},
       {"eval.first", DType::kI64, n(eval_.first)},
       {"ahead", DType::kF64, n(ahead_)},
       {"eval.ahead", DType::kF64, n(eval_ahead_)},
       {"train.logp", DType::kF32, n(train_.logp)},
       {"eval.logp", DType::kF32, n(eval_.logp)}},
      {{{"format", "mindxtrain.reference.1"}, {kDigestKey, in.digest}, {kValuesKey, values_digest_}}, 0});
  const auto append = [&](const auto& v) { w.append(v.data(), v.size() * sizeof(v[0])); };
  append(ahead_first_), append(train_.first), append(eval_.first), append(ahead_), append(eval_ahead_);
  append(train_.logp), append(eval_.logp);
  w.commit();
}

}  // namespace mxt::train
