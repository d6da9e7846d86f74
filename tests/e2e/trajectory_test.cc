// Twenty steps of training against transformers and peft (tools/golden/models.py): loss, gradient norm and learning
// rate.
#include "e2e/cli.h"

namespace mxt {
namespace {

class Trajectory : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Trajectory, EqualsTransformersAndPeft) {
  const auto& [model, kind] = GetParam();
  cli::Folder f("trajectory_" + model + kind);
  cli::Tiny t;
  t.model = model;
  t.lr = read_json_file(cli::golden(model) + "/expected.json")["settings"]["lr"];
  if (kind == "lora") {
    const std::string targets =
        read_json_file(cli::golden(model) + "/adapter/adapter_config.json")["target_modules"].dump();
    t.method = "{kind: lora, r: 4, alpha: 8, target_modules: " + targets + ", init_adapter: \"" + cli::golden(model) +
               "/adapter\"}";
  }
  write_file_atomic(f / "r.yaml", cli::recipe(t));
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
}

// An adapter with another scaling is another function: not what training was to start from.
TEST(InitAdapter, OfAnotherScalingIsRefused) {
  cli::Folder f("scaling");
  cli::Tiny t;
  t.steps = 1;
  for (const char* settings : {"alpha: 32", "alpha: 8, use_rslora: true"}) {
    t.method = fmt::format("{{kind: lora, r: 4, {}, init_adapter: \"{}/adapter\"}}", settings, cli::golden(t.model));
    write_file_atomic(f / "r.yaml", cli::recipe(t));
    const std::string out = f / (std::string("out") + std::to_string(t.method.size()));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + out);
    EXPECT_EQ(r.code, 1) << settings;
    EXPECT_NE(r.out.find("write alpha: 8 and use_rslora: false"), std::string::npos) << r.out;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Trajectory,
                         testing::Combine(testing::Values("llama_mqa", "llama_scaled", "qwen3_tied", "qwen3_gqa",
                                                          "gpt2", "gpt2_scales"),
                                          testing::Values("full", "lora")),
                         [](const auto& i) { return std::get<0>(i.param) + "_" + std::get<1>(i.param); });

INSTANTIATE_TEST_SUITE_P(
    Families, Trajectory,
    testing::Combine(testing::Values("mistral", "qwen2", "qwen2_untied", "instella", "instella_bias", "olmo2", "phi3",
                                     "phi3_longrope", "gemma3", "nanochat", "nanochat_yarn", "nanochat_v2",
                                     "nanochat_v2_plain", "nanochat_v2_values", "qwen3_moe", "qwen3_moe_balanced",
                                     "qwen3_5", "qwen3_5_moe", "gpt_oss", "gpt_oss_balanced"),
                     testing::Values("full", "lora")),
    [](const auto& i) { return std::get<0>(i.param) + "_" + std::get<1>(i.param); });

}  // namespace
}  // namespace mxt
