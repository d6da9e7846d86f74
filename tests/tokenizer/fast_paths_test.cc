// What makes encoding fast against the plain functions that say what it must give.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "base/philox.h"
#include "base/text.h"
#include "tokenizer/io/byte_level.h"
#include "tokenizer/model/bpe.h"
#include "tokenizer/text/unicode.h"

namespace mxt::tokenizer {
namespace {

// A vocabulary of all bytes and of random merges, some of which make a token that is there already.
ModelSpec random_model(Philox& rng, size_t merges, bool ids_follow_ranks) {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    tokens.push_back(spell_bytes({&c, 1}));
  }
  std::vector<std::pair<int32_t, int32_t>> made;
  std::unordered_map<std::string, int32_t> at;
  for (size_t i = 0; i < tokens.size(); ++i) at[tokens[i]] = static_cast<int32_t>(i);
  while (made.size() < merges) {
    // Few letters and young tokens, so that long ones come about.
    const auto some = [&] {
      return static_cast<int32_t>(rng.below(3) == 0 ? 'a' - 33 + rng.below(4) : rng.below(tokens.size()));
    };
    const int32_t a = some(), b = some();
    const std::string joined = tokens[static_cast<size_t>(a)] + tokens[static_cast<size_t>(b)];
    if (joined.size() > 40 || (ids_follow_ranks && at.contains(joined))) continue;
    if (at.emplace(joined, static_cast<int32_t>(tokens.size())).second) tokens.push_back(joined);
    made.emplace_back(a, b);
  }
  ModelSpec m;
  std::vector<int32_t> place(tokens.size());
  std::iota(place.begin(), place.end(), 0);
  if (!ids_follow_ranks)
    for (size_t i = place.size() - 1; i > 0; --i) std::swap(place[i], place[rng.below(i + 1)]);
  for (size_t i = 0; i < tokens.size(); ++i) m.put(place[i], tokens[i]);
  for (const auto& [a, b] : made) m.merges.emplace_back(place[static_cast<size_t>(a)], place[static_cast<size_t>(b)]);
  return m;
}

std::string random_bytes(Philox& rng, size_t n) {
  std::string s;
  const uint64_t kind = rng.below(4);
  while (s.size() < n) {
    if (kind == 0)
      s += static_cast<char>(rng.below(256));
    else if (kind == 1)
      s += static_cast<char>('a' + rng.below(4));
    else if (kind == 2)
      append_utf8(s, static_cast<uint32_t>(0x80 + rng.below(rng.below(2) ? 0x100 : 0xD000)));
    else
      s += s.empty() || rng.below(9) == 0 ? static_cast<char>('a' + rng.below(4)) : s[0];
  }
  return s;
}

TEST(FastPaths, PiecesMergedTogetherAreThoseMergedOneByOne) {
  Philox rng(21, 0);
  for (int round = 0; round < 24; ++round) {
    ModelSpec model = random_model(rng, 50 + rng.below(4000), round % 2 == 0);
    Vocab vocab(std::move(model.tokens), std::move(model.present), "test");
    const Bpe bpe(model, vocab, true, "test");
    CachePool pool(round % 3 == 0 ? 12 : 0);  // the small one forgets all the time
    CachePool::Loan loan(pool);
    std::string text;
    std::vector<uint32_t> ends;
    for (int k = 0; k < 2000; ++k) {
      constexpr uint64_t kLengths[] = {4, 16, 20, 70, 200};
      std::string piece = random_bytes(rng, 1 + rng.below(k % 400 == 7 ? 20000 : kLengths[rng.below(5)]));
      if (k > 0 && rng.below(4) == 0) {  // again, now and then at once
        const size_t j = rng.below(3) == 0 ? ends.size() - 1 : rng.below(ends.size());
        const size_t b = j == 0 ? 0 : ends[j - 1];
        piece = text.substr(b, ends[j] - b);
      }
      text += piece;
      ends.push_back(static_cast<uint32_t>(text.size()));
    }
    std::vector<int32_t> want;
    for (size_t k = 0, b = 0; k < ends.size(); b = ends[k++]) {
      std::vector<Symbol> symbols;
      bpe.encode(std::string_view(text).substr(b, ends[k] - b), symbols);
      for (const auto& s : symbols) want.push_back(s.id);
    }
    for (int again = 0; again < 2; ++again) {
      std::vector<int32_t> ids;
      size_t used = 0;
      for (size_t k = 0, begin = 0; k < ends.size();) {  // by parts, between which a full cache is replaced
        std::vector<uint32_t> part;
        for (; k < ends.size() && part.size() < 300; ++k) part.push_back(static_cast<uint32_t>(ends[k] - begin));
        bpe.encode_pieces(text.data() + begin, text.size() - begin, part.data(), part.size(), loan.fresh(),
                          loan.space(), ids, used);
        begin += part.back();
      }
      ids.resize(used);
      ASSERT_EQ(ids, want) << round << " " << again;
    }
  }
}

TEST(FastPaths, SeamsAreWhereNoTokenReachesAcross) {
  Philox rng(23, 0);
  size_t seams = 0, places = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> tokens(20);
    CutPoints s;
    s.reset(100);
    for (auto& t : tokens) s.add(t = random_bytes(rng, 2 + rng.below(9)));
    std::string text = random_bytes(rng, 5);
    while (text.size() < 400) text += rng.below(3) ? tokens[rng.below(tokens.size())] : random_bytes(rng, rng.below(9));
    // A place is open where a token stands over it. What is cut at must not be; what is not cut at may be anything.
    std::vector<bool> open(text.size() + 1, false);
    for (const auto& t : tokens)
      for (size_t at = text.find(t); at != std::string::npos; at = text.find(t, at + 1))
        std::fill_n(open.begin() + static_cast<ptrdiff_t>(at) + 1, t.size() - 1, true);
    std::vector<uint32_t> ends;
    s.cut(text.data(), 0, static_cast<uint32_t>(text.size()), text.size(), ends);
    ASSERT_EQ(ends.back(), text.size());
    ends.pop_back();
    for (const uint32_t e : ends) ASSERT_FALSE(open[e]) << round << " " << e;
    seams += ends.size();
    for (size_t i = 1; i < text.size(); ++i) places += !open[i];
  }
  EXPECT_GT(seams, places * 9 / 10);
}

TEST(FastPaths, SurveyIsThatOfThePlainLoop) {
  Philox rng(22, 0);
  size_t valid = 0, unsafe = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string s;
    for (uint64_t n = rng.below(round % 20 == 0 ? 3000 : 90); s.size() < n;) {
      const uint64_t kind = rng.below(6);
      if (kind < 2)
        s += std::string(rng.below(50), 'x');
      else if (kind == 2)
        append_utf8(s, static_cast<uint32_t>(0x300 + rng.below(0x70)));
      else
        append_utf8(s, static_cast<uint32_t>(kind == 3   ? rng.below(0x3000)
                                             : kind == 4 ? 0xE000 + rng.below(0x102000)
                                                         : rng.below(0xD800)));
    }
    for (uint64_t k = rng.below(3); k > 0 && !s.empty(); --k) {  // change, drop or repeat a byte
      const size_t at = rng.below(s.size());
      if (rng.below(3) == 0)
        s[at] = static_cast<char>(rng.below(256));
      else if (rng.below(2) == 0)
        s.erase(at, 1);
      else
        s.insert(at, 1, s[at]);
    }
    const auto plain = unicode::scan_text_plain(s, true), fast = unicode::scan_text(s, true);
    ASSERT_EQ(fast.valid, plain.valid) << round;
    if (!plain.valid) continue;
    ++valid;
    unsafe += plain.unsafe.size();
    EXPECT_EQ(fast.ascii, plain.ascii);
    ASSERT_EQ(fast.unsafe, plain.unsafe) << round;
    EXPECT_TRUE(unicode::scan_text(s, false).unsafe.empty());
  }
  EXPECT_GT(valid, 1000u);
  EXPECT_GT(unsafe, 1000u);
}

TEST(FastPaths, SurveyRefusesEveryWrongSequence) {
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2z", "\xE0\x9F\xBF", "\xE4\xB8", "\xED\xA0\x80", "\xEF\xBF",
        "\xF0\x8F\xBF\xBF", "\xF0\x9F\x98", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3\xA9\xA9"})
    for (size_t before : {0, 1, 28, 30, 31, 32, 63, 64, 100})
      for (size_t after : {0, 1, 3, 31, 40}) {
        const std::string s = std::string(before, 'a') + bad + std::string(after, 'b');
        EXPECT_FALSE(unicode::scan_text(s, true).valid) << before << " " << after;
        EXPECT_FALSE(unicode::scan_text_plain(s, true).valid);
      }
  for (const char* good : {"\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    for (size_t before : {0, 1, 28, 29, 30, 31, 32, 60, 64})
      EXPECT_TRUE(unicode::scan_text(std::string(before, 'a') + good, true).valid);
}

PieceCache::Key key_of(uint64_t v) { return {v * 0x9E3779B97F4A7C15ull, (v & 0xFFFF) | uint64_t{10} << 56}; }
std::vector<int32_t> ids_for(uint64_t v) {
  std::vector<int32_t> ids(1 + v % 7);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(v * 10 + i);
  return ids;
}
std::string long_piece(uint64_t v) { return "a long piece of text " + std::to_string(v); }

void keep(PieceCache& cache, uint64_t v) {
  const auto ids = ids_for(v);
  const std::string piece = long_piece(v);
  PieceCache::Insertion insertion(cache, ids.size() > 3 ? 2 * ids.size() : 0, piece.size());
  insertion.put(PieceCache::hash(key_of(v)), key_of(v), ids.data(), ids.size());
  insertion.put_long(piece, PieceCache::hash_long(piece), ids.data(), ids.size());
}
// How many of the two pieces made of v the cache holds; what it holds must be theirs.
size_t held(const PieceCache& cache, uint64_t v) {
  const auto view = cache.view();
  const std::string piece = long_piece(v);
  size_t n = 0;
  for (const auto* e :
       {view.find(PieceCache::hash(key_of(v)), key_of(v)), view.find_long(piece, PieceCache::hash_long(piece))})
    if (e) {
      ++n;
      const int32_t* ids = view.ids_of(*e);
      if (std::vector<int32_t>(ids, ids + e->count) != ids_for(v)) ADD_FAILURE() << "wrong ids of " << v;
    }
  return n;
}

TEST(FastPaths, CacheForgetsButNeverGivesAnotherPiecesIds) {
  Philox rng(23, 0);
  PieceCache cache(8);
  size_t kept = 0, cleared = 0, fresh = 0;
  for (uint64_t v = 1; v < 60000; ++v) {
    keep(cache, v);
    fresh += held(cache, v);
    kept += held(cache, 1 + rng.below(v));
    if (!cache.full()) continue;
    cache.clear();
    ++cleared;
    ASSERT_EQ(held(cache, v), 0u);
  }
  EXPECT_GT(kept, 1000u);
  EXPECT_GT(cleared, 5u);
  EXPECT_GT(fresh, 2 * 58000u);  // where all near places are taken, or room is short, it may not be kept
}

TEST(FastPaths, ThreadsShareACacheThatGrowsAndIsReplaced) {
  for (const int halvings : {2, 9}) {
    CachePool pool(halvings);
    std::atomic<size_t> kept = 0, replaced = 0;
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        Philox rng(24, t);
        CachePool::Loan loan(pool);
        for (uint64_t v = 1; v < 30000; ++v) {  // all threads insert the same pieces
          PieceCache& cache = loan.fresh();
          keep(cache, v);
          kept += held(cache, 1 + rng.below(v + 20));
          replaced += cache.full();
        }
      });
    for (auto& t : threads) t.join();
    EXPECT_GT(kept, 1000u);
    EXPECT_EQ(replaced > 5, halvings == 9);
  }
}

}  // namespace
}  // namespace mxt::tokenizer
