// Rows with pictures from their files to trained weights (tools/golden/qwen3_vl.py): fifteen steps against transformers
// and peft in fp32.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/threads.h"
#include "config/recipe.h"
#include "data/prepare.h"
#include "folders.h"
#include "formats/vision.h"
#include "image/processor.h"
#include "infer/engine.h"
#include "infer/scorer.h"
#include "kernels/api.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace mxt {
namespace {

const std::string kModel = std::string(kSourceDir) + "/tests/golden/models/qwen3_vl";

struct Folder {
  explicit Folder(const std::string& name) : path(testing::TempDir() + "mxt_train_pictures_" + name) {
    fs::remove_all(path);
    make_folders(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string path;
};

data::PictureRules rules() {
  data::PictureRules r;
  r.processor = image::read_processor(kModel, {});
  r.pad = 90, r.start = 92, r.end = 93;
  return r;
}

config::Recipe recipe(const std::string& method, int steps, bool packing) {
  return config::parse_recipe(fmt::format(R"(meta: {{project: test, run_name: tiny}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{0}", torch_dtype: float32}}
data: {{source: local, path: "{0}/rows.jsonl", seq_len: 64, packing: {3}, shuffle: false}}
train:
  method: {1}
  precision: float32
  optimizer: {{lr: 3.0e-3, betas: [0.9, 0.95], weight_decay: 0.1, grad_clip: 1.0}}
  schedule: {{type: cosine, warmup_ratio: 0.1, max_steps: {2}}}
  batch: {{per_device: 2, grad_accum: 1}}
)",
                                          kModel, method, steps, packing),
                              "test.yaml");
}

void train(const config::Recipe& r, const std::string& out) {
  const auto coder = data::make_coder({nullptr, nullptr, "", 96, rules()});
  data::prepare(r, *coder, out + "/dataset");
  const auto setup = train::make_setup(r, kModel, 0, nullptr);
  kernels::Ops& ops = kernels::cpu_ops();
  const auto plan = train::default_plan(*setup, train::cpu_identity(num_threads()), ops, setup->pass());
  train::TrainOptions o;
  o.out = out;
  o.data = out + "/dataset";
  train::train(*setup, plan, ops, o);
}

class PictureSteps : public testing::TestWithParam<std::string> {};

TEST_P(PictureSteps, EqualTransformersAndPeft) {
  const Folder f(GetParam());
  const std::string lora = "{kind: lora, r: 4, alpha: 8, init_adapter: \"" + kModel + "/adapter\"}";
  train(recipe(GetParam() == "lora" ? lora : "{kind: full}", 15, false), f.path);
  const Json want = read_json_file(kModel + "/expected.json")[GetParam()];
  const std::string text = read_file(f.path + "/metrics.jsonl");
  size_t at = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_LT(at, text.size());
    const size_t end = text.find('\n', at);
    const Json got = Json::parse(text.substr(at, end - at));
    at = end + 1;
    for (const char* key : {"loss", "grad_norm", "lr"}) {
      const double a = got[key], b = want[i][key];
      EXPECT_NEAR(a, b, 1e-4 * std::abs(b)) << key << " of step " << i + 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, PictureSteps, testing::Values("full", "lora"), [](const auto& i) { return i.param; });

TEST(PictureTraining, SameBytesForAnyNumberOfThreads) {
  std::string digest;
  for (const int threads : {1, 2}) {
    const Folder f("threads" + std::to_string(threads));
    set_num_threads(threads);
    train(recipe("{kind: full}", 4, true), f.path);
    const std::string now = hash_file(f.path + "/checkpoint/model.safetensors").blake3;
    EXPECT_TRUE(digest.empty() || digest == now);
    digest = now;
  }
}

// The row's pictures for scoring and generation.
infer::Shown shown(const Json& row, const std::vector<int32_t>& ids) {
  const data::PictureRules r = rules();
  infer::Shown s;
  std::vector<data::SeenPicture> seen;
  for (const auto& name : row.value("images", Json::array()))
    seen.push_back(data::see_picture(r, name.get<std::string>(), kModel, "row"));
  const auto first = data::find_pictures(ids, r, seen, "row");
  for (size_t i = 0; i < seen.size(); ++i) {
    const image::Grid g = seen[i].grid;
    s.pictures.push_back({first[i], static_cast<int32_t>(g.height), static_cast<int32_t>(g.width)});
    const size_t at = s.pixels.size();
    s.pixels.resize(at + static_cast<size_t>(g.patches() * r.processor.patch_values()));
    image::patches_of(r.processor, g, seen[i].rgb.data(), s.pixels.data() + at);
  }
  return s;
}

// However the prompt is cut, and with another request beside it.
TEST(PictureText, GreedyEqualsTransformers) {
  const Json want = read_json_file(kModel + "/expected.json")["greedy"];
  const std::string text = read_file(kModel + "/rows.jsonl");
  std::vector<Json> rows;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    rows.push_back(Json::parse(text.substr(at, end - at)));
  }
  for (const int64_t pass : {512, 5}) {
    infer::Model model(kModel, "", DType::kF32, 96, kernels::cpu_ops());
    infer::Engine engine(model, {4, pass});
    std::vector<infer::Request> requests;
    for (const size_t row : {want["row"].get<size_t>(), size_t{0}, size_t{1}}) {
      infer::Request r;
      r.prompt = rows[row]["input_ids"].get<std::vector<int32_t>>();
      r.shown = std::make_shared<infer::Shown>(shown(rows[row], r.prompt));
      if (r.shown->pictures.empty()) r.shown = nullptr;
      r.max_tokens = 24;
      r.sampling.temperature = 0;
      requests.push_back(std::move(r));
    }
    const auto answers = engine.generate(requests);
    EXPECT_EQ(answers[0].tokens, want["ids"].get<std::vector<int32_t>>()) << pass;
  }
}

}  // namespace
}  // namespace mxt
