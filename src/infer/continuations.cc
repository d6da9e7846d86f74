#include "infer/continuations.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/threads.h"
#include "infer/logit_rows.h"
#include "infer/sampler.h"

namespace mxt::infer {
namespace {

constexpr int64_t kLogitBytes = int64_t{256} << 20;  // of one pass

int64_t pages_for(int64_t tokens) { return (tokens + PagedCache::kPage - 1) / PagedCache::kPage; }

// Rows whose input (all ids but the last) is the same.
struct Group {
  std::vector<size_t> rows;
  std::vector<int32_t> input;
  int64_t scored = 0;  // positions at the end of the input whose logits somebody needs
};

std::vector<Group> make_groups(const std::vector<Continuation>& rows) {
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  auto input = [&](size_t i) { return std::span<const int32_t>(rows[i].ids).first(rows[i].ids.size() - 1); };
  auto less = [&](size_t a, size_t b) {
    const auto x = input(a), y = input(b);
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
  };
  std::stable_sort(order.begin(), order.end(), less);
  std::vector<Group> groups;
  for (size_t i : order) {
    const auto in = input(i);
    if (groups.empty() || !std::equal(in.begin(), in.end(), groups.back().input.begin(), groups.back().input.end())) {
      groups.emplace_back();
      groups.back().input.assign(in.begin(), in.end());
    }
    groups.back().rows.push_back(i);
    groups.back().scored = std::max(groups.back().scored, rows[i].scored);
  }
  return groups;
}

}  // namespace

ContinuationScorer::ContinuationScorer(Model& model, int64_t batch, int64_t tokens_per_pass)
    : model_(model),
      batch_(std::max<int64_t>(batch, 1)),
      tokens_(std::max<int64_t>(1, std::min(tokens_per_pass, kLogitBytes / 4 / model.vocab()))),
      program_(model.generator(tokens_)),
      // What a pass adds, what is kept of the request before it, and one request that is long.
      cache_(std::make_unique<PagedCache>(model.config(), model.type(),
                                          pages_for(tokens_) + batch_ + 2 * pages_for(model.positions()),
                                          model.ops().device())),
      states_(model.config(), model.type(), batch_ + 1, model.ops().device()) {}

void ContinuationScorer::score(const std::vector<Continuation>& rows,
                               const std::function<void(size_t, const ContinuationScore&)>& done,
                               const std::function<bool()>& more) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const Continuation& r = rows[i];
    if (r.scored < 1 || r.scored >= static_cast<int64_t>(r.ids.size()))
      fail_input("request {}: a continuation needs a token, and one before it", i + 1);
    if (static_cast<int64_t>(r.ids.size()) - 1 > model_.positions())
      fail_input("request {}: {} tokens, the model's context is {}", i + 1, r.ids.size() - 1, model_.positions());
    for (int32_t id : r.ids)
      if (id < 0 || id >= model_.vocab())
        fail_input("request {}: token id {} is outside the model's vocabulary of {}", i + 1, id, model_.vocab());
  }
  const std::vector<Group> groups = make_groups(rows);
  std::vector<ContinuationScore> scores(rows.size());
  const int64_t max_pages = pages_for(model_.positions());
  const size_t vocab = static_cast<size_t>(model_.vocab());

  std::vector<int32_t> uses(static_cast<size_t>(cache_->pages()), 0);
  auto take = [&] {
    const int32_t p = cache_->take();
    uses[static_cast<size_t>(p)] = 1;
    return p;
  };
  auto release = [&](const std::vector<int32_t>& table) {
    for (int32_t p : table)
      if (--uses[static_cast<size_t>(p)] == 0) cache_->release(p);
  };

  // `table` holds the pages of group `g`, whose tokens before `at` are in the cache.
  size_t g = 0;
  int64_t at = 0;
  std::vector<int32_t> table, before;
  std::vector<int32_t> ids, previous, positions, cu_q, context, tables, where, logit_rows, states;
  LogitRows logit_memory(model_.ops().device());
  std::vector<double> lse;
  std::vector<int32_t> best;
  struct Piece {
    size_t group;
    int64_t first, count;  // input positions whose logits were computed
    size_t row;            // of the first in `logits`
    bool last;
  };
  std::vector<Piece> pieces;
  std::vector<std::vector<int32_t>> held;
  bool fresh = true;  // group g has not begun
  while (g < groups.size()) {
    if (more && !more()) break;
    ids.clear(), previous.clear(), positions.clear(), where.clear(), context.clear(), tables.clear(),
        logit_rows.clear(), pieces.clear(), states.clear();
    cu_q.assign(1, 0);
    while (g < groups.size() && static_cast<int64_t>(context.size()) < batch_ &&
           static_cast<int64_t>(ids.size()) < tokens_) {
      const Group& group = groups[g];
      const int64_t n = static_cast<int64_t>(group.input.size());
      if (fresh) {
        before = std::move(table);
        table.clear();
        if (g > 0 && !states_.any()) {
          const auto& p = groups[g - 1].input;
          const int64_t limit = std::min(n - group.scored, static_cast<int64_t>(p.size()));
          int64_t common = 0;
          while (common < limit && p[static_cast<size_t>(common)] == group.input[static_cast<size_t>(common)]) ++common;
          table.assign(before.begin(), before.begin() + common / PagedCache::kPage);
        }
        for (int32_t p : table) ++uses[static_cast<size_t>(p)];
        held.push_back(std::move(before));  // until this pass has run
        at = static_cast<int64_t>(table.size()) * PagedCache::kPage;
        fresh = false;
      }
      const int64_t m = std::min(n - at, tokens_ - static_cast<int64_t>(ids.size()));
      while (static_cast<int64_t>(table.size()) < pages_for(at + m)) table.push_back(take());
      Piece piece{g, std::max(at, n - group.scored), 0, logit_rows.size(), at + m == n};
      for (int64_t k = at; k < at + m; ++k) {
        if (k >= piece.first) logit_rows.push_back(static_cast<int32_t>(ids.size()));
        ids.push_back(group.input[static_cast<size_t>(k)]);
        previous.push_back(group.input[static_cast<size_t>(std::max<int64_t>(k - 1, 0))]);
        positions.push_back(static_cast<int32_t>(k));
        where.push_back(table[static_cast<size_t>(k / PagedCache::kPage)] * static_cast<int32_t>(PagedCache::kPage) +
                        static_cast<int32_t>(k % PagedCache::kPage));
      }
      piece.count = static_cast<int64_t>(logit_rows.size() - piece.row);
      pieces.push_back(piece);
      at += m;
      cu_q.push_back(static_cast<int32_t>(ids.size()));
      context.push_back(static_cast<int32_t>(at));
      states.push_back(
          static_cast<int32_t>(g % static_cast<size_t>(batch_ + 1)));  // one pass has batch_ groups in a row
      tables.resize(tables.size() + static_cast<size_t>(max_pages), 0);
      std::copy(table.begin(), table.end(), tables.end() - max_pages);
      if (at == n) {
        ++g;
        fresh = true;
      }
    }
    const std::span<float> logits = logit_memory.take(logit_rows.size() * vocab);
    runtime::CacheView view;
    view.k = cache_->k();
    view.v = cache_->v();
    view.page = PagedCache::kPage;
    view.max_pages = max_pages;
    view.cu_q = cu_q.data();
    view.context = context.data();
    view.tables = tables.data();
    view.slots = where.data();
    view.requests = static_cast<int64_t>(context.size());
    states_.show(view, states);
    runtime::Batch b;
    b.tokens = static_cast<int64_t>(ids.size());
    b.ids = ids.data();
    b.positions = positions.data();
    b.previous = previous.data();
    b.logit_rows = logit_rows.data();
    b.logit_count = static_cast<int64_t>(logit_rows.size());
    b.logits = logits.data();
    b.cache = &view;
    program_->run(b);
    for (const auto& t : held) release(t);
    held.clear();

    lse.resize(logit_rows.size());
    best.resize(logit_rows.size());
    parallel_for(0, static_cast<int64_t>(logit_rows.size()), 1, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const std::span<const float> row(logits.data() + static_cast<size_t>(r) * vocab, vocab);
        lse[static_cast<size_t>(r)] = log_sum_exp(row);
        best[static_cast<size_t>(r)] = most_likely(row);
      }
    });
    for (const Piece& p : pieces)
      for (size_t i : groups[p.group].rows) {
        const Continuation& r = rows[i];
        const int64_t scored_from =
            static_cast<int64_t>(r.ids.size()) - 1 - r.scored;  // input position of the first logits it needs
        for (int64_t k = std::max(p.first, scored_from); k < p.first + p.count; ++k) {
          const size_t row = p.row + static_cast<size_t>(k - p.first);
          const int32_t id = r.ids[static_cast<size_t>(k) + 1];
          scores[i].logprob += static_cast<double>(logits[row * vocab + static_cast<size_t>(id)]) - lse[row];
          scores[i].greedy &= best[row] == id;
        }
        if (p.last) done(i, scores[i]);
      }
  }
  release(table);
}

}  // namespace mxt::infer
