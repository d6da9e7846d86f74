#include "tokenizer/model/wordpiece.h"

#include <algorithm>

#include "base/error.h"
#include "tokenizer/text/unicode.h"

namespace mxt::tokenizer {

WordPiece::WordPiece(const ModelSpec& spec, const Vocab& vocab, const std::string& source)
    : vocab_(vocab), prefix_(spec.prefix), max_characters_(static_cast<size_t>(spec.max_characters)) {
  unk_ = vocab.find(spec.unk_token);
  if (unk_ < 0) fail_input("{}: unk_token \"{}\" is not in the vocabulary", source, spec.unk_token);
  for (int32_t id = 0; id < vocab.size(); ++id) longest_ = std::max(longest_, vocab.token(id).size());
}

void WordPiece::encode(std::string_view word, std::vector<Symbol>& out) const {
  if (word.empty()) return;
  size_t characters = 0;
  for (size_t i = 0; i < word.size() && characters <= max_characters_; ++characters)
    i += unicode::length_of(static_cast<unsigned char>(word[i]));
  const Symbol unknown{unk_, static_cast<uint32_t>(std::min<size_t>(word.size(), UINT32_MAX))};
  if (characters > max_characters_) return out.push_back(unknown);
  const size_t from = out.size();
  std::string candidate;
  for (size_t b = 0; b < word.size();) {
    const size_t lead = b == 0 ? 0 : prefix_.size();
    size_t e = word.size();
    int32_t id = -1;
    for (; e > b; e = unicode::back(word, e)) {
      if (e - b + lead > longest_) continue;
      candidate.clear();
      if (b > 0) candidate = prefix_;
      candidate.append(word.substr(b, e - b));
      if ((id = vocab_.find(candidate)) >= 0) break;
    }
    if (id < 0) {
      out.resize(from);
      return out.push_back(unknown);
    }
    out.push_back({id, static_cast<uint32_t>(e - b)});
    b = e;
  }
}

}  // namespace mxt::tokenizer
