#include "tokenizer/model/vocab.h"

#include "base/error.h"

namespace mxt::tokenizer {

void ModelSpec::put(int32_t id, std::string token) {
  const auto i = static_cast<size_t>(id);
  if (i >= tokens.size()) {
    tokens.resize(i + 1);
    present.resize(i + 1);
  }
  tokens[i] = std::move(token);
  present[i] = true;
}

Vocab::Vocab(std::vector<std::string> tokens, std::vector<bool> present, const std::string& source)
    : tokens_(std::move(tokens)), present_(std::move(present)) {
  ids_.reserve(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (!present_[i]) continue;
    if (!ids_.emplace(tokens_[i], static_cast<int32_t>(i)).second)
      fail_input("{}: token \"{}\" has two ids, {} and {}", source, tokens_[i], ids_[tokens_[i]], i);
  }
}

}  // namespace mxt::tokenizer
