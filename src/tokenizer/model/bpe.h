// Byte pair encoding. Pieces are merged by rank, the leftmost first among equals, exactly as Hugging Face's BPE model.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model/cache.h"
#include "tokenizer/model/cut_points.h"
#include "tokenizer/model/pair_table.h"
#include "tokenizer/model/vocab.h"
#include "tokenizer/spec.h"

namespace mxt::tokenizer {

// A token and the bytes of the piece it stands for.
struct Symbol {
  int32_t id;
  uint32_t length;
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
                     MergeSpace& space, std::vector<int32_t>& out, size_t& used) const;
  // True where every byte has a token: then the tokens' bytes add up to the piece.
  bool exact() const { return exact_; }

 private:
  void units(std::string_view piece, std::vector<Symbol>& out) const;
  size_t merge_short(Symbol* s, size_t n) const;
  void merge_long(std::vector<Symbol>& s, size_t from) const;
  uint32_t rank(int32_t a, int32_t b) const { return pairs_.find(a, b); }
  // Pieces that are looked up together, so that their cache misses overlap.
  struct Block {
    static constexpr size_t kMost = 64;
    const char* text;
    const uint32_t* ends;
    size_t count;
    PieceCache::Key keys[kMost];            // of short pieces
    uint64_t hashes[kMost];                 // of those that are kept
    const PieceCache::Entry* found[kMost];  // of short pieces; nullptr where absent
    const ShortRun* runs[kMost];            // of pieces just merged
  };
  // Both let the memory that comes next be fetched: of the tables, then of the ids.
  static void hash_pieces(Block& block, uint32_t begin, size_t readable, const PieceCache::View& view);
  static void find_pieces(Block& block, uint32_t begin, const PieceCache::View& view);
  // Merges the pieces from `k` on (it begins at `begin`) that `view` does not hold and that fit a ShortRun, as many as
  // there is space for, and keeps what they become. Returns the first piece that was not looked at.
  size_t merge_missing(Block& block, size_t k, uint32_t begin, const PieceCache::View& view, PieceCache& cache,
                       MergeSpace& space) const;
  // The same pieces, those too long for a ShortRun in parts that merge by themselves.
  void cut_long(const char* text, size_t readable, const uint32_t* ends, size_t count,
                std::vector<uint32_t>& parts) const;
  bool start_run(std::string_view piece, ShortRun& run) const;        // false where a byte has no token
  void encode_slow(std::string_view piece, MergeSpace& space) const;  // to space.ids

  const Vocab& vocab_;
  bool byte_level_, ignore_merges_, byte_fallback_, fuse_unk_, exact_ = false;
  int32_t unk_ = -1;
  std::array<int32_t, 256> byte_id_{};  // byte level: the byte's token; else the fallback token; -1 where none
  std::vector<uint32_t>
      byte_pair_key_;  // 256 × 256: a ShortRun's key at place 0, the first look-up of every pair of neighbours
  PairTable pairs_;
  CutPoints cut_points_;  // where pieces may be cut: byte level, all bytes known, no whole piece looked up first
  bool cut_ = false;
  std::unordered_map<std::string, int32_t> raw_;  // ignore_merges on byte level: raw bytes → id
};

}  // namespace mxt::tokenizer
