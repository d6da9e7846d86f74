#include "infer/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "infer/cached_pass.h"

namespace mxt::infer {
namespace {

constexpr int64_t kPage = PagedCache::kPage;
constexpr int64_t kLogitRows =
    64;  // of a prompt whose log-probabilities are wanted, in one pass: they are vocab floats each

// A card computes the delta rule in pieces of so many tokens, whose cut its sums depend on.
constexpr int64_t kCardEdge = 64;

int64_t pages_for(int64_t tokens) { return (tokens + kPage - 1) / kPage; }

// Broken weights or an overflow: nothing can be drawn from such a distribution.
constexpr const char* kNotFinite = "the model's logits are not finite: its weights or its adapter's are damaged";
void check_finite(std::span<const float> logits) {
  if (!all_finite(logits)) fail_input(kNotFinite);
}

}  // namespace

struct Scheduler::Slot {
  Id id = 0;
  Request request;
  Sink sink;
  std::vector<int32_t> tokens;  // prompt and answer
  int64_t cached = 0;           // tokens whose keys and values are in the cache
  int64_t limit = 0;            // longest it may become
  int64_t made = 0;             // tokens of the answer
  int64_t shared = 0;
  std::vector<int32_t> pages;
  int32_t state = -1;           // its slot of SequenceStates
  std::vector<int64_t> copies;  // ends of pages at which its state is to be kept, the last first
  std::vector<Digest> digests;  // of the full pages that are computed
  Seen seen;
  std::vector<NewToken> prompt_tokens;
  std::vector<double> hidden;
  // Of a model that sees pictures: the prompt's positions on three axes, the one that follows, and of each token of a
  // picture its row of `features`.
  std::vector<int32_t> time, down, across;
  int32_t next = 0;
  std::vector<int64_t> picture_row;
  std::vector<float> features;
  bool placed = false, ended = false, rows_done = false;

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t prompt() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t pending() const { return size() - cached; }
  // Every position of the prompt must be computed with its logits or hidden state: neither can come out of the cache.
  bool wants_rows() const { return !rows_done && (request.prompt_logprobs >= 0 || request.hidden); }
};

// One pass over the model: who takes part with how many tokens, and whose logits come out where.
struct Scheduler::Pass {
  struct Part {
    Slot* slot;
    int64_t from, count;      // positions
    int64_t first_row, rows;  // of the wanted rows; the last is the last position's
  };
  std::vector<Part> parts;
  CachedPass cached;
  // Of wanted rows, for those that are drawn where their logits are.
  std::vector<float> temperature;
  std::vector<int32_t> bits;
  std::vector<int32_t> time, down, across, axes, picture_rows;  // as runtime::Batch has them
  std::vector<float> features;
  bool logits = false, hidden = false;
};

Scheduler::Scheduler(Model& model, const SchedulerSettings& settings)
    : model_(model),
      settings_(settings),
      max_pages_(pages_for(model.positions())),
      cache_(model.config(), model.type(),
             std::max(settings.cache_pages > 0 ? settings.cache_pages : settings.batch * max_pages_, max_pages_),
             model.ops().device()),
      states_(model.config(), model.type(), settings.batch, model.ops().device(), settings.state_copies()),
      edge_(model.ops().device() ? kCardEdge : kPage),
      drawer_(model.ops().device() && dynamic_cast<kernels::Drawer*>(&model.ops())),
      logit_memory_(model.ops().device()),
      drawn_memory_(model.ops().device()) {
  settings_.tokens_per_pass = std::max(settings_.tokens_per_pass, settings_.batch);
  programs_.resize(static_cast<size_t>(model.adapters()) + 1);
  changed_.assign(programs_.size(), true);
  stats_.cache_pages = stats_.cache_available = cache_.pages();
}

Scheduler::~Scheduler() { stop(); }

runtime::Program& Scheduler::program(int adapter) {
  auto& p = programs_[static_cast<size_t>(adapter + 1)];
  if (!p) p = model_.generator(settings_.tokens_per_pass, adapter);
  return *p;
}

Scheduler::Id Scheduler::submit(Request request, Sink sink) {
  if (request.prompt.empty()) fail_input("an empty prompt cannot be continued");
  const auto n = static_cast<int64_t>(request.prompt.size());
  if (n > model_.positions() || (n == model_.positions() && !request.hidden && request.max_tokens > 0))
    fail_input("the prompt has {} tokens, the model's context is {}: shorten it", n, model_.positions());
  auto check = [&](int32_t id) {
    if (id < 0 || id >= model_.vocab())
      fail_input("token id {} is outside the model's vocabulary of {}", id, model_.vocab());
  };
  for (int32_t id : request.prompt) check(id);
  for (const auto& [id, bias] : request.sampling.logit_bias) check(id);
  for (int32_t id : request.stop) check(id);
  MXT_ASSERT(!request.tool || !request.constraint);
  MXT_ASSERT(request.adapter >= -1 && request.adapter + 1 < static_cast<int>(programs_.size()));
  auto s = std::make_unique<Slot>();
  s->tokens = request.prompt;
  s->limit = request.hidden ? n : std::min(model_.positions(), n + std::max<int64_t>(request.max_tokens, 0));
  if (request.sampling.adjusts())
    for (int32_t id : request.prompt) s->seen.emplace(id, 0);
  s->request = std::move(request);
  locate(*s);
  s->sink = std::move(sink);
  std::lock_guard lock(mutex_);
  const Id id = s->id = next_id_++;
  arrived_.push_back(std::move(s));
  ++stats_.waiting;
  ++stats_.requests;
  wake_.notify_one();
  return id;
}

void Scheduler::locate(Slot& s) const {
  const graph::Pictures& p = model_.graph().pictures;
  const auto n = static_cast<size_t>(s.prompt());
  if (p.merge == 0) {
    if (s.request.shown)
      fail_missing("pictures: the model ({}) is without its tower here, which no device computes: run it on the CPU",
                   model_.config().model_type);
    return;
  }
  for (auto* axis : {&s.time, &s.down, &s.across}) axis->resize(n);
  s.picture_row.assign(n, -1);
  int64_t row = 0;
  std::span<const runtime::PlacedPicture> pictures;
  if (s.request.shown) pictures = s.request.shown->pictures;
  for (const runtime::PlacedPicture& x : pictures) {
    MXT_ASSERT(x.first >= 0 && x.first + x.tokens(p.merge) <= static_cast<int64_t>(n));
    for (int64_t i = 0; i < x.tokens(p.merge); ++i) s.picture_row[static_cast<size_t>(x.first + i)] = row++;
  }
  s.next = runtime::positions_of(s.prompt(), pictures, p.merge, s.time.data(), s.down.data(), s.across.data());
}

// Where a token of a request stands, and what is seen there.
void Scheduler::add_place(const Slot& s, int64_t at, Pass& p) const {
  if (model_.graph().pictures.merge == 0) return;
  const auto i = static_cast<size_t>(at);
  const auto after = static_cast<int32_t>(s.next + at - s.prompt());  // of the answer
  const bool asked = at < s.prompt();
  p.time.push_back(asked ? s.time[i] : after);
  p.down.push_back(asked ? s.down[i] : after);
  p.across.push_back(asked ? s.across[i] : after);
  if (!asked || s.picture_row[i] < 0) return;
  const int64_t width = model_.graph().pictures.features;
  const float* from = s.features.data() + s.picture_row[i] * width;
  p.picture_rows.push_back(static_cast<int32_t>(p.cached.tokens()));
  p.features.insert(p.features.end(), from, from + width);
}

void Scheduler::cancel(Id id) {
  std::lock_guard lock(mutex_);
  cancelled_.push_back(id);
  wake_.notify_one();
}

SchedulerStats Scheduler::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void Scheduler::end(Slot& s, Finish why, std::string error) {
  if (s.ended) return;
  s.ended = true;
  release(s);
  if (!s.sink.done) return;
  try {
    s.sink.done({why, std::move(error), s.shared});
  } catch (const std::exception& e) {  // its own loss: the others are still to be answered
    log::warn("an answer could not be handed over: {}", e.what());
  }
}

void Scheduler::take_arrivals() {
  std::vector<Id> cancelled;
  {
    std::lock_guard lock(mutex_);
    for (auto& s : arrived_) waiting_.push_back(std::move(s));
    arrived_.clear();
    cancelled.swap(cancelled_);
  }
  for (Id id : cancelled)
    for (auto* list : {&waiting_, &running_})
      for (auto& s : *list)
        if (s->id == id) end(*s, Finish::kCancelled);
  for (auto* list : {&waiting_, &running_}) std::erase_if(*list, [](const SlotPtr& s) { return s->ended; });
}

void Scheduler::release(Slot& s) {
  // The last page first, so that the beginning of a prompt stays the longest.
  for (size_t i = s.pages.size(); i-- > 0;) cache_.release(s.pages[i]);
  s.pages.clear();
  s.digests.clear();
  s.copies.clear();
  if (s.state >= 0) states_.release(s.state), s.state = -1;
  s.cached = 0;
  s.placed = false;
  if (s.rows_done) return;
  s.prompt_tokens.clear();
  s.hidden.clear();
}

// Pictures have the same ids whatever they show.
bool Scheduler::shares(const Slot& s) const { return settings_.prefix_cache && !s.request.shown && !s.wants_rows(); }

// The beginning that the cache already has; of a model whose layers carry a state, as far as one was kept.
void Scheduler::place(Slot& s) {
  s.placed = true;
  if (!shares(s)) return;
  size_t whole = 0;  // pages of the longest beginning that can be taken
  // At least the last token is computed: its logits are what is wanted.
  for (int64_t end = kPage; end < s.size(); end += kPage) {
    const Digest d =
        page_digest(s.digests.empty() ? Digest{} : s.digests.back(), static_cast<uint32_t>(s.request.adapter + 1),
                    std::span(s.tokens).subspan(static_cast<size_t>(end - kPage), kPage));
    const int32_t page = cache_.find(d);
    if (page < 0) break;
    s.pages.push_back(page);
    s.digests.push_back(d);
    if (!states_.any() || states_.kept(d)) whole = s.pages.size();
  }
  // What others computed of it too is where the next one like it may begin.
  if (s.pages.size() > whole) s.copies.push_back(static_cast<int64_t>(s.pages.size()) * kPage / edge_ * edge_);
  for (; s.pages.size() > whole; s.pages.pop_back(), s.digests.pop_back()) cache_.release(s.pages.back());
  s.cached = static_cast<int64_t>(whole) * kPage;
  if (states_.any() && whole > 0) states_.restore(s.digests.back(), s.state);
  if (s.made == 0) s.shared = s.cached;
  if (states_.any()) plan_copies(s);
}

// Beside the end of its own last full page, where those that wait have the same beginning.
void Scheduler::plan_copies(Slot& s) const {
  const auto add = [&](int64_t tokens) {
    const int64_t end = std::min(tokens, s.prompt() - 1) / edge_ * edge_;
    if (end > s.cached) s.copies.push_back(end);
  };
  for (const SlotPtr& o : running_) {
    if (o->placed || o->request.adapter != s.request.adapter || !shares(*o)) continue;
    const auto most = std::min(s.prompt(), o->size()) - 1;
    add(std::mismatch(s.tokens.begin(), s.tokens.begin() + most, o->tokens.begin()).first - s.tokens.begin());
  }
  add(s.prompt() - 1);
  std::sort(s.copies.begin(), s.copies.end(), std::greater<>());
  s.copies.erase(std::unique(s.copies.begin(), s.copies.end()), s.copies.end());
  while (!s.copies.empty() && s.copies.back() <= s.cached) s.copies.pop_back();
}

// How many of `tokens` more a pass may take so that it ends where the state is wanted.
int64_t Scheduler::until_copy(const Slot& s, int64_t tokens) const {
  return s.copies.empty() ? tokens : std::min(tokens, s.copies.back() - s.cached);
}

void Scheduler::publish(Slot& s) {
  if (!settings_.prefix_cache || s.request.shown) return;
  while (static_cast<int64_t>(s.digests.size() + 1) * kPage <= s.cached) {
    const size_t i = s.digests.size();
    s.digests.push_back(
        page_digest(i == 0 ? Digest{} : s.digests.back(), static_cast<uint32_t>(s.request.adapter + 1),
                    std::span(s.tokens).subspan(i * static_cast<size_t>(kPage), static_cast<size_t>(kPage))));
    cache_.publish(s.pages[i], s.digests.back());
  }
  if (s.copies.empty() || s.copies.back() != s.cached) return;
  s.copies.pop_back();
  states_.keep(s.digests.back(), s.state);
}

// Who goes next: the lowest priority number, then the group with the fewest running, then the one whose last turn is
// longest ago, then who came first.
void Scheduler::admit() {
  std::map<uint64_t, int64_t> load;
  for (const auto& s : running_) ++load[s->request.group];
  while (!waiting_.empty() && static_cast<int64_t>(running_.size()) < settings_.batch) {
    auto key = [&](const SlotPtr& s) {
      return std::tuple(s->request.priority, load[s->request.group], turn_[s->request.group], s->id);
    };
    const auto next = std::min_element(waiting_.begin(), waiting_.end(),
                                       [&](const SlotPtr& a, const SlotPtr& b) { return key(a) < key(b); });
    // Pages for what it holds so far must be there; what it grows by is found later, from the youngest if need be.
    if (!running_.empty() && cache_.available() < pages_for((*next)->size() + 1)) break;
    ++load[(*next)->request.group];
    turn_[(*next)->request.group] = ++turns_;
    running_.push_back(std::move(*next));
    waiting_.erase(next);
  }
}

// Pages for the first `tokens` tokens, where need be from requests admitted later, which then begin anew. False where
// there are none.
bool Scheduler::ensure_pages(Slot& s, int64_t tokens) {
  while (static_cast<int64_t>(s.pages.size()) < pages_for(tokens)) {
    if (cache_.available() == 0) {
      Slot* victim = nullptr;
      for (auto other = running_.rbegin(); other->get() != &s && victim == nullptr; ++other)
        if (!(*other)->pages.empty()) victim = other->get();
      if (victim == nullptr) return false;
      release(*victim);
      std::lock_guard lock(mutex_);
      ++stats_.preemptions;
      continue;
    }
    s.pages.push_back(cache_.take());
  }
  return true;
}

void Scheduler::build(Pass& p, int adapter) {
  int64_t decoding = 0;
  for (const auto& s : running_) decoding += s->request.adapter == adapter && s->placed && s->pending() == 1;
  int64_t room = settings_.tokens_per_pass - decoding;
  // A crowd that decodes bears longer pieces, or those who come new would wait for most of it to finish.
  if (decoding > 0) room = std::min(room, std::max(settings_.prompt_piece, decoding));
  // Whether pages that a request could share are about to be computed for another: it comes a pass later and finds
  // them, so that what prompts have in common is computed once, also where they come together.
  const auto waits = [&](const Slot& s) {
    if (!shares(s)) return false;
    return std::any_of(running_.begin(), running_.end(), [&](const SlotPtr& owned) {
      const Slot& o = *owned;
      if (!o.placed || o.ended || o.request.adapter != adapter || o.request.shown) return false;
      const auto most = std::min(s.size() - 1, o.size()) / kPage;
      if (most <= static_cast<int64_t>(o.digests.size())) return false;
      const auto same = std::mismatch(s.tokens.begin(), s.tokens.begin() + most * kPage, o.tokens.begin()).first;
      return (same - s.tokens.begin()) / kPage > static_cast<int64_t>(o.digests.size());
    });
  };
  for (auto& owned : running_) {
    Slot& s = *owned;
    if (s.request.adapter != adapter || s.ended) continue;
    const bool counted = s.placed && s.pending() == 1;
    if (!s.placed && (room <= 0 || waits(s))) continue;
    if (states_.any() && s.state < 0) s.state = states_.take();
    if (!s.placed) place(s);
    if (s.request.shown && s.features.empty()) s.features = model_.see(*s.request.shown);
    int64_t n = until_copy(s, counted ? 1 : std::min(s.pending(), room));
    if (s.wants_rows()) n = std::min(n, kLogitRows);
    if (n <= 0) continue;
    if (!ensure_pages(s, s.cached + n)) continue;
    if (!counted) room -= n;
    std::vector<int32_t>& rows = p.cached.logit_rows;
    Pass::Part part{&s, s.cached, n, static_cast<int64_t>(rows.size()), 0};
    const bool last = n == s.pending();
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = s.cached + k;
      if (s.wants_rows() || (last && k == n - 1)) {
        rows.push_back(static_cast<int32_t>(p.cached.tokens()));
        ++part.rows;
      }
      add_place(s, at, p);
      p.cached.add_token(s.tokens, at, s.pages);
    }
    (s.request.hidden ? p.hidden : p.logits) = true;
    p.cached.end_request(s.cached + n, s.pages, max_pages_, s.state);
    p.parts.push_back(part);
  }
}

void Scheduler::run(Pass& p, int adapter) {
  runtime::CacheView view = p.cached.view(cache_, states_, max_pages_);
  runtime::Batch b = p.cached.batch();
  const size_t rows = p.cached.logit_rows.size();
  bool draws = false, fetches = false;
  for (const Pass::Part& part : p.parts) {
    const bool drawn = this->draws(*part.slot);
    (drawn ? draws : fetches) |= part.rows > 0;
    const auto u = uniform_bits(part.slot->request.sampling, static_cast<uint64_t>(part.slot->made));
    for (int64_t k = 0; k < part.rows; ++k) {
      p.temperature.push_back(static_cast<float>(std::max(part.slot->request.sampling.temperature, 0.0)));
      p.bits.insert(p.bits.end(), {std::bit_cast<int32_t>(u[0]), std::bit_cast<int32_t>(u[1])});
    }
  }
  p.logits = p.logits && (fetches || !draws);
  drawn_ = drawn_memory_.take(draws ? 2 * rows : 0);
  b.draw_temperature = p.temperature.data();
  b.draw_bits = p.bits.data();
  b.drawn = draws ? drawn_.data() : nullptr;
  logits_ = logit_memory_.take(p.logits ? rows * static_cast<size_t>(model_.vocab()) : 0);
  hidden_.resize(p.hidden ? rows * static_cast<size_t>(model_.config().hidden_size) : 0);
  b.logits = p.logits ? logits_.data() : nullptr;
  b.hidden = p.hidden ? hidden_.data() : nullptr;
  b.cache = &view;
  runtime::PictureBatch pictures;
  if (!p.time.empty()) {
    for (const auto* axis : {&p.time, &p.down, &p.across}) p.axes.insert(p.axes.end(), axis->begin(), axis->end());
    b.axes = p.axes.data();
    pictures.tokens = static_cast<int64_t>(p.picture_rows.size());
    pictures.features = p.features.data();
    pictures.rows = p.picture_rows.data();
    if (pictures.tokens > 0) b.pictures = &pictures;
  }
  // What a pass makes of the weights alone (adapters laid beside their matrices) stays until they change.
  const auto which = static_cast<size_t>(adapter + 1);
  b.first_micro = changed_[which];
  program(adapter).run(b);
  changed_[which] = false;
}

// Where the logits are, a token can be drawn of them as they come: unfiltered, unconstrained, with no other's
// log-probability wanted, nor its own at a temperature. It depends on the request alone, as its tokens must.
bool Scheduler::draws(const Slot& s) const {
  const Request& r = s.request;
  return drawer_ && !s.wants_rows() && !r.hidden && !r.constraint && !r.sampling.adjusts() && !r.sampling.filters() &&
         r.logprobs <= 0 && !(r.tempered && r.sampling.temperature != 1) && (s.made >= r.min_tokens || r.stop.empty());
}

std::optional<NewToken> Scheduler::drawn(const Slot& s, int64_t row) const {
  const float* d = drawn_.data() + 2 * row;
  if (d[0] < 0) fail_input(kNotFinite);
  const Request& r = s.request;
  const auto id = static_cast<int32_t>(d[0]);
  if (std::find(r.stop.begin(), r.stop.end(), id) != r.stop.end()) return std::nullopt;
  return NewToken{id, r.logprobs < 0 ? std::numeric_limits<float>::quiet_NaN() : d[1], {}};
}

NewToken Scheduler::describe(std::span<const float> logits, int32_t id, int64_t likely, double temperature) const {
  NewToken t{id, std::numeric_limits<float>::quiet_NaN(), {}};
  if (likely < 0) return t;
  std::vector<float> scaled;
  if (temperature != 1) {
    for (const float x : logits) scaled.push_back(static_cast<float>(static_cast<double>(x) / temperature));
    logits = scaled;
  }
  check_finite(logits);
  const double lse = log_sum_exp(logits);
  auto logprob = [&](int32_t i) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(i)]) - lse);
  };
  t.logprob = logprob(id);
  if (likely > 0)
    for (int32_t i : most_likely(logits, likely)) t.likely.push_back({i, logprob(i)});
  return t;
}

// The next token of a request, or none where it ends without one. Reads and changes nothing but this request's own.
std::optional<NewToken> Scheduler::choose(const Slot& s, std::span<float> logits, std::span<const uint64_t> allowed,
                                          std::vector<float>& raw) const {
  const Request& r = s.request;
  check_finite(logits);
  const bool constrained = r.constraint && !allowed.empty(), complete = constrained && r.constraint->complete();
  const bool hold = s.made < r.min_tokens && !r.stop.empty();
  if ((r.sampling.adjusts() || constrained || hold) && r.logprobs >= 0) raw.assign(logits.begin(), logits.end());
  adjust(logits, r.sampling, s.seen);
  std::vector<std::pair<int32_t, float>> ends;
  for (int32_t id : r.stop) ends.emplace_back(id, logits[static_cast<size_t>(id)]);
  if (constrained) allow_only(logits, allowed);
  for (const auto& [id, logit] : ends) {
    if (hold) logits[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
    if (complete && !hold) logits[static_cast<size_t>(id)] = logit;
  }
  return draw(s, logits, raw);
}

// From logits in which what may not come is −∞. `raw`: the model's own, empty where they are the same.
std::optional<NewToken> Scheduler::draw(const Slot& s, std::span<const float> logits,
                                        std::span<const float> raw) const {
  const Request& r = s.request;
  if (nothing_left(logits)) {
    if (!r.constraint || r.constraint->complete()) return std::nullopt;
    fail_input("no token of this model's vocabulary continues the answer as it is demanded");
  }
  const int32_t id = sample(logits, r.sampling, static_cast<uint64_t>(s.made));
  if (std::find(r.stop.begin(), r.stop.end(), id) != r.stop.end()) return std::nullopt;
  const bool tempered = r.tempered && r.sampling.temperature > 0;
  return describe(raw.empty() ? logits : raw, id, r.logprobs, tempered ? r.sampling.temperature : 1);
}

// What the constraint does not take after all is drawn again without it.
void Scheduler::redraw(const Slot& s, std::span<float> logits, std::span<const float> raw,
                       std::optional<NewToken>& token) const {
  while (s.request.constraint && token && !s.request.constraint->takes(token->id)) {
    logits[static_cast<size_t>(token->id)] = -std::numeric_limits<float>::infinity();
    token = draw(s, logits, raw);
  }
}

// One token more, and what a tool says after it.
void Scheduler::deliver(Slot& s, const NewToken& t) {
  put(s, t);
  const Request& r = s.request;
  if (!r.tool || s.ended) return;
  for (const int32_t id : r.tool->after(t.id)) {
    if (s.ended) return;
    NewToken forced{id, std::numeric_limits<float>::quiet_NaN(), {}};
    if (r.logprobs >= 0) forced.logprob = 0;
    if (r.logprobs > 0) forced.likely = {{id, 0}};
    put(s, forced);
  }
}

void Scheduler::put(Slot& s, const NewToken& t) {
  const Request& r = s.request;
  s.tokens.push_back(t.id);
  ++s.made;
  if (r.sampling.adjusts()) ++s.seen[t.id];
  if (r.constraint) r.constraint->accept(t.id);
  const bool more = !s.sink.token || s.sink.token(t);
  if (!more) return end(s, Finish::kStop);
  if (s.size() >= s.limit) end(s, Finish::kLength);
}

void Scheduler::take_samples(Pass& p) {
  const auto vocab = static_cast<size_t>(model_.vocab()), width = static_cast<size_t>(model_.config().hidden_size);
  int64_t prompt_tokens = 0, new_tokens = 0, shared = 0;
  struct Ready {
    Slot* slot;
    std::span<float> logits;
    std::span<const uint64_t> allowed;
    std::vector<float> raw;
    std::optional<NewToken> token;
    std::string error;
    int64_t row = -1;  // where it was drawn
  };
  std::vector<Ready> ready;
  for (const Pass::Part& part : p.parts) {
    Slot& s = *part.slot;
    prompt_tokens += std::min(s.cached + part.count, s.prompt()) - std::min(s.cached, s.prompt());
    const bool rows = s.wants_rows();
    if (s.made == 0 && part.from == s.shared) shared += s.shared;
    s.cached += part.count;
    publish(s);
    if (s.request.hidden) {
      s.hidden.resize(width);
      for (int64_t k = 0; k < part.rows; ++k)
        for (size_t c = 0; c < width; ++c)
          s.hidden[c] += static_cast<double>(hidden_[static_cast<size_t>(part.first_row + k) * width + c]);
      if (s.pending() > 0) continue;
      std::vector<float> mean(width);
      for (size_t c = 0; c < width; ++c) mean[c] = static_cast<float>(s.hidden[c] / static_cast<double>(s.size()));
      if (s.sink.hidden) s.sink.hidden(mean);
      end(s, Finish::kStop);
      continue;
    }
    auto row = [&](int64_t k) { return logits_.subspan(static_cast<size_t>(part.first_row + k) * vocab, vocab); };
    if (rows) try {
        if (part.from == 0) s.prompt_tokens.push_back({s.tokens[0], std::numeric_limits<float>::quiet_NaN(), {}});
        for (int64_t k = 0; k < part.count && part.from + k + 1 < s.prompt(); ++k)
          s.prompt_tokens.push_back(
              describe(row(k), s.tokens[static_cast<size_t>(part.from + k + 1)], s.request.prompt_logprobs));
      } catch (const std::exception& e) {
        end(s, Finish::kFailed, e.what());
        continue;
      }
    if (s.pending() > 0) continue;
    s.rows_done = true;
    if (rows && s.sink.prompt) s.sink.prompt(s.prompt_tokens);
    if (s.limit <= s.prompt()) {
      end(s, Finish::kLength);
      continue;
    }
    Ready r{&s, {}, {}, {}, {}, {}};
    if (!rows && draws(s)) {
      r.row = part.first_row + part.rows - 1;
      ready.push_back(std::move(r));
      continue;
    }
    r.logits = row(part.rows - 1);
    try {
      if (s.request.constraint) r.allowed = s.request.constraint->allowed();  // requests share automata
    } catch (const std::exception& e) {  // past its limits: it ends its own request
      r.error = e.what();
    }
    ready.push_back(std::move(r));
  }
  // A vocabulary's logits a request: side by side, then told in the requests' order.
  parallel_for(0, static_cast<int64_t>(ready.size()), 1, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) try {
        if (ready[i].row >= 0)
          ready[i].token = drawn(*ready[i].slot, ready[i].row);
        else if (ready[i].error.empty())
          ready[i].token = choose(*ready[i].slot, ready[i].logits, ready[i].allowed, ready[i].raw);
      } catch (const std::exception& e) {
        ready[i].error = e.what();
      }
  });
  for (Ready& r : ready) try {
      if (!r.error.empty()) fail_input("{}", r.error);
      redraw(*r.slot, r.logits, r.raw, r.token);
      r.token ? deliver(*r.slot, *r.token) : end(*r.slot, Finish::kStop);
      new_tokens += r.token.has_value();
    } catch (const std::exception& e) {
      end(*r.slot, Finish::kFailed, e.what());
    }
  std::lock_guard lock(mutex_);
  stats_.prompt_tokens += prompt_tokens;
  stats_.new_tokens += new_tokens;
  stats_.shared_tokens += shared;
  ++stats_.passes;
}

bool Scheduler::step() {
  take_arrivals();
  admit();
  // Adapters take turns, a pass each.
  int adapter = -2;
  for (int i = 1; i <= static_cast<int>(programs_.size()) && adapter == -2; ++i) {
    const int candidate = (last_adapter_ + 1 + i) % static_cast<int>(programs_.size()) - 1;
    for (const auto& s : running_)
      if (s->request.adapter == candidate) adapter = candidate;
  }
  if (adapter != -2) {
    last_adapter_ = adapter;
    Pass p;
    try {
      build(p, adapter);
      if (!p.parts.empty()) {
        run(p, adapter);
        take_samples(p);
      }
    } catch (const std::exception& e) {  // out of memory, say: those of this pass fail, the others go on
      for (const auto& part : p.parts) end(*part.slot, Finish::kFailed, e.what());
      if (p.parts.empty())  // whoever it was: going on as before would only meet it again
        for (const auto& s : running_)
          if (s->request.adapter == adapter) end(*s, Finish::kFailed, e.what());
    }
    std::erase_if(running_, [](const SlotPtr& s) { return s->ended; });
  }
  std::lock_guard lock(mutex_);
  stats_.waiting = static_cast<int64_t>(waiting_.size() + arrived_.size());
  stats_.running = static_cast<int64_t>(running_.size());
  stats_.cache_available = cache_.available();
  return adapter != -2;
}

void Scheduler::start() {
  MXT_ASSERT(!thread_.joinable());
  stopping_ = false;
  release_workers();  // they loaded the weights; this thread only listens from here on
  thread_ = std::thread([this, threads = num_threads()] {
    set_num_threads(threads);
    loop();
  });
}

void Scheduler::loop() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] {
        return stopping_ || !arrived_.empty() || !cancelled_.empty() || stats_.running + stats_.waiting > 0;
      });
      if (stopping_) break;
    }
    step();
  }
  take_arrivals();
  for (auto* list : {&waiting_, &running_}) {
    for (auto& s : *list) end(*s, Finish::kCancelled);
    list->clear();
  }
}

void Scheduler::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace mxt::infer
