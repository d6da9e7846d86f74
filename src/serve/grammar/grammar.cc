#include "serve/grammar/grammar.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"

namespace mxt::serve {
namespace {

constexpr size_t kMaxNodes = 1 << 20, kMaxStates = 1 << 15, kMaxMasks = 4096, kMaxPlaces = 4096;
constexpr int32_t kMaxDepth = 200;
constexpr int64_t kMaxWork = 4'000'000;  // some tenths of a second

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

Automaton::Automaton(Grammar grammar, std::shared_ptr<const TokenBytes> tokens)
    : g_(std::move(grammar)), tokens_(std::move(tokens)) {
  nodes_.push_back({-1, -1, 0});  // the end of the root
  std::vector<int32_t> first;
  bool accepts = false;
  for (int32_t cell : g_.rules_[static_cast<size_t>(g_.root)]) expand(cell, 0, first, accepts);
  start_ = state_of(std::move(first), accepts);
}

int32_t Automaton::intern(int32_t cell, int32_t parent) {
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(cell)) << 32 | static_cast<uint32_t>(parent);
  const auto [it, fresh] = node_ids_.emplace(key, static_cast<int32_t>(nodes_.size()));
  if (fresh) {
    if (nodes_.size() >= kMaxNodes) fail_input("the schema has too many states");
    nodes_.push_back({cell, parent, nodes_[static_cast<size_t>(parent)].depth + 1});
  }
  return it->second;
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
  const auto [it, fresh] = state_ids_.emplace(std::pair(nodes, accepts), static_cast<State>(states_.size()));
  if (fresh) {
    if (states_.size() >= kMaxStates) fail_input("the schema has too many states");
    states_.push_back({std::move(nodes), {}, accepts});
  }
  return it->second;
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
  if ((work_ += static_cast<int64_t>(nodes.size() + 4 * out.size() + 1)) > kMaxWork)
    fail_input("the schema is too complex to hold an answer to");
  const State to = state_of(std::move(out), accepts);
  states_[static_cast<size_t>(s)].next[byte] = to;
  return to;
}

bool Automaton::matches(std::string_view text) {
  State s = start_;
  work_ = 0;
  for (char c : text) s = next(s, static_cast<unsigned char>(c));
  return s != kDead && accepts(s);
}

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

class GrammarConstraint final : public infer::Constraint {
 public:
  GrammarConstraint(std::shared_ptr<Automaton> a, std::vector<int32_t> ends)
      : automaton_(std::move(a)), ends_(std::move(ends)), state_(automaton_->start()) {}
  std::span<const uint64_t> allowed() override {
    mask_ = automaton_->tokens(state_);
    if (automaton_->accepts(state_))
      for (int32_t id : ends_)
        if (static_cast<size_t>(id) < automaton_->vocabulary().vocab())
          mask_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
    return mask_;
  }
  void accept(int32_t id) override {
    for (char c : automaton_->vocabulary().of(id)) state_ = automaton_->next(state_, static_cast<unsigned char>(c));
    MXT_ASSERT(state_ != Automaton::kDead);
  }

 private:
  std::shared_ptr<Automaton> automaton_;
  std::vector<int32_t> ends_;
  Automaton::State state_;
  std::vector<uint64_t> mask_;
};

}  // namespace

std::shared_ptr<infer::Constraint> grammar_constraint(std::shared_ptr<Automaton> automaton, std::vector<int32_t> ends) {
  return std::make_shared<GrammarConstraint>(std::move(automaton), std::move(ends));
}

}  // namespace mxt::serve
