// What pieces became, so that a word is merged once: two-way tables whose entries hold the key and up to three ids in
// half a cache line. Pieces up to 15 bytes are their own key; longer ones (up to 4,096) are found by hash and compared
// with a copy. Bounded memory (at most 96 MiB, where the text is that varied); one user at a time. What is kept depends on the texts seen, the ids never do.
#pragma once

#include <cstdint>
#include <cstring>
#include <mutex>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model/merge.h"

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
  static constexpr size_t kLongest = 4096;  // longer pieces are not kept

  static uint64_t hash(const Key& k) {
    const auto m = static_cast<unsigned __int128>(k.a ^ 0x2D358DCCAA6C78A5ull) * (k.b ^ 0x8BB84B93962EACC9ull);
    return static_cast<uint64_t>(m) ^ static_cast<uint64_t>(m >> 64);
  }
  Entry* bucket(uint64_t h) { return short_.bucket(h); }
  const int32_t* ids_of(const Entry& e) const { return e.count <= 3 ? e.ids : spill_.data() + e.ids[0]; }
  void insert(uint64_t h, const Key& key, const int32_t* ids, size_t count);

  const Entry* long_bucket(uint64_t h) const { return long_.bucket(h); }
  static uint64_t hash_long(std::string_view piece);
  const Entry* find_long(std::string_view piece, uint64_t h) const;  // nullptr where absent
  void insert_long(std::string_view piece, uint64_t h, const int32_t* ids, size_t count);

  std::vector<int32_t> scratch;  // for the user
  Merger merger;                 // likewise

 private:
  struct Free {
    void operator()(Entry* p) const;
  };
  class Table {
   public:
    Table(size_t first_buckets, size_t most_buckets);
    Entry* bucket(uint64_t h) const { return entries_.get() + ((h & mask_) << 1); }
    // A free or old entry for this hash; `hash_of` finds entries their place when the table grows.
    template <typename F>
    Entry& place(uint64_t h, F&& hash_of);
    void clear() { allocate(mask_ + 1); }

   private:
    void allocate(size_t buckets);
    std::unique_ptr<Entry[], Free> entries_;
    size_t mask_ = 0, filled_ = 0, most_;
  };
  void fill(Entry& e, const Key& key, const int32_t* ids, size_t count);
  void make_room(size_t ids, size_t bytes);

  Table short_{size_t{1} << 12, size_t{1} << 19};  // 256 KiB to 32 MiB
  Table long_{size_t{1} << 8, size_t{1} << 18};    // 16 KiB to 16 MiB; key: hash, then place in pieces_ and length
  std::vector<int32_t> spill_;
  std::string pieces_;
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
