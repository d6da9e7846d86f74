// BERT's WordPiece: the longest token first, from left to right; a word with a part that no token starts is unknown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model/bpe.h"

namespace mxt::tokenizer {

class WordPiece {
 public:
  WordPiece(const ModelSpec& spec, const Vocab& vocab, const std::string& source);
  void encode(std::string_view word, std::vector<Symbol>& out) const;

 private:
  const Vocab& vocab_;
  std::string prefix_;
  size_t max_characters_;
  size_t longest_ = 0;  // bytes of the longest token: longer candidates need no look-up
  int32_t unk_;
};

}  // namespace mxt::tokenizer
