// Rows with pictures: messages, ids, what is refused, and the way through spill and shard.
#include "data/pictures.h"

#include <filesystem>
#include <map>
#include <set>

#include "base/base64.h"
#include "base/files.h"
#include "config/recipe.h"
#include "data/dataset.h"
#include "data/encode/encode.h"
#include "data/prepare.h"
#include "data/preview.h"
#include "data/store/shard.h"
#include "data/store/spill.h"
#include "data/store/token_blocks.h"
#include "data/synth/synth.h"
#include "folders.h"
#include "helpers.h"
#include "toy_coder.h"

namespace mxt::data {
namespace {

using testing::error_of;
using testing::ToyEncoder;
using Ids = std::vector<int32_t>;

constexpr int32_t kNo = kNoTarget;
const std::string kPhoto = std::string(kSourceDir) + "/tests/golden/image/photo.png";  // 37 x 53 pixels

// The toy's control tokens stand for a picture's.
class SeeingEncoder : public ToyEncoder {
 public:
  SeeingEncoder() {
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
  Document encode(const std::string& json, const SampleEncoder& coder) const {
    EncodeRules rules;
    rules.pictures = &store;
    return encode_example(example(json), coder, rules, "d.jsonl:7");
  }
};

TEST(Pictures, InMessagesAreAsManyTokensAsTheyMake) {
  const Store s;
  const SeeingEncoder coder;
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
               SeeingEncoder());
  EXPECT_EQ(d.pictures.size(), 1u);
  EXPECT_NE(error_of([&] {
              s.encode(R"({"image":")" + kPhoto +
                           R"(","conversations":[{"from":"human","value":"hello"},{"from":"gpt","value":"world"}]})",
                       SeeingEncoder());
            }).find("<image> 0 times"),
            std::string::npos);
}

// A text model reads the word as it stands.
TEST(Pictures, WhoseWordStandsAloneAreMissedByAModelThatSees) {
  const Store s;
  for (const char* row :
       {R"({"conversations":[{"from":"human","value":"<image>hello"},{"from":"gpt","value":"world"}]})",
        R"({"image":null,"conversations":[{"from":"human","value":"hello"},{"from":"gpt","value":"<image>world"}]})",
        R"({"question":"hello <image>","answer":"world"})"})
    EXPECT_NE(error_of([&] { s.encode(row, SeeingEncoder()); }).find("<image> in the texts and no picture"),
              std::string::npos)
        << row;
  EXPECT_TRUE(s.encode(R"({"question":"hello <image>","answer":"world"})", ToyEncoder()).pictures.empty());
}

TEST(Pictures, ThatDoNotFitTheirRowAreNamed) {
  const Store s;
  const std::string photo = "\"" + kPhoto + "\"";
  const auto error = [&](const std::string& json) { return error_of([&] { s.encode(json, SeeingEncoder()); }); };
  EXPECT_NE(error(R"({"messages":[{"role":"user","content":[{"type":"image"}]},{"role":"assistant","content":"a"}]})")
                .find("has no picture"),
            std::string::npos);
  EXPECT_NE(error(R"({"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"a"}],"images":[)" +
                  photo + "]}")
                .find("parts of type \"image\" for 0"),
            std::string::npos);
  const auto shown = [&](const char* index) {
    return error(
        R"({"messages":[{"role":"user","content":[{"type":"image","index":0,"text":null},{"type":"image","index":)" +
        std::string(index) + R"(}]},{"role":"assistant","content":"a"}],"images":[)" + photo + "," + photo + "]}");
  };
  EXPECT_EQ(shown("1"), "");
  EXPECT_NE(shown("0").find("has the index 0, the next of \"images\" is 1"), std::string::npos) << shown("0");
  EXPECT_NE(error(R"({"input_ids":[1,259,2],"labels":[1,-100,2]})").find("no picture"), std::string::npos);
  EXPECT_NE(error(R"({"input_ids":[1,2],"labels":[1,2],"images":[)" + photo + "]}").find("has no places"),
            std::string::npos);
  EXPECT_NE(error(R"({"input_ids":[1,259,2],"labels":[1,-100,2],"images":[)" + photo + "]}").find("makes"),
            std::string::npos);
  // A model that sees none, and a method that has no room for them.
  EXPECT_NE(error_of([&] {
              s.encode(R"({"input_ids":[1],"labels":[1],"images":[)" + photo + "]}", ToyEncoder());
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

TEST(Pictures, OfQuestionsStandBeforeThem) {
  const Store s;
  for (const std::string row : {R"({"question":"hello","answer":"world","image":"PHOTO"})",
                                R"({"instruction":"hello","output":"world","images":["PHOTO"]})",
                                R"({"file_name":"photo.png","question":"<image>hello","answer":"world"})"}) {
    std::string text = row;
    if (const size_t at = text.find("PHOTO"); at != text.npos) text.replace(at, 5, kPhoto);
    Record r;
    r.text = text;
    r.path = std::make_shared<const std::string>(kPhoto.substr(0, kPhoto.rfind('/')) + "/metadata.jsonl");
    const SeeingEncoder coder;
    EncodeRules rules;
    rules.pictures = &s.store;
    const Document d = encode_example(read_example(r, find_layout(r, {})), coder, rules, "d.jsonl:7");
    ASSERT_EQ(d.pictures.size(), 1u) << row;
    const auto after = std::find(d.ids.begin(), d.ids.end(), coder.pictures()->end);
    EXPECT_LT(d.pictures[0].first, std::find(d.ids.begin(), d.ids.end(), 261) - d.ids.begin()) << row;  // hello
    EXPECT_NE(after, d.ids.end());
  }
  // A name of another file is no picture.
  Record code;
  code.path = std::make_shared<const std::string>("d.jsonl");
  code.text = R"({"file_name":"a.py","question":"hello","answer":"world"})";
  EXPECT_TRUE(read_example(code, find_layout(code, {})).pictures.empty());
}

TEST(Pictures, OfHubTablesAreTheirBytes) {
  const std::string bytes = "data:image/any;base64," + to_base64(read_file(kPhoto));
  EXPECT_EQ(example(R"({"question":"a","answer":"b","image":{"bytes":")" + bytes + R"(","path":"x/../nowhere.png"}})")
                .pictures,
            std::vector<std::string>{bytes});
  EXPECT_EQ(example(R"({"question":"a","answer":"b","image":{"bytes":null,"path":"there.png"}})").pictures,
            std::vector<std::string>{"there.png"});
  const Store s;
  EXPECT_NE(error_of([&] {
              s.encode(R"({"question":"a","answer":"b","image":{"bytes":"<svg/>","path":"a.png"}})", SeeingEncoder());
            }).find("SVG"),
            std::string::npos);
}

class PreparedPictures : public testing::DataTest {};

TEST_F(PreparedPictures, AreMadeAnewWhereAPictureChanged) {
  const std::string photo = write("p/a.png", read_file(kPhoto));
  write("p/rows.jsonl", R"({"question":"hello","answer":"world","image":"a.png"})"
                        "\n");
  const config::Recipe r =
      config::parse_recipe("meta: {project: p, run_name: r}\nmodel: {name: m}\ndata: {source: local, path: '" +
                               path("p/rows.jsonl") + "', seq_len: 64}\n",
                           "t.yaml");
  const SeeingEncoder coder;
  EXPECT_FALSE(prepare(r, coder, path("out")).kept);
  EXPECT_TRUE(prepare(r, coder, path("out")).kept);
  const auto first = [&] { return Dataset::open(path("out")).row(0).pictures.at(0).rgb[0]; };
  const int was = first();
  image::Picture black{53, 37, std::vector<uint8_t>(53 * 37 * 3)};
  const auto png = image::data_uri_bytes(image::data_uri(black), "black");
  write("p/a.png", std::string(reinterpret_cast<const char*>(png.data()), png.size()));
  EXPECT_FALSE(prepare(r, coder, path("out")).kept);
  EXPECT_EQ(first(), 0);
  EXPECT_NE(was, 0);
  // The page shows it, small and with nothing from outside.
  const Dataset set = Dataset::open(path("out"));
  const std::string page = preview_page(set, 0, 1, coder);
  EXPECT_HAS(page, "<img alt=\"[picture: ");
  EXPECT_HAS(page, "src=\"data:image/png;base64,");
  EXPECT_EQ(page.find("a.png"), std::string::npos);
  const auto documents = preview_documents(set, 0, coder);
  int pictures = 0;
  for (const PreviewPiece& p : documents.at(0).pieces) pictures += p.picture.starts_with("data:image/png;base64,");
  EXPECT_EQ(pictures, 1);
  EXPECT_HAS(preview_row(set, 0, coder, Marks::kBrackets), "[picture: ");
}

TEST_F(PreparedPictures, InAFolderNeedRowsThatNameThem) {
  write("p/a/1.PNG", read_file(kPhoto));
  EXPECT_HAS(error_of([&] { find_source_files(path("p"), "train"); }), "metadata.jsonl");
  write("p/metadata.jsonl", R"({"file_name":"a/1.PNG","question":"hello","answer":"world"})"
                            "\n");
  ASSERT_EQ(find_source_files(path("p"), "train").size(), 1u);
}

// The answers name what is drawn: most pixels that are not the ground have the colour, and the splits share no picture.
TEST(Synth, ShapesAreWhatTheirAnswersSay) {
  const std::map<std::string, std::array<int, 3>> colours = {{"red", {208, 32, 32}},     {"green", {32, 144, 48}},
                                                             {"blue", {32, 64, 208}},    {"yellow", {232, 208, 24}},
                                                             {"purple", {136, 40, 160}}, {"black", {16, 16, 16}}};
  std::set<std::string> answers, pictures;
  for (const Split split : {Split::kTrain, Split::kTest})
    for (const SynthRow& r : synth_rows("shapes", split, 100, 3)) {
      answers.insert(r.answer);
      EXPECT_TRUE(pictures.insert(r.picture).second);
      const image::Picture p = image::decode(image::data_uri_bytes(r.picture, "shape"), "shape");
      const auto& colour = colours.at(r.answer.substr(0, r.answer.find(' ')));
      int64_t inside = 0, box[4] = {64, 0, 64, 0};
      for (int64_t i = 0; i < p.height * p.width; ++i) {
        const auto at = static_cast<size_t>(3 * i);
        if (p.rgb[at] != colour[0] || p.rgb[at + 1] != colour[1] || p.rgb[at + 2] != colour[2]) continue;
        ++inside;
        const int64_t x = i % p.width, y = i / p.width;
        box[0] = std::min(box[0], x), box[1] = std::max(box[1], x);
        box[2] = std::min(box[2], y), box[3] = std::max(box[3], y);
      }
      // How much of its box a shape fills tells it.
      const double filled =
          static_cast<double>(inside) / static_cast<double>((box[1] - box[0] + 1) * (box[3] - box[2] + 1));
      const std::string shape = r.answer.substr(r.answer.find(' ') + 1);
      const double want = shape == "square" ? 1 : shape == "circle" ? 0.785 : shape == "triangle" ? 0.5 : 0.51;
      EXPECT_NEAR(filled, want, 0.07) << r.answer;
    }
  EXPECT_EQ(answers.size(), 24u);
}

}  // namespace
}  // namespace mxt::data
