#include "data/encode/pack.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <numeric>

#include "base/error.h"

namespace mxt::data {
namespace {

// A set of numbers 0 … n with "smallest member ≥ x" in a few word operations: a tree of 64-way bit words.
class FreeSpaces {
 public:
  explicit FreeSpaces(size_t n) {
    do {
      n = n / 64 + 1;
      levels_.emplace_back(n, 0);
    } while (n > 1);
  }
  void insert(size_t x) {
    for (auto& level : levels_) {
      level[x / 64] |= uint64_t{1} << (x % 64);
      x /= 64;
    }
  }
  void erase(size_t x) {
    for (auto& level : levels_) {
      level[x / 64] &= ~(uint64_t{1} << (x % 64));
      if (level[x / 64]) return;
      x /= 64;
    }
  }
  // SIZE_MAX where there is none.
  size_t at_least(size_t x) const {
    for (size_t l = 0; l < levels_.size(); ++l) {
      if (x / 64 >= levels_[l].size()) return SIZE_MAX;
      if (const uint64_t rest = levels_[l][x / 64] >> (x % 64)) {
        x += static_cast<size_t>(std::countr_zero(rest));
        while (l-- > 0) x = x * 64 + static_cast<size_t>(std::countr_zero(levels_[l][x]));
        return x;
      }
      x = x / 64 + 1;
    }
    return SIZE_MAX;
  }

 private:
  std::vector<std::vector<uint64_t>> levels_;
};

constexpr uint32_t kNone = UINT32_MAX;

// Rows with the same free space, first in first out, as lists through one array.
struct Queues {
  std::vector<uint32_t> head, tail, next;
  explicit Queues(size_t spaces) : head(spaces, kNone), tail(spaces, kNone) {}
  void push(size_t space, uint32_t row) {
    if (row >= next.size()) next.resize(row + 1);
    next[row] = kNone;
    (head[space] == kNone ? head[space] : next[tail[space]]) = row;
    tail[space] = row;
  }
  uint32_t pop(size_t space) {
    const uint32_t row = head[space];
    head[space] = next[row];
    return row;
  }
};

// Puts the documents of each row together; rows in the order of their first document.
Packing gather(const std::vector<uint32_t>& row_of, size_t rows) {
  std::vector<uint32_t> rank(rows, kNone);
  Packing p;
  p.begin.assign(rows + 1, 0);
  uint32_t ranks = 0;
  for (uint32_t row : row_of) {
    if (rank[row] == kNone) rank[row] = ranks++;
    ++p.begin[rank[row] + 1];
  }
  std::partial_sum(p.begin.begin(), p.begin.end(), p.begin.begin());
  std::vector<uint32_t> at(p.begin.begin(), p.begin.end() - 1);
  p.documents.resize(row_of.size());
  for (uint32_t d = 0; d < row_of.size(); ++d) p.documents[at[rank[row_of[d]]]++] = d;
  return p;
}

// Fills one row after another as full as can be: from lengths that are there, the sums that some of them make are the
// set bits of a word array (subset sum by dynamic programming).
class SumFiller {
 public:
  explicit SumFiller(uint32_t seq_len) : reach_(seq_len / 64 + 1), last_(seq_len + 1) {}

  // Which of `items` (descending, each ≤ space, each once) make the largest sum ≤ space.
  void fill(std::span<const uint32_t> items, uint32_t space, std::vector<uint32_t>* chosen) {
    chosen->clear();
    const size_t words = space / 64 + 1;
    std::fill_n(reach_.begin(), words, 0);
    reach_[0] = 1;
    for (uint32_t i = 0; i < items.size() && !has(space); ++i) {
      const size_t skip = items[i] / 64, shift = items[i] % 64;
      for (size_t w = words; w-- > skip;) {  // downwards: an item counts once
        uint64_t moved = reach_[w - skip] << shift;
        if (shift > 0 && w > skip) moved |= reach_[w - skip - 1] >> (64 - shift);
        for (uint64_t fresh = moved & ~reach_[w]; fresh != 0; fresh &= fresh - 1) {
          const size_t sum = w * 64 + static_cast<size_t>(std::countr_zero(fresh));
          if (sum > space) break;
          last_[sum] = i;
          reach_[w] |= uint64_t{1} << (sum % 64);
        }
      }
    }
    uint32_t sum = space;
    while (!has(sum)) --sum;
    // Each sum was first reached by its last item, over sums that earlier items had reached.
    for (; sum > 0; sum -= items[last_[sum]]) chosen->push_back(items[last_[sum]]);
  }

 private:
  bool has(uint32_t sum) const { return (reach_[sum / 64] >> (sum % 64)) & 1; }
  std::vector<uint64_t> reach_;
  std::vector<uint32_t> last_;
};

// Row by row: the longest document left, and with it those that fill the row best. At most kItems different lengths are
// weighed for a row, spread evenly over those that fit.
uint32_t pack_by_sums(std::span<const uint32_t> lengths, uint32_t seq_len, std::vector<uint32_t>* row_of) {
  constexpr size_t kItems = 256;
  std::vector<std::vector<uint32_t>> documents(size_t{seq_len} + 1);  // by length, the first in file order last
  for (size_t d = lengths.size(); d-- > 0;) documents[lengths[d]].push_back(static_cast<uint32_t>(d));
  std::vector<uint32_t> left;  // lengths of which there are documents, ascending
  for (uint32_t n = 1; n <= seq_len; ++n)
    if (!documents[n].empty()) left.push_back(n);
  SumFiller filler(seq_len);
  std::vector<uint32_t> items, chosen;
  uint32_t rows = 0;
  const auto take = [&](uint32_t n) {
    (*row_of)[documents[n].back()] = rows;
    documents[n].pop_back();
    if (documents[n].empty()) left.erase(std::lower_bound(left.begin(), left.end(), n));
  };
  for (; !left.empty(); ++rows) {
    const uint32_t first = left.back();
    take(first);
    const uint32_t space = seq_len - first;
    const size_t fit = static_cast<size_t>(std::upper_bound(left.begin(), left.end(), space) - left.begin());
    items.clear();
    for (size_t k = std::min(fit, kItems); k-- > 0;) {
      const uint32_t n = left[fit <= kItems ? k : k * (fit - 1) / (kItems - 1)];
      for (size_t copies = std::min<size_t>({documents[n].size(), space / n, 4}); copies > 0; --copies)
        items.push_back(n);
    }
    filler.fill(items, space, &chosen);
    for (uint32_t n : chosen) take(n);
  }
  return rows;
}

uint32_t pack_by_best_fit(std::span<const uint32_t> lengths, uint32_t seq_len, std::vector<uint32_t>* row_of) {
  std::vector<uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return lengths[a] > lengths[b]; });
  FreeSpaces free(seq_len);
  Queues queues(size_t{seq_len} + 1);
  uint32_t rows = 0;
  for (uint32_t d : order) {
    const size_t n = lengths[d];
    MXT_ASSERT(n >= 1 && n <= seq_len);
    size_t space = free.at_least(n);
    uint32_t row;
    if (space == SIZE_MAX) {
      row = rows++;
      space = seq_len;
    } else {
      row = queues.pop(space);
      if (queues.head[space] == kNone) free.erase(space);
    }
    (*row_of)[d] = row;
    if (queues.head[space - n] == kNone) free.insert(space - n);
    queues.push(space - n, row);
  }
  return rows;
}

}  // namespace

Packing pack_best_fit(std::span<const uint32_t> lengths, uint32_t seq_len) {
  MXT_ASSERT(lengths.size() < kNone);
  std::vector<uint32_t> row_of(lengths.size());
  const uint32_t rows = pack_by_best_fit(lengths, seq_len, &row_of);
  const uint64_t tokens = std::accumulate(lengths.begin(), lengths.end(), uint64_t{0});
  if (tokens * 200 >= uint64_t{rows} * seq_len * 199) return gather(row_of, rows);  // 99.5 % full
  std::vector<uint32_t> other(lengths.size());
  const uint32_t fewer = pack_by_sums(lengths, seq_len, &other);
  return fewer < rows ? gather(other, fewer) : gather(row_of, rows);
}

namespace {

// Documents that are next, in file order; of one length the first comes first.
class Buffer {
 public:
  Buffer(std::span<const uint32_t> lengths, size_t size, size_t refill)
      : lengths_(lengths), size_(size), refill_(refill) {}
  bool empty() {
    while (held_ < size_ && next_ < lengths_.size())
      for (const size_t end = std::min(next_ + refill_, lengths_.size()); next_ < end; ++next_, ++held_)
        by_length_[lengths_[next_]].push_back(static_cast<uint32_t>(next_));
    return held_ == 0;
  }
  // The longest of at most `space` tokens, else the shortest of all. Not of an empty one.
  std::pair<uint32_t, uint32_t> best(uint32_t space) const {  // document, length
    const auto longer = by_length_.upper_bound(space);
    const auto it = longer == by_length_.begin() ? longer : std::prev(longer);
    return {it->second.front(), it->first};
  }
  void take(uint32_t length) {
    const auto it = by_length_.find(length);
    it->second.pop_front();
    if (it->second.empty()) by_length_.erase(it);
    --held_;
  }

 private:
  std::span<const uint32_t> lengths_;
  size_t size_, refill_, held_ = 0, next_ = 0;
  std::map<uint32_t, std::deque<uint32_t>> by_length_;
};

}  // namespace

Packing pack_by_buffer(std::span<const uint32_t> lengths, uint32_t row_tokens) {
  Buffer buffer(lengths, 100, 1);
  Packing p;
  p.begin = {0};
  while (!buffer.empty()) {
    for (uint32_t left = row_tokens; !buffer.empty();) {
      const auto [d, n] = buffer.best(left);
      if (n > left) break;
      p.documents.push_back(d);
      buffer.take(n);
      left -= n;
    }
    p.begin.push_back(static_cast<uint32_t>(p.documents.size()));
  }
  return p;
}

Packing pack_bos_crop(std::span<const uint32_t> lengths, uint32_t row_tokens) {
  Buffer buffer(lengths, 1000, 128);
  Packing p;
  p.begin = {0};
  while (true) {
    uint32_t left = row_tokens;
    while (left > 0 && !buffer.empty()) {
      const auto [d, length] = buffer.best(left);
      const uint32_t n = std::min(length, left);
      p.documents.push_back(d);
      p.kept.push_back(n);
      buffer.take(length);
      left -= n;
    }
    if (left > 0) break;
    p.begin.push_back(static_cast<uint32_t>(p.documents.size()));
  }
  p.documents.resize(p.begin.back());
  p.kept.resize(p.begin.back());
  return p;
}

Packing one_per_row(size_t documents) {
  MXT_ASSERT(documents < kNone);
  Packing p;
  p.documents.resize(documents);
  std::iota(p.documents.begin(), p.documents.end(), 0u);
  p.begin.resize(documents + 1);
  std::iota(p.begin.begin(), p.begin.end(), 0u);
  return p;
}

}  // namespace mxt::data
