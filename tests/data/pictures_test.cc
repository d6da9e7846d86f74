// Rows with pictures: messages, ids, what is refused, and the way through spill and shard.
#include "data/pictures.h"

#include <filesystem>

#include "data/encode/encode.h"
#include "data/store/shard.h"
#include "data/store/spill.h"
#include "data/store/token_blocks.h"
#include "helpers.h"
#include "toy_coder.h"

namespace mxt::data {
namespace {

using testing::error_of;
using testing::ToyCoder;
using Ids = std::vector<int32_t>;

constexpr int32_t kNo = kNoTarget;
const std::string kPhoto = MXT_SOURCE_DIR "/tests/golden/image/photo.png";  // 37 x 53 pixels

// The toy's control tokens stand for a picture's.
class SeeingCoder : public ToyCoder {
 public:
  SeeingCoder() {
    rules_.processor.patch = 8;
    rules_.processor.min_pixels = 256;
    rules_.processor.max_pixels = 1024;
    rules_.pad = 259, rules_.start = kStart, rules_.end = kEnd;
    rules_.pad_text = token_bytes(rules_.pad), rules_.start_text = token_bytes(kStart),
    rules_.end_text = token_bytes(kEnd);
  }
  const PictureRules* pictures() const override { return &rules_; }

 private:
  PictureRules rules_;
};

Example example(const std::string& json) {
  Record r;
  r.text = json;
  r.path = std::make_shared<const std::string>("d.jsonl");
  r.line = 7;
  return read_example(r, find_layout(r, {}));
}

struct Store {
  Store() : folder((std::filesystem::temp_directory_path() / "mxt_picture_store").string()), store(folder) {}
  ~Store() { std::filesystem::remove_all(folder); }
  std::string folder;
  PictureStore store;
  Document encode(const std::string& json, const Coder& coder) const {
    EncodeRules rules;
    rules.pictures = &store;
    return encode_example(example(json), coder, rules, "d.jsonl:7");
  }
};

TEST(Pictures, InMessagesAreAsManyTokensAsTheyMake) {
  const Store s;
  const SeeingCoder coder;
  const int32_t pad = coder.pictures()->pad;
  const Document d =
      s.encode(R"({"messages":[{"role":"user","content":[{"type":"image","image":")" + kPhoto +
                   R"("},{"type":"text","text":"hello"}]},{"role":"assistant","content":"hello world"}]})",
               coder);
  ASSERT_EQ(d.pictures.size(), 1u);
  const DocumentPicture& p = d.pictures[0];
  const size_t n = static_cast<size_t>(p.rows / 2 * (p.columns / 2));
  ASSERT_GE(n, 2u);
  EXPECT_EQ(d.ids[p.first - 1], coder.pictures()->start);
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(d.ids[p.first + i], pad);
    EXPECT_EQ(d.labels[p.first + i], kNo);
  }
  EXPECT_EQ(d.ids[p.first + n], coder.pictures()->end);
  EXPECT_EQ(std::count(d.ids.begin(), d.ids.end(), pad), static_cast<ptrdiff_t>(n));
  EXPECT_EQ(count_targets(d), 3);  // the answer and its end
  EXPECT_EQ(s.store.get(std::string_view(p.digest, 64)).size(), static_cast<size_t>(p.rows * p.columns * 64 * 3));
}

TEST(Pictures, OfShareGptStandWhereTheTextSays) {
  const Store s;
  const Document d =
      s.encode(R"({"image":")" + kPhoto +
                   R"(","conversations":[{"from":"human","value":"<image>hello"},{"from":"gpt","value":"world"}]})",
               SeeingCoder());
  EXPECT_EQ(d.pictures.size(), 1u);
  EXPECT_NE(error_of([&] {
              s.encode(R"({"image":")" + kPhoto +
                           R"(","conversations":[{"from":"human","value":"hello"},{"from":"gpt","value":"world"}]})",
                       SeeingCoder());
            }).find("<image> 0 times"),
            std::string::npos);
}

TEST(Pictures, ThatDoNotFitTheirRowAreNamed) {
  const Store s;
  const std::string photo = "\"" + kPhoto + "\"";
  const auto error = [&](const std::string& json) { return error_of([&] { s.encode(json, SeeingCoder()); }); };
  EXPECT_NE(error(R"({"messages":[{"role":"user","content":[{"type":"image"}]},{"role":"assistant","content":"a"}]})")
                .find("has no picture"),
            std::string::npos);
  EXPECT_NE(error(R"({"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"a"}],"images":[)" +
                  photo + "]}")
                .find("parts of type \"image\" for 0"),
            std::string::npos);
  EXPECT_NE(error(R"({"input_ids":[1,259,2],"labels":[1,-100,2]})").find("no picture"), std::string::npos);
  EXPECT_NE(error(R"({"input_ids":[1,2],"labels":[1,2],"images":[)" + photo + "]}").find("has no places"),
            std::string::npos);
  EXPECT_NE(error(R"({"input_ids":[1,259,2],"labels":[1,-100,2],"images":[)" + photo + "]}").find("makes"),
            std::string::npos);
  // A model that sees none, and a method that has no room for them.
  EXPECT_NE(error_of([&] {
              s.encode(R"({"input_ids":[1],"labels":[1],"images":[)" + photo + "]}", ToyCoder());
            }).find("sees none"),
            std::string::npos);
}

TEST(Pictures, ARowCutWithinOneLosesItWhole) {
  Document d{{1, 9, 9, 9, 2, 3, 9, 9, 4}, {}};
  d.pictures.resize(2);
  d.pictures[0].first = 1, d.pictures[1].first = 6;
  Document whole = d;
  EXPECT_EQ(cut(whole, 9), 0);
  EXPECT_EQ(whole.pictures.size(), 2u);
  Document half = d;
  EXPECT_EQ(cut(half, 7), 3);
  EXPECT_EQ(half.ids, (Ids{1, 9, 9, 9, 2, 3}));
  EXPECT_EQ(half.pictures.size(), 1u);
  Document none = d;
  cut(none, 3);
  EXPECT_EQ(none.ids, (Ids{1}));
  EXPECT_TRUE(none.pictures.empty());
}

TEST(Pictures, ReachTheTrainerThroughTheShard) {
  const Store s;
  SeenPicture seen{{2, 4}, std::vector<uint8_t>(2 * 4 * 64 * 3)};
  for (size_t i = 0; i < seen.rgb.size(); ++i) seen.rgb[i] = static_cast<uint8_t>(i * 7);
  Document plain{{5, 6, 7}, {}}, shown{{1, 9, 9, 2}, {1, kNo, kNo, 2}};
  DocumentPicture p{1, 2, 4, {}};
  s.store.put(seen, p.digest);
  shown.pictures = {p};
  std::filesystem::create_directories(s.folder);
  Spill spill(s.folder);
  for (const Document* d : {&plain, &shown, &shown}) spill.add(*d);
  spill.finish();
  const std::vector<uint32_t> first = {0}, second = {1, 2};
  const std::vector<RowDocuments> rows = {{first}, {second}};
  const std::string path = s.folder + "/shard.safetensors";
  write_shard(path, rows, spill, false, &s.store);
  const Shard shard(path);
  EXPECT_TRUE(shard.row(0).pictures.empty());
  const Row row = shard.row(1);
  ASSERT_EQ(row.pictures.size(), 2u);
  EXPECT_EQ(row.pictures[0].first, 1);
  EXPECT_EQ(row.pictures[1].first, 5);
  for (const RowPicture& x : row.pictures) {
    EXPECT_EQ(x.rows, 2);
    EXPECT_EQ(x.columns, 4);
    ASSERT_GE(x.rgb.size(), seen.rgb.size());
    EXPECT_TRUE(std::equal(seen.rgb.begin(), seen.rgb.end(), x.rgb.begin()));
  }
  EXPECT_EQ(row.pictures[0].rgb.data(), row.pictures[1].rgb.data());  // held once
}

}  // namespace
}  // namespace mxt::data
