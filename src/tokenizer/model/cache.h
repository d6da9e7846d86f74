// What pieces became, so that a word is merged once: hash tables whose entries hold the key and up to three ids in half
// a cache line; a bucket of two entries is a line, and what does not fit goes to the next ones. Pieces up to 15 bytes
// are their own key; longer ones (up to 4,096) are found by hash and compared with a copy. Any number of threads use
// one cache: neither reading nor writing waits, and what is in it stays, until it is full (kMostBytes, where the text
// is that varied) and an empty one takes its place. What is kept depends on the texts seen, the ids never do.
#pragma once

#include <atomic>
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
  struct Table;

 public:
  static constexpr size_t kMostBytes = size_t{208} << 20;
  explicit PieceCache(int halvings = 0);  // of the memory it may take

  struct Key {
    uint64_t a, b;  // the bytes, zero padded; the length in the top byte of b. Never 0 in b
    bool operator==(const Key&) const = default;
  };
  // Written once; b is written last, so that who sees it sees the rest.
  struct alignas(32) Entry {
    static constexpr uint64_t kEmpty = 0, kTaken = 1;  // in b; taken: being written
    std::atomic<uint64_t> a, b;
    int32_t ids[3];  // more than three: ids[0] is where they begin in the spill
    uint32_t count;
    bool is(const Key& k) const {
      const uint64_t second = b.load(std::memory_order_acquire);
      return ((second ^ k.b) | (a.load(std::memory_order_relaxed) ^ k.a)) == 0;
    }
  };
  static constexpr size_t kShort = 15;  // longest short piece
  static constexpr int kLengthBits = 16;
  static constexpr size_t kLongest = 4096;  // longer pieces are not kept

  static uint64_t hash(const Key& k) {
    const auto m = static_cast<unsigned __int128>(k.a ^ 0x2D358DCCAA6C78A5ull) * (k.b ^ 0x8BB84B93962EACC9ull);
    return static_cast<uint64_t>(m) ^ static_cast<uint64_t>(m >> 64);
  }
  static uint64_t hash_long(std::string_view piece);

  // The cache as it is now. Its entries stay where they are and as they are until clear(); later ones may be missing.
  class View {
   public:
    const Entry* bucket(uint64_t h) const { return short_.bucket(h); }
    const Entry* find(uint64_t h, const Key& key) const {  // nullptr where absent
      return short_.find(h, [&](const Entry& e) { return e.is(key); });
    }
    const int32_t* ids_of(const Entry& e) const { return e.count <= 3 ? e.ids : spill_ + e.ids[0]; }
    const Entry* long_bucket(uint64_t h) const { return long_.bucket(h); }
    void prefetch_long(uint64_t h) const {
      const Entry* b = long_.bucket(h);
      b += b->a.load(std::memory_order_relaxed) != h;
      const uint64_t place = b->b.load(std::memory_order_acquire);
      if (place <= Entry::kTaken || b->a.load(std::memory_order_relaxed) != h) return;
      __builtin_prefetch(pieces_ + (place >> kLengthBits));
      __builtin_prefetch(ids_of(*b));
    }
    const Entry* find_long(std::string_view piece, uint64_t h) const;

   private:
    friend class PieceCache;
    struct Buckets {
      static constexpr size_t kReach = 8;  // buckets in which an entry may stand
      Entry* entries;
      size_t mask;
      Entry* bucket(uint64_t h) const { return entries + ((h & mask) << 1); }
      template <typename F>
      const Entry* find(uint64_t h, F&& matches) const {
        for (size_t k = 0; k < kReach; ++k)
          for (const Entry *e = bucket(h + k), *end = e + 2; e < end; ++e) {
            if (matches(*e)) return e;
            if (e->b.load(std::memory_order_relaxed) == Entry::kEmpty) return nullptr;
          }
        return nullptr;
      }
    };
    Buckets short_, long_;  // long_: a is the hash, b place in pieces_ and length
    const int32_t* spill_;  // ids of pieces with more than three tokens
    const char* pieces_;    // bytes of long pieces
  };
  View view() const;

  // Inserts some pieces, together because their room is taken together. A piece may be lost (the tables grow meanwhile,
  // the cache is full) or kept twice (two threads at once): then it is merged once more, or the first one is found.
  class Insertion {
   public:
    // ids: of all pieces that have more than three; bytes: of all long pieces.
    Insertion(PieceCache& cache, size_t ids, size_t bytes);
    ~Insertion();
    Insertion(const Insertion&) = delete;
    void put(uint64_t h, const Key& key, const int32_t* ids, size_t count);
    void put_long(std::string_view piece, uint64_t h, const int32_t* ids, size_t count);

   private:
    void fill(Entry& e, const Key& key, const int32_t* ids, size_t count);
    PieceCache& cache_;
    Table *short_, *long_;
    size_t spilled_, spill_end_, pieces_used_, pieces_end_, shorts_ = 0, longs_ = 0;
    bool room_;
  };
  bool full() const { return full_.load(std::memory_order_relaxed); }

  // Only where nobody else uses the cache: forgets everything; gives back the tables that larger ones have replaced.
  void clear();
  void shrink();

 private:
  struct Table {
    explicit Table(size_t buckets);
    Entry* take(uint64_t h) const;  // an empty entry, now taken; nullptr where there is none
    bool crowded(bool last) const;  // a table that may not grow is filled further than others
    Pages entries;
    const size_t mask;
    std::atomic<size_t> filled = 0;
  };
  // Grown fourfold until `most` buckets: in a virtual machine fresh memory costs more than moving entries now and then.
  // Readers of an older table go on with it.
  struct Growing {
    explicit Growing(size_t most_bytes);
    View::Buckets view() const;
    const size_t most;
    std::atomic<Table*> now;
    std::vector<std::unique_ptr<Table>> tables;  // the last one is `now`
  };
  template <typename F>
  void count(Growing& g, Table& t, size_t added, F&& hash_of);
  template <typename F>
  void grow(Growing& g, const Table& t, F&& hash_of);

  Growing short_, long_;
  Pages spill_, pieces_;
  const size_t most_spill_, most_pieces_;
  std::atomic<bool> full_ = false;
  std::mutex growth_;
  alignas(64) std::atomic<size_t> spilled_ = 0;
  std::atomic<size_t> pieces_used_ = 0;
};

// What one user of a cache needs for himself.
struct MergeSpace {
  static constexpr size_t kRuns = 32;
  std::vector<int32_t> ids;
  std::vector<uint32_t> parts;  // ends
  LongMerger merger;
  ShortRun runs[kRuns];
};

// The cache that all threads share, and a space for each that encodes. A full cache is replaced (or cleared, by its
// only user); who still uses it keeps it until his next fresh(): at most one cache a thread, as a rule one or two.
class CachePool {
 public:
  class Loan {
   public:
    explicit Loan(CachePool& pool);
    ~Loan();
    Loan(const Loan&) = delete;
    PieceCache& fresh();  // valid until the next call
    MergeSpace& space() { return *space_; }

   private:
    CachePool& pool_;
    std::shared_ptr<PieceCache> cache_;
    std::unique_ptr<MergeSpace> space_;
  };
  explicit CachePool(int halvings = 0) : halvings_(halvings) {}

 private:
  int halvings_;
  std::mutex mutex_;
  std::shared_ptr<PieceCache> cache_;
  std::vector<std::unique_ptr<MergeSpace>> spaces_;
};

}  // namespace mxt::tokenizer
