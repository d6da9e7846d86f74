#include "tokenizer/model/cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

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

PieceCache::Table::Table(size_t most_bytes)
    : entries_(kFirstBuckets * kBucketBytes), mask_(kFirstBuckets - 1), most_(most_bytes / kBucketBytes) {}

void PieceCache::Table::clear() {
  std::memset(entries_.as<void>(), 0, (mask_ + 1) * kBucketBytes);
  filled_ = 0;
}

PieceCache::Entry* PieceCache::Table::free_place(uint64_t h) {
  for (size_t k = 0; k < kReach; ++k)
    for (Entry *e = bucket(h + k), *end = e + 2; e < end; ++e)
      if (e->count == 0) {
        ++filled_;
        return e;
      }
  return nullptr;
}

template <typename F>
PieceCache::Entry& PieceCache::Table::place(uint64_t h, F&& hash_of) {
  for (;;) {
    const size_t buckets = mask_ + 1;
    const bool may_grow = buckets < most_;
    // A table that may not grow is filled further than others, then old entries give way.
    if (filled_ <= (may_grow ? buckets / 2 * 3 : buckets / 4 * 7))
      if (Entry* e = free_place(h)) return *e;
    if (!may_grow) break;
    const Pages old = std::exchange(entries_, Pages(2 * buckets * kBucketBytes));
    mask_ = 2 * buckets - 1;
    filled_ = 0;
    for (const Entry *e = old.as<Entry>(), *end = e + 2 * buckets; e < end; ++e)
      if (e->count)
        if (Entry* to = free_place(hash_of(*e))) *to = *e;
  }
  Entry* b = bucket(h);
  filled_ += (b[0].count == 0) + (b[0].count != 0 && b[1].count == 0);
  b[1] = b[0];
  return b[0];
}

PieceCache::PieceCache(int halvings)
    : short_(kShortBytes >> halvings),
      long_(kLongBytes >> halvings),
      most_spill_((kSpillBytes >> halvings) / sizeof(int32_t)),
      most_pieces_(kPieceBytes >> halvings),
      spill_(kSpillBytes >> halvings),
      pieces_(kPieceBytes >> halvings) {}

ShortRun* PieceCache::runs() {
  if (!runs_) runs_ = std::make_unique<ShortRun[]>(kRuns);
  return runs_.get();
}

void PieceCache::fill(Entry& e, const Key& key, const int32_t* ids, size_t count) {
  e.key = key;
  e.count = static_cast<uint32_t>(count);
  if (count <= 3) {
    for (size_t i = 0; i < count; ++i) e.ids[i] = ids[i];
  } else {
    e.ids[0] = static_cast<int32_t>(spilled_);
    std::copy_n(ids, count, spill_.as<int32_t>() + spilled_);
    spilled_ += count;
  }
}

void PieceCache::make_room(size_t ids, size_t bytes) {
  if (spilled_ + ids <= most_spill_ && pieces_used_ + bytes <= most_pieces_) return;
  spilled_ = pieces_used_ = 0;
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
  return long_.find(h, [&](const Entry& e) {
    return e.key.a == h && (e.key.b & ((1u << kLengthBits) - 1)) == piece.size() &&
           std::memcmp(pieces_.as<char>() + (e.key.b >> kLengthBits), piece.data(), piece.size()) == 0;
  });
}

void PieceCache::insert_long(std::string_view piece, uint64_t h, const int32_t* ids, size_t count) {
  if (count == 0 || piece.size() > kLongest) return;
  make_room(count, piece.size());
  const Key key{h, pieces_used_ << kLengthBits | piece.size()};
  std::memcpy(pieces_.as<char>() + pieces_used_, piece.data(), piece.size());
  pieces_used_ += piece.size();
  fill(long_.place(h, [](const Entry& e) { return e.key.a; }), key, ids, count);
}

CachePool::Loan::Loan(CachePool& pool) : pool_(pool) {
  constexpr size_t kLarge = 8;
  int halvings = 0;
  {
    std::lock_guard lock(pool.mutex_);
    if (!pool.free_.empty()) {
      cache_ = std::move(pool.free_.back());
      pool.free_.pop_back();
      return;
    }
    if (++pool.made_ > kLarge) halvings = 2;
  }
  cache_ = std::make_unique<PieceCache>(halvings);
}

CachePool::Loan::~Loan() {
  std::lock_guard lock(pool_.mutex_);
  pool_.free_.push_back(std::move(cache_));
}

}  // namespace mxt::tokenizer
