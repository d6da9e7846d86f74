// What pieces became, so that a word is merged once: short pieces (up to 15 bytes) in a two-way table whose entries
// hold the key and up to three ids in half a cache line, longer ones in a second table. Bounded memory; one user at a
// time. What is kept depends on the texts seen, the ids never do.
#pragma once

#include <cstdint>
#include <cstring>
#include <mutex>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mxt::tokenizer {

class PieceCache {
 public:
  struct Key {
    uint64_t a, b;  // the bytes, zero padded; the length in the top byte of b
    bool operator==(const Key&) const = default;
  };
  struct alignas(32) Entry {
    Key key;          // length 0: empty
    int32_t ids[3];   // more than three: ids[0] is where they begin in `spill`
    uint32_t count;
  };
  static constexpr size_t kShort = 15;     // longest short piece
  static constexpr size_t kLongest = 256;  // longer pieces are not kept

  PieceCache();

  static uint64_t hash(const Key& k) {
    const auto m = static_cast<unsigned __int128>(k.a ^ 0x2D358DCCAA6C78A5ull) * (k.b ^ 0x8BB84B93962EACC9ull);
    return static_cast<uint64_t>(m) ^ static_cast<uint64_t>(m >> 64);
  }
  Entry* bucket(uint64_t h) { return table_.get() + ((h & mask_) << 1); }
  const int32_t* spill(const Entry& e) const { return spill_.data() + e.ids[0]; }
  void insert(uint64_t h, const Key& key, const int32_t* ids, size_t count);

  // Long pieces: the ids, or nullptr.
  const std::vector<int32_t>* find_long(std::string_view piece, uint64_t h) const;
  void insert_long(std::string_view piece, uint64_t h, const std::vector<int32_t>& ids);
  static uint64_t hash_long(std::string_view piece);

  std::vector<int32_t> scratch;  // for the user

 private:
  struct Free {
    void operator()(Entry* p) const;
  };
  struct Long {
    uint64_t hash = 0;
    std::string piece;
    std::vector<int32_t> ids;
  };
  void allocate(size_t buckets);
  void grow();

  std::unique_ptr<Entry[], Free> table_;
  size_t mask_ = 0, filled_ = 0;
  std::vector<int32_t> spill_;
  std::vector<Long> long_;
};

// Caches for any number of threads: each encode borrows one, the hottest first.
class CachePool {
 public:
  class Loan {
   public:
    explicit Loan(CachePool& pool);
    ~Loan();
    Loan(const Loan&) = delete;
    PieceCache& operator*() { return *cache_; }

   private:
    CachePool& pool_;
    std::unique_ptr<PieceCache> cache_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<PieceCache>> free_;
};

}  // namespace mxt::tokenizer
