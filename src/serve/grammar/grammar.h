// Context-free grammars over bytes, and the machine that reads them: a pushdown automaton whose reachable states are
// made into a deterministic one as they are met. No backtracking; every table is bounded.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "infer/constraint.h"

namespace mxt::serve {

using ByteSet = std::bitset<256>;

// What no context-free grammar can say of a JSON list or object, said by the bracket that opens it.
enum class Distinct : uint8_t { kNothing, kElements, kKeys };

class Grammar {
 public:
  using Rule = int32_t;
  struct Symbol {
    enum Kind : uint8_t { kBytes, kCall, kEnd } kind;
    int32_t value;  // of sets, or a rule
    Distinct distinct = Distinct::kNothing;
  };
  using Sequence = std::vector<Symbol>;

  Rule add();                                 // without alternatives so far: matches nothing
  void choice(Rule rule, const Sequence& s);  // one more alternative; an empty sequence matches the empty text
  Rule of(const std::vector<Sequence>& choices);
  Symbol bytes(const ByteSet& set);
  static Symbol call(Rule r) { return {Symbol::kCall, r}; }
  void text(Sequence& s, std::string_view literal);  // appends it
  size_t size() const { return cells_.size(); }
  void prune();  // takes away alternatives that nothing can complete, so that no text is led into them
  Rule root = -1;

 private:
  friend class Automaton;
  std::vector<ByteSet> sets_;
  std::map<std::string, int32_t> set_ids_;
  std::vector<Symbol> cells_;                // alternatives one after another, each ended by kEnd
  std::vector<std::vector<int32_t>> rules_;  // first cells
};

ByteSet byte_range(unsigned char first, unsigned char last);

// Bytes of every token that an answer may hold, sorted, so that tokens that begin alike are walked once.
class TokenBytes {
 public:
  // `bytes[id]` empty: never allowed as text (control tokens, end-of-turn tokens, unused ids).
  explicit TokenBytes(const std::vector<std::string>& bytes);
  size_t vocab() const { return vocab_; }
  std::string_view of(int32_t id) const {
    return std::string_view(blob_).substr(begin_[static_cast<size_t>(id)], length_[static_cast<size_t>(id)]);
  }

 private:
  friend class Automaton;
  size_t vocab_;
  std::string blob_;
  std::vector<uint32_t> begin_, length_;
  std::vector<int32_t> sorted_;
  std::vector<uint32_t> common_;  // bytes shared with the one before in `sorted_`
};

// One thread at a time. Its tables are bounded: what would go beyond is an Error (kBadInput), after which it stands as
// before.
class Automaton {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;
  static constexpr int64_t kWork = 4'000'000;  // some tenths of a second
  // `work`: how many places one mask, one text or one walk from state to state may look at.
  Automaton(Grammar grammar, std::shared_ptr<const TokenBytes> tokens, int64_t work = kWork);
  // Forgets every state, so that there is room again; earlier states mean nothing from here on. `generation` counts it.
  void clear();
  int64_t generation() const { return generation_; }
  bool crowded() const;  // what it has met so far fills half of its tables or more
  State start() const { return start_; }
  State next(State s, unsigned char byte);  // kDead where the text cannot go on so
  State walk(State s, std::string_view text);
  Distinct distinct(State s, unsigned char bracket) const;  // of what the bracket would open
  bool accepts(State s) const { return states_[static_cast<size_t>(s)].accepts; }
  bool matches(std::string_view text);           // the whole
  const std::vector<uint64_t>& tokens(State s);  // allowed next; kept
  const TokenBytes& vocabulary() const { return *tokens_; }

 private:
  struct Node {  // a place in the grammar and where to go on after its rule
    int32_t cell, parent, depth;
  };
  struct Info {
    std::vector<int32_t> nodes;
    std::vector<State> next;
    bool accepts = false;
  };
  int32_t intern(int32_t cell, int32_t parent);
  void expand(int32_t cell, int32_t parent, std::vector<int32_t>& out, bool& accepts);
  State state_of(std::vector<int32_t> nodes, bool accepts);

  Grammar g_;
  std::shared_ptr<const TokenBytes> tokens_;
  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, int32_t> node_ids_;
  std::vector<Info> states_;
  std::map<std::pair<std::vector<int32_t>, bool>, State> state_ids_;
  std::unordered_map<State, std::vector<uint64_t>> masks_;
  State start_ = kDead;
  int64_t work_ = 0, most_work_;  // places looked at for one mask
  int64_t generation_ = 0;
};

// Holds an answer to a grammar. Answers share the automaton; one that fills its tables takes nothing from the others.
std::shared_ptr<infer::Constraint> grammar_constraint(std::shared_ptr<Automaton> automaton);

}  // namespace mxt::serve
