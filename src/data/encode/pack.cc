#include "data/encode/pack.h"

#include <algorithm>
#include <bit>
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

}  // namespace

Packing pack_best_fit(std::span<const uint32_t> lengths, uint32_t seq_len) {
  MXT_ASSERT(lengths.size() < kNone);
  std::vector<uint32_t> order(lengths.size()), row_of(lengths.size());
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
    row_of[d] = row;
    if (queues.head[space - n] == kNone) free.insert(space - n);
    queues.push(space - n, row);
  }
  return gather(row_of, rows);
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
