// Split patterns that have no scanner of their own, on PCRE2 (JIT, UTF). The patterns are written for Oniguruma in
// Ruby's syntax; only what means the same in both is accepted, and \s, \w, \p{L}, \p{N} get the oracle's own classes.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace mxt::tokenizer {

class Regex {
 public:
  // `source` is named in errors (kBadInput): syntax, constructs that differ between the engines, patterns that match
  // the empty string.
  Regex(std::string_view pattern, std::string_view source);
  ~Regex();
  Regex(const Regex&) = delete;
  // First match at or after `from`. `text` is valid UTF-8. Time is bounded by PCRE2's match limit (then kBadInput).
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string pattern_, source_;
};

}  // namespace mxt::tokenizer
