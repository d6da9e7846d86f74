#include "tokenizer/text/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "tokenizer/text/unicode.h"

namespace mxt::tokenizer {

AddedMatcher::AddedMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& t) { return t.content.empty(); });
  trie_.emplace_back();
  for (size_t k = 0; k < tokens_.size(); ++k) {
    uint32_t node = 0;
    for (const char ch : tokens_[k].content) {
      const auto c = static_cast<unsigned char>(ch);
      auto& next = trie_[node].next;
      const auto it = std::find_if(next.begin(), next.end(), [c](const auto& e) { return e.first == c; });
      if (it != next.end()) {
        node = it->second;
        continue;
      }
      const auto fresh = static_cast<uint32_t>(trie_.size());
      next.emplace_back(c, fresh);
      trie_.emplace_back();
      node = fresh;
    }
    if (trie_[node].token < 0) trie_[node].token = static_cast<int32_t>(k);
    first_[static_cast<unsigned char>(tokens_[k].content[0])] = true;
  }
  if (std::count(first_.begin(), first_.end(), true) == 1)
    only_first_ = static_cast<int>(std::find(first_.begin(), first_.end(), true) - first_.begin());
}

bool AddedMatcher::find(std::string_view text, std::span<const Span> plain, size_t from, size_t& span, Part& m) const {
  if (tokens_.empty()) return false;
  for (size_t i = from; i < text.size(); ++i) {
    if (only_first_ >= 0) {
      const void* hit = std::memchr(text.data() + i, only_first_, text.size() - i);
      if (!hit) return false;
      i = static_cast<size_t>(static_cast<const char*>(hit) - text.data());
    } else if (!first_[static_cast<unsigned char>(text[i])]) {
      continue;
    }
    while (span < plain.size() && plain[span].end <= i) ++span;
    const bool ordinary = span < plain.size() && plain[span].begin <= i;
    int32_t best = -1;
    size_t best_end = i;
    uint32_t node = 0;
    for (size_t k = i; k < text.size(); ++k) {
      const auto c = static_cast<unsigned char>(text[k]);
      const auto& next = trie_[node].next;
      const auto it = std::find_if(next.begin(), next.end(), [c](const auto& e) { return e.first == c; });
      if (it == next.end()) break;
      node = it->second;
      const int32_t t = trie_[node].token;
      if (t >= 0 && !(ordinary && tokens_[static_cast<size_t>(t)].special)) {
        best = t;
        best_end = k + 1;
      }
    }
    if (best < 0) continue;
    m = {best, i, best_end};
    return true;
  }
  return false;
}

bool AddedMatcher::adjust(std::string_view text, size_t done, Part& m) const {
  const AddedToken& t = tokens_[static_cast<size_t>(m.id)];
  const auto& table = unicode::Table::get();
  const auto classes = [&](size_t i) {
    size_t n;
    return table[unicode::decode(text.data() + i, n)];
  };
  m.id = t.id;
  if (t.single_word) {
    if (m.begin > 0 && (classes(unicode::back(text, m.begin)) & unicode::kRustWord)) return false;
    if (m.end < text.size() && (classes(m.end) & unicode::kRustWord)) return false;
  }
  if (t.lstrip) {
    m.begin = std::max(m.begin, done);
    while (m.begin > done) {
      const size_t p = unicode::back(text, m.begin);
      if (!(classes(p) & unicode::kWhite)) break;
      m.begin = p;
    }
  }
  if (t.rstrip)
    while (m.end < text.size() && (classes(m.end) & unicode::kWhite))
      m.end += unicode::length_of(static_cast<unsigned char>(text[m.end]));
  return true;
}

}  // namespace mxt::tokenizer
