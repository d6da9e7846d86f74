// The pre-tokenizers of tokenizer.json: they cut a text into the pieces that the model encodes one by one.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizer/split/regex.h"
#include "tokenizer/split/scanner.h"
#include "tokenizer/text/normalize.h"

namespace mxt::tokenizer {

// A piece of the pre-tokenized text.
struct Piece {
  std::string_view text;
  size_t base = 0;                 // where the text that the piece was cut from begins in the whole
  size_t shift = 0;                // where the piece begins in that text
  const OffsetMap* map = nullptr;  // from that text, where a step changed it
  // Bytes [b, e) of the piece as bytes of the whole.
  Span source(size_t b, size_t e) const {
    const Span s{shift + b, shift + e};
    const Span t = map ? map->to_source(s) : s;
    return {base + t.begin, base + t.end};
  }
};

struct SplitStep {
  enum class Kind {
    kScan,
    kRegex,
    kLiteral,
    kDigits,
    kWhitespace,
    kWhitespaceSplit,
    kBert,
    kPunctuation,
    kMetaspace,
    kPrefixSpace
  };
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  Kind kind;
  Behavior behavior = Behavior::kIsolated;
  bool invert = false;
  ScanRule rule{};                                                           // kScan
  std::shared_ptr<const Regex> regex;                                        // kRegex
  std::string literal;                                                       // kLiteral, kMetaspace (what replaces ' ')
  bool individual = false;                                                   // kDigits: one by one; kMetaspace: split
  enum class Prepend { kNever, kFirst, kAlways } prepend = Prepend::kNever;  // kMetaspace
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  // From the "pre_tokenizer" of tokenizer.json (null: the whole text is one piece). Errors (kBadInput): a type or a
  // combination that is not supported.
  PreTokenizer(const Json& spec, const std::string& source);

  bool byte_level() const { return byte_level_; }
  bool none() const { return steps_.empty(); }
  // Where the whole of it is one hand-written scanner.
  std::optional<ScanRule> scanner() const;

  // Text that steps changed, and the maps back from it.
  struct Storage {
    std::vector<std::unique_ptr<std::string>> texts;
    std::vector<std::unique_ptr<OffsetMap>> maps;
  };
  // `at_start`: the text is the first of the whole input (Metaspace's prepend_scheme "first").
  std::vector<Piece> split(std::string_view text, bool at_start, Storage& storage) const;

 private:
  void add(const Json& spec, const std::string& source);
  void add_split(const Json& spec, const std::string& source);

  std::vector<SplitStep> steps_;
  bool byte_level_ = false;
};

}  // namespace mxt::tokenizer
