#include "tokenizer/model/cache.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace mxt::tokenizer {
namespace {

constexpr size_t kMostSpill = size_t{1} << 23;   // ids of pieces with more than three tokens: 32 MiB
constexpr size_t kMostPieces = size_t{1} << 24;  // bytes of long pieces
constexpr size_t kHugePage = size_t{1} << 21;
constexpr int kLengthBits = 16;

}  // namespace

void PieceCache::Free::operator()(Entry* p) const { std::free(p); }

PieceCache::Table::Table(size_t first_buckets, size_t most_buckets) : most_(most_buckets) { allocate(first_buckets); }

void PieceCache::Table::allocate(size_t buckets) {
  const size_t bytes = buckets * 2 * sizeof(Entry);  // a bucket is one cache line
  // A large table is read all over: with small pages every look-up would also miss the page table's cache.
  const bool huge = bytes >= kHugePage;
  void* p = std::aligned_alloc(huge ? kHugePage : 64, bytes);
  if (!p) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (huge) madvise(p, bytes, MADV_HUGEPAGE);
#endif
  std::memset(p, 0, bytes);
  entries_.reset(static_cast<Entry*>(p));
  mask_ = buckets - 1;
  filled_ = 0;
}

template <typename F>
PieceCache::Entry& PieceCache::Table::place(uint64_t h, F&& hash_of) {
  const auto shift_in = [this](uint64_t at) {
    Entry* b = bucket(at);
    filled_ += b[1].count == 0;
    b[1] = b[0];
    return b;
  };
  // A quarter full: few buckets then want more than their two entries.
  if (filled_ > mask_ / 2 && mask_ + 1 < most_) {
    const size_t n = (mask_ + 1) * 2;
    const auto old = std::move(entries_);
    allocate((mask_ + 1) * 4);
    for (size_t i = 0; i < n; ++i)
      if (old[i].count) *shift_in(hash_of(old[i])) = old[i];
  }
  return *shift_in(h);
}

void PieceCache::fill(Entry& e, const Key& key, const int32_t* ids, size_t count) {
  e.key = key;
  e.count = static_cast<uint32_t>(count);
  if (count <= 3) {
    for (size_t i = 0; i < count; ++i) e.ids[i] = ids[i];
  } else {
    e.ids[0] = static_cast<int32_t>(spill_.size());
    spill_.insert(spill_.end(), ids, ids + count);
  }
}

void PieceCache::make_room(size_t ids, size_t bytes) {
  if (spill_.size() + ids <= kMostSpill && pieces_.size() + bytes <= kMostPieces) return;
  spill_.clear();
  pieces_.clear();
  short_.clear();
  long_.clear();
}

void PieceCache::insert(uint64_t h, const Key& key, const int32_t* ids, size_t count) {
  if (count == 0) return;
  make_room(count, 0);
  fill(short_.place(h, [](const Entry& e) { return hash(e.key); }), key, ids, count);
}

uint64_t PieceCache::hash_long(std::string_view s) {
  uint64_t h = s.size() * 0x9E3779B97F4A7C15ull;
  for (size_t i = 0; i < s.size(); i += 16) {
    uint64_t w[2] = {0, 0};
    std::memcpy(w, s.data() + i, s.size() - i < 16 ? s.size() - i : 16);
    h = hash({w[0] ^ h, w[1] ^ (h >> 32)});
  }
  return h;
}

const PieceCache::Entry* PieceCache::find_long(std::string_view piece, uint64_t h) const {
  const Entry* b = long_.bucket(h);
  for (int way = 0; way < 2; ++way, ++b)
    if (b->count && b->key.a == h && (b->key.b & ((1u << kLengthBits) - 1)) == piece.size() &&
        std::memcmp(pieces_.data() + (b->key.b >> kLengthBits), piece.data(), piece.size()) == 0)
      return b;
  return nullptr;
}

void PieceCache::insert_long(std::string_view piece, uint64_t h, const int32_t* ids, size_t count) {
  if (count == 0 || piece.size() > kLongest) return;
  make_room(count, piece.size());
  const Key key{h, pieces_.size() << kLengthBits | piece.size()};
  pieces_ += piece;
  fill(long_.place(h, [](const Entry& e) { return e.key.a; }), key, ids, count);
}

CachePool::Loan::Loan(CachePool& pool) : pool_(pool) {
  {
    std::lock_guard lock(pool.mutex_);
    if (!pool.free_.empty()) {
      cache_ = std::move(pool.free_.back());
      pool.free_.pop_back();
    }
  }
  if (!cache_) cache_ = std::make_unique<PieceCache>();
}

CachePool::Loan::~Loan() {
  std::lock_guard lock(pool_.mutex_);
  pool_.free_.push_back(std::move(cache_));
}

}  // namespace mxt::tokenizer
