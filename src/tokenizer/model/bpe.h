// Byte pair encoding. Pieces are merged by rank, the leftmost first among equals, exactly as Hugging Face's BPE model.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model/cache.h"
#include "tokenizer/model/vocab.h"
#include "tokenizer/spec.h"

namespace mxt::tokenizer {

// A token and the bytes of the piece it stands for.
struct Symbol {
  int32_t id;
  uint32_t length;
};

// (left id, right id) → rank of their merge. Eight bytes a slot, linear probing, at most half full.
class PairTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr int kIdBits = 21, kRankBits = 22;
  void build(const std::vector<std::pair<int32_t, int32_t>>& merges);
  uint32_t find(int32_t a, int32_t b) const {
    const uint64_t key = key_of(a, b);
    for (size_t i = (key * 0x9E3779B97F4A7C15ull) >> shift_;; i = (i + 1) & mask_) {
      const uint64_t slot = slots_[i];
      if ((slot >> kRankBits) == key) return static_cast<uint32_t>(slot & ((1u << kRankBits) - 1));
      if (slot == kEmpty) return kNone;
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static uint64_t key_of(int32_t a, int32_t b) {
    return static_cast<uint64_t>(static_cast<uint32_t>(a)) << kIdBits | static_cast<uint32_t>(b);
  }
  std::vector<uint64_t> slots_;
  size_t mask_ = 0;
  int shift_ = 63;
};

class Bpe {
 public:
  // byte_level: pieces are raw bytes, the vocabulary spells them (byte_level.h). Otherwise the units are characters.
  Bpe(const ModelSpec& spec, const Vocab& vocab, bool byte_level, const std::string& source);

  // Appends the tokens of one piece. O(n log n) in its length.
  void encode(std::string_view piece, std::vector<Symbol>& out) const;
  // Appends the tokens of consecutive pieces: piece k is text[ends[k - 1], ends[k]), from 0. `readable` bytes from
  // `text` may be read (≥ the last end). Byte-level only.
  void encode_pieces(const char* text, size_t readable, const uint32_t* ends, size_t count, PieceCache& cache,
                     std::vector<int32_t>& out, size_t& used) const;
  // True where every byte has a token: then the tokens' bytes add up to the piece.
  bool exact() const { return exact_; }

 private:
  void units(std::string_view piece, std::vector<Symbol>& out) const;
  size_t merge_short(Symbol* s, size_t n) const;
  void merge_long(std::vector<Symbol>& s, size_t from) const;
  uint32_t rank(int32_t a, int32_t b) const { return pairs_.find(a, b); }
  void encode_slow(std::string_view piece, PieceCache& cache, std::vector<int32_t>& ids) const;

  const Vocab& vocab_;
  bool byte_level_, ignore_merges_, byte_fallback_, fuse_unk_, exact_ = false;
  int32_t unk_ = -1;
  std::array<int32_t, 256> byte_id_{};      // byte level: the byte's token; else the fallback token; -1 where none
  std::vector<int32_t> whole_;              // byte level with ignore_merges
  std::vector<uint32_t> byte_pair_rank_;    // 256 × 256: the first look-up of every pair of neighbours
  PairTable pairs_;
  std::vector<int32_t> merged_;             // rank → id of the merged token
  std::unordered_map<std::string, int32_t> raw_;  // ignore_merges on byte level: raw bytes → id
};

}  // namespace mxt::tokenizer
