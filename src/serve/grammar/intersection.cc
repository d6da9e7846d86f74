// What two rules match, as a rule: their automata walked side by side.
#include <map>

#include "base/error.h"
#include "serve/grammar/json_grammar.h"

namespace mxt::serve {
namespace {

constexpr size_t kMaxPairs = 30'000;

using Pair = std::pair<Automaton::State, Automaton::State>;
struct Place {
  std::map<size_t, ByteSet> to;  // number of the place that these bytes lead to
  bool ends = false, alive = false;
};

}  // namespace

JsonGrammar::Rule JsonGrammar::intersection(Rule x, Rule y, const std::string& at) {
  const auto none = std::make_shared<const TokenBytes>(std::vector<std::string>{});
  auto machine = [&](Rule root) {
    Grammar g = g_;
    g.root = root;
    g.prune();
    return Automaton(std::move(g), none);
  };
  Automaton a = machine(x), b = machine(y);
  std::vector<Pair> found{{a.start(), b.start()}};
  std::map<Pair, size_t> number{{found[0], 0}};
  std::vector<Place> places;
  for (size_t i = 0; i < found.size(); ++i) {
    Place p;
    const auto [s, t] = found[i];
    if (s != Automaton::kDead && t != Automaton::kDead) {
      p.ends = p.alive = a.accepts(s) && b.accepts(t);
      for (size_t byte = 0; byte < 256; ++byte) {
        const Pair next{a.next(s, static_cast<unsigned char>(byte)), b.next(t, static_cast<unsigned char>(byte))};
        if (next.first == Automaton::kDead || next.second == Automaton::kDead) continue;
        const auto [it, fresh] = number.emplace(next, found.size());
        if (fresh) found.push_back(next);
        if (found.size() > kMaxPairs) fail_input("{}: what has to hold together here is too large", at);
        p.to[it->second].set(byte);
      }
    }
    places.push_back(std::move(p));
  }
  for (bool more = true; more;) {  // from the ends backwards
    more = false;
    for (size_t i = places.size(); i-- > 0;) {
      if (places[i].alive) continue;
      for (const auto& [to, bytes] : places[i].to) places[i].alive = places[i].alive || places[to].alive;
      more = more || places[i].alive;
    }
  }
  if (!places[0].alive) throw NothingLeft(at + ": no value is as all of this demands");
  size_t cells = 0;
  for (const auto& p : places) cells += 3 * p.to.size() + 1;
  spend(cells, at);
  std::vector<Rule> rules;
  for (size_t i = 0; i < places.size(); ++i) rules.push_back(g_.add());
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].ends) g_.choice(rules[i], {});
    for (const auto& [to, bytes] : places[i].to)
      if (places[to].alive) g_.choice(rules[i], {g_.bytes(bytes), Grammar::call(rules[to])});
  }
  return rules[0];
}

}  // namespace mxt::serve
