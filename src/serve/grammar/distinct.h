// Elements of a list that differ from each other, keys of an object that do: watched while the text comes.
#pragma once

#include <optional>
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

  // What has yet to end as something that does not stand already: an element of the outermost list that demands it,
  // else a key. It follows the bytes that could come.
  struct Ending {
    bool key = false, string = false, escape = false;
    int depth = 0;      // brackets opened since within the element
    bool push(char c);  // true: that byte ends it
  };
  std::optional<Ending> ending() const;  // empty: nothing has to differ from here on

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
