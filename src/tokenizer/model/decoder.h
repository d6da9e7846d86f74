// The decoders of tokenizer.json: from token spellings to text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace mxt::tokenizer {

class Decoder {
 public:
  Decoder() = default;
  // Errors (kBadInput): a type that is not supported. null: tokens are joined by spaces.
  Decoder(const Json& spec, const std::string& source);
  // May hold invalid UTF-8 only where a byte decoder made it; the result is always valid (U+FFFD).
  std::string decode(std::vector<std::string> tokens) const;

 private:
  struct Step {
    enum class Kind { kByteLevel, kWordPiece, kByteFallback, kFuse, kStrip, kReplace, kMetaspace, kBpe };
    Kind kind;
    std::string a, b;   // prefix / pattern / mark / suffix, and content
    bool flag = false;  // cleanup, or "a leading space was added"
    int left = 0, right = 0;
  };
  void add(const Json& spec, const std::string& source);
  static void apply(const Step& step, std::vector<std::string>& tokens);

  std::vector<Step> steps_;
  bool null_ = true;
};

}  // namespace mxt::tokenizer
