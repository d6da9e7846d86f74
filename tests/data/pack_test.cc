#include "data/encode/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "base/philox.h"
#include "folders.h"

namespace mxt::data {
namespace {

std::vector<std::vector<uint32_t>> rows_of(const Packing& p) {
  std::vector<std::vector<uint32_t>> rows;
  for (size_t r = 0; r < p.rows(); ++r)
    rows.emplace_back(p.documents.begin() + p.begin[r], p.documents.begin() + p.begin[r + 1]);
  return rows;
}

// Best-fit decreasing as the textbook says it, in O(n²).
size_t plain_best_fit_rows(std::vector<uint32_t> lengths, uint32_t seq_len) {
  std::stable_sort(lengths.begin(), lengths.end(), std::greater<>());
  std::vector<uint32_t> space;
  for (uint32_t n : lengths) {
    size_t best = space.size();
    for (size_t i = 0; i < space.size(); ++i)
      if (space[i] >= n && (best == space.size() || space[i] < space[best])) best = i;
    if (best == space.size()) space.push_back(seq_len);
    space[best] -= n;
  }
  return space.size();
}

TEST(Pack, CropsAsNanochatsDataloaderDoes) {
  const Json golden = read_json_file(std::string(kSourceDir) + "/tests/golden/data/nanochat_rows.json");
  for (const Json& c : golden.at("cases")) {
    const auto lengths = c.at("lengths").get<std::vector<uint32_t>>();
    const auto seq_len = c.at("seq_len").get<uint32_t>();
    const Packing p = pack_bos_crop(lengths, seq_len + 1);
    const Json& rows = c.at("rows");
    ASSERT_GE(p.rows(), rows.size());
    for (size_t r = 0; r < rows.size(); ++r) {
      std::vector<std::pair<uint32_t, uint32_t>> got;
      for (uint32_t i = p.begin[r]; i < p.begin[r + 1]; ++i) got.emplace_back(p.documents[i], p.kept[i]);
      ASSERT_EQ(got, (rows[r].get<std::vector<std::pair<uint32_t, uint32_t>>>())) << "row " << r;
    }
    // To the end: rows stay full, no document stands twice.
    std::set<uint32_t> seen;
    for (size_t r = 0; r < p.rows(); ++r) {
      uint32_t tokens = 0;
      for (uint32_t i = p.begin[r]; i < p.begin[r + 1]; ++i) {
        tokens += p.kept[i];
        EXPECT_TRUE(seen.insert(p.documents[i]).second);
        EXPECT_LE(p.kept[i], lengths[p.documents[i]]);
      }
      EXPECT_EQ(tokens, seq_len + 1);
    }
  }
}

// Its chat_sft.py, in plain words.
std::vector<std::vector<uint32_t>> plain_rows_of_conversations(const std::vector<uint32_t>& lengths, uint32_t room) {
  std::vector<uint32_t> buffer;
  std::vector<std::vector<uint32_t>> rows;
  size_t next = 0;
  const auto refill = [&] {
    while (buffer.size() < 100 && next < lengths.size()) buffer.push_back(static_cast<uint32_t>(next++));
  };
  for (refill(); !buffer.empty(); refill()) {
    rows.emplace_back();
    for (uint32_t left = room;; refill()) {
      size_t best = buffer.size();
      for (size_t i = 0; i < buffer.size(); ++i)
        if (lengths[buffer[i]] <= left && (best == buffer.size() || lengths[buffer[i]] > lengths[buffer[best]]))
          best = i;
      if (best == buffer.size()) break;
      left -= lengths[buffer[best]];
      rows.back().push_back(buffer[best]);
      buffer.erase(buffer.begin() + static_cast<std::ptrdiff_t>(best));
    }
  }
  return rows;
}

TEST(Pack, PutsConversationsInRowsAsNanochatDoes) {
  for (const uint64_t seed : {1, 2, 3}) {
    Philox random(seed, 9);
    std::vector<uint32_t> lengths;
    for (int i = 0; i < 700; ++i) lengths.push_back(1 + static_cast<uint32_t>(random.below(seed == 3 ? 65 : 40)));
    EXPECT_EQ(rows_of(pack_by_buffer(lengths, 65)), plain_rows_of_conversations(lengths, 65));
  }
  EXPECT_EQ(pack_by_buffer({}, 8).rows(), 0u);
}

TEST(Pack, CroppingWithoutEnoughTokensGivesNoRow) {
  EXPECT_EQ(pack_bos_crop(std::vector<uint32_t>{3, 4}, 8).rows(), 0u);
  EXPECT_EQ(pack_bos_crop(std::vector<uint32_t>{3, 5}, 8).rows(), 1u);
  EXPECT_EQ(pack_bos_crop({}, 8).rows(), 0u);
}

TEST(Pack, FillsTheFullestRowThatHasRoom) {
  const std::vector<uint32_t> lengths = {3, 7, 5, 4, 1};
  EXPECT_EQ(rows_of(pack_best_fit(lengths, 10)), (std::vector<std::vector<uint32_t>>{{0, 1}, {2, 3, 4}}));
}

TEST(Pack, KeepsEveryDocumentOnceWithinTheLengthAndFillsAtLeastAsTheTextbook) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Philox random(seed, 1);
    const uint32_t seq_len = 64 + static_cast<uint32_t>(random.below(5000));
    std::vector<uint32_t> lengths(1 + random.below(700));
    for (uint32_t& n : lengths) n = 1 + static_cast<uint32_t>(random.below(random.below(3) ? seq_len / 3 : seq_len));
    const Packing p = pack_best_fit(lengths, seq_len);
    std::set<uint32_t> seen;
    uint32_t last_first = 0;
    for (const auto& row : rows_of(p)) {
      ASSERT_FALSE(row.empty());
      uint64_t total = 0;
      for (uint32_t d : row) {
        EXPECT_TRUE(seen.insert(d).second);
        total += lengths[d];
      }
      EXPECT_LE(total, seq_len);
      EXPECT_TRUE(std::is_sorted(row.begin(), row.end()));
      EXPECT_TRUE(row[0] >= last_first);
      last_first = row[0];
    }
    EXPECT_EQ(seen.size(), lengths.size());
    EXPECT_LE(p.rows(), plain_best_fit_rows(lengths, seq_len)) << seed;
  }
}

TEST(Pack, FillsRowsOfOrdinaryDocumentsAboveNinetyFivePercent) {
  Philox random(7, 1);
  std::vector<uint32_t> lengths(100000);
  uint64_t total = 0;
  for (uint32_t& n : lengths) total += n = 50 + static_cast<uint32_t>(random.below(900));
  const Packing p = pack_best_fit(lengths, 4096);
  EXPECT_GT(static_cast<double>(total) / (static_cast<double>(p.rows()) * 4096), 0.95);
}

TEST(Pack, FillsMixesOfShortAndLongDocumentsAboveNinetyEightPercent) {
  Philox random(9, 1);
  const auto log_normal = [&](double median, double sigma, uint32_t most) {
    const double n = median * std::exp(sigma * static_cast<double>(random.normal()));
    return static_cast<uint32_t>(std::clamp(n, 20.0, static_cast<double>(most)));
  };
  const auto fill = [](const std::vector<uint32_t>& lengths, uint32_t seq_len) {
    uint64_t total = 0;
    for (uint32_t n : lengths) total += n;
    return static_cast<double>(total) / (static_cast<double>(pack_best_fit(lengths, seq_len).rows()) * seq_len);
  };
  std::vector<uint32_t> alpaca, longs, both;
  for (int i = 0; i < 20000; ++i) alpaca.push_back(log_normal(90, 0.7, 2048));  // instruction rows
  for (int i = 0; i < 5000; ++i) longs.push_back(log_normal(2500, 0.9, 4096));  // cut at seq_len, as documents are
  both = longs;
  both.insert(both.end(), alpaca.begin(), alpaca.begin() + 5000);
  EXPECT_GT(fill(alpaca, 2048), 0.98);
  EXPECT_GT(fill(alpaca, 4096), 0.98);
  EXPECT_GT(fill(longs, 4096), 0.98);
  EXPECT_GT(fill(both, 4096), 0.98);
}

TEST(Pack, FindsTheSumsThatFillRowsWhereBestFitDoesNot) {
  // Best-fit decreasing: 5 + 4, 4 + 3 + 2, 2. Better: 5 + 3 + 2, 4 + 4 + 2.
  EXPECT_EQ(plain_best_fit_rows({5, 4, 4, 3, 2, 2}, 10), 3u);
  EXPECT_EQ(pack_best_fit(std::vector<uint32_t>{5, 4, 4, 3, 2, 2}, 10).rows(), 2u);
  // As GSM8K's: 100 to 400 tokens, few to a row.
  Philox random(3, 1);
  std::vector<uint32_t> some(7000);
  uint64_t total = 0;
  for (uint32_t& n : some) total += n = 100 + static_cast<uint32_t>(random.below(150) + random.below(150));
  const Packing p = pack_best_fit(some, 1024);
  EXPECT_GT(static_cast<double>(total) / (static_cast<double>(p.rows()) * 1024), 0.99);
}

TEST(Pack, OneDocumentARowKeepsFileOrder) {
  EXPECT_EQ(rows_of(one_per_row(3)), (std::vector<std::vector<uint32_t>>{{0}, {1}, {2}}));
  EXPECT_EQ(one_per_row(0).rows(), 0u);
  EXPECT_EQ(pack_best_fit({}, 64).rows(), 0u);
}

}  // namespace
}  // namespace mxt::data
