#include "formats/shards.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "formats/helpers.h"

namespace mxt::formats {
namespace {

std::string write(const std::string& path, bool weights) {
  TokenShardWriter w(path, weights);
  std::vector<int32_t> doc(100);
  for (size_t i = 0; i < doc.size(); ++i) doc[i] = static_cast<int32_t>(i);
  std::vector<uint8_t> targets(100);
  for (size_t i = 50; i < 100; ++i) targets[i] = 1;
  w.add_document(doc, targets);
  w.add_document(std::vector<int32_t>{7, 8, 9});
  EXPECT_EQ(w.row_tokens(), 103u);
  w.end_row();
  w.add_document(std::vector<int32_t>{5, 6}, std::vector<uint8_t>{0, 1},
                 weights ? std::vector<float>{0.5f, 2.0f} : std::vector<float>{});
  w.end_row();
  return w.commit(R"({"seq_len":128})");
}

TEST(TokenShard, RowsStandInTheMapping) {
  TempFolder dir;
  const std::string digest = write(dir / "a.shard", true);
  const TokenShard s = TokenShard::open(dir / "a.shard", true);
  EXPECT_EQ(s.rows(), 2u);
  EXPECT_EQ(s.documents(), 3u);
  EXPECT_EQ(s.tokens(), 105u);
  EXPECT_EQ(s.targets(), 54u);
  EXPECT_EQ(s.meta(), R"({"seq_len":128})");
  EXPECT_EQ(s.data_digest(), digest);
  const ShardRow a = s.row(0), b = s.row(1);
  EXPECT_EQ(a.tokens(), 103u);
  EXPECT_EQ(a.documents(), 2u);
  EXPECT_EQ(a.document_begin[1], 100u);
  EXPECT_EQ(a.ids[102], 9);
  EXPECT_FALSE(a.is_target(49));
  EXPECT_TRUE(a.is_target(50));
  EXPECT_TRUE(a.is_target(102));
  EXPECT_EQ(a.weights[0], 1.0f);
  EXPECT_EQ(b.first_token, 103u);
  EXPECT_EQ(b.ids[0], 5);
  EXPECT_FALSE(b.is_target(0));
  EXPECT_TRUE(b.is_target(1));
  EXPECT_EQ(b.weights[1], 2.0f);
  s.check_ids(100);
  expect_refused([&] { s.check_ids(99); }, Exit::kBadInput, "another tokenizer");
}

TEST(TokenShard, SameRowsSameBytes) {
  TempFolder dir;
  EXPECT_EQ(write(dir / "a", false), write(dir / "b", false));
  EXPECT_EQ(read_file(dir / "a"), read_file(dir / "b"));
  EXPECT_TRUE(TokenShard::open(dir / "a").row(0).weights.empty());
}

TEST(TokenShard, EveryChangedByteAndEveryCutIsFound) {
  TempFolder dir;
  write(dir / "a", true);
  const std::string good = read_file(dir / "a");
  EXPECT_NO_THROW(TokenShard::parse(as_bytes(good), "a"));
  for (size_t i = 0; i < good.size(); i += 3) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    if (i >= 112 && i < 128) continue;  // reserved
    EXPECT_THROW(TokenShard::parse(as_bytes(bad), "a"), Error) << i;
  }
  for (size_t n = 0; n < good.size(); n += 7) {
    const std::string cut = good.substr(0, n);
    EXPECT_THROW(TokenShard::parse(as_bytes(cut), "a", false), Error) << n;
  }
}

// A header whose own checksum holds but whose counts lie.
TEST(TokenShard, RefusesLyingCounts) {
  TempFolder dir;
  write(dir / "a", false);
  const std::string good = read_file(dir / "a");
  const auto lie = [&](size_t at, uint64_t v, const std::string& part) {
    std::string bad = good;
    std::memcpy(&bad[at], &v, 8);
    Blake3 h;
    h.update(bad.data(), 80);
    const Digest d = h.digest();
    std::memcpy(&bad[80], d.data(), 32);
    expect_refused([&] { TokenShard::parse(as_bytes(bad), "a", false); }, Exit::kBadInput, part);
  };
  lie(16, 0, "do not fit");
  lie(16, 4, "do not fit");
  lie(16, 3, "row offsets");
  lie(24, uint64_t{1} << 40, "do not fit");
  lie(32, uint64_t{1} << 60, "do not fit");
  lie(32, uint64_t{1} << 40, "cut off");
  lie(40, uint64_t{1} << 30, "over the limit");
  lie(8, 2, "version 2");
}

}  // namespace
}  // namespace mxt::formats
