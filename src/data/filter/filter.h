// What a row must be like to stay: the checks of `data.filter` on the row's text alone. Measures in the sense of Rae et
// al. 2021 (Gopher, appendix A.1.1), benchmarks' n-grams as Brown et al. 2020 (GPT-3, appendix C).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/sections/data.h"
#include "data/filter/language.h"
#include "data/shape/row_text.h"

namespace mxt::data {

// Counts of one text; parts are 0 where there is nothing to count.
struct TextMeasures {
  int64_t characters = 0, words = 0;
  double letters = 0;  // letters and marks / characters that are not white space
  double symbols = 0;  // neither letters, marks, digits nor white space / the same
  double repeated_lines =
      0;  // lines equal to an earlier one (but for white space at the ends) / lines, blank ones not counted
  double repeated_ngrams = 0;  // words inside a run of five that stood before / words
};
// `text` is valid UTF-8. The two repetitions are left at 0 unless asked for: they cost more than the rest.
TextMeasures measure_text(std::string_view text, bool lines, bool ngrams);

class RowFilter {
 public:
  // Reads the benchmarks of `decontaminate`; `eval_texts` are more of them. Errors: kBadInput for no such file, bad
  // rows, a language that is not known; kMissing where languages cannot be told here.
  explicit RowFilter(const config::Filter& filter, const std::vector<std::string>& eval_texts = {});
  // Names of the checks that are on, in the order in which they are made: "min_chars", …
  const std::vector<std::string>& reasons() const { return reasons_; }
  // The first check that the row fails, as an index of reasons(); −1 where it passes. May be called by many threads.
  int check(const RowText& row) const;

 private:
  bool in_languages(std::string_view text) const;
  bool in_benchmark(std::string_view text) const;
  config::Filter filter_;
  std::vector<std::string> reasons_;
  std::optional<Languages> languages_;
  std::vector<uint64_t> benchmark_;  // hashes of its runs of words, sorted
};

}  // namespace mxt::data
