#include "data/dedupe/copies.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/threads.h"
#include "data/dedupe/components.h"

namespace mxt::data {
namespace {

uint64_t hash_bytes(std::string_view s, uint64_t h) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15ull;
  const auto take = [&](uint64_t w) {
    h = (h ^ w) * kFactor;
    h ^= h >> 29;
  };
  size_t i = 0;
  uint64_t w;
  for (; i + 8 <= s.size(); i += 8) {
    std::memcpy(&w, s.data() + i, 8);
    take(w);
  }
  w = 0;
  std::memcpy(&w, s.data() + i, s.size() - i);
  take(w);
  take(s.size());
  return h;
}

// Least significant digit first, 11 bits at a time, by the upper 32 bits.
void radix_sort(std::vector<uint64_t>& v, std::vector<uint64_t>& other) {
  constexpr int kBits = 11;
  other.resize(v.size());
  for (int shift = 32; shift < 64; shift += kBits) {
    std::array<size_t, 1 << kBits> at{};
    const auto digit = [&](uint64_t x) { return (x >> shift) & ((1u << kBits) - 1); };
    for (uint64_t x : v) ++at[digit(x)];
    size_t sum = 0;
    for (size_t& a : at) sum += std::exchange(a, sum);
    for (uint64_t x : v) other[at[digit(x)]++] = x;
    v.swap(other);
  }
}

uint64_t entry(uint32_t key, uint32_t row) { return (uint64_t{key} << 32) | row; }
uint32_t row_of(uint64_t e) { return static_cast<uint32_t>(e); }

// Calls f(begin, end) for each run of two or more entries with one key.
template <typename F>
void for_runs(const std::vector<uint64_t>& sorted, F&& f) {
  for (size_t b = 0, e; b < sorted.size(); b = e) {
    for (e = b + 1; e < sorted.size() && (sorted[e] >> 32) == (sorted[b] >> 32);) ++e;
    if (e - b > 1) f(b, e);
  }
}

struct Digest24 {
  uint8_t content[16];
  uint64_t spelling;
  bool same_content(const Digest24& o) const { return std::memcmp(content, o.content, 16) == 0; }
  friend bool operator<(const Digest24& a, const Digest24& b) {
    const int c = std::memcmp(a.content, b.content, 16);
    return c != 0 ? c < 0 : a.spelling < b.spelling;
  }
};
static_assert(sizeof(Digest24) == 24);

}  // namespace

Fingerprinter::Fingerprinter(const std::optional<config::MinHash>& m) {
  if (!m) return;
  shingler_.emplace(m->shingles, static_cast<int>(m->ngram));
  minhash_.emplace(static_cast<int>(m->permutations));
  bands_ = choose_bands(static_cast<int>(m->permutations), m->threshold);
  signature_.resize(static_cast<size_t>(m->permutations));
}

void Fingerprinter::print(const RowText& row, RowPrint* out) {
  // Part by part, since "Add 1" answered by "2 3" is no copy of "Add 1 2" answered by "3".
  Blake3 content;
  text_.clear();
  for (size_t i = 0; i <= row.parts.size(); ++i) {
    const size_t begin = i == 0 ? 0 : row.parts[i - 1], end = i < row.parts.size() ? row.parts[i] : row.text.size();
    normalise_text(std::string_view(row.text).substr(begin, end - begin), &part_);
    const uint64_t n = part_.size();  // where one ends and the next begins
    content.update(&n, sizeof n);
    content.update(part_);
    if (i == 0) {
      text_.swap(part_);
    } else if (!part_.empty()) {
      if (!text_.empty()) text_ += ' ';
      text_ += part_;
    }
  }
  normalise_text(row.context, &context_);
  content.update(context_);
  const Digest digest = content.digest();
  std::memcpy(out->content, digest.data(), sizeof out->content);
  out->spelling = hash_bytes(row.context, hash_bytes(row.text, 0));
  out->shingles.clear();
  out->band_keys.clear();
  if (!shingler_) return;
  shingler_->append(text_, &out->shingles);
  if (out->shingles.empty()) return;
  minhash_->signature(out->shingles, signature_.data());
  // Band beside band: each is a chain of products.
  band_hash_.resize(static_cast<size_t>(bands_.bands));
  for (size_t b = 0; b < band_hash_.size(); ++b) band_hash_[b] = b;
  for (size_t r = 0, rows = static_cast<size_t>(bands_.rows); r < rows; ++r)
    for (size_t b = 0; b < band_hash_.size(); ++b) {
      uint64_t& h = band_hash_[b];
      h = (h ^ signature_[b * rows + r]) * 0x9E3779B97F4A7C15ull;
      h ^= h >> 32;
    }
  for (const uint64_t h : band_hash_) out->band_keys.push_back(static_cast<uint32_t>(h));
}

struct CopyFinder::State {
  // Band keys lie block by block, in a block band by band: a band is read in pieces of this many rows.
  static constexpr size_t kBlock = 4096;
  // Runs of more rows than this are thinned before all pairs are compared.
  static constexpr size_t kFull = 128;
  static constexpr int kHubs = 16;

  State(const std::optional<config::MinHash>& m, const std::string& folder)
      : digests(folder), shingles(folder), keys(folder) {
    if (!m) return;
    threshold = m->threshold;
    bands = choose_bands(static_cast<int>(m->permutations), threshold).bands;
    pending.resize(static_cast<size_t>(bands) * kBlock);
  }

  double threshold = 0;
  int bands = 0;
  size_t rows = 0;
  Scratch digests, shingles, keys;
  std::vector<uint64_t> shingles_end;  // [rows], in elements
  std::vector<uint32_t> pending;       // the block of keys being filled

  uint64_t shingles_begin(uint32_t row) const { return row == 0 ? 0 : shingles_end[row - 1]; }
  bool has_shingles(uint32_t row) const { return shingles_end[row] > shingles_begin(row); }
  // Of `n` rows from `row` on, all of one block.
  void read_keys(int band, uint32_t row, size_t n, uint32_t* out) const {
    const size_t at = (row / kBlock * static_cast<size_t>(bands) + static_cast<size_t>(band)) * kBlock + row % kBlock;
    keys.read(at * sizeof(uint32_t), n * sizeof(uint32_t), out);
  }
  uint32_t key(int band, uint32_t row) const {
    uint32_t k;
    read_keys(band, row, 1, &k);
    return k;
  }
  std::vector<uint32_t> shingle_set(uint32_t row) const {
    const uint64_t b = shingles_begin(row);
    std::vector<uint32_t> v(shingles_end[row] - b);
    shingles.read(b * sizeof(uint32_t), v.size() * sizeof(uint32_t), v.data());
    std::sort(v.begin(), v.end());
    v.erase(std::unique(v.begin(), v.end()), v.end());
    return v;
  }

  void join_exact(Components* groups) const {
    const auto digest = digests.as<Digest24>();
    std::vector<uint64_t> order(rows), other;
    for (uint32_t i = 0; i < rows; ++i) {
      uint32_t k;
      std::memcpy(&k, digest[i].content, sizeof k);
      order[i] = entry(k, i);
    }
    radix_sort(order, other);
    for_runs(order, [&](size_t b, size_t e) {
      std::sort(order.begin() + static_cast<ptrdiff_t>(b), order.begin() + static_cast<ptrdiff_t>(e),
                [&](uint64_t x, uint64_t y) { return digest[row_of(x)] < digest[row_of(y)]; });
      for (size_t i = b + 1; i < e; ++i)
        if (digest[row_of(order[i])].same_content(digest[row_of(order[i - 1])]))
          groups->join(row_of(order[i]), row_of(order[i - 1]));
    });
  }

  void join_near(const std::vector<bool>& copies, Components* groups) const {
    constexpr int kTogether = 4;  // bands in memory at once
    for (int first = 0; first < bands; first += kTogether)
      parallel_for(first, std::min(bands, first + kTogether), 1,
                   [&](int64_t b, int64_t) { join_band(static_cast<int>(b), copies, groups); });
  }

  void join_band(int band, const std::vector<bool>& copies, Components* groups) const {
    // Most keys stand once. A first reading notes in bits which may stand twice, and only their rows are sorted.
    const size_t bits = std::bit_ceil(std::max<size_t>(64, 4 * rows));
    std::vector<uint64_t> once(bits / 64), twice(bits / 64);
    const auto each = [&](auto&& f) {
      std::vector<uint32_t> block(kBlock);
      for (size_t b = 0; b < rows; b += kBlock) {
        const size_t n = std::min(kBlock, rows - b);
        read_keys(band, static_cast<uint32_t>(b), n, block.data());
        for (uint32_t i = static_cast<uint32_t>(b); i < b + n; ++i)
          if (!copies[i] && has_shingles(i)) f(i, block[i - b], block[i - b] & (bits - 1));
      }
    };
    each([&](uint32_t, uint32_t, size_t bit) {
      const uint64_t mask = uint64_t{1} << (bit & 63);
      twice[bit >> 6] |= once[bit >> 6] & mask;
      once[bit >> 6] |= mask;
    });
    std::vector<uint64_t> order, other;
    each([&](uint32_t i, uint32_t key, size_t bit) {
      if (twice[bit >> 6] >> (bit & 63) & 1) order.push_back(entry(key, i));
    });
    radix_sort(order, other);
    std::vector<uint64_t>().swap(other);
    std::vector<uint32_t> members;
    for_runs(order, [&](size_t b, size_t e) {
      members.clear();
      for (size_t i = b; i < e; ++i) members.push_back(row_of(order[i]));
      compare(members, band, 1, groups);
    });
  }

  // Joins those of `members`, which share `shared` bands from `band` on, that are similar enough. In a run too full for
  // all its pairs (rows made from one template) all are compared with the smallest by digest; those unlike it with the
  // smallest of them, and so on; who is left after kHubs such is split by the next band. What is compared does not
  // depend on what other threads have joined meanwhile.
  void compare(std::vector<uint32_t>& members, int band, int shared, Components* groups) const {
    if (members.size() > kFull) {
      const auto digest = digests.as<Digest24>();
      std::sort(members.begin(), members.end(), [&](uint32_t a, uint32_t b) { return digest[a] < digest[b]; });
      for (int h = 0; h < kHubs && members.size() > kFull; ++h) {
        const uint32_t hub = members[0];
        const std::vector<uint32_t> set = shingle_set(hub);
        std::erase_if(members, [&](uint32_t m) {
          if (m != hub && !alike(set, shingle_set(m))) return false;
          groups->join(hub, m);
          return true;
        });
      }
    }
    if (members.size() > kFull) {
      if (shared == bands) return;  // unlike although all bands agree: hashes that met by chance
      const int next = (band + shared) % bands;
      std::vector<uint64_t> order, other;
      for (uint32_t m : members) order.push_back(entry(key(next, m), m));
      radix_sort(order, other);
      std::vector<uint32_t> part;
      for_runs(order, [&](size_t b, size_t e) {
        part.clear();
        for (size_t i = b; i < e; ++i) part.push_back(row_of(order[i]));
        compare(part, band, shared + 1, groups);
      });
      return;
    }
    for (size_t i = 0; i + 1 < members.size(); ++i) {
      std::vector<uint32_t> mine;
      for (size_t j = i + 1; j < members.size(); ++j) {
        if (groups->find(members[i]) == groups->find(members[j])) continue;  // one more pair cannot change the groups
        if (mine.empty()) mine = shingle_set(members[i]);
        if (alike(mine, shingle_set(members[j]))) groups->join(members[i], members[j]);
      }
    }
  }

  // |A ∩ B| ≤ min and |A ∪ B| ≥ max: sizes alone may already say no.
  bool alike(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) const {
    const size_t few = std::min(a.size(), b.size()), many = std::max(a.size(), b.size());
    return static_cast<double>(few) >= threshold * static_cast<double>(many) && jaccard(a, b) >= threshold;
  }
};

CopyFinder::CopyFinder(const std::optional<config::MinHash>& minhash, const std::string& folder)
    : s_(std::make_unique<State>(minhash, folder)) {}
CopyFinder::~CopyFinder() = default;

void CopyFinder::add(std::span<const RowPrint> rows) {
  State& s = *s_;
  if (s.rows + rows.size() >= UINT32_MAX)
    fail_input("data.dedupe: more than {} rows in one source; prepare it in parts", UINT32_MAX - 1);
  for (const RowPrint& r : rows) {
    Digest24 d;
    std::memcpy(d.content, r.content, sizeof d.content);
    d.spelling = r.spelling;
    s.digests.append(&d, sizeof d);
    if (s.bands > 0) {
      s.shingles.append(r.shingles.data(), r.shingles.size() * sizeof(uint32_t));
      s.shingles_end.push_back(s.shingles.size() / sizeof(uint32_t));
      const size_t at = s.rows % State::kBlock;
      for (size_t b = 0; b < r.band_keys.size(); ++b) s.pending[b * State::kBlock + at] = r.band_keys[b];
      if (at + 1 == State::kBlock) s.keys.append(s.pending.data(), s.pending.size() * sizeof(uint32_t));
    }
    ++s.rows;
  }
}

Copies CopyFinder::find() {
  State& s = *s_;
  if (s.bands > 0 && s.rows % State::kBlock != 0) s.keys.append(s.pending.data(), s.pending.size() * sizeof(uint32_t));
  s.digests.finish();
  s.shingles.finish();
  s.keys.finish();
  const auto digest = s.digests.as<Digest24>();
  const auto before = [&](uint32_t a, uint32_t b) {
    return digest[a] < digest[b] || (!(digest[b] < digest[a]) && a < b);
  };
  const uint32_t n = static_cast<uint32_t>(s.rows);
  Copies c;
  c.stays.resize(n);
  c.exact.assign(n, false);
  Components groups(n);
  // For each root the best row of its group.
  const auto choose = [&] {
    std::vector<uint32_t>& best = c.stays;
    for (uint32_t i = 0; i < n; ++i) best[i] = UINT32_MAX;
    for (uint32_t i = 0; i < n; ++i) {
      uint32_t& b = best[groups.find(i)];
      if (b == UINT32_MAX || before(i, b)) b = i;
    }
  };
  s.join_exact(&groups);
  choose();
  for (uint32_t i = 0; i < n; ++i) c.exact[i] = c.stays[groups.find(i)] != i;
  if (s.bands > 0) {
    s.join_near(c.exact, &groups);
    choose();
  }
  std::vector<uint32_t> size(n, 0);
  for (uint32_t i = 0; i < n; ++i)
    if (const uint32_t k = ++size[groups.find(i)]; k >= 2) {
      c.groups += k == 2;
      c.largest = std::max<int64_t>(c.largest, k);
    }
  size.swap(c.stays);  // `size` is now the best row of each root
  for (uint32_t i = 0; i < n; ++i) c.stays[i] = size[groups.find(i)];
  return c;
}

double CopyFinder::similarity(uint32_t a, uint32_t b) const { return jaccard(s_->shingle_set(a), s_->shingle_set(b)); }

}  // namespace mxt::data
