// Places in a piece that no token can reach across, so that the parts between them merge by themselves: with them a
// sentence in a script that is written without spaces becomes words that recur, instead of one piece that never does.
//
// A token over the place i of a text holds up to three bytes before i and up to three from i on, unless it is shorter;
// all such neighbourhoods of the vocabulary are kept (in a bit set: what it lets through by mistake is a place not
// cut).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace mxt::tokenizer {

class CutPoints {
 public:
  // Forgets all; `bytes`: of all tokens that will be added, about.
  void reset(size_t bytes);
  // The bytes of a token that a merge makes. All of them are needed.
  void add(std::string_view token);
  // Appends the ends of the parts of text[begin, end), the last one `end`. `readable` bytes may be read from `text`.
  void cut(const char* text, uint32_t begin, uint32_t end, size_t readable, std::vector<uint32_t>& ends) const;

 private:
  static constexpr size_t kReach = 3, kClasses = kReach * kReach;
  // Of a neighbourhood with `left` bytes before the place and `right` after it, 1 ≤ both ≤ kReach.
  static constexpr size_t class_of(size_t left, size_t right) { return (left - 1) * kReach + right - 1; }
  // `window`: the kReach bytes before the place and the kReach after it, the first one lowest.
  uint64_t bit(uint64_t window, size_t c) const;

  std::vector<uint16_t> classes_;  // of the two bytes at a place: which neighbourhoods some token has there
  std::vector<uint64_t> known_;
  int shift_ = 58;
};

}  // namespace mxt::tokenizer
