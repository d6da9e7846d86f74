#include "tokenizer/model/cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"

namespace mxt::tokenizer {
namespace {

constexpr size_t kShortBytes = size_t{64} << 20, kLongBytes = size_t{16} << 20, kSpillBytes = size_t{96} << 20,
                 kPieceBytes = size_t{32} << 20;
static_assert(kShortBytes + kLongBytes + kSpillBytes + kPieceBytes == PieceCache::kMostBytes);
constexpr size_t kHugePage = size_t{1} << 21;
constexpr size_t kBucketBytes = 2 * sizeof(PieceCache::Entry), kFirstBuckets = size_t{1} << 10;

}  // namespace

Pages::Pages(size_t bytes) : bytes_(bytes) {
  const bool huge = bytes >= kHugePage;
  // What is mapped lies anywhere: a large page more, and the ends go back.
  const size_t room = huge ? bytes + kHugePage : bytes;
  void* p = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  memory_ = p;
  if (!huge) return;
  const auto at = reinterpret_cast<uintptr_t>(p), begin = (at + kHugePage - 1) / kHugePage * kHugePage;
  if (begin > at) munmap(p, begin - at);
  if (at + kHugePage > begin) munmap(reinterpret_cast<void*>(begin + bytes), at + kHugePage - begin);
  memory_ = reinterpret_cast<void*>(begin);
#ifdef MADV_HUGEPAGE
  madvise(memory_, bytes, MADV_HUGEPAGE);
#endif
}
Pages::~Pages() {
  if (memory_) munmap(memory_, bytes_);
}
Pages::Pages(Pages&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PieceCache::Table::Table(size_t buckets) : entries(buckets * kBucketBytes), mask(buckets - 1) {}

PieceCache::Entry* PieceCache::Table::take(uint64_t h) const {
  const View::Buckets all{entries.as<Entry>(), mask};
  for (size_t k = 0; k < View::Buckets::kReach; ++k)
    for (Entry *e = all.bucket(h + k), *end = e + 2; e < end; ++e) {
      uint64_t b = e->b.load(std::memory_order_relaxed);
      if (b == Entry::kEmpty && e->b.compare_exchange_strong(b, Entry::kTaken, std::memory_order_relaxed)) return e;
    }
  return nullptr;
}

bool PieceCache::Table::crowded(bool last) const {
  const size_t buckets = mask + 1;
  return filled.load(std::memory_order_relaxed) > (last ? buckets / 4 * 7 : buckets / 2 * 3);
}

PieceCache::Growing::Growing(size_t most_bytes) : most(most_bytes / kBucketBytes) {
  tables.push_back(std::make_unique<Table>(std::min(kFirstBuckets, most)));
  now.store(tables.back().get(), std::memory_order_release);
}

PieceCache::View::Buckets PieceCache::Growing::view() const {
  const Table* t = now.load(std::memory_order_acquire);
  return {t->entries.as<Entry>(), t->mask};
}

template <typename F>
void PieceCache::grow(Growing& g, const Table& t, F&& hash_of) {
  const std::unique_lock lock(growth_, std::try_to_lock);
  if (!lock || g.now.load(std::memory_order_relaxed) != &t) return;  // somebody else does
  auto larger = std::make_unique<Table>(std::min(4 * (t.mask + 1), g.most));
  size_t moved = 0;
  for (const Entry *e = t.entries.as<Entry>(), *end = e + 2 * (t.mask + 1); e < end; ++e) {
    const uint64_t b = e->b.load(std::memory_order_acquire), a = e->a.load(std::memory_order_relaxed);
    if (b <= Entry::kTaken) continue;
    Entry* to = larger->take(hash_of(Key{a, b}));
    if (!to) continue;
    std::copy_n(e->ids, 3, to->ids);
    to->count = e->count;
    to->a.store(a, std::memory_order_relaxed);
    to->b.store(b, std::memory_order_relaxed);
    ++moved;
  }
  larger->filled = moved;
  g.now.store(larger.get(), std::memory_order_release);
  g.tables.push_back(std::move(larger));
}

template <typename F>
void PieceCache::count(Growing& g, Table& t, size_t added, F&& hash_of) {
  if (added == 0) return;
  t.filled.fetch_add(added, std::memory_order_relaxed);
  const bool last = t.mask + 1 >= g.most;
  if (!t.crowded(last)) return;
  if (last)
    full_ = true;
  else
    grow(g, t, hash_of);
}

PieceCache::PieceCache(int halvings)
    : short_(kShortBytes >> halvings),
      long_(kLongBytes >> halvings),
      spill_(kSpillBytes >> halvings),
      pieces_(kPieceBytes >> halvings),
      most_spill_((kSpillBytes >> halvings) / sizeof(int32_t)),
      most_pieces_(kPieceBytes >> halvings) {}

PieceCache::View PieceCache::view() const {
  View v;
  v.short_ = short_.view();
  v.long_ = long_.view();
  v.spill_ = spill_.as<int32_t>();
  v.pieces_ = pieces_.as<char>();
  return v;
}

void PieceCache::shrink() {
  for (auto* g : {&short_, &long_}) g->tables.erase(g->tables.begin(), g->tables.end() - 1);
}

void PieceCache::clear() {
  shrink();
  for (auto* g : {&short_, &long_}) {
    Table& t = *g->tables.back();
    std::memset(t.entries.as<void>(), 0, (t.mask + 1) * kBucketBytes);
    t.filled = 0;
  }
  spilled_ = 0;
  pieces_used_ = 0;
  full_ = false;
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

const PieceCache::Entry* PieceCache::View::find_long(std::string_view piece, uint64_t h) const {
  return long_.find(h, [&](const Entry& e) {
    const uint64_t b = e.b.load(std::memory_order_acquire);
    return e.a.load(std::memory_order_relaxed) == h && (b & ((1u << kLengthBits) - 1)) == piece.size() &&
           std::memcmp(pieces_ + (b >> kLengthBits), piece.data(), piece.size()) == 0;
  });
}

PieceCache::Insertion::Insertion(PieceCache& cache, size_t ids, size_t bytes)
    : cache_(cache),
      short_(cache.short_.now.load(std::memory_order_acquire)),
      long_(cache.long_.now.load(std::memory_order_acquire)) {
  const auto take = [&](std::atomic<size_t>& used, size_t n, size_t& begin, size_t& end) {
    begin = n > 0 && !cache.full() ? used.fetch_add(n, std::memory_order_relaxed) : 0;
    end = begin + n;
  };
  take(cache.spilled_, ids, spilled_, spill_end_);
  take(cache.pieces_used_, bytes, pieces_used_, pieces_end_);
  room_ = !cache.full();
  if (spill_end_ <= cache.most_spill_ && pieces_end_ <= cache.most_pieces_) return;
  room_ = false;
  cache.full_ = true;
}

PieceCache::Insertion::~Insertion() {
  cache_.count(cache_.short_, *short_, shorts_, [](const Key& k) { return hash(k); });
  cache_.count(cache_.long_, *long_, longs_, [](const Key& k) { return k.a; });
}

void PieceCache::Insertion::fill(Entry& e, const Key& key, const int32_t* ids, size_t count) {
  e.count = static_cast<uint32_t>(count);
  if (count <= 3) {
    std::copy_n(ids, count, e.ids);
  } else {
    MXT_ASSERT(spilled_ + count <= spill_end_);
    e.ids[0] = static_cast<int32_t>(spilled_);
    std::copy_n(ids, count, cache_.spill_.as<int32_t>() + spilled_);
    spilled_ += count;
  }
  e.a.store(key.a, std::memory_order_relaxed);
  e.b.store(key.b, std::memory_order_release);
}

// Where no entry is left near a piece's place, it is not kept: the table is nearly crowded then.
void PieceCache::Insertion::put(uint64_t h, const Key& key, const int32_t* ids, size_t count) {
  if (!room_ || count == 0) return;
  const View::Buckets all{short_->entries.as<Entry>(), short_->mask};
  if (all.find(h, [&](const Entry& e) { return e.is(key); })) return;
  Entry* e = short_->take(h);
  if (!e) return;
  fill(*e, key, ids, count);
  ++shorts_;
}

void PieceCache::Insertion::put_long(std::string_view piece, uint64_t h, const int32_t* ids, size_t count) {
  if (!room_ || count == 0 || piece.size() > kLongest || cache_.view().find_long(piece, h)) return;
  Entry* e = long_->take(h);
  if (!e) return;
  MXT_ASSERT(pieces_used_ + piece.size() <= pieces_end_);
  std::memcpy(cache_.pieces_.as<char>() + pieces_used_, piece.data(), piece.size());
  const Key key{h, pieces_used_ << kLengthBits | piece.size()};
  pieces_used_ += piece.size();
  fill(*e, key, ids, count);
  ++longs_;
}

CachePool::Loan::Loan(CachePool& pool) : pool_(pool) {
  std::lock_guard lock(pool.mutex_);
  if (!pool.cache_) pool.cache_ = std::make_shared<PieceCache>(pool.halvings_);
  cache_ = pool.cache_;
  if (pool.spaces_.empty()) pool.spaces_.push_back(std::make_unique<MergeSpace>());
  space_ = std::move(pool.spaces_.back());
  pool.spaces_.pop_back();
}

CachePool::Loan::~Loan() {
  std::lock_guard lock(pool_.mutex_);
  pool_.spaces_.push_back(std::move(space_));
  if (cache_ == pool_.cache_ && cache_.use_count() == 2) cache_->shrink();
  cache_.reset();
}

PieceCache& CachePool::Loan::fresh() {
  if (!cache_->full()) [[likely]]
    return *cache_;
  std::lock_guard lock(pool_.mutex_);
  if (cache_ == pool_.cache_) {
    if (cache_.use_count() == 2)  // the pool's and this one: loans begin and end under the lock
      cache_->clear();
    else
      pool_.cache_ = std::make_shared<PieceCache>(pool_.halvings_);
  }
  cache_ = pool_.cache_;
  return *cache_;
}

}  // namespace mxt::tokenizer
