// Adapters of experts as PEFT stacks them (tools/golden/peft_experts.py): read beside the base, merged, refused over
// another one.
#include "e2e/cli.h"

namespace mxt {
namespace {

std::string adapter(const std::string& name) {
  return std::string(MXT_SOURCE_DIR) + "/tests/golden/peft_experts/" + name;
}

class PeftExperts : public testing::TestWithParam<std::string> {};

TEST_P(PeftExperts, SayWhatPeftSaysBesideTheBaseAndMerged) {
  cli::Folder f("peft_experts_" + GetParam());
  const Json want = read_json_file(adapter(GetParam()) + "/expected.json");
  const std::string base = cli::golden(want["model"]);
  write_file_atomic(f / "rows.jsonl", Json{{"ids", want["ids"]}}.dump() + "\n");
  const auto expect_same = [&](const std::string& model) {
    const auto r = cli::run("score --model " + model + " --dtype float32 --input " + (f / "rows.jsonl") + " --output " +
                            (f / "out.jsonl"));
    ASSERT_EQ(r.code, 0) << r.out;
    const Json got = cli::lines(f / "out.jsonl").at(0)["logprobs"];
    for (size_t i = 0; i < want["logprobs"].size(); ++i)
      EXPECT_NEAR(got[i + 1].get<double>(), want["logprobs"][i].get<double>(), 1e-5) << i;
  };
  expect_same(base + " --adapter " + adapter(GetParam()));
  const auto r = cli::run("merge --model " + base + " --adapter " + adapter(GetParam()) + " --out " + (f / "merged"));
  ASSERT_EQ(r.code, 0) << r.out;
  expect_same(f / "merged");
}

INSTANTIATE_TEST_SUITE_P(Golden, PeftExperts, testing::Values("both", "down", "gate_up", "converted"),
                         [](const auto& i) { return i.param; });

TEST(PeftExperts, OfAnotherBaseAreRefused) {
  cli::Folder f("peft_experts_other");
  for (const auto& [model, says] : {std::pair{"qwen3_gqa", "another base"}, {"qwen3_5_moe", "another base"}}) {
    const auto r =
        cli::run("merge --model " + cli::golden(model) + " --adapter " + adapter("both") + " --out " + (f / "merged"));
    EXPECT_EQ(r.code, 1) << r.out;
    EXPECT_NE(r.out.find(says), std::string::npos) << r.out;
  }
  const auto broken = [&](const char* key, const Json& value, int code, const char* says) {
    fs::copy(adapter("both"), f / key);
    Json j = read_json_file(f / (std::string(key) + "/adapter_config.json"));
    j[key] = value;
    write_file_atomic(f / (std::string(key) + "/adapter_config.json"), j.dump());
    const auto r =
        cli::run("merge --model " + cli::golden("qwen3_moe") + " --adapter " + (f / key) + " --out " + (f / "merged"));
    EXPECT_EQ(r.code, code) << r.out;
    EXPECT_NE(r.out.find(says), std::string::npos) << r.out;
  };
  broken("r", 5, 1, "stacked experts");
  broken("target_parameters", {"mlp.router.weight"}, 3, "mlp.router.weight");
}

}  // namespace
}  // namespace mxt
