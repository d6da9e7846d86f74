#include "tokenizer/model/cache.h"

#include <cstdlib>
#include <new>

namespace mxt::tokenizer {
namespace {

constexpr size_t kFirstBuckets = size_t{1} << 12;  // 256 KiB
constexpr size_t kMostBuckets = size_t{1} << 19;   // 32 MiB
constexpr size_t kMostSpill = size_t{1} << 22;     // ids of pieces with more than three tokens: 16 MiB
constexpr size_t kLongSlots = size_t{1} << 14;

}  // namespace

void PieceCache::Free::operator()(Entry* p) const { std::free(p); }

PieceCache::PieceCache() { allocate(kFirstBuckets); }

void PieceCache::allocate(size_t buckets) {
  // A bucket is one cache line. Zeroed pages come from the kernel when they are first touched.
  void* p = std::aligned_alloc(64, buckets * 2 * sizeof(Entry));
  if (!p) throw std::bad_alloc();
  std::memset(p, 0, buckets * 2 * sizeof(Entry));
  table_.reset(static_cast<Entry*>(p));
  mask_ = buckets - 1;
  filled_ = 0;
}

void PieceCache::grow() {
  auto old = std::move(table_);
  const size_t n = (mask_ + 1) * 2;
  allocate((mask_ + 1) * 4);
  for (size_t i = 0; i < n; ++i) {
    const Entry& e = old[i];
    if (e.count == 0) continue;
    Entry* b = bucket(hash(e.key));
    filled_ += b[1].count == 0;
    b[1] = b[0];
    b[0] = e;
  }
}

void PieceCache::insert(uint64_t h, const Key& key, const int32_t* ids, size_t count) {
  if (count == 0) return;
  if (spill_.size() + count > kMostSpill) {
    spill_.clear();
    allocate(mask_ + 1);
  }
  if (filled_ > mask_ && mask_ + 1 < kMostBuckets) grow();
  Entry* b = bucket(h);
  filled_ += b[1].count == 0;
  b[1] = b[0];
  b[0].key = key;
  b[0].count = static_cast<uint32_t>(count);
  if (count <= 3) {
    for (size_t i = 0; i < count; ++i) b[0].ids[i] = ids[i];
  } else {
    b[0].ids[0] = static_cast<int32_t>(spill_.size());
    spill_.insert(spill_.end(), ids, ids + count);
  }
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

const std::vector<int32_t>* PieceCache::find_long(std::string_view piece, uint64_t h) const {
  if (long_.empty()) return nullptr;
  const Long& e = long_[h & (kLongSlots - 1)];
  return e.hash == h && e.piece == piece ? &e.ids : nullptr;
}

void PieceCache::insert_long(std::string_view piece, uint64_t h, const std::vector<int32_t>& ids) {
  if (piece.size() > kLongest) return;
  if (long_.empty()) long_.resize(kLongSlots);
  Long& e = long_[h & (kLongSlots - 1)];
  e.hash = h;
  e.piece.assign(piece);
  e.ids = ids;
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
