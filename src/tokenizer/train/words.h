// How often each piece of the texts occurs. The texts are taken in batches and cut on all threads; counts are sums, so
// neither threads nor the order of texts change them. Memory grows with the distinct pieces, not with the texts.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/stop.h"
#include "tokenizer/spec.h"

namespace mxt::tokenizer {

// Distinct byte strings with a count each: open addressing over one block of bytes.
class WordTable {
 public:
  static uint64_t hash(std::string_view word);
  void add(std::string_view word, uint64_t hash, int64_t count);
  void clear();
  size_t size() const { return size_; }
  size_t text_bytes() const { return text_.size() - size_ * sizeof(uint32_t); }  // of all words
  size_t bytes() const { return cells_.size() * sizeof(Cell) + text_.capacity(); }
  // fn(word, hash, count), in no particular order.
  template <typename F>
  void each(F&& fn) const {
    for (const Cell& c : cells_)
      if (c.count) fn(word(c), c.hash, c.count);
  }

 private:
  struct Cell {
    uint64_t hash = 0;
    int64_t count = 0;  // 0: empty
    uint64_t at = 0;    // of the word's length in text_, which the word follows
  };
  std::string_view word(const Cell& c) const;
  void grow();

  std::vector<Cell> cells_;
  std::vector<char> text_;
  size_t size_ = 0;
};

// The table in parts that threads fill at the same time.
struct WordCounts {
  static constexpr size_t kParts = 64;
  std::vector<WordTable> parts{kParts};
  int64_t text_bytes = 0;
  size_t distinct() const;
  size_t bytes() const;
};

struct CountOptions {
  size_t memory_limit = SIZE_MAX;  // of the tables, in bytes
  StopFlag stop = nullptr;
};

// Calls `next` until it returns false; a text is valid until the next call. Pieces as the spec's normalizer and
// pre-tokenizer cut them. Errors (kBadInput): the distinct pieces need more than memory_limit.
WordCounts count_words(const Spec& spec, const std::function<bool(std::string_view&)>& next, const CountOptions& o);

}  // namespace mxt::tokenizer
