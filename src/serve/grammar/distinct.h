// Elements of a list that differ from each other, keys of an object that do: watched while the text comes.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "serve/grammar/grammar.h"

namespace mxt::serve {

// Reads an answer byte by byte. Outside of the brackets that demand something it sees nothing.
class DistinctValues {
 public:
  // `what`: of the list or object that `c` opens. False where `c` ends a value or a key that stands already.
  bool push(char c, Distinct what);
  bool watches() const { return !open_.empty(); }

 private:
  struct Level {
    bool list;
    Distinct what;
    size_t from;  // in text_: of the element or the key
    bool key;     // a key may begin here
    std::set<std::string> seen;
  };
  bool element(Level& level);
  std::string text_;  // since the outermost bracket
  std::vector<Level> open_;
  bool string_ = false, escape_ = false;
};

}  // namespace mxt::serve
