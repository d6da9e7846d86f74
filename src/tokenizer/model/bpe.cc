#include "tokenizer/model/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/io/byte_level.h"
#include "tokenizer/text/unicode.h"

namespace mxt::tokenizer {
namespace {

// Up to this many symbols, searching the lowest rank by looking at all is faster than a heap.
constexpr size_t kShortMerge = 48;

}  // namespace

Bpe::Bpe(const ModelSpec& spec, const Vocab& vocab, bool byte_level, const std::string& source)
    : vocab_(vocab),
      byte_level_(byte_level),
      ignore_merges_(spec.ignore_merges),
      byte_fallback_(spec.byte_fallback),
      fuse_unk_(spec.fuse_unk) {
  if (vocab.size() >= 1 << PairTable::kIdBits || spec.merges.size() >= (1u << PairTable::kRankBits) - 1)
    fail_input("{}: {} tokens and {} merges are more than this program takes", source, vocab.size(),
               spec.merges.size());
  std::vector<int32_t> merged;
  merged.reserve(spec.merges.size());
  for (const auto& [a, b] : spec.merges) {
    const std::string joined = vocab.token(a) + vocab.token(b);
    const int32_t id = vocab.find(joined);
    if (id < 0)
      fail_input("{}: merge \"{}\" \"{}\": \"{}\" is not in the vocabulary", source, vocab.token(a), vocab.token(b),
                 joined);
    merged.push_back(id);
  }
  pairs_.build(spec.merges, std::move(merged));
  if (!spec.unk_token.empty()) {
    unk_ = vocab.find(spec.unk_token);
    if (unk_ < 0) fail_input("{}: unk_token \"{}\" is not in the vocabulary", source, spec.unk_token);
  }
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    byte_id_[static_cast<size_t>(b)] =
        byte_level ? vocab.find(spell_bytes({&c, 1})) : vocab.find(fmt::format("<0x{:02X}>", b));
  }
  if (!byte_level_) return;
  exact_ = std::all_of(byte_id_.begin(), byte_id_.end(), [](int32_t id) { return id >= 0; });
  byte_pair_key_.resize(256 * 256);
  for (size_t a = 0; a < 256; ++a)
    for (size_t b = 0; b < 256; ++b)
      byte_pair_key_[a << 8 | b] = ShortRun::key(
          byte_id_[a] < 0 || byte_id_[b] < 0 ? PairTable::kNone : pairs_.find(byte_id_[a], byte_id_[b]), 0);
  cut_ = exact_ && !ignore_merges_;
  if (cut_) {
    size_t bytes = 0;
    const auto made = [&](size_t rank) -> const std::string& {
      return vocab.token(pairs_.merged(static_cast<uint32_t>(rank)));
    };
    for (size_t i = 0; i < spec.merges.size(); ++i) bytes += made(i).size();
    cut_points_.reset(bytes);
    std::string raw;
    for (size_t i = 0; i < spec.merges.size() && (cut_ = unspell_bytes(made(i), raw)); ++i) cut_points_.add(raw);
  }
  if (ignore_merges_) {
    std::string raw;
    for (int32_t id = 0; id < vocab.size(); ++id)
      if (vocab.has(id) && unspell_bytes(vocab.token(id), raw)) raw_.emplace(raw, id);
  }
}

void Bpe::units(std::string_view piece, std::vector<Symbol>& out) const {
  if (byte_level_ && exact_) {
    for (const char c : piece) out.push_back({byte_id_[static_cast<unsigned char>(c)], 1});
    return;
  }
  const size_t from = out.size();
  // An unknown token waits here: with fuse_unk its unknown neighbours join it.
  Symbol unknown{-1, 0};
  uint32_t dropped = 0;  // bytes without any token at the start: they go to the first one
  const auto flush = [&] {
    if (unknown.id >= 0) out.push_back(unknown);
    unknown = {-1, 0};
  };
  for (size_t i = 0; i < piece.size();) {
    // On byte level Hugging Face's model sees the spelled bytes as characters, so a unit is one byte.
    const size_t n = byte_level_ ? 1 : unicode::length_of(static_cast<unsigned char>(piece[i]));
    const std::string_view unit = piece.substr(i, n);
    const int32_t id = byte_level_ ? byte_id_[static_cast<unsigned char>(piece[i])] : vocab_.find(unit);
    const auto fallback = [&](char c) { return byte_id_[static_cast<unsigned char>(c)]; };
    if (id >= 0) {
      flush();
      out.push_back({id, static_cast<uint32_t>(n)});
    } else if (byte_fallback_ && !byte_level_ &&
               std::all_of(unit.begin(), unit.end(), [&](char c) { return fallback(c) >= 0; })) {
      // Hugging Face does not flush here: a waiting unknown token comes after the bytes.
      for (const char c : unit) out.push_back({fallback(c), 1});
    } else if (unk_ >= 0) {
      if (unknown.id >= 0 && !fuse_unk_) flush();
      unknown.id = unk_;
      unknown.length += static_cast<uint32_t>(n);
    } else if (out.size() > from) {
      out.back().length += static_cast<uint32_t>(n);  // dropped, as Hugging Face does; its bytes go to a neighbour
    } else {
      dropped += static_cast<uint32_t>(n);
    }
    i += n;
  }
  flush();
  if (out.size() > from) out[from].length += dropped;
}

// The plain loop: the lowest rank, leftmost, until none is left. Returns how many symbols remain.
size_t Bpe::merge_short(Symbol* s, size_t n) const {
  uint32_t ranks[kShortMerge];
  for (size_t i = 0; i + 1 < n; ++i) ranks[i] = rank(s[i].id, s[i + 1].id);
  while (n > 1) {
    size_t best = 0;
    uint32_t low = ranks[0];
    for (size_t i = 1; i + 1 < n; ++i)
      if (ranks[i] < low) {
        low = ranks[i];
        best = i;
      }
    if (low == PairTable::kNone) break;
    s[best].id = pairs_.merged(low);
    s[best].length += s[best + 1].length;
    std::copy(s + best + 2, s + n, s + best + 1);
    if (best + 2 < n) std::copy(ranks + best + 2, ranks + n - 1, ranks + best + 1);
    --n;
    if (best > 0) ranks[best - 1] = rank(s[best - 1].id, s[best].id);
    if (best + 1 < n) ranks[best] = rank(s[best].id, s[best + 1].id);
  }
  return n;
}

// The same with a heap of (rank, position) and a list of neighbours; an entry whose rank is no longer that of the pair
// at its position is stale.
void Bpe::merge_long(std::vector<Symbol>& s, size_t from) const {
  const size_t n = s.size() - from;
  Symbol* const at = s.data() + from;
  constexpr uint32_t kEnd = UINT32_MAX;
  std::vector<uint32_t> next(n), previous(n), ranks(n, PairTable::kNone);
  std::vector<uint64_t> entries;
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i == 0 ? kEnd : i - 1;
    next[i] = i + 1 == n ? kEnd : i + 1;
    if (i + 1 == n) break;
    ranks[i] = rank(at[i].id, at[i + 1].id);
    if (ranks[i] != PairTable::kNone) entries.push_back(uint64_t{ranks[i]} << 32 | i);
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap(std::greater<>(), std::move(entries));
  const auto renew = [&](uint32_t i) {
    ranks[i] = next[i] == kEnd ? PairTable::kNone : rank(at[i].id, at[next[i]].id);
    if (ranks[i] != PairTable::kNone) heap.push(uint64_t{ranks[i]} << 32 | i);
  };
  while (!heap.empty()) {
    const uint64_t top = heap.top();
    heap.pop();
    const auto i = static_cast<uint32_t>(top);
    if (ranks[i] != top >> 32) continue;
    const uint32_t right = next[i];
    at[i].id = pairs_.merged(ranks[i]);
    at[i].length += at[right].length;
    ranks[right] = PairTable::kNone;
    next[i] = next[right];
    if (next[i] != kEnd) previous[next[i]] = i;
    renew(i);
    if (previous[i] != kEnd) renew(previous[i]);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i != kEnd; i = next[i]) at[kept++] = at[i];
  s.resize(from + kept);
}

void Bpe::encode(std::string_view piece, std::vector<Symbol>& out) const {
  if (piece.empty()) return;
  if (piece.size() >= UINT32_MAX) fail_input("a piece of text of {} bytes: at most 4 GiB can be encoded", piece.size());
  if (ignore_merges_) {
    int32_t id = -1;
    if (byte_level_) {
      const auto it = raw_.find(std::string(piece));
      if (it != raw_.end()) id = it->second;
    } else {
      id = vocab_.find(piece);
    }
    if (id >= 0) return out.push_back({id, static_cast<uint32_t>(piece.size())});
  }
  const size_t from = out.size();
  units(piece, out);
  const size_t n = out.size() - from;
  if (n <= kShortMerge)
    out.resize(from + merge_short(out.data() + from, n));
  else
    merge_long(out, from);
}

bool Bpe::start_run(std::string_view piece, ShortRun& run) const {
  const size_t n = piece.size();
  const auto* bytes = reinterpret_cast<const unsigned char*>(piece.data());
  int32_t missing = 0;
  for (size_t i = 0; i < n; ++i) missing |= run.ids[i] = byte_id_[bytes[i]];
  for (size_t i = 0; i + 1 < n; ++i)
    run.keys[i] = byte_pair_key_[size_t{bytes[i]} << 8 | bytes[i + 1]] | static_cast<uint32_t>(i);
  run.width = static_cast<uint32_t>((n + 7) / 8 * 8);
  for (size_t i = n - 1; i < run.width; ++i) run.keys[i] = ShortRun::kNever;
  run.left = n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
  run.waits = 0;
  return missing >= 0;
}

// A piece that the cache does not hold.
void Bpe::encode_slow(std::string_view piece, MergeSpace& space) const {
  std::vector<int32_t>& ids = space.ids;
  if (piece.size() <= LongMerger::kMost) {
    ids.clear();
    if (ignore_merges_)
      if (const auto it = raw_.find(std::string(piece)); it != raw_.end()) return ids.push_back(it->second);
    const size_t n = piece.size();
    const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(piece[i])); };
    ids.resize(n);
    int32_t missing = 0;
    for (size_t i = 0; i < n; ++i) missing |= ids[i] = byte_id_[byte(i)];
    if (missing >= 0) {
      uint32_t* keys = space.merger.keys(n);
      for (size_t i = 0; i + 1 < n; ++i) keys[i] = byte_pair_key_[byte(i) << 8 | byte(i + 1)];
      return ids.resize(space.merger.merge(ids.data(), keys, n, pairs_));
    }
  }
  ids.clear();
  std::vector<Symbol> symbols;
  encode(piece, symbols);
  for (const auto& s : symbols) ids.push_back(s.id);
}

void Bpe::hash_pieces(Block& block, uint32_t begin, size_t readable, const PieceCache::View& view) {
  static constexpr auto kMasks = [] {
    std::array<PieceCache::Key, 16> m{};
    for (size_t n = 0; n < 16; ++n)
      m[n] = {n >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * n)) - 1, n <= 8 ? 0 : (uint64_t{1} << (8 * (n - 8))) - 1};
    return m;
  }();
  uint32_t p = begin;
  for (size_t k = 0; k < block.count; ++k) {
    const uint32_t e = block.ends[k], length = e - p;
    if (length <= PieceCache::kShort) [[likely]] {
      // Two words, never one 16-byte copy: loading what two stores have just written would stall.
      uint64_t a = 0, b = 0;
      if (size_t{p} + 16 <= readable) [[likely]] {
        std::memcpy(&a, block.text + p, 8);
        std::memcpy(&b, block.text + p + 8, 8);
        a &= kMasks[length].a;
        b &= kMasks[length].b;
      } else {
        std::memcpy(&a, block.text + p, std::min(length, 8u));
        if (length > 8) std::memcpy(&b, block.text + p + 8, length - 8);
      }
      b |= uint64_t{length} << 56;
      block.keys[k].a = a;
      block.keys[k].b = b;
      block.hashes[k] = PieceCache::hash({a, b});
      __builtin_prefetch(view.bucket(block.hashes[k]));
    } else if (length <= PieceCache::kLongest) {
      block.hashes[k] = PieceCache::hash_long({block.text + p, length});
      __builtin_prefetch(view.long_bucket(block.hashes[k]));
    }
    p = e;
  }
}

void Bpe::find_pieces(Block& block, uint32_t begin, const PieceCache::View& view) {
  uint32_t p = begin;
  for (size_t k = 0; k < block.count; ++k) {
    const uint32_t length = block.ends[k] - p;
    p = block.ends[k];
    if (length <= PieceCache::kShort) [[likely]] {
      // Which of the two ways holds a piece is a coin toss: arithmetic, not a branch.
      const PieceCache::Entry* b = view.bucket(block.hashes[k]);
      b += !b->is(block.keys[k]);
      if (!b->is(block.keys[k])) [[unlikely]]
        b = view.find(block.hashes[k], block.keys[k]);
      block.found[k] = b;
      if (b && b->count > 3) __builtin_prefetch(view.ids_of(*b));
    } else if (length <= PieceCache::kLongest) {
      view.prefetch_long(block.hashes[k]);
    }
  }
}

size_t Bpe::merge_missing(Block& block, size_t k, uint32_t begin, const PieceCache::View& view, PieceCache& cache,
                          MergeSpace& space) const {
  size_t of[MergeSpace::kRuns];
  uint32_t begins[MergeSpace::kRuns];
  size_t n = 0;
  for (; k < block.count && n < MergeSpace::kRuns; ++k) {
    const uint32_t length = block.ends[k] - begin;
    const std::string_view piece(block.text + begin, length);
    begin += length;
    block.runs[k] = nullptr;
    if (length > ShortRun::kMost) continue;
    if (length <= PieceCache::kShort ? block.found[k] != nullptr : view.find_long(piece, block.hashes[k]) != nullptr)
      continue;
    if (!start_run(piece, space.runs[n])) continue;
    block.runs[k] = &space.runs[n];
    begins[n] = begin - length;
    of[n++] = k;
  }
  if (n == 0) return k;
  merge_runs(space.runs, n, pairs_);
  size_t spilled = 0, bytes = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t length = block.ends[of[i]] - begins[i];
    if (space.runs[i].width > 3) spilled += space.runs[i].width;
    if (length > PieceCache::kShort) bytes += length;
  }
  PieceCache::Insertion insertion(cache, spilled, bytes);
  for (size_t i = 0; i < n; ++i) {
    const size_t at = of[i];
    const std::string_view piece(block.text + begins[i], block.ends[at] - begins[i]);
    if (piece.size() <= PieceCache::kShort)
      insertion.put(block.hashes[at], block.keys[at], space.runs[i].ids, space.runs[i].width);
    else
      insertion.put_long(piece, block.hashes[at], space.runs[i].ids, space.runs[i].width);
  }
  return k;
}

void Bpe::cut_long(const char* text, size_t readable, const uint32_t* ends, size_t count,
                   std::vector<uint32_t>& parts) const {
  parts.clear();
  uint32_t begin = 0;
  for (size_t k = 0; k < count; begin = ends[k++])
    if (ends[k] - begin > ShortRun::kMost)
      cut_points_.cut(text, begin, ends[k], readable, parts);
    else
      parts.push_back(ends[k]);
}

void Bpe::encode_pieces(const char* text, size_t readable, const uint32_t* ends, size_t count, PieceCache& cache,
                        MergeSpace& space, std::vector<int32_t>& out, size_t& used) const {
  if (cut_) {
    uint32_t longest = count > 0 ? ends[0] : 0;
    for (size_t k = 1; k < count; ++k) longest = std::max(longest, ends[k] - ends[k - 1]);
    if (longest > ShortRun::kMost) {
      cut_long(text, readable, ends, count, space.parts);
      ends = space.parts.data();
      count = space.parts.size();
    }
  }
  constexpr size_t kRoom = Block::kMost * 16;  // the most ids that a block of short pieces gives
  Block block;
  block.text = text;
  uint32_t begin = 0;
  for (size_t first = 0; first < count; first += Block::kMost) {
    const size_t n = std::min(Block::kMost, count - first);
    const PieceCache::View view = cache.view();
    block.ends = ends + first;
    block.count = n;
    hash_pieces(block, begin, readable, view);
    find_pieces(block, begin, view);
    // By small steps: what is made is written while it lies in a near cache. (Beyond its capacity the vector grows by
    // doubling.)
    if (out.size() - used < kRoom) out.resize(used + kRoom + std::min(size_t{1} << 14, readable));
    int32_t* to = out.data() + used;
    uint32_t p = begin;
    size_t merged = 0;  // merge_missing has looked at the pieces before this one
    for (size_t k = 0; k < n; ++k) {
      const uint32_t e = block.ends[k], length = e - p;
      const std::string_view piece(text + p, length);
      const uint32_t at = p;
      p = e;
      const auto put = [&](const int32_t* ids, size_t n_ids) {
        used = static_cast<size_t>(to - out.data());
        const size_t need = used + n_ids + kRoom;
        if (out.size() < need) out.resize(need);
        to = std::copy_n(ids, n_ids, out.data() + used);
      };
      if (length <= PieceCache::kShort) [[likely]] {
        if (const PieceCache::Entry* b = block.found[k]) [[likely]] {
          if (b->count <= 3) [[likely]] {
            std::memcpy(to, b->ids, sizeof b->ids);
          } else {
            std::copy_n(view.ids_of(*b), b->count, to);
          }
          to += b->count;
          continue;
        }
      } else if (length <= PieceCache::kLongest) {
        if (const auto* found = view.find_long(piece, block.hashes[k])) {
          put(view.ids_of(*found), found->count);
          continue;
        }
      }
      if (!ignore_merges_ && length <= ShortRun::kMost) {
        if (k >= merged) merged = merge_missing(block, k, at, view, cache, space);
        if (const ShortRun* run = block.runs[k]) {
          put(run->ids, run->width);
          continue;
        }
      }
      encode_slow(piece, space);
      put(space.ids.data(), space.ids.size());
      if (length > PieceCache::kLongest) continue;
      const bool is_long = length > PieceCache::kShort;
      PieceCache::Insertion insertion(cache, space.ids.size() > 3 ? space.ids.size() : 0, is_long ? length : 0);
      if (is_long)
        insertion.put_long(piece, block.hashes[k], space.ids.data(), space.ids.size());
      else
        insertion.put(block.hashes[k], block.keys[k], space.ids.data(), space.ids.size());
    }
    used = static_cast<size_t>(to - out.data());
    begin = p;
  }
}

}  // namespace mxt::tokenizer
