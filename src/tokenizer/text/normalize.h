// The normalisers of tokenizer.json, with a map from the changed text back to the bytes it came from.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizer/split/regex.h"
#include "tokenizer/tokenizer.h"

namespace mxt::tokenizer {

// Positions of a changed text → positions of its source. Between edits both run in step.
class OffsetMap {
 public:
  struct Edit {
    size_t to_begin, to_end, from_begin, from_end;
  };
  void add(const Edit& e) { edits_.push_back(e); }
  bool empty() const { return edits_.empty(); }
  Span to_source(Span s) const;
  // A position of the source in the changed text; inside an edit, the edit's begin or end.
  size_t from_source(size_t p, bool to_end) const;

 private:
  std::vector<Edit> edits_;  // in order, disjoint
};

struct NormalizerStep {
  enum class Kind {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStripAccents,
    kStrip,
    kPrepend,
    kReplace,
    kBertClean,
    kBertChinese,
    kBertAccents
  };
  Kind kind;
  bool left = false, right = false;    // kStrip
  std::string pattern, content;        // kReplace (literal pattern), kPrepend (content)
  std::shared_ptr<const Regex> regex;  // kReplace where the pattern is one
};

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}
  bool none() const { return steps_.empty(); }
  bool only_nfc() const { return steps_.size() == 1 && steps_[0].kind == NormalizerStep::Kind::kNfc; }
  // True where cutting the text between an ASCII letter and a following space cannot change the result.
  bool local() const;
  // The normalised text: `in` itself where nothing changes, else a view of `storage`. `in` is valid UTF-8. Where `maps`
  // is given it gets one map a changing step, first step first.
  std::string_view apply(std::string_view in, std::string& storage, std::vector<OffsetMap>* maps) const;
  // The same where only_nfc(): `unsafe` is the scan (unicode.h) of a text in which `in` begins at `base`.
  std::string_view apply_nfc(std::string_view in, std::span<const size_t> unsafe, size_t base, std::string& storage,
                             std::vector<OffsetMap>* maps) const;

 private:
  std::vector<NormalizerStep> steps_;
};

// From the "normalizer" of tokenizer.json. Errors (kBadInput): a type that is not supported.
Normalizer normalizer_from_json(const Json& spec, const std::string& source);

}  // namespace mxt::tokenizer
