#include "tokenizer/train/merges.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"

namespace mxt::tokenizer {
namespace {

uint64_t key_of(int32_t a, int32_t b) { return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b); }

// Pair → its count.
class PairCounts {
 public:
  PairCounts() : cells_(size_t{1} << 16) {}
  int64_t& operator[](uint64_t pair) {
    if (size_ * 2 >= cells_.size()) grow();
    const size_t mask = cells_.size() - 1;
    size_t i = slot(pair, mask);
    while (cells_[i].pair != kEmpty && cells_[i].pair != pair) i = (i + 1) & mask;
    if (cells_[i].pair == kEmpty) {
      cells_[i].pair = pair;
      ++size_;
    }
    return cells_[i].count;
  }
  size_t bytes() const { return cells_.size() * sizeof(Cell); }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Cell {
    uint64_t pair = kEmpty;
    int64_t count = 0;
  };
  static size_t slot(uint64_t pair, size_t mask) {
    const uint64_t h = pair * 0x9e3779b97f4a7c15ULL;
    return (h ^ (h >> 32)) & mask;
  }
  void grow() {
    std::vector<Cell> old(cells_.size() * 2);
    old.swap(cells_);
    const size_t mask = cells_.size() - 1;
    for (const Cell& c : old) {
      if (c.pair == kEmpty) continue;
      size_t i = slot(c.pair, mask);
      while (cells_[i].pair != kEmpty) i = (i + 1) & mask;
      cells_[i] = c;
    }
  }
  std::vector<Cell> cells_;
  size_t size_ = 0;
};

// The words, each a record of its count (two entries), its length and its symbols; a word is named by where it begins.
class Words {
 public:
  static constexpr size_t kHead = 3;
  void reserve(const WordCounts& counts) {
    size_t entries = 0;
    for (const WordTable& part : counts.parts) entries += part.text_bytes() + kHead * part.size();
    data_.reserve(entries);
    begins_.reserve(counts.distinct());
  }
  void take(WordTable& table, const std::array<int32_t, 256>& byte_id) {
    table.each([&](std::string_view text, uint64_t, int64_t count) {
      if (text.size() < 2) return;
      const size_t at = data_.size();
      if (at > UINT32_MAX) fail_input("the texts hold too many distinct pieces (more than 16 GiB of them)");
      begins_.push_back(static_cast<uint32_t>(at));
      data_.resize(at + kHead + text.size());
      std::memcpy(&data_[at], &count, sizeof count);
      data_[at + 2] = static_cast<int32_t>(text.size());
      for (size_t i = 0; i < text.size(); ++i) data_[at + kHead + i] = byte_id[static_cast<unsigned char>(text[i])];
    });
    table = {};
  }
  const std::vector<uint32_t>& begins() const { return begins_; }
  void forget_begins() { begins_ = {}; }
  int64_t count(uint32_t w) const {
    int64_t n;
    std::memcpy(&n, &data_[w], sizeof n);
    return n;
  }
  int32_t& size(uint32_t w) { return data_[w + 2]; }
  int32_t* symbols(uint32_t w) { return &data_[w + kHead]; }
  void prefetch(uint32_t w) const { __builtin_prefetch(&data_[w], 1); }
  size_t bytes() const { return data_.capacity() * sizeof(int32_t) + begins_.capacity() * sizeof(uint32_t); }

 private:
  std::vector<int32_t> data_;
  std::vector<uint32_t> begins_;
};

// The words in which new pairs stand, of one merge together; it goes when the last of its pairs was merged.
struct Block {
  std::vector<uint32_t> words;
  uint32_t pairs = 0;
};

// A pair waiting to be merged, with the words in which it stood when it came up; its count may have fallen since.
struct Candidate {
  int64_t count;
  uint64_t pair;
  uint32_t block, begin, size;
  bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : pair > o.pair; }
};

// What a merge a b → id changes, by the neighbour's id: beside a neighbour x on the left, `n` places lose (x, a) and
// win (x, id), on the right (b, x) and (id, x).
class Side {
 public:
  explicit Side(size_t ids) : change_(ids), list_(ids) {}
  void add(int32_t x, int64_t n, uint32_t word) {
    const auto i = static_cast<size_t>(x);
    if (change_[i] == 0) {
      list_[i] = static_cast<uint32_t>(met_.size());
      met_.push_back(x);
      last_.push_back(UINT32_MAX);
      sizes_.push_back(0);
    }
    change_[i] += n;
    const uint32_t k = list_[i];
    if (last_[k] == word) return;
    last_[k] = word;
    ++sizes_[k];
    events_.push_back({k, word});
  }
  // fn(x, change, words of it as a range of out), and all is as new.
  template <typename F>
  void finish(std::vector<uint32_t>& out, F&& fn) {
    const size_t base = out.size();
    out.resize(base + events_.size());
    uint32_t at = static_cast<uint32_t>(base);
    for (size_t k = 0; k < met_.size(); ++k) {
      last_[k] = at;
      at += sizes_[k];
    }
    for (const auto& [k, w] : events_) out[last_[k]++] = w;
    for (size_t k = 0; k < met_.size(); ++k) {
      fn(met_[k], change_[static_cast<size_t>(met_[k])], last_[k] - sizes_[k], sizes_[k]);
      change_[static_cast<size_t>(met_[k])] = 0;
    }
    met_.clear(), last_.clear(), sizes_.clear(), events_.clear();
  }

 private:
  std::vector<int64_t> change_;  // by id; 0: not met in this merge
  std::vector<uint32_t> list_;   // by id: which of those met
  std::vector<int32_t> met_;
  std::vector<uint32_t> last_, sizes_;
  std::vector<std::pair<uint32_t, uint32_t>> events_;
};

class Learner {
 public:
  Learner(std::vector<std::string> tokens, const LearnOptions& o)
      : o_(o), left_(std::max(o.tokens, tokens.size()) + 1), right_(std::max(o.tokens, tokens.size()) + 1) {
    out_.tokens = std::move(tokens);
    for (size_t i = 0; i < out_.tokens.size(); ++i) known_.emplace(out_.tokens[i], static_cast<int32_t>(i));
  }

  Learned run(WordCounts counts, const std::array<int32_t, 256>& byte_id) {
    words_.reserve(counts);
    for (WordTable& part : counts.parts) words_.take(part, byte_id);
    count_pairs(byte_id);
    while (out_.tokens.size() < o_.tokens && !queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const int64_t now = pairs_[top.pair];
      if (top.count != now) {
        if (now > 0)
          queue_.push({now, top.pair, top.block, top.begin, top.size});
        else
          release(top.block);
        continue;
      }
      if (top.count < 1 || top.count < o_.min_count) break;
      check_stop(o_.stop);
      merge(top);
    }
    keep_last_of_twice_merged();
    return std::move(out_);
  }

 private:
  // A pair that was merged again ranks where it was merged last, as Hugging Face's table of merges has it.
  void keep_last_of_twice_merged() {
    std::unordered_set<uint64_t> seen;
    auto& m = out_.merges;
    const auto kept = std::remove_if(m.rbegin(), m.rend(),
                                     [&](const auto& p) { return !seen.insert(key_of(p.first, p.second)).second; });
    m.erase(m.begin(), kept.base());
  }

  // At first all symbols are bytes: a table of 256 × 256 serves.
  void count_pairs(const std::array<int32_t, 256>& byte_id) {
    std::vector<uint8_t> byte_of(out_.tokens.size());
    for (size_t c = 0; c < 256; ++c) byte_of[static_cast<size_t>(byte_id[c])] = static_cast<uint8_t>(c);
    const auto cell = [&](int32_t x, int32_t y) {
      return size_t{byte_of[static_cast<size_t>(x)]} << 8 | byte_of[static_cast<size_t>(y)];
    };
    std::vector<int64_t> counts(size_t{1} << 16);
    std::vector<std::vector<uint32_t>> lists(counts.size());
    for (const uint32_t w : words_.begins()) {
      const int32_t* s = words_.symbols(w);
      for (int32_t i = 0; i + 1 < words_.size(w); ++i) {
        const size_t at = cell(s[i], s[i + 1]);
        counts[at] += words_.count(w);
        if (lists[at].empty() || lists[at].back() != w) lists[at].push_back(w);
      }
    }
    words_.forget_begins();
    for (size_t at = 0; at < counts.size(); ++at) {
      if (!counts[at]) continue;
      const uint64_t pair = key_of(byte_id[at >> 8], byte_id[at & 255]);
      const auto size = static_cast<uint32_t>(lists[at].size());
      pairs_[pair] = counts[at];
      queue_.push({counts[at], pair, new_block(std::move(lists[at]), 1), 0, size});
    }
    measure();
  }

  uint32_t new_block(std::vector<uint32_t> words, uint32_t pairs) {
    held_ += words.capacity() * sizeof(uint32_t);
    uint32_t at;
    if (free_.empty()) {
      at = static_cast<uint32_t>(blocks_.size());
      blocks_.emplace_back();
    } else {
      at = free_.back();
      free_.pop_back();
    }
    blocks_[at] = {std::move(words), pairs};
    return at;
  }

  void release(uint32_t block) {
    Block& b = blocks_[block];
    if (--b.pairs > 0) return;
    held_ -= b.words.capacity() * sizeof(uint32_t);
    b.words = {};
    free_.push_back(block);
  }

  int32_t id_of(int32_t a, int32_t b) {
    std::string joined = out_.tokens[static_cast<size_t>(a)] + out_.tokens[static_cast<size_t>(b)];
    const auto id = static_cast<int32_t>(out_.tokens.size());
    if (o_.rules == MergeRules::kHuggingFace) {
      const auto [it, is_new] = known_.emplace(joined, id);
      if (!is_new) return it->second;
    }
    out_.tokens.push_back(std::move(joined));
    return id;
  }

  void merge(const Candidate& top) {
    const auto a = static_cast<int32_t>(top.pair >> 32), b = static_cast<int32_t>(top.pair);
    const int32_t id = id_of(a, b);
    out_.merges.emplace_back(a, b);
    const uint32_t* where = blocks_[top.block].words.data() + top.begin;
    constexpr uint32_t kAhead = 12;
    for (uint32_t k = 0; k < top.size; ++k) {
      if (k + kAhead < top.size) words_.prefetch(where[k + kAhead]);
      merge_in(where[k], a, b, id);
    }
    release(top.block);
    if (o_.rules == MergeRules::kRustBpe) pairs_[top.pair] = 0;
    queue_grown(a, b, id);
  }

  // Left to right; the pairs around each place change at once, so that runs (a a a) count as both trainers count them.
  void merge_in(uint32_t w, int32_t a, int32_t b, int32_t id) {
    int32_t* s = words_.symbols(w);
    const int32_t size = words_.size(w);
    int32_t i = 0;
    while (i + 1 < size && (s[i] != a || s[i + 1] != b)) ++i;
    if (i + 1 >= size) return;
    const int64_t n = words_.count(w);
    int32_t to = i;
    while (i < size) {
      if (i + 1 >= size || s[i] != a || s[i + 1] != b) {
        s[to++] = s[i++];
        continue;
      }
      if (to > 0) left_.add(s[to - 1], n, w);
      if (i + 2 < size) right_.add(s[i + 2], n, w);
      s[to++] = id;
      i += 2;
    }
    words_.size(w) = to;
  }

  void queue_grown(int32_t a, int32_t b, int32_t id) {
    grown_.clear();
    std::vector<uint32_t> list;
    left_.finish(list, [&](int32_t x, int64_t n, uint32_t begin, uint32_t size) {
      pairs_[key_of(x, a)] -= n;
      pairs_[key_of(x, id)] += n;
      grown_.push_back({0, key_of(x, id), 0, begin, size});
    });
    const size_t lefts = grown_.size();
    right_.finish(list, [&](int32_t x, int64_t n, uint32_t begin, uint32_t size) {
      pairs_[key_of(b, x)] -= n;
      pairs_[key_of(id, x)] += n;
      grown_.push_back({0, key_of(id, x), 0, begin, size});
    });
    join_twins(lefts, key_of(id, id), list);
    uint32_t pairs = 0;
    for (Candidate& c : grown_)
      if ((c.count = pairs_[c.pair]) > 0) ++pairs;
    if (pairs == 0) return;
    const uint32_t block = new_block(std::move(list), pairs);
    for (Candidate& c : grown_)
      if (c.count > 0) queue_.push({c.count, c.pair, block, c.begin, c.size});
    measure();
  }

  // (id, id) can come up on both sides where the id was there before: it is one pair, with each word once.
  void join_twins(size_t lefts, uint64_t twin, std::vector<uint32_t>& list) {
    const auto is_twin = [&](const Candidate& c) { return c.pair == twin; };
    const auto middle = grown_.begin() + static_cast<std::ptrdiff_t>(lefts);
    const auto x = std::find_if(grown_.begin(), middle, is_twin);
    const auto y = std::find_if(middle, grown_.end(), is_twin);
    if (x == middle || y == grown_.end()) return;
    std::vector<uint32_t> all(list.begin() + x->begin, list.begin() + x->begin + x->size);
    all.insert(all.end(), list.begin() + y->begin, list.begin() + y->begin + y->size);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    x->begin = static_cast<uint32_t>(list.size());
    x->size = static_cast<uint32_t>(all.size());
    list.insert(list.end(), all.begin(), all.end());
    grown_.erase(y);
  }

  void measure() {
    out_.memory = std::max(out_.memory, words_.bytes() + pairs_.bytes() + held_ + queue_.size() * sizeof(Candidate));
  }

  const LearnOptions& o_;
  Learned out_;
  Words words_;
  PairCounts pairs_;
  std::unordered_map<std::string, int32_t> known_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> free_;
  size_t held_ = 0;
  Side left_, right_;
  std::vector<Candidate> grown_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

Learned learn_merges(WordCounts words, std::vector<std::string> tokens, const std::array<int32_t, 256>& byte_id,
                     const LearnOptions& options) {
  return Learner(std::move(tokens), options).run(std::move(words), byte_id);
}

}  // namespace mxt::tokenizer
