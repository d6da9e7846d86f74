// Rows with pictures, from their files to trained weights (tools/golden/qwen3_vl.py): against transformers and peft in
// fp32, scored, and refused where they do not hold together.
#include <cmath>
#include <cstring>

#include "base/within.h"
#include "e2e/cli.h"
#include "e2e/client.h"
#include "folders.h"
#include "formats/safetensors.h"

namespace mxt {
namespace {

const std::string kModel = cli::golden("qwen3_vl");

cli::Tiny tiny(const std::string& kind) {
  cli::Tiny t;
  t.model = "qwen3_vl";
  t.steps = 15;
  t.lr = 3e-3;
  if (kind == "lora") t.method = "{kind: lora, r: 4, alpha: 8, init_adapter: \"" + kModel + "/adapter\"}";
  return t;
}

class PictureTrajectory : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(PictureTrajectory, EqualsTransformersAndPeft) {
  const auto& [model, kind] = GetParam();
  cli::Folder f("pictures_" + model + kind);
  cli::Tiny t = tiny(kind);
  t.model = model;
  t.lr = read_json_file(cli::golden(model) + "/expected.json")["settings"]["lr"];
  if (kind == "lora")
    t.method = "{kind: lora, r: 4, alpha: 8, target_modules: " +
               read_json_file(cli::golden(model) + "/adapter/adapter_config.json")["target_modules"].dump() +
               ", init_adapter: \"" + cli::golden(model) + "/adapter\"}";
  std::string recipe = cli::recipe(t);
  const std::string type = "torch_dtype: float32}";
  if (model == "qwen3_5_vl") recipe.replace(recipe.find(type), type.size(), "torch_dtype: float32, vision: true}");
  write_file_atomic(f / "r.yaml", recipe);
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const Json want = read_json_file(cli::golden(model) + "/expected.json")[kind];
  const auto got = cli::lines(f / "out/metrics.jsonl");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    for (const char* key : {"loss", "grad_norm", "lr"}) {
      const double a = got[i][key], b = want[i][key];
      EXPECT_NEAR(a, b, 1e-4 * std::abs(b)) << key << " of step " << i + 1;
    }
  if (kind == "full") {
    EXPECT_TRUE(fs::exists(f / "out/checkpoint/preprocessor_config.json"));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, PictureTrajectory,
                         testing::Combine(testing::Values("qwen3_vl", "qwen3_5_vl"), testing::Values("full", "lora")),
                         [](const auto& i) { return std::get<0>(i.param) + "_" + std::get<1>(i.param); });

// Packed rows and more threads change the steps' order of nothing: the same weights, to the byte.
TEST(PictureTraining, SameBytesForAnyNumberOfThreads) {
  std::string digest;
  for (const char* threads : {"1", "2"}) {
    cli::Folder f(std::string("pictures_threads") + threads);
    cli::Tiny t = tiny("full");
    t.steps = 4;
    t.packing = true;
    write_file_atomic(f / "r.yaml", cli::recipe(t));
    const auto r = cli::run("train " + (f / "r.yaml") + " --threads " + threads + " --out " + (f / "out"));
    ASSERT_EQ(r.code, 0) << r.out;
    const std::string now = hash_file(f / "out/checkpoint/model.safetensors").blake3;
    EXPECT_TRUE(digest.empty() || digest == now);
    digest = now;
  }
}

TEST(PictureScore, EqualsTransformers) {
  cli::Folder f("pictures_score");
  std::string rows;
  std::vector<std::vector<int32_t>> ids;
  for (const Json& row : cli::lines(kModel + "/rows.jsonl")) {
    if (ids.size() == 6) break;
    Json out{{"ids", row["input_ids"]}};
    ids.push_back(row["input_ids"].get<std::vector<int32_t>>());
    if (row.contains("images")) {
      out["images"] = Json::array();
      for (const auto& name : row["images"]) out["images"].push_back(kModel + "/" + name.get<std::string>());
    }
    rows += out.dump() + "\n";
  }
  write_file_atomic(f / "rows.jsonl", rows);
  const auto r = cli::run("score --model " + kModel + " --dtype float32 --input " + (f / "rows.jsonl") + " --output " +
                          (f / "out.jsonl"));
  ASSERT_EQ(r.code, 0) << r.out;
  const auto expected = formats::Safetensors::open(kModel + "/expected.safetensors");
  const auto& t = expected.at("logits");
  std::vector<float> logits(t.bytes / 4);
  std::memcpy(logits.data(), expected.bytes(t).data(), t.bytes);
  const auto got = cli::lines(f / "out.jsonl");
  ASSERT_EQ(got.size(), ids.size());
  size_t at = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t k = 1; k < ids[i].size(); ++k) {
      const float* z = logits.data() + (at + k - 1) * 96;
      double sum = 0;
      for (size_t v = 0; v < 96; ++v) sum += std::exp(static_cast<double>(z[v]));
      EXPECT_NEAR(got[i]["logprobs"][k].get<double>(), static_cast<double>(z[ids[i][k]]) - std::log(sum), 1e-5)
          << i << " " << k;
    }
    at += ids[i].size();
  }
}

// The tower keeps its weights, to the bit, and all else trains; every tensor is in the checkpoint.
TEST(PictureTraining, AFrozenTowerStaysAsItIs) {
  cli::Folder f("pictures_frozen");
  cli::Tiny t = tiny("full");
  t.steps = 2;
  std::string recipe = cli::recipe(t);
  const std::string model = "torch_dtype: float32";
  recipe.replace(recipe.find(model), model.size(), model + ", freeze: [vision]");
  write_file_atomic(f / "r.yaml", recipe);
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const auto was = formats::Safetensors::open(kModel + "/model.safetensors"),
             is = formats::Safetensors::open(f / "out/checkpoint/model.safetensors");
  size_t kept = 0, trained = 0;
  for (const auto& tensor : was.tensors()) {
    const auto a = was.bytes(tensor), b = is.bytes(is.at(tensor.name));
    const bool same = a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
    const bool vision = tensor.name.find("visual.") != std::string::npos;
    (same ? kept : trained) += 1;
    if (vision) {
      EXPECT_TRUE(same) << tensor.name;
    }
  }
  EXPECT_GT(kept, 10u);
  EXPECT_GT(trained, 10u);
  // A model without a tower says so.
  recipe.replace(recipe.find("qwen3_vl"), 8, "qwen3_gqa");
  recipe.replace(recipe.find("qwen3_vl"), 8, "qwen3_gqa");
  write_file_atomic(f / "text.yaml", recipe);
  const auto text = cli::run("train " + (f / "text.yaml") + " --out " + (f / "text"));
  EXPECT_EQ(text.code, 1);
  EXPECT_NE(text.out.find("model.freeze"), std::string::npos) << text.out;
}

// One line each, that names the row: exit code 1.
TEST(PictureRows, ThatDoNotHoldTogetherAreRefused) {
  cli::Folder f("pictures_bad");
  write_file_atomic(f / "drawn.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>");
  const std::string picture = kModel + "/0.png";  // 13 x 20 pixels: 2 x 4 patches of tokens
  const std::pair<std::string, std::string> cases[] = {
      {R"({"input_ids":[1,92,90,90,90,93,2],"labels":[1,92,-100,-100,-100,93,2]})", "no picture"},
      {R"({"input_ids":[1,2,3],"labels":[1,2,3],"images":["PICTURE"]})", "no places"},
      {R"({"input_ids":[1,92,90,93,2],"labels":[1,92,-100,93,2],"images":["PICTURE"]})", "makes"},
      {R"({"input_ids":[1,2,3],"labels":[1,2,3],"images":["nowhere.png"]})", "nowhere.png"},
      {R"({"input_ids":[1,2,3],"labels":[1,2,3],"images":["https://example.com/a.png"]})", "not fetched"},
      {R"({"input_ids":[1,2,3],"labels":[1,2,3],"images":["FOLDER/drawn.svg"]})", "SVG"},
      {R"({"input_ids":[1,2,3],"labels":[1,2,3],"images":["data:image/png;base64,AAAA"]})", "no picture"},
      {R"({"input_ids":[1,2,3],"labels":[1,2,3],"images":[7]})", "images"}};
  for (const auto& [row, says] : cases) {
    std::string text = row;
    for (const auto& [from, to] : {std::pair<std::string, std::string>{"PICTURE", picture}, {"FOLDER", f.path}})
      if (const size_t at = text.find(from); at != text.npos) text.replace(at, from.size(), to);
    write_file_atomic(f / "rows.jsonl", text + "\n");
    std::string recipe = cli::recipe(tiny("full"));
    const std::string theirs = kModel + "/rows.jsonl";
    recipe.replace(recipe.find(theirs), theirs.size(), f / "rows.jsonl");
    write_file_atomic(f / "r.yaml", recipe);
    const auto r = cli::run("dataset prep " + (f / "r.yaml") + " --out " + (f / "data"));
    EXPECT_EQ(r.code, 1) << row << r.out;
    EXPECT_NE(r.out.find("rows.jsonl:1"), std::string::npos) << r.out;
    EXPECT_NE(r.out.find(says), std::string::npos) << r.out;
  }
}

// Prepared rows are compared with what they came from, pictures and all.
TEST(PictureRows, WhosePicturesChangedAreNotTrainedOnAsTheyWere) {
  cli::Folder f("pictures_changed");
  fs::copy_file(kModel + "/0.png", f / "0.png");
  std::string row;
  for (const Json& r : cli::lines(kModel + "/rows.jsonl"))
    if (row.empty() && r.value("images", Json()) == Json::array({"0.png"})) row = r.dump();
  write_file_atomic(f / "rows.jsonl", row + "\n");
  cli::Tiny t = tiny("full");
  t.steps = 1, t.per_device = 1;
  std::string recipe = cli::recipe(t);
  const std::string theirs = kModel + "/rows.jsonl";
  recipe.replace(recipe.find(theirs), theirs.size(), f / "rows.jsonl");
  write_file_atomic(f / "r.yaml", recipe);
  ASSERT_EQ(cli::run("dataset prep " + (f / "r.yaml") + " --out " + (f / "data")).code, 0);
  const std::string train = "train " + (f / "r.yaml") + " --data " + (f / "data") + " --out ";
  EXPECT_EQ(cli::run(train + (f / "same")).code, 0);
  fs::copy_file(std::string(kSourceDir) + "/tests/golden/image/photo.png", f / "0.png",
                fs::copy_options::overwrite_existing);
  const auto r = cli::run(train + (f / "other"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("rows than this recipe's: the picture files that its rows name\n"), std::string::npos) << r.out;
}

// A text model is shown no pictures.
TEST(PictureRows, OfAModelThatSeesNoneAreRefused) {
  cli::Folder f("pictures_text");
  write_file_atomic(f / "rows.jsonl", R"({"ids":[1,2,3],"images":[")" + kModel + "/0.png\"]}\n");
  const auto r = cli::run("score --model " + cli::golden("qwen3_gqa") + " --input " + (f / "rows.jsonl") +
                          " --output " + (f / "out.jsonl"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("sees none"), std::string::npos) << r.out;
}

constexpr const char* kTemplate =
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{% if c.type "
    "== 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif "
    "%}</s>{% endfor %}";

// The tiny model with a tokenizer of ASCII and a chat template, to be talked to.
std::string talking_model(const std::string& folder) {
  fs::copy(kModel, folder);
  OrderedJson vocab, added = OrderedJson::array();
  for (int c = '!'; c < 'y'; ++c) vocab[std::string(1, static_cast<char>(c))] = c - '!';
  vocab["Ġ"] = 88, vocab["Ċ"] = 89;
  int id = 90;
  for (const char* name : {"<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "</s>"})
    added.push_back({{"id", id++},
                     {"content", name},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const OrderedJson bytes{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const OrderedJson tokenizer{{"version", "1.0"},
                              {"added_tokens", added},
                              {"normalizer", nullptr},
                              {"pre_tokenizer", bytes},
                              {"post_processor", nullptr},
                              {"decoder", bytes},
                              {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", OrderedJson::array()}}}};
  write_file_atomic(folder + "/tokenizer.json", tokenizer.dump());
  write_file_atomic(folder + "/tokenizer_config.json",
                    R"({"eos_token":"</s>","tokenizer_class":"PreTrainedTokenizerFast"})");
  write_file_atomic(folder + "/chat_template.jinja", kTemplate);
  return folder;
}

cli::Result shown(const std::string& model, int64_t tokens = 2) {
  return cli::run(fmt::format("chat --threads 1 --temperature 0 --max-tokens {} --prompt a --image {}/0.png --model {}",
                              tokens, kModel, model));
}

// Beside the base as merged into it, with a template of its own or the model's.
TEST(PictureChat, AnAdapterSeesWhatItsBaseSees) {
  cli::Folder f("pictures_adapter");
  const std::string model = talking_model(f / "model"), adapter = f / "adapter";
  fs::copy(kModel + "/adapter", adapter);
  ASSERT_EQ(cli::run("merge --model " + model + " --adapter " + adapter + " --out " + (f / "merged")).code, 0);
  const auto merged = shown(f / "merged", 8), base = shown(model, 8),
             beside = shown(model + " --adapter " + adapter, 8);
  ASSERT_EQ(merged.code, 0) << merged.out;
  EXPECT_NE(merged.out, base.out);
  EXPECT_EQ(beside.code, 0) << beside.out;
  EXPECT_EQ(beside.out, merged.out);
  write_file_atomic(adapter + "/chat_template.jinja", kTemplate);
  EXPECT_EQ(shown(model + " --adapter " + adapter, 8).out, merged.out);
}

TEST(PictureChat, AGgufSaysWhereSightMayBe) {
  cli::Folder f("pictures_gguf");
  const std::string model = talking_model(f / "model");
  ASSERT_EQ(cli::run("quantize --model " + model + " --scheme gguf_f16 --out " + (f / "gguf")).code, 0);
  const auto file = shown(f / "gguf");
  EXPECT_EQ(file.code, 1);
  EXPECT_NE(file.out.find("sees no pictures: a GGUF file answers text alone here"), std::string::npos) << file.out;
  const auto tower = shown(f / "gguf/mmproj.gguf");
  EXPECT_EQ(tower.code, 1);
  EXPECT_NE(tower.out.find("name the file of its language model"), std::string::npos) << tower.out;
  const uint16_t port = free_port();
  const pid_t server = cli::start({"serve", "--model", f / "gguf/model.gguf", "--port", std::to_string(port)});
  EXPECT_TRUE(within(60, [&] { return cli::answers(port); }));
  const std::string said = cli::asked(port, "/v1/chat/completions",
                                      R"({"messages":[{"role":"user","content":[{"type":"image_url",)"
                                      R"("image_url":{"url":"data:image/png;base64,AAAA"}}]}]})");
  EXPECT_EQ(cli::stop(server, SIGTERM), 0);
  EXPECT_NE(said.find("a GGUF file answers text alone here"), std::string::npos) << said;
}

}  // namespace
}  // namespace mxt
