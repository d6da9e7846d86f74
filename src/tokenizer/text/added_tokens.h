// Added tokens in a text: where several could match, the leftmost begins and the longest there wins.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

namespace mxt::tokenizer {

// A part of a text: an added token, or (id −1) text between them.
struct Part {
  int32_t id;
  size_t begin, end;
};

class AddedMatcher {
 public:
  AddedMatcher() = default;
  explicit AddedMatcher(std::vector<AddedToken> tokens);
  bool empty() const { return tokens_.empty(); }
  // Calls f(part) for the parts of the text in order; never for an empty one. Special tokens that begin inside one of
  // `plain` are passed over. A token counts also where the one before it took its white space (rstrip), unless lstrip
  // leaves it nothing, as in Hugging Face's: parts overlap there.
  template <typename F>
  void split(std::string_view text, std::span<const Span> plain, F&& f) const {
    size_t done = 0, from = 0, span = 0;
    Part m;
    while (find(text, plain, from, span, m)) {
      from = m.end;
      if (!adjust(text, done, m)) continue;
      if (m.begin > done) f(Part{-1, done, m.begin});
      if (m.begin < m.end) f(m);
      done = m.end;
    }
    if (done < text.size()) f(Part{-1, done, text.size()});
  }

 private:
  struct Node {
    int32_t token = -1;  // index into tokens_ where one ends
    std::vector<std::pair<unsigned char, uint32_t>> next;
  };
  bool find(std::string_view text, std::span<const Span> plain, size_t from, size_t& span, Part& m) const;
  // Applies single_word, lstrip and rstrip; false where the match does not count.
  bool adjust(std::string_view text, size_t done, Part& m) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> trie_;
  std::array<bool, 256> first_{};
  int only_first_ = -1;  // the one byte that all begin with, or −1
};

}  // namespace mxt::tokenizer
