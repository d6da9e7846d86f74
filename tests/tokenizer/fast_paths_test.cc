// What makes encoding fast against the plain functions that say what it must give.
#include <gtest/gtest.h>

#include <numeric>

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
    PieceCache cache(round % 3 == 0 ? 12 : 0);  // the small one forgets all the time
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
      bpe.encode_pieces(text.data(), text.size(), ends.data(), ends.size(), cache, ids, used);
      ids.resize(used);
      ASSERT_EQ(ids, want) << round << " " << again;
    }
  }
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
    const auto plain = unicode::survey_plain(s, true), fast = unicode::survey(s, true);
    ASSERT_EQ(fast.valid, plain.valid) << round;
    if (!plain.valid) continue;
    ++valid;
    unsafe += plain.unsafe.size();
    EXPECT_EQ(fast.ascii, plain.ascii);
    ASSERT_EQ(fast.unsafe, plain.unsafe) << round;
    EXPECT_TRUE(unicode::survey(s, false).unsafe.empty());
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
        EXPECT_FALSE(unicode::survey(s, true).valid) << before << " " << after;
        EXPECT_FALSE(unicode::survey_plain(s, true).valid);
      }
  for (const char* good : {"\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    for (size_t before : {0, 1, 28, 29, 30, 31, 32, 60, 64})
      EXPECT_TRUE(unicode::survey(std::string(before, 'a') + good, true).valid);
}

TEST(FastPaths, CacheForgetsButNeverGivesAnotherPiecesIds) {
  Philox rng(23, 0);
  PieceCache cache(8);
  const auto key_of = [](uint64_t v) {
    return PieceCache::Key{v * 0x9E3779B97F4A7C15ull, (v & 0xFFFF) | uint64_t{10} << 56};
  };
  const auto ids_of = [](uint64_t v) {
    std::vector<int32_t> ids(1 + v % 7);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(v * 10 + i);
    return ids;
  };
  size_t kept = 0;
  for (uint64_t v = 1; v < 60000; ++v) {
    const auto ids = ids_of(v);
    cache.insert(PieceCache::hash(key_of(v)), key_of(v), ids.data(), ids.size());
    ASSERT_NE(cache.find(PieceCache::hash(key_of(v)), key_of(v)), nullptr);
    const std::string piece = "a long piece of text " + std::to_string(v);
    cache.insert_long(piece, PieceCache::hash_long(piece), ids.data(), ids.size());
    const uint64_t w = 1 + rng.below(v), h = PieceCache::hash(key_of(w));
    const std::string old = "a long piece of text " + std::to_string(w);
    for (const auto* e : {cache.find(h, key_of(w)), cache.find_long(old, PieceCache::hash_long(old))})
      if (e) {
        ++kept;
        ASSERT_EQ(std::vector<int32_t>(cache.ids_of(*e), cache.ids_of(*e) + e->count), ids_of(w));
      }
  }
  EXPECT_GT(kept, 1000u);
}

}  // namespace
}  // namespace mxt::tokenizer
