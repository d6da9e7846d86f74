// Rules from two rules: their automata walked side by side.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "serve/grammar/json_grammar.h"

namespace mxt::serve {
namespace {

constexpr size_t kMostPairs = 30'000;
constexpr int64_t kMaxWork = 16'000'000;
constexpr int64_t kNoEnd = INT64_MAX;

struct Place {
  std::map<size_t, ByteSet> to;  // number of the place that these bytes lead to
  bool ends = false, alive = false;
};
using Places = std::vector<Place>;

// Places from which an end can be reached, from the ends backwards.
void find_alive(Places& places) {
  std::vector<std::vector<size_t>> from(places.size());
  std::vector<size_t> work;
  for (size_t i = 0; i < places.size(); ++i) {
    for (const auto& [to, bytes] : places[i].to) from[to].push_back(i);
    if ((places[i].alive = places[i].ends)) work.push_back(i);
  }
  while (!work.empty()) {
    const size_t i = work.back();
    work.pop_back();
    for (const size_t p : from[i])
      if (!places[p].alive) places[p].alive = true, work.push_back(p);
  }
}

// All places that are reached from `first`. next(place, byte): where it leads, if anywhere; ends(place).
template <typename Key, typename Next, typename Ends>
Places walk(const Key& first, const Next& next, const Ends& ends, const std::string& at,
            std::vector<Key>* keys = nullptr) {
  std::vector<Key> found{first};
  std::map<Key, size_t> number{{first, 0}};
  Places places;
  for (size_t i = 0; i < found.size(); ++i) {
    Place p;
    const Key here = found[i];
    p.ends = ends(here);
    for (size_t byte = 0; byte < 256; ++byte) {
      const std::optional<Key> to = next(here, static_cast<unsigned char>(byte));
      if (!to) continue;
      const auto [it, fresh] = number.emplace(*to, found.size());
      if (fresh) found.push_back(*to);
      if (found.size() > kMostPairs) fail_input("{}: what has to hold together here is too large", at);
      p.to[it->second].set(byte);
    }
    places.push_back(std::move(p));
  }
  find_alive(places);
  if (keys) *keys = std::move(found);
  return places;
}

}  // namespace

// As an automaton of its own.
Automaton JsonGrammar::machine(Rule root) const {
  Grammar g = g_;
  g.root = root;
  g.prune();
  return {std::move(g), std::make_shared<const TokenBytes>(std::vector<std::string>{}), kMaxWork};
}

namespace {

size_t cells_of(const Places& places) {
  size_t cells = 0;
  for (const auto& p : places) cells += 3 * p.to.size() + 1;
  return cells;
}

Grammar::Rule write(Grammar& g, const Places& places) {
  std::vector<Grammar::Rule> rules;
  for (size_t i = 0; i < places.size(); ++i) rules.push_back(g.add());
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].ends) g.choice(rules[i], {});
    for (const auto& [to, bytes] : places[i].to)
      if (places[to].alive) g.choice(rules[i], {g.bytes(bytes), Grammar::call(rules[to])});
  }
  return rules[0];
}

}  // namespace

JsonGrammar::Rule JsonGrammar::intersection(Rule x, Rule y, const std::string& at, bool without) {
  using Pair = std::pair<Automaton::State, Automaton::State>;
  Automaton a = machine(x), b = machine(y);
  auto next = [&](const Pair& p, unsigned char byte) -> std::optional<Pair> {
    const Pair to{a.next(p.first, byte), b.next(p.second, byte)};
    if (to.first == Automaton::kDead || (!without && to.second == Automaton::kDead)) return std::nullopt;
    return to;
  };
  auto ends = [&](const Pair& p) {
    const bool second = p.second != Automaton::kDead && b.accepts(p.second);
    return p.first != Automaton::kDead && a.accepts(p.first) && second != without;
  };
  const Places places = walk(Pair{a.start(), b.start()}, next, ends, at);
  if (!places[0].alive) throw NothingLeft(at + ": no value is as all of this demands");
  spend(cells_of(places), at);
  return write(g_, places);
}

namespace {

// The most characters on a way from a place to an end; kNoEnd where there are ways of any length. `opens[i]`: whether
// leaving place i begins a character.
int64_t longest(const Places& places, const std::vector<bool>& opens, bool quoted) {
  enum class State : uint8_t { kNew, kOpen, kDone };
  std::vector<State> state(places.size(), State::kNew);
  std::vector<int64_t> most(places.size(), 0);
  std::vector<size_t> work{0};
  while (!work.empty()) {
    const size_t i = work.back();
    if (state[i] == State::kDone) {
      work.pop_back();
      continue;
    }
    const bool again = state[i] == State::kOpen;
    state[i] = State::kOpen;
    for (const auto& [to, bytes] : places[i].to) {
      if (!places[to].alive) continue;
      if (again) {
        const bool quote = quoted && bytes.test('"') && places[to].ends;  // the end of the string is no character
        most[i] = std::max(most[i], most[to] + (opens[i] && !quote));
      } else if (state[to] == State::kOpen) {
        return kNoEnd;
      } else if (state[to] == State::kNew) {
        work.push_back(to);
      }
    }
    if (again) state[i] = State::kDone, work.pop_back();
  }
  return most[0];
}

}  // namespace

JsonGrammar::Rule JsonGrammar::of_length(Rule r, int64_t least, int64_t most, const std::string& at) {
  using Pair = std::pair<Automaton::State, Automaton::State>;
  using Counted = std::tuple<Automaton::State, Automaton::State, int64_t>;
  const bool plain_text = form_ == Form::kText;
  Automaton a = machine(r), text = machine(plain_text ? repeat(text_char_, 0, -1) : string_);
  // Between two characters the quotation mark ends the string; an argument has none, and may end there.
  auto between = [&](Automaton::State t) {
    if (plain_text) return text.accepts(t);
    const auto to = text.next(t, '"');
    return t != text.start() && to != Automaton::kDead && text.accepts(to);
  };
  auto ends = [&](Automaton::State s, Automaton::State t) { return a.accepts(s) && text.accepts(t); };
  auto step = [&](Automaton::State s, Automaton::State t, unsigned char byte) -> std::optional<Pair> {
    const Pair to{a.next(s, byte), text.next(t, byte)};
    if (to.first == Automaton::kDead || to.second == Automaton::kDead) return std::nullopt;
    return to;
  };
  std::vector<Pair> pairs;
  const Places plain = walk(
      Pair{a.start(), text.start()}, [&](const Pair& p, unsigned char b) { return step(p.first, p.second, b); },
      [&](const Pair& p) { return ends(p.first, p.second); }, at, &pairs);
  std::vector<bool> opens;
  for (const Pair& p : pairs) opens.push_back(between(p.second));
  if (most >= 0 && longest(plain, opens, !plain_text) <= most) most = -1;
  if (least == 0 && most < 0) return r;
  auto counted_to = [&](int64_t last) {
    return walk(
        Counted{a.start(), text.start(), 0},
        [&](const Counted& p, unsigned char b) -> std::optional<Counted> {
          const auto [s, t, n] = p;
          const auto to = step(s, t, b);
          if (!to) return std::nullopt;
          const bool inside = between(t);
          if (inside && b == '"' && !plain_text)
            return n >= least ? std::optional(Counted{to->first, to->second, n}) : std::nullopt;
          if (inside && n == last && most >= 0) return std::nullopt;
          return Counted{to->first, to->second, std::min(n + inside, last)};
        },
        [&](const Counted& p) {
          return ends(std::get<0>(p), std::get<1>(p)) && (!plain_text || std::get<2>(p) >= least);
        },
        at);
  };
  Places places;
  const auto room = std::max(least, static_cast<int64_t>(kMostPairs / 4 / plain.size()));
  if (most > std::max<int64_t>(4 * room, 512)) {  // it need not be tried
    places = counted_to(room);
    if (!places[0].alive) fail_input("{}: what has to hold together here is too large", at);
  } else {
    places = counted_to(most < 0 ? least : most);
  }
  if (!places[0].alive) throw NothingLeft(at + ": no text is as all of this demands");
  spend(cells_of(places), at);
  return write(g_, places);
}

}  // namespace mxt::serve
