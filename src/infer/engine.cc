#include "infer/engine.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace mxt::infer {
namespace {

int64_t pages_for(int64_t tokens) { return (tokens + PagedCache::kPage - 1) / PagedCache::kPage; }

}  // namespace

struct Engine::Slot {
  size_t request;
  std::vector<int32_t> tokens;   // prompt and answer
  int64_t cached = 0;            // tokens whose keys and values are in the cache
  int64_t limit = 0;             // longest it may become
  std::vector<int32_t> pages;
  int64_t pending() const { return static_cast<int64_t>(tokens.size()) - cached; }
};

Engine::Engine(Model& model, const EngineSettings& settings)
    : model_(model), settings_(settings), program_(model.generator(settings.tokens_per_pass)),
      cache_(model.config(), model.type(), settings.batch * pages_for(model.positions())) {}

std::vector<Answer> Engine::generate(const std::vector<Request>& requests, const std::function<bool(size_t, int32_t)>& on_token,
                                     const std::function<void(size_t, const Answer&)>& on_done) {
  std::vector<Answer> answers(requests.size());
  for (const Request& r : requests) {
    if (r.prompt.empty()) fail_input("an empty prompt cannot be continued");
    if (static_cast<int64_t>(r.prompt.size()) >= model_.positions())
      fail_input("the prompt has {} tokens, the model's context is {}: shorten it", r.prompt.size(), model_.positions());
    for (int32_t id : r.prompt)
      if (id < 0 || id >= model_.vocab()) fail_input("token id {} is outside the model's vocabulary of {}", id, model_.vocab());
  }
  const int64_t max_pages = pages_for(model_.positions());
  std::vector<Slot> slots;
  size_t next = 0;
  std::vector<int32_t> ids, positions, cu_q, context, tables, where, rows;
  std::vector<float> logits;
  while (next < requests.size() || !slots.empty()) {
    while (next < requests.size() && static_cast<int64_t>(slots.size()) < settings_.batch) {
      const Request& r = requests[next];
      Slot s;
      s.request = next;
      s.tokens = r.prompt;
      s.limit = std::min(model_.positions(), static_cast<int64_t>(r.prompt.size()) + std::max<int64_t>(r.max_tokens, 0));
      if (s.limit > static_cast<int64_t>(s.tokens.size())) slots.push_back(std::move(s));
      else if (on_done) on_done(next, answers[next]);
      ++next;
    }
    if (slots.empty()) break;

    // One pass: each slot's next piece, new tokens first come first served within the pass's size.
    ids.clear();
    positions.clear();
    where.clear();
    cu_q.assign(1, 0);
    context.clear();
    tables.clear();
    rows.clear();
    std::vector<size_t> taking, finishing;
    for (size_t i = 0; i < slots.size(); ++i) {
      Slot& s = slots[i];
      const int64_t room = settings_.tokens_per_pass - static_cast<int64_t>(ids.size());
      const int64_t n = std::min(s.pending(), room);
      if (n <= 0) continue;
      while (static_cast<int64_t>(s.pages.size()) < pages_for(s.cached + n)) s.pages.push_back(cache_.take());
      for (int64_t k = 0; k < n; ++k) {
        const int64_t at = s.cached + k;
        ids.push_back(s.tokens[static_cast<size_t>(at)]);
        positions.push_back(static_cast<int32_t>(at));
        where.push_back(s.pages[static_cast<size_t>(at / PagedCache::kPage)] * static_cast<int32_t>(PagedCache::kPage) + static_cast<int32_t>(at % PagedCache::kPage));
      }
      s.cached += n;
      cu_q.push_back(static_cast<int32_t>(ids.size()));
      context.push_back(static_cast<int32_t>(s.cached));
      tables.resize(tables.size() + static_cast<size_t>(max_pages), 0);
      std::copy(s.pages.begin(), s.pages.end(), tables.end() - max_pages);
      taking.push_back(i);
      if (s.pending() == 0) {
        rows.push_back(static_cast<int32_t>(ids.size()) - 1);
        finishing.push_back(i);
      }
    }
    const size_t vocab = static_cast<size_t>(model_.vocab());
    logits.resize(rows.size() * vocab);
    runtime::CacheView view;
    view.k = cache_.k();
    view.v = cache_.v();
    view.page = PagedCache::kPage;
    view.max_pages = max_pages;
    view.cu_q = cu_q.data();
    view.context = context.data();
    view.tables = tables.data();
    view.slots = where.data();
    view.requests = static_cast<int64_t>(context.size());
    runtime::Batch b;
    b.tokens = static_cast<int64_t>(ids.size());
    b.ids = ids.data();
    b.positions = positions.data();
    b.logit_rows = rows.data();
    b.logit_count = static_cast<int64_t>(rows.size());
    b.logits = logits.data();
    b.cache = &view;
    program_->run(b);

    std::vector<bool> done(slots.size(), false);
    for (size_t k = 0; k < finishing.size(); ++k) {
      Slot& s = slots[finishing[k]];
      const Request& r = requests[s.request];
      Answer& a = answers[s.request];
      const std::span<const float> row(logits.data() + k * vocab, vocab);
      const int32_t id = sample(row, r.sampling, a.tokens.size());
      if (std::find(r.stop.begin(), r.stop.end(), id) != r.stop.end()) {
        a.stopped = true;
        done[finishing[k]] = true;
        continue;
      }
      a.tokens.push_back(id);
      a.logprobs.push_back(static_cast<float>(static_cast<double>(row[static_cast<size_t>(id)]) - log_sum_exp(row)));
      s.tokens.push_back(id);
      if (on_token && !on_token(s.request, id)) done[finishing[k]] = true;
      if (static_cast<int64_t>(s.tokens.size()) >= s.limit) done[finishing[k]] = true;
    }
    for (size_t i = slots.size(); i-- > 0;)
      if (done[i]) {
        if (on_done) on_done(slots[i].request, answers[slots[i].request]);
        for (int32_t p : slots[i].pages) cache_.give(p);
        slots.erase(slots.begin() + static_cast<ptrdiff_t>(i));
      }
  }
  return answers;
}

}  // namespace mxt::infer
