#include "serve/grammar/grammar.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "serve/grammar/distinct.h"

namespace mxt::serve {
namespace {

constexpr size_t kMaxNodes = 1 << 20, kMaxStates = 1 << 15, kMaxMasks = 4096, kMaxPlaces = 4096;
constexpr int32_t kMaxDepth = 200;

}  // namespace

ByteSet byte_range(unsigned char first, unsigned char last) {
  ByteSet s;
  for (int b = first; b <= last; ++b) s.set(static_cast<size_t>(b));
  return s;
}

Grammar::Rule Grammar::add() {
  rules_.emplace_back();
  return static_cast<Rule>(rules_.size() - 1);
}

void Grammar::choice(Rule rule, const Sequence& s) {
  rules_[static_cast<size_t>(rule)].push_back(static_cast<int32_t>(cells_.size()));
  cells_.insert(cells_.end(), s.begin(), s.end());
  cells_.push_back({Symbol::kEnd, 0});
}

Grammar::Rule Grammar::of(const std::vector<Sequence>& choices) {
  const Rule r = add();
  for (const auto& c : choices) choice(r, c);
  return r;
}

Grammar::Symbol Grammar::bytes(const ByteSet& set) {
  const auto [it, fresh] = set_ids_.emplace(set.to_string(), static_cast<int32_t>(sets_.size()));
  if (fresh) sets_.push_back(set);
  return {Symbol::kBytes, it->second};
}

void Grammar::text(Sequence& s, std::string_view literal) {
  for (char c : literal) s.push_back(bytes(byte_range(static_cast<unsigned char>(c), static_cast<unsigned char>(c))));
}

// A rule is complete once all calls of one alternative are; each call waits for its rule.
void Grammar::prune() {
  struct Alternative {
    size_t rule, waits_for = 0;
  };
  std::vector<Alternative> all;
  std::vector<std::vector<size_t>> waiting(rules_.size());
  std::vector<bool> complete(rules_.size());
  std::vector<size_t> ready;
  auto done = [&](size_t alternative) {
    const size_t rule = all[alternative].rule;
    if (!complete[rule]) ready.push_back(rule);
    complete[rule] = true;
  };
  auto calls = [&](int32_t cell, auto&& each) {
    for (auto c = static_cast<size_t>(cell); cells_[c].kind != Symbol::kEnd; ++c)
      if (cells_[c].kind == Symbol::kCall) each(static_cast<size_t>(cells_[c].value));
  };
  for (size_t r = 0; r < rules_.size(); ++r)
    for (int32_t cell : rules_[r]) {
      all.push_back({r});
      calls(cell, [&](size_t to) {
        ++all.back().waits_for;
        waiting[to].push_back(all.size() - 1);
      });
      if (all.back().waits_for == 0) done(all.size() - 1);
    }
  while (!ready.empty()) {
    const size_t rule = ready.back();
    ready.pop_back();
    for (size_t alternative : waiting[rule])
      if (--all[alternative].waits_for == 0) done(alternative);
  }
  for (auto& alternatives : rules_)
    std::erase_if(alternatives, [&](int32_t cell) {
      bool whole = true;
      calls(cell, [&](size_t to) { whole = whole && complete[to]; });
      return !whole;
    });
}

TokenBytes::TokenBytes(const std::vector<std::string>& bytes) : vocab_(bytes.size()) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    begin_.push_back(static_cast<uint32_t>(blob_.size()));
    length_.push_back(static_cast<uint32_t>(bytes[i].size()));
    blob_ += bytes[i];
    if (!bytes[i].empty()) sorted_.push_back(static_cast<int32_t>(i));
  }
  std::sort(sorted_.begin(), sorted_.end(), [&](int32_t a, int32_t b) { return of(a) < of(b); });
  for (size_t i = 0; i < sorted_.size(); ++i) {
    uint32_t n = 0;
    if (i > 0) {
      const auto a = of(sorted_[i - 1]), b = of(sorted_[i]);
      while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
    }
    common_.push_back(n);
  }
}

Automaton::Automaton(Grammar grammar, std::shared_ptr<const TokenBytes> tokens, int64_t work)
    : g_(std::move(grammar)), tokens_(std::move(tokens)), most_work_(work) {
  clear();
  generation_ = 0;
}

void Automaton::clear() {
  ++generation_;
  nodes_.clear();
  node_ids_.clear();
  states_.clear();
  state_ids_.clear();
  masks_.clear();
  work_ = 0;
  nodes_.push_back({-1, -1, 0});  // the end of the root
  std::vector<int32_t> first;
  bool accepts = false;
  for (int32_t cell : g_.rules_[static_cast<size_t>(g_.root)]) expand(cell, 0, first, accepts);
  start_ = state_of(std::move(first), accepts);
}

int32_t Automaton::intern(int32_t cell, int32_t parent) {
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(cell)) << 32 | static_cast<uint32_t>(parent);
  if (const auto it = node_ids_.find(key); it != node_ids_.end()) return it->second;
  if (nodes_.size() >= kMaxNodes) fail_input("the schema has too many states");
  nodes_.push_back({cell, parent, nodes_[static_cast<size_t>(parent)].depth + 1});
  return node_ids_[key] = static_cast<int32_t>(nodes_.size() - 1);
}

// All places from here whose next symbol is a byte. Deeper nesting than kMaxDepth is not followed.
void Automaton::expand(int32_t cell, int32_t parent, std::vector<int32_t>& out, bool& accepts) {
  std::vector<std::pair<int32_t, int32_t>> work{{cell, parent}};
  std::set<std::pair<int32_t, int32_t>> seen{{cell, parent}};
  while (!work.empty()) {
    const auto [c, p] = work.back();
    work.pop_back();
    auto go = [&](int32_t to, int32_t under) {
      if (seen.emplace(to, under).second) work.emplace_back(to, under);
    };
    if (seen.size() > kMaxPlaces) fail_input("the schema is too ambiguous");
    const Grammar::Symbol s = g_.cells_[static_cast<size_t>(c)];
    if (s.kind == Grammar::Symbol::kBytes) {
      out.push_back(intern(c, p));
    } else if (s.kind == Grammar::Symbol::kEnd) {
      if (p == 0)
        accepts = true;
      else
        go(nodes_[static_cast<size_t>(p)].cell, nodes_[static_cast<size_t>(p)].parent);
    } else {
      // A call in last place returns to the caller's caller: repetition does not pile up.
      int32_t under = p;
      if (g_.cells_[static_cast<size_t>(c) + 1].kind != Grammar::Symbol::kEnd) {
        if (nodes_[static_cast<size_t>(p)].depth >= kMaxDepth) continue;
        under = intern(c + 1, p);
      }
      for (int32_t first : g_.rules_[static_cast<size_t>(s.value)]) go(first, under);
    }
  }
}

Automaton::State Automaton::state_of(std::vector<int32_t> nodes, bool accepts) {
  if (nodes.empty() && !accepts) return kDead;
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  std::pair key(std::move(nodes), accepts);
  if (const auto it = state_ids_.find(key); it != state_ids_.end()) return it->second;
  if (states_.size() >= kMaxStates) fail_input("the schema has too many states");
  states_.push_back({key.first, {}, accepts});
  return state_ids_[std::move(key)] = static_cast<State>(states_.size() - 1);
}

Automaton::State Automaton::next(State s, unsigned char byte) {
  if (s == kDead) return kDead;
  auto& row = states_[static_cast<size_t>(s)].next;
  if (row.empty()) row.assign(256, -2);
  if (row[byte] != -2) return row[byte];
  std::vector<int32_t> out;
  bool accepts = false;
  const std::vector<int32_t> nodes = states_[static_cast<size_t>(s)].nodes;
  for (int32_t n : nodes) {
    const Node node = nodes_[static_cast<size_t>(n)];
    if (g_.sets_[static_cast<size_t>(g_.cells_[static_cast<size_t>(node.cell)].value)].test(byte))
      expand(node.cell + 1, node.parent, out, accepts);
  }
  if ((work_ += static_cast<int64_t>(nodes.size() + 4 * out.size() + 1)) > most_work_)
    fail_input("the schema is too complex to hold an answer to");
  const State to = state_of(std::move(out), accepts);
  states_[static_cast<size_t>(s)].next[byte] = to;
  return to;
}

Automaton::State Automaton::walk(State s, std::string_view text) {
  work_ = 0;
  for (char c : text) s = next(s, static_cast<unsigned char>(c));
  return s;
}

bool Automaton::matches(std::string_view text) {
  const State s = walk(start_, text);
  return s != kDead && accepts(s);
}

Distinct Automaton::distinct(State s, unsigned char bracket) const {
  if (s == kDead) return Distinct::kNothing;
  for (int32_t n : states_[static_cast<size_t>(s)].nodes) {
    const auto& cell = g_.cells_[static_cast<size_t>(nodes_[static_cast<size_t>(n)].cell)];
    if (cell.distinct != Distinct::kNothing && g_.sets_[static_cast<size_t>(cell.value)].test(bracket))
      return cell.distinct;
  }
  return Distinct::kNothing;
}

bool Automaton::crowded() const { return states_.size() > kMaxStates / 2 || nodes_.size() > kMaxNodes / 2; }

const std::vector<uint64_t>& Automaton::tokens(State s) {
  if (const auto it = masks_.find(s); it != masks_.end()) return it->second;
  if (masks_.size() >= kMaxMasks) masks_.clear();
  std::vector<uint64_t> mask((tokens_->vocab_ + 63) / 64);
  std::vector<State> path{s};
  work_ = 0;
  size_t dead = SIZE_MAX;  // a token that shares more than so many bytes with the one before is dead as well
  for (size_t i = 0; i < tokens_->sorted_.size(); ++i) {
    const size_t common = tokens_->common_[i];
    if (common > dead) continue;
    dead = SIZE_MAX;
    const int32_t id = tokens_->sorted_[i];
    const std::string_view bytes = tokens_->of(id);
    path.resize(common + 1);
    State at = path.back();
    for (size_t k = common; k < bytes.size(); ++k) {
      at = next(at, static_cast<unsigned char>(bytes[k]));
      if (at == kDead) {
        dead = k;
        break;
      }
      path.push_back(at);
    }
    if (dead == SIZE_MAX) mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
  }
  return masks_.emplace(s, std::move(mask)).first->second;
}

namespace {

constexpr int kMostPlaces = 4000;  // that are looked at for one token
constexpr size_t kLongestEnd = 500;

class GrammarConstraint final : public infer::Constraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<Automaton> a)
      : automaton_(std::move(a)), generation_(automaton_->generation()), state_(automaton_->start()) {}
  std::span<const uint64_t> allowed() override {
    mask_ = with_room([&] { return automaton_->tokens(state_); });
    complete_ = automaton_->accepts(state_);
    return mask_;
  }
  bool complete() const override { return complete_; }
  bool takes(int32_t id) override {
    const std::string_view bytes = automaton_->vocabulary().of(id);
    if (!values_.watches()) return true;
    if (bytes.find_first_of(",\"]}") == std::string_view::npos && !values_.ending()) return true;
    const auto to = with_room([&] { return automaton_->walk(state_, bytes); });
    DistinctValues values = values_;
    return read(state_, bytes, values) && can_differ(to, values);
  }
  void accept(int32_t id) override {
    const std::string_view bytes = automaton_->vocabulary().of(id);
    const auto to = with_room([&] { return automaton_->walk(state_, bytes); });
    if (to == Automaton::kDead || bytes.empty()) fail_input("token {} is not what the grammar takes here", id);
    if (!read(state_, bytes, values_)) fail_input("token {} repeats what may stand only once", id);
    state_ = to;
    text_ += bytes;
  }

 private:
  // Where the answers before have filled the tables they begin anew, and this answer with them; what does not fit then
  // is this answer's own error.
  template <typename Step>
  std::invoke_result_t<Step> with_room(const Step& step) {
    if (generation_ != automaton_->generation()) restart();
    try {
      return step();
    } catch (const Error&) {
      if (!automaton_->crowded()) throw;
      automaton_->clear();
      restart();
      return step();
    }
  }
  // The way has been walked already: nothing new is met on it.
  bool read(Automaton::State at, std::string_view bytes, DistinctValues& values) const {
    for (const char c : bytes) {
      const bool opens = c == '{' || c == '[';
      if (!values.push(c, opens ? automaton_->distinct(at, static_cast<unsigned char>(c)) : Distinct::kNothing))
        return false;
      at = automaton_->next(at, static_cast<unsigned char>(c));
    }
    return true;
  }
  // Whether what is begun can end as something new: of few values all may stand already, and a comma then leads
  // nowhere. Looks at the shortest ends first, and no further than it takes for what has many values.
  bool can_differ(Automaton::State at, const DistinctValues& values) const {
    const auto ending = values.ending();
    if (!ending || at == Automaton::kDead) return true;
    std::string text;
    int budget = kMostPlaces;
    try {
      return ends_anew(at, at, *ending, values, text, budget);
    } catch (const Error&) {  // the tables are full: not known
      return true;
    }
  }
  bool ends_anew(Automaton::State from, Automaton::State at, const DistinctValues::Ending& ending,
                 const DistinctValues& values, std::string& text, int& budget) const {
    static const std::string order = [] {
      std::string s = "\"]},";
      for (int c = 0x21; c < 256; ++c)
        if (s.find(static_cast<char>(c)) == std::string::npos) s += static_cast<char>(c);
      return s + ' ';  // last: mostly white space between values
    }();
    for (const char c : order) {
      const auto to = automaton_->next(at, static_cast<unsigned char>(c));
      if (to == Automaton::kDead) continue;
      if (--budget < 0 || text.size() >= kLongestEnd) return true;
      text += c;
      auto after = ending;
      const bool over = after.push(c);
      DistinctValues seen = over ? values : DistinctValues();
      if (over ? read(from, text, seen) : ends_anew(from, to, after, values, text, budget)) return true;
      text.pop_back();
    }
    return false;
  }
  void restart() {
    generation_ = automaton_->generation();
    state_ = automaton_->walk(automaton_->start(), text_);
  }

  std::shared_ptr<Automaton> automaton_;
  std::string text_;  // so far
  DistinctValues values_;
  int64_t generation_;
  Automaton::State state_;
  std::vector<uint64_t> mask_;
  bool complete_ = false;
};

}  // namespace

std::shared_ptr<infer::Constraint> grammar_constraint(std::shared_ptr<Automaton> automaton) {
  return std::make_shared<GrammarConstraint>(std::move(automaton));
}

}  // namespace mxt::serve
