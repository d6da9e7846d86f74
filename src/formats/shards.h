// Token shards: packed rows of token ids, ready to train on. One file:
//
//   0    "MXTSHARD"            magic
//   8    u32 version = 1       u32 flags (bit 0: float weights follow)
//   16   u64 rows              u64 documents    u64 tokens
//   40   u64 length of meta    (UTF-8 JSON: what the writer wants to say of the data; at most 16 MiB)
//   48   u8[32] BLAKE3 of everything from byte 128 on
//   80   u8[32] BLAKE3 of the header itself (bytes 0–79)
//   112  16 zero bytes
//   128  meta, then, each padded to 64 bytes:
//        u64 row_documents[rows + 1]     document number at which each row begins
//        u64 document_tokens[documents + 1]  token number at which each document begins
//        i32 ids[tokens]
//        u64 targets[⌈tokens / 64⌉]      bit t: token t is trained on (as a label; labels are not shifted)
//        f32 weights[tokens]             where flags say so
//
// A row is a sequence of documents; attention never crosses from one to the next. All numbers are little endian.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace mxt::formats {

// A row as it stands in the mapping: nothing is copied.
struct ShardRow {
  std::span<const int32_t> ids;
  std::span<const uint64_t> document_begin;  // of each document and of the row's end, counted in the shard's tokens
  uint64_t first_token = 0;                  // of the row, in the shard: document_begin[0]
  std::span<const float> weights;            // empty where the shard has none

  size_t tokens() const { return ids.size(); }
  size_t documents() const { return document_begin.size() - 1; }
  bool is_target(size_t i) const {  // of the row's i-th token
    const uint64_t t = first_token + i;
    return (target_words[t / 64] >> (t % 64)) & 1;
  }
  const uint64_t* target_words = nullptr;  // of the whole shard
};

class TokenShard {
 public:
  // Maps the file and checks header, sizes and that offsets ascend. kBadInput names what is wrong. The data's checksum
  // is compared by verify() (it reads every byte) or here with `check_data`.
  static TokenShard open(const std::string& path, bool check_data = false);
  // The same from bytes already in memory, 8-byte aligned, which must outlive the result.
  static TokenShard parse(std::span<const std::byte> bytes, std::string_view source, bool check_data = true);

  uint64_t rows() const { return rows_; }
  uint64_t documents() const { return documents_; }
  uint64_t tokens() const { return tokens_; }
  uint64_t targets() const;  // tokens trained on; counts the bits
  bool has_weights() const { return !weights_.empty(); }
  std::string_view meta() const { return meta_; }
  const std::string& path() const { return path_; }
  ShardRow row(uint64_t r) const;
  std::string data_digest() const;  // hex of the header's checksum
  void verify() const;              // kVerifyFailed where the data is not what was written
  // Every id is in [0, vocab_size). kBadInput with the first one that is not. Reads all ids.
  void check_ids(int64_t vocab_size) const;
  void drop_pages() const { map_.drop_pages(); }

 private:
  void read(std::span<const std::byte> bytes, bool check_data);
  MappedFile map_;
  std::string path_;
  std::span<const std::byte> bytes_;
  uint64_t rows_ = 0, documents_ = 0, tokens_ = 0;
  std::string_view meta_;
  std::span<const uint64_t> row_documents_, document_tokens_, targets_;
  std::span<const int32_t> ids_;
  std::span<const float> weights_;
};

// Collects rows and writes the file atomically; the bytes depend on the rows and meta alone. Holds the shard in memory
// (4 to 8 bytes a token), so a corpus goes to several shards.
class TokenShardWriter {
 public:
  TokenShardWriter(std::string path, bool with_weights) : path_(std::move(path)), with_weights_(with_weights) {}

  // A document of the row at hand. `targets` (one flag a token) is empty for "all"; `weights` is empty for 1 each, and
  // must be empty where the shard has none. An empty document is refused by assertion.
  void add_document(std::span<const int32_t> ids, std::span<const uint8_t> targets = {},
                    std::span<const float> weights = {});
  void end_row();  // closes the row; asserts that it holds a document
  uint64_t rows() const { return row_documents_.size() - 1; }
  uint64_t tokens() const { return ids_.size(); }
  uint64_t row_tokens() const { return ids_.size() - document_tokens_[row_documents_.back()]; }
  // `meta`: JSON text. Returns the data's digest (hex).
  std::string commit(std::string_view meta = "{}");

 private:
  std::string path_;
  bool with_weights_;
  std::vector<uint64_t> row_documents_{0}, document_tokens_{0};
  std::vector<int32_t> ids_;
  std::vector<uint64_t> targets_;
  std::vector<float> weights_;
};

}  // namespace mxt::formats
