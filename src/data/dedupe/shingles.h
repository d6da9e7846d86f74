// From a text to the set that near copies are found by: hashes of its runs of n words or characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/enums.h"

namespace mxt::data {

// Text whose copies count as exact: NFC, every run of white space one space, none at the ends.
// `in` is valid UTF-8; `out` is replaced.
void normalise_text(std::string_view in, std::string* out);

// Words are runs of letters, marks and digits, lower case; a Chinese character is a word of its own. Characters are
// those of the text, lower case. Both of normalised text.
class Shingler {
 public:
  Shingler(config::ShingleUnit unit, int ngram);
  // Appends one 32-bit hash for each run of n units, in the order of the text and with repetitions; a text of fewer
  // than n units (but one at least) has one shingle, all of it. Hashes are alike on every machine.
  void append(std::string_view normalised, std::vector<uint32_t>* out);
  // The same with all 64 bits, for sets in which a chance meeting must not happen.
  void append(std::string_view normalised, std::vector<uint64_t>* out);

 private:
  template <typename T>
  void append_runs(std::string_view normalised, std::vector<T>* out);
  void ascii_words(std::string_view text);
  void words(std::string_view text);
  void characters(std::string_view text);
  config::ShingleUnit unit_;
  size_t n_;
  uint64_t leaving_;  // kFactor^n: weight of the unit that leaves a run
  std::string lower_;
  std::vector<uint64_t> bits_, units_;
};

}  // namespace mxt::data
