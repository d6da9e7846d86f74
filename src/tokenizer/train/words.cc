#include "tokenizer/train/words.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/threads.h"
#include "tokenizer/split/pretokenizer.h"

namespace mxt::tokenizer {
namespace {

constexpr size_t kBatchBytes = size_t{32} << 20;  // of texts that are held at once
constexpr size_t kShareBytes = size_t{1} << 20;   // of texts that a thread takes at a time
constexpr size_t kNearWords = size_t{1} << 15;    // of a thread's own table, which near caches hold

uint64_t load(const char* p, size_t n) {
  uint64_t v = 0;
  std::memcpy(&v, p, n);
  return v;
}

}  // namespace

// Eight bytes at a time, multiplied and folded (the finalizer of MurmurHash3).
uint64_t WordTable::hash(std::string_view word) {
  const auto mix = [](uint64_t h) {
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdULL;
    return h ^ (h >> 29);
  };
  uint64_t h = 0x9e3779b97f4a7c15ULL ^ word.size();
  const char* p = word.data();
  size_t n = word.size();
  for (; n >= 8; p += 8, n -= 8) h = mix(h ^ load(p, 8));
  if (n) h = mix(h ^ load(p, n));
  h = (h ^ (h >> 32)) * 0xc4ceb9fe1a85ec53ULL;
  return h ^ (h >> 32);
}

std::string_view WordTable::word(const Cell& c) const {
  uint32_t n;
  std::memcpy(&n, text_.data() + c.at, sizeof n);
  return {text_.data() + c.at + sizeof n, n};
}

void WordTable::add(std::string_view text, uint64_t hash, int64_t count) {
  if (size_ * 2 >= cells_.size()) grow();
  const size_t mask = cells_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    Cell& c = cells_[i];
    if (c.count == 0) {
      const auto n = static_cast<uint32_t>(text.size());
      c = {hash, count, text_.size()};
      text_.resize(text_.size() + sizeof n + n);
      std::memcpy(text_.data() + c.at, &n, sizeof n);
      std::memcpy(text_.data() + c.at + sizeof n, text.data(), n);
      ++size_;
      return;
    }
    if (c.hash == hash && word(c) == text) {
      c.count += count;
      return;
    }
  }
}

void WordTable::grow() {
  std::vector<Cell> old(std::max<size_t>(64, cells_.size() * 2));
  old.swap(cells_);
  const size_t mask = cells_.size() - 1;
  for (const Cell& c : old) {
    if (!c.count) continue;
    size_t i = c.hash & mask;
    while (cells_[i].count) i = (i + 1) & mask;
    cells_[i] = c;
  }
}

void WordTable::clear() {
  std::fill(cells_.begin(), cells_.end(), Cell{});
  text_.clear();
  size_ = 0;
}

size_t WordCounts::distinct() const {
  size_t n = 0;
  for (const WordTable& p : parts) n += p.size();
  return n;
}

size_t WordCounts::bytes() const {
  size_t n = 0;
  for (const WordTable& p : parts) n += p.bytes();
  return n;
}

namespace {

// One thread's way from texts to the shared table: frequent words are counted near by and handed over in bulk.
class Counter {
 public:
  Counter(const Spec& spec, WordCounts& all, std::vector<std::mutex>& locks)
      : pre_(parse_json(spec.pre_tokenizer, "pre_tokenizer"), spec.source),
        normalizer_(normalizer_from_json(parse_json(spec.normalizer, "normalizer"), spec.source)),
        rule_(pre_.scanner()),
        ends_(kScanWindow + 64),
        all_(all),
        locks_(locks) {}

  void take(std::string_view text) {
    if (!is_valid_utf8(text)) text = fixed_ = replace_invalid_utf8(text);
    const std::string_view now = normalizer_.apply(text, storage_, nullptr);
    if (!rule_) {
      PreTokenizer::Storage made;
      for (const Piece& p : pre_.split(now, true, made)) count(p.text);
      return;
    }
    for (size_t p = 0; p < now.size();) {
      const size_t n = scan_pieces(*rule_, now.data(), p, now.size(), ends_.data());
      uint32_t b = 0;
      for (size_t k = 0; k < n; ++k) {
        count(now.substr(p + b, ends_[k] - b));
        b = ends_[k];
      }
      p += b;
    }
  }

  void hand_over() {
    struct Entry {
      std::string_view word;
      uint64_t hash;
      int64_t count;
    };
    std::vector<std::vector<Entry>> sorted(WordCounts::kParts);
    near_.each([&](std::string_view w, uint64_t h, int64_t n) { sorted[part(h)].push_back({w, h, n}); });
    for (size_t p = 0; p < WordCounts::kParts; ++p) {
      const std::lock_guard hold(locks_[p]);
      for (const Entry& e : sorted[p]) all_.parts[p].add(e.word, e.hash, e.count);
    }
    near_.clear();
  }

 private:
  static size_t part(uint64_t hash) { return hash >> 58; }

  void count(std::string_view piece) {
    if (piece.empty()) return;
    near_.add(piece, WordTable::hash(piece), 1);
    if (near_.size() >= kNearWords) hand_over();
  }

  PreTokenizer pre_;
  Normalizer normalizer_;
  std::optional<ScanRule> rule_;
  std::vector<uint32_t> ends_;
  WordTable near_;
  WordCounts& all_;
  std::vector<std::mutex>& locks_;
  std::string fixed_, storage_;
};

// Texts that are counted together.
class Batch {
 public:
  // False where there was nothing left to read.
  bool fill(const std::function<bool(std::string_view&)>& next) {
    text_.clear();
    ends_.clear();
    std::string_view text;
    while (text_.size() < kBatchBytes && next(text)) {
      text_.append(text);
      ends_.push_back(text_.size());
    }
    return !ends_.empty();
  }
  size_t bytes() const { return text_.size(); }

  // The texts that begin in [at, at + kShareBytes).
  template <typename F>
  void share(size_t at, F&& take) const {
    size_t k = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
    if (at > 0 && k < ends_.size() && begin(k) < at) ++k;
    for (; k < ends_.size() && begin(k) < at + kShareBytes; ++k)
      take(std::string_view(text_).substr(begin(k), ends_[k] - begin(k)));
  }

 private:
  size_t begin(size_t k) const { return k ? ends_[k - 1] : 0; }
  std::string text_;
  std::vector<size_t> ends_;
};

void check_memory(const WordCounts& all, size_t limit) {
  if (all.bytes() > limit)
    fail_input("{} distinct pieces after {} of text need more than {} of memory: train on a part of the texts",
               all.distinct(), human_bytes(static_cast<uint64_t>(all.text_bytes)), human_bytes(limit));
}

}  // namespace

WordCounts count_words(const Spec& spec, const std::function<bool(std::string_view&)>& next, const CountOptions& o) {
  WordCounts all;
  std::vector<std::mutex> locks(WordCounts::kParts);
  std::vector<std::unique_ptr<Counter>> counters;
  for (int t = 0; t < num_threads(); ++t) counters.push_back(std::make_unique<Counter>(spec, all, locks));
  Batch batch;
  while (batch.fill(next)) {
    all.text_bytes += static_cast<int64_t>(batch.bytes());
    std::atomic<size_t> at{0};
    parallel_for(0, static_cast<int64_t>(counters.size()), 1, [&](int64_t t, int64_t) {
      for (size_t from; (from = at.fetch_add(kShareBytes)) < batch.bytes();) {
        check_stop(o.stop);
        batch.share(from, [&](std::string_view text) { counters[static_cast<size_t>(t)]->take(text); });
      }
    });
    check_memory(all, o.memory_limit);
  }
  for (auto& c : counters) c->hand_over();
  check_memory(all, o.memory_limit);
  return all;
}

}  // namespace mxt::tokenizer
