// What pieces became, so that a word is merged once: hash tables whose entries hold the key and up to three ids in half
// a cache line; a bucket of two entries is a line, and what does not fit goes to the next ones. Pieces up to 15 bytes
// are their own key; longer ones (up to 4,096) are found by hash and compared with a copy. Bounded memory (kMostBytes,
// where the text is that varied); one user at a time. What is kept depends on the texts seen, the ids never do.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model/merge.h"

namespace mxt::tokenizer {

// Zeroed memory that takes room when it is first written; large pages where there is much of it, since with small ones
// every look-up would also miss the page table's cache.
class Pages {
 public:
  explicit Pages(size_t bytes);
  ~Pages();
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

class PieceCache {
 public:
  static constexpr size_t kMostBytes = size_t{208} << 20;
  explicit PieceCache(int halvings = 0);  // of the memory it may take

  struct Key {
    uint64_t a, b;  // the bytes, zero padded; the length in the top byte of b
    bool operator==(const Key&) const = default;
  };
  struct alignas(32) Entry {
    Key key;         // length 0: empty
    int32_t ids[3];  // more than three: ids[0] is where they begin in `spill`
    uint32_t count;
  };
  static constexpr size_t kShort = 15;  // longest short piece
  static constexpr int kLengthBits = 16;
  static constexpr size_t kLongest = 4096;  // longer pieces are not kept

  static uint64_t hash(const Key& k) {
    const auto m = static_cast<unsigned __int128>(k.a ^ 0x2D358DCCAA6C78A5ull) * (k.b ^ 0x8BB84B93962EACC9ull);
    return static_cast<uint64_t>(m) ^ static_cast<uint64_t>(m >> 64);
  }
  const Entry* bucket(uint64_t h) const { return short_.bucket(h); }
  const Entry* find(uint64_t h, const Key& key) const {  // nullptr where absent
    return short_.find(h, [&](const Entry& e) { return e.key == key; });
  }
  const int32_t* ids_of(const Entry& e) const { return e.count <= 3 ? e.ids : spill_.as<int32_t>() + e.ids[0]; }
  void insert(uint64_t h, const Key& key, const int32_t* ids, size_t count);

  const Entry* long_bucket(uint64_t h) const { return long_.bucket(h); }
  void prefetch_long(uint64_t h) const {
    const Entry* b = long_.bucket(h);
    b += b->key.a != h;
    if (b->key.a != h) return;
    __builtin_prefetch(pieces_.as<char>() + (b->key.b >> kLengthBits));
    __builtin_prefetch(ids_of(*b));
  }
  static uint64_t hash_long(std::string_view piece);
  const Entry* find_long(std::string_view piece, uint64_t h) const;
  void insert_long(std::string_view piece, uint64_t h, const int32_t* ids, size_t count);

  std::vector<int32_t> scratch;  // for the user
  LongMerger merger;             // likewise
  static constexpr size_t kRuns = 32;
  ShortRun* runs();  // likewise: kRuns of them

 private:
  class Table {
   public:
    explicit Table(size_t most_bytes);
    Entry* bucket(uint64_t h) const { return entries_.as<Entry>() + ((h & mask_) << 1); }
    template <typename F>
    const Entry* find(uint64_t h, F&& matches) const {
      for (size_t k = 0; k < kReach; ++k)
        for (const Entry *e = bucket(h + k), *end = e + 2; e < end; ++e) {
          if (e->count == 0) return nullptr;
          if (matches(*e)) return e;
        }
      return nullptr;
    }
    // A free or old entry for this hash; `hash_of` finds entries their place when the table grows.
    template <typename F>
    Entry& place(uint64_t h, F&& hash_of);
    void clear();

   private:
    static constexpr size_t kReach = 8;  // buckets in which an entry may stand
    Entry* free_place(uint64_t h);       // nullptr where all are taken
    Pages entries_;
    size_t mask_, filled_ = 0, most_;
  };
  void fill(Entry& e, const Key& key, const int32_t* ids, size_t count);
  void make_room(size_t ids, size_t bytes);

  Table short_, long_;  // long_: the key is the hash, then place in pieces_ and length
  size_t most_spill_, most_pieces_, spilled_ = 0, pieces_used_ = 0;
  Pages spill_, pieces_;  // ids of pieces with more than three tokens; bytes of long pieces
  std::unique_ptr<ShortRun[]> runs_;
};

// Caches for any number of threads: each encode borrows one, the hottest first. Beyond the first eight they are small
// ones.
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
  size_t made_ = 0;
};

}  // namespace mxt::tokenizer
