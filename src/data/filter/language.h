// The language of a text, by CLD2 (naive Bayes over letter groups and words; 83 languages). Its library is opened at
// run time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mxt::data {

class Languages {
 public:
  // `codes`: ISO 639-1 (or -2 where there is none) as CLD2 has them: en de zh zh-Hant … Errors: kMissing without the
  // library, kBadInput for a code that it does not know.
  explicit Languages(const std::vector<std::string>& codes);
  // The part of the text, 0 to 1, in one of the languages; −1 where the language cannot be told reliably: as a rule
  // texts under a few words, and what is no language. Valid UTF-8; any number of threads.
  double part(std::string_view text) const;

 private:
  std::vector<int> wanted_;
};

}  // namespace mxt::data
