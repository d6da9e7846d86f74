#include "infer/compare.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "infer/alone.h"
#include "infer/cache.h"
#include "infer/logit_rows.h"
#include "infer/sampler.h"
#include "infer/states.h"

namespace mxt::infer {
namespace {

constexpr int64_t kPiece = 64;  // tokens a pass: their logits are held whole, twice

int64_t pages_of(int64_t window) { return (window + PagedCache::kPage - 1) / PagedCache::kPage; }

// Feeds one sequence through a model piece by piece.
class LogitsReader {
 public:
  LogitsReader(Model& model, int64_t window)
      : model_(model),
        pages_(pages_of(window)),
        program_(model.generator(kPiece)),
        cache_(model.config(), model.type(), pages_, model.ops().device()),
        states_(model.config(), model.type(), 1, model.ops().device()),
        logits_(model.ops().device()),
        tables_(static_cast<size_t>(pages_)) {
    std::iota(tables_.begin(), tables_.end(), 0);
  }

  // Tokens [at, at + n) of a sequence that begins with `ids`; the tokens before were fed already.
  std::span<const float> logits(const int32_t* ids, int64_t at, int64_t n) {
    std::vector<int32_t> positions(static_cast<size_t>(n)), rows(static_cast<size_t>(n));
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(at));
    std::iota(rows.begin(), rows.end(), 0);
    const std::span<float> logits = logits_.take(static_cast<size_t>(n * model_.vocab()));
    const int32_t cu[] = {0, static_cast<int32_t>(n)}, context[] = {static_cast<int32_t>(at + n)};
    runtime::CacheView view;
    view.k = cache_.k();
    view.v = cache_.v();
    view.page = PagedCache::kPage;
    view.max_pages = pages_;
    view.cu_q = cu;
    view.context = context;
    view.tables = tables_.data();
    view.slots = positions.data();  // pages stand in order, so a token's slot is its position
    view.requests = 1;
    states_.show(view, only_);
    runtime::Batch b;
    b.tokens = n;
    std::vector<int32_t> previous(static_cast<size_t>(n));
    for (int64_t k = 0; k < n; ++k) previous[static_cast<size_t>(k)] = ids[std::max<int64_t>(at + k - 1, 0)];
    b.ids = ids + at;
    b.previous = previous.data();
    b.positions = positions.data();
    b.logit_rows = rows.data();
    b.logit_count = n;
    b.logits = logits.data();
    b.cache = &view;
    program_->run(b);
    return logits;
  }

 private:
  Model& model_;
  int64_t pages_;
  std::unique_ptr<runtime::Program> program_;
  PagedCache cache_;
  SequenceStates states_;
  const std::vector<int32_t> only_{0};
  LogitRows logits_;
  std::vector<int32_t> tables_;
};

struct Row {
  double kl = 0, nll_a = 0, nll_b = 0;
  bool same = false;
};

Row compare_row(std::span<const float> a, std::span<const float> b, int32_t target) {
  Row r;
  const double lse_a = log_sum_exp(a), lse_b = log_sum_exp(b);
  for (size_t i = 0; i < a.size(); ++i) {
    const double la = static_cast<double>(a[i]) - lse_a;
    r.kl += std::exp(la) * (la - (static_cast<double>(b[i]) - lse_b));
  }
  r.nll_a = lse_a - static_cast<double>(a[static_cast<size_t>(target)]);
  r.nll_b = lse_b - static_cast<double>(b[static_cast<size_t>(target)]);
  r.same = most_likely(a) == most_likely(b);
  return r;
}

}  // namespace

int64_t comparison_bytes(const formats::ModelConfig& config, DType type, int64_t window, uint64_t free,
                         kernels::Ops& ops) {
  models::BuildOptions o;
  o.type = type;
  o.purpose = models::Purpose::kGenerate;
  o.positions = std::min(window, config.max_positions);
  const graph::Graph g = models::build(config, o);
  const int64_t weights = runtime::ParamStore::measure(g, false).total();
  int64_t held = 0;
  for (int model = 0; model < 2; ++model) {
    held += weights;
    const int64_t packed = Model::packed_bytes(g, ops, std::max<int64_t>(0, static_cast<int64_t>(free) - held));
    const runtime::ProgramSettings settings{kPiece, 0, true, 0, packed > 0};
    held += packed + runtime::Program(g, plan_alone(g, ops, settings), ops, settings).bytes().total() +
            PagedCache::bytes(config, type, pages_of(window)) + SequenceStates::bytes(config, type) +
            kPiece * config.vocab_size * static_cast<int64_t>(sizeof(float));
  }
  return held;
}

Comparison compare(Model& a, Model& b, const std::vector<int32_t>& ids, int64_t window, StopFlag stop) {
  if (a.vocab() != b.vocab())
    fail_input("the models have vocabularies of {} and {}: they cannot be compared", a.vocab(), b.vocab());
  const auto n = static_cast<int64_t>(ids.size());
  if (n < 2) fail_input("a text of {} tokens is too short to compare models on", n);
  for (int32_t id : ids)
    if (id < 0 || id >= a.vocab()) fail_input("token id {} is outside the models' vocabulary of {}", id, a.vocab());
  window = std::max<int64_t>(2, std::min({window, a.positions(), b.positions()}));
  const int64_t half = window / 2, vocab = a.vocab();
  LogitsReader read_a(a, window), read_b(b, window);
  Comparison out;
  double kl = 0, nll_a = 0, nll_b = 0;
  int64_t same = 0;
  log::Progress progress("comparing with the original", static_cast<double>(n - 1));
  for (int64_t begin = 0, predicted = 1; predicted < n; begin += half) {
    // Every window is read to one before its end: the token there is the last to be predicted.
    const int64_t end = std::min(begin + window, n);
    for (int64_t at = begin; at < end - 1; at += kPiece) {
      check_stop(stop);
      const int64_t m = std::min(kPiece, end - 1 - at);
      const auto la = read_a.logits(ids.data() + begin, at - begin, m);
      const auto lb = read_b.logits(ids.data() + begin, at - begin, m);
      std::vector<Row> rows(static_cast<size_t>(m));
      parallel_for(0, m, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          if (at + i + 1 < predicted) continue;  // the window before has it
          const auto where = static_cast<size_t>(i * vocab), width = static_cast<size_t>(vocab);
          rows[static_cast<size_t>(i)] =
              compare_row({la.data() + where, width}, {lb.data() + where, width}, ids[static_cast<size_t>(at + i + 1)]);
        }
      });
      for (int64_t i = 0; i < m; ++i) {
        if (at + i + 1 < predicted) continue;
        const Row& r = rows[static_cast<size_t>(i)];
        kl += r.kl;
        nll_a += r.nll_a;
        nll_b += r.nll_b;
        same += r.same;
        ++out.tokens;
      }
      progress.update(static_cast<double>(out.tokens));
    }
    predicted = end;
  }
  const auto count = static_cast<double>(out.tokens);
  out.kl = kl / count;
  out.perplexity_a = std::exp(nll_a / count);
  out.perplexity_b = std::exp(nll_b / count);
  out.same_top = static_cast<double>(same) / count;
  return out;
}

}  // namespace mxt::infer
