#include "infer/continuations.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/threads.h"
#include "infer/cached_pass.h"
#include "infer/logit_rows.h"
#include "infer/sampler.h"

namespace mxt::infer {
namespace {

constexpr int64_t kLogitBytes = int64_t{256} << 20;  // of one pass

int64_t pages_holding(int64_t tokens) { return (tokens + PagedCache::kPage - 1) / PagedCache::kPage; }

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

void check(const std::vector<Continuation>& rows, int64_t positions, int64_t vocab) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const Continuation& r = rows[i];
    if (r.scored < 1 || r.scored >= static_cast<int64_t>(r.ids.size()))
      fail_input("request {}: a continuation needs a token, and one before it", i + 1);
    if (static_cast<int64_t>(r.ids.size()) - 1 > positions)
      fail_input("request {}: {} tokens, the model's context is {}", i + 1, r.ids.size() - 1, positions);
    for (int32_t id : r.ids)
      if (id < 0 || id >= vocab)
        fail_input("request {}: token id {} is outside the model's vocabulary of {}", i + 1, id, vocab);
  }
}

// The groups on their way through the cache, in their order: a pass takes the next tokens of as many as it has room
// for, and a group begins with the whole pages that it shares with the one before it.
class Walk {
 public:
  // batch: groups a pass holds at most; tokens: in all. `shares`: the state of a prefix lies in its pages alone.
  Walk(const std::vector<Group>& groups, PagedCache& cache, int64_t batch, int64_t tokens, int64_t max_pages,
       bool shares)
      : groups_(groups),
        cache_(cache),
        batch_(batch),
        tokens_(tokens),
        max_pages_(max_pages),
        shares_(shares),
        uses_(static_cast<size_t>(cache.pages()), 0) {}
  ~Walk() {
    ran();
    release(table_);
  }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  bool ended() const { return at_group_ == groups_.size(); }
  void fill();
  // The pass has run: nobody needs the pages of groups that ended before it any more.
  void ran() {
    for (const auto& t : held_) release(t);
    held_.clear();
  }

  CachedPass pass;  // that fill() made
  struct Piece {
    size_t group;
    int64_t first, count;  // input positions whose logits are computed
    size_t row;            // of the first in the pass's logits
    bool last;
  };
  std::vector<Piece> pieces;

 private:
  void begin(const Group& group);
  void add(const Group& group, int64_t count);
  int32_t take() {
    const int32_t p = cache_.take();
    uses_[static_cast<size_t>(p)] = 1;
    return p;
  }
  void release(const std::vector<int32_t>& table) {
    for (int32_t p : table)
      if (--uses_[static_cast<size_t>(p)] == 0) cache_.release(p);
  }

  const std::vector<Group>& groups_;
  PagedCache& cache_;
  const int64_t batch_, tokens_, max_pages_;
  const bool shares_;
  std::vector<int32_t> uses_;  // of each page, by tables
  // `table_` holds the pages of group `at_group_`, whose tokens before `at_` are in the cache.
  size_t at_group_ = 0;
  int64_t at_ = 0;
  bool begun_ = false;
  std::vector<int32_t> table_;
  std::vector<std::vector<int32_t>> held_;  // tables of groups that ended, until the pass has run
};

void Walk::begin(const Group& group) {
  std::vector<int32_t> before = std::move(table_);
  table_.clear();
  if (at_group_ > 0 && shares_) {
    const auto& p = groups_[at_group_ - 1].input;
    const int64_t limit =
        std::min(static_cast<int64_t>(group.input.size()) - group.scored, static_cast<int64_t>(p.size()));
    int64_t common = 0;
    while (common < limit && p[static_cast<size_t>(common)] == group.input[static_cast<size_t>(common)]) ++common;
    table_.assign(before.begin(), before.begin() + common / PagedCache::kPage);
  }
  for (int32_t p : table_) ++uses_[static_cast<size_t>(p)];
  held_.push_back(std::move(before));
  at_ = static_cast<int64_t>(table_.size()) * PagedCache::kPage;
  begun_ = true;
}

// The group's next `count` tokens.
void Walk::add(const Group& group, int64_t count) {
  const int64_t n = static_cast<int64_t>(group.input.size()), end = at_ + count;
  while (static_cast<int64_t>(table_.size()) < pages_holding(end)) table_.push_back(take());
  Piece piece{at_group_, std::max(at_, n - group.scored), 0, pass.logit_rows.size(), end == n};
  for (int64_t k = at_; k < end; ++k) {
    if (k >= piece.first) pass.logit_rows.push_back(static_cast<int32_t>(pass.tokens()));
    pass.add_token(group.input, k, table_);
  }
  piece.count = static_cast<int64_t>(pass.logit_rows.size() - piece.row);
  pieces.push_back(piece);
  at_ = end;
  const auto state = static_cast<int32_t>(at_group_ % static_cast<size_t>(batch_ + 1));  // a pass has batch_ in a row
  pass.end_request(at_, table_, max_pages_, state);
}

void Walk::fill() {
  pass = {};
  pieces.clear();
  while (!ended() && pass.requests() < batch_ && pass.tokens() < tokens_) {
    const Group& group = groups_[at_group_];
    if (!begun_) begin(group);
    const int64_t n = static_cast<int64_t>(group.input.size());
    add(group, std::min(n - at_, tokens_ - pass.tokens()));
    if (at_ == n) ++at_group_, begun_ = false;
  }
}

}  // namespace

ContinuationScorer::ContinuationScorer(Model& model, int64_t batch, int64_t tokens_per_pass)
    : model_(model),
      batch_(std::max<int64_t>(batch, 1)),
      tokens_(std::max<int64_t>(1, std::min(tokens_per_pass, kLogitBytes / 4 / model.vocab()))),
      program_(model.generator(tokens_)),
      // What a pass adds, what is kept of the request before it, and one request that is long.
      cache_(std::make_unique<PagedCache>(model.config(), model.type(),
                                          pages_holding(tokens_) + batch_ + 2 * pages_holding(model.positions()),
                                          model.ops().device())),
      states_(model.config(), model.type(), batch_ + 1, model.ops().device()) {}

void ContinuationScorer::score(const std::vector<Continuation>& rows,
                               const std::function<void(size_t, const ContinuationScore&)>& done,
                               const std::function<bool()>& more) {
  check(rows, model_.positions(), model_.vocab());
  const std::vector<Group> groups = make_groups(rows);
  std::vector<ContinuationScore> scores(rows.size());
  const int64_t max_pages = pages_holding(model_.positions());
  const size_t vocab = static_cast<size_t>(model_.vocab());
  LogitRows logit_memory(model_.ops().device());
  std::vector<double> lse;
  std::vector<int32_t> best;
  Walk walk(groups, *cache_, batch_, tokens_, max_pages, !states_.any());
  while (!walk.ended() && (!more || more())) {
    walk.fill();
    const size_t count = walk.pass.logit_rows.size();
    const std::span<float> logits = logit_memory.take(count * vocab);
    runtime::CacheView view = walk.pass.view(*cache_, states_, max_pages);
    runtime::Batch b = walk.pass.batch();
    b.logits = logits.data();
    b.cache = &view;
    program_->run(b);
    walk.ran();

    lse.resize(count);
    best.resize(count);
    parallel_for(0, static_cast<int64_t>(count), 1, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const std::span<const float> row(logits.data() + static_cast<size_t>(r) * vocab, vocab);
        lse[static_cast<size_t>(r)] = log_sum_exp(row);
        best[static_cast<size_t>(r)] = most_likely(row);
      }
    });
    for (const Walk::Piece& p : walk.pieces)
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
}

}  // namespace mxt::infer
