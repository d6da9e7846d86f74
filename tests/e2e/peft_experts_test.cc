// Adapters of experts as PEFT stacks them (tools/golden/peft_experts.py): read beside the base, merged, refused over
// another one.
#include "e2e/cli.h"
#include "folders.h"

namespace mxt {
namespace {

std::string adapter(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/peft_experts/" + name; }

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

INSTANTIATE_TEST_SUITE_P(Golden, PeftExperts,
                         testing::Values("both", "down", "gate_up", "converted", "all_linear", "all_linear_shared"),
                         [](const auto& i) { return i.param; });

TEST(PeftExperts, OfAnotherBaseAreRefused) {
  cli::Folder f("peft_experts_other");
  for (const auto& [model, says] : {std::pair{"qwen3_gqa", "another base"}, {"qwen3_5_moe", "another base"}}) {
    const auto r =
        cli::run("merge --model " + cli::golden(model) + " --adapter " + adapter("both") + " --out " + (f / "merged"));
    EXPECT_EQ(r.code, 1) << r.out;
    EXPECT_NE(r.out.find(says), std::string::npos) << r.out;
    EXPECT_NE(r.out.find(adapter("both") + "/adapter_model.safetensors: "), std::string::npos) << r.out;
  }
  // Of fewer experts than the base: its stacks say so before any weight is read.
  fs::copy(cli::golden("qwen3_moe"), f / "seven");
  Json seven = read_json_file(f / "seven/config.json");
  seven["num_local_experts"] = 7;
  write_file_atomic(f / "seven/config.json", seven.dump());
  write_file_atomic(f / "rows.jsonl", "{\"ids\":[1,2,3]}\n");
  const auto r = cli::run("score --model " + (f / "seven") + " --adapter " + adapter("both") + " --input " +
                          (f / "rows.jsonl") + " --output " + (f / "out.jsonl"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("adapter_model.safetensors: the adapter has weights for model.layers.0.mlp.experts.*.gate_proj, "
                       "and none for model.layers.0.mlp.experts.6.gate_proj"),
            std::string::npos)
      << r.out;
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
  broken("target_parameters", {"mlp.experts.gate_up_proj_bias"}, 3, "gate_up_proj_bias");
}

// What a run with experts' adapters saves, for PEFT (target_parameters) and one by one: the same function, which PEFT
// reads as it is computed here, and which a run can go on from.
class StackedAdapters : public testing::TestWithParam<std::string> {};

std::vector<double> said_by(const std::string& model, const std::string& rows, const std::string& out) {
  const auto r = cli::run("score --model " + model + " --dtype float32 --input " + rows + " --output " + out);
  EXPECT_EQ(r.code, 0) << r.out;
  std::vector<double> said;
  if (r.code != 0) return said;
  const Json row = cli::lines(out).at(0);
  for (const Json& x : row["logprobs"])
    if (!x.is_null()) said.push_back(x.get<double>());
  return said;
}

TEST_P(StackedAdapters, SayWhatThoseOfSingleExpertsSay) {
  cli::Folder f("stacked_" + GetParam());
  cli::Tiny t;
  t.model = GetParam();
  t.steps = 3;
  const std::string targets = "target_modules: [q_proj, o_proj, gate_proj, up_proj, down_proj]";
  const auto train = [&](const std::string& name, const std::string& more) {
    t.method = "{kind: lora, r: 3, alpha: 9, " + targets + more + "}";
    write_file_atomic(f / (name + ".yaml"), cli::recipe(t));
    const auto r = cli::run("train " + (f / (name + ".yaml")) + " --out " + (f / name));
    ASSERT_EQ(r.code, 0) << r.out;
  };
  train("stacked", ", stack_experts: true");
  train("single", ", stack_experts: false");
  const Json config = read_json_file(f / "stacked/checkpoint/adapter_config.json");
  // A layer without experts stands beside them as parameters: PEFT takes its modules' names for the experts'.
  Json parameters = {"mlp.experts.down_proj", "mlp.experts.gate_up_proj"}, beside = Json::array();
  if (GetParam() == "qwen3_moe")
    for (const char* part : {"down_proj", "gate_proj", "up_proj"})
      beside.push_back(fmt::format("model.layers.1.mlp.{}.weight", part));
  parameters.insert(parameters.end(), beside.begin(), beside.end());
  EXPECT_EQ(config["target_parameters"], parameters);
  EXPECT_EQ(read_json_file(f / "single/checkpoint/adapter_config.json").value("target_parameters", Json::array()),
            beside);
  const Json ids = {1, 5, 9, 33, 2, 7, 80, 41, 12, 3};
  write_file_atomic(f / "rows.jsonl", Json{{"ids", ids}}.dump() + "\n");
  const std::string base = cli::golden(GetParam());
  const auto stacked = said_by(base + " --adapter " + (f / "stacked/checkpoint"), f / "rows.jsonl", f / "a.jsonl"),
             single = said_by(base + " --adapter " + (f / "single/checkpoint"), f / "rows.jsonl", f / "b.jsonl");
  ASSERT_EQ(stacked.size(), ids.size() - 1);
  ASSERT_EQ(stacked.size(), single.size());
  for (size_t i = 0; i < single.size(); ++i) EXPECT_NEAR(stacked[i], single[i], 1e-6) << i;
  t.steps = 1;
  train("on", ", init_adapter: \"" + (f / "stacked/checkpoint") + "\"");

  const char* named = std::getenv("MINDXTRAIN_PYTHON");
  const std::string python = named ? named : "python3";
  if (std::system(("'" + python + "' -c 'import peft, transformers' > /dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "peft is not installed for " << python << " (MINDXTRAIN_PYTHON)";
  for (const std::string form : {"stacked", "single"}) {
    if (form == "single" && GetParam() != "qwen3_moe") continue;  // PEFT stacks no other family's
    ASSERT_EQ(std::system(fmt::format("'{}' {}/tests/e2e/peft_scores.py {} {} '{}' {} > /dev/null 2>&1", python,
                                      kSourceDir, base, f / (form + "/checkpoint"), ids.dump(), f / "peft.json")
                              .c_str()),
              0);
    const Json want = read_json_file(f / "peft.json");
    for (size_t i = 0; i < stacked.size(); ++i) EXPECT_NEAR(stacked[i], want[i].get<double>(), 2e-5) << form << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, StackedAdapters,
                         testing::Values("qwen3_moe", "qwen3_moe_balanced", "qwen3_5_moe", "gpt_oss"),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace mxt
