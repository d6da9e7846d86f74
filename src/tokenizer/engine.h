// A tokenizer compiled for use: text → parts (added tokens, text) → normaliser → pieces → model.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/model/bpe.h"
#include "tokenizer/model/cache.h"
#include "tokenizer/model/decoder.h"
#include "tokenizer/model/vocab.h"
#include "tokenizer/model/wordpiece.h"
#include "tokenizer/spec.h"
#include "tokenizer/split/pretokenizer.h"
#include "tokenizer/text/added_tokens.h"
#include "tokenizer/text/normalize.h"
#include "tokenizer/text/unicode.h"
#include "tokenizer/tokenizer.h"

namespace mxt::tokenizer {

class Engine {
 public:
  explicit Engine(Spec spec);

  // offsets: null, or gets one span a token.
  void encode(std::string_view text, std::span<const Span> plain, std::vector<int32_t>& ids,
              std::vector<Span>* offsets) const;
  // Large texts task by task, on `threads` threads.
  void encode_parallel(std::string_view text, std::span<const Span> plain, int threads,
                       std::vector<int32_t>& ids) const;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;
  std::string token_bytes(int32_t id) const;
  const std::string& token(int32_t id) const;
  int32_t id_of(std::string_view token) const;
  const AddedToken* added(int32_t id) const;
  int32_t vocab_size() const { return vocab_size_; }

  // What was read, but the model's tokens (moved into vocab()).
  const Spec& spec() const { return spec_; }
  const Vocab& vocab() const { return *vocab_; }
  int32_t bos = -1, eos = -1, pad = -1;

 private:
  struct Output {
    std::vector<int32_t>& ids;
    std::vector<Span>* offsets;
    CachePool::Loan* loan = nullptr;
    size_t used = 0;                          // ids in use; the vector may be longer while encoding
    std::vector<const OffsetMap*> maps = {};  // of the normaliser, first step first
    const OffsetMap* repair = nullptr;        // of invalid UTF-8
    void put(int32_t id) {
      if (used == ids.size()) ids.resize(used + (used >> 1) + 16);
      ids[used++] = id;
    }
  };
  void encode_whole(std::string_view text, std::span<const Span> plain, std::vector<int32_t>& ids,
                    std::vector<Span>* offsets) const;
  void add_tokens();
  // Positions below: `base` is where the part of the text begins that was normalised, `shift` where the text at hand
  // begins in the normalised part.
  void encode_text(std::string_view text, size_t base, std::span<const Span> plain, const unicode::TextScan* scan,
                   Output& out) const;
  std::string_view normalize(std::string_view text, size_t base, const unicode::TextScan* scan, std::string& storage,
                             std::vector<OffsetMap>* maps) const;
  void encode_ordinary(std::string_view text, size_t shift, size_t base, Output& out) const;
  void encode_run(const char* text, size_t readable, const uint32_t* ends, size_t count, size_t shift, size_t base,
                  Output& out) const;
  void encode_characters(std::string_view text, size_t shift, size_t base, Output& out) const;
  void put_symbols(const std::vector<Symbol>& symbols, const Piece& piece, size_t shift, size_t base,
                   Output& out) const;
  void put_source(Span s, size_t base, Output& out) const;

  Spec spec_;
  std::unique_ptr<Vocab> vocab_;
  std::vector<int32_t> added_at_;  // id → index into spec_.added, or −1
  std::unordered_map<std::string_view, int32_t> added_ids_;
  int32_t vocab_size_ = 0;
  Normalizer normalizer_;
  bool only_nfc_ = false;
  bool cuttable_ = false;  // a text may be cut at safe_cut (engine.cc) and its parts encoded one by one
  AddedMatcher raw_matcher_, normalized_matcher_;  // on the text as it is; on the normalised text
  PreTokenizer pre_;
  std::optional<ScanRule> scan_;
  std::unique_ptr<Bpe> bpe_;
  std::unique_ptr<WordPiece> wordpiece_;
  std::unordered_map<uint32_t, int32_t> characters_;
  Decoder decoder_;
  std::vector<uint32_t> lengths_;  // exact byte level: bytes of every token
  mutable CachePool caches_;
};

}  // namespace mxt::tokenizer
