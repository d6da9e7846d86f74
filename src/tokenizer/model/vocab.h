// Token ↔ id.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/spec.h"

namespace mxt::tokenizer {

class Vocab {
 public:
  // `source` is named in errors: a token that stands twice.
  Vocab(std::vector<std::string> tokens, std::vector<bool> present, const std::string& source);
  Vocab(const Vocab&) = delete;
  int32_t find(std::string_view token) const {
    const auto it = ids_.find(token);
    return it == ids_.end() ? -1 : it->second;
  }
  bool has(int32_t id) const { return id >= 0 && id < size() && present_[static_cast<size_t>(id)]; }
  const std::string& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  std::vector<std::string> tokens_;
  std::vector<bool> present_;
  std::unordered_map<std::string_view, int32_t> ids_;
};

}  // namespace mxt::tokenizer
