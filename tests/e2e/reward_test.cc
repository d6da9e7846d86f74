// Reward models against TRL's RewardTrainer (tools/golden/reward.py): twelve steps each, what is saved, what scores.
#include "e2e/trl.h"
#include "folders.h"
#include "formats/safetensors.h"

namespace mxt {
namespace {

std::string golden() { return std::string(kSourceDir) + "/tests/golden/reward"; }

Json expected() { return read_json_file(golden() + "/expected.json"); }

// The golden model with the score's first weights beside its own, as a folder that transformers' classes load.
std::string classifier(const Json& c, const cli::Folder& f) {
  const std::string name = c["model"], to = trl::model_of(name, f);
  fs::rename(to + "/model.safetensors", to + "/model-00001-of-00002.safetensors");
  fs::copy_file(golden() + "/" + name + ".safetensors", to + "/model-00002-of-00002.safetensors");
  OrderedJson index{{"metadata", {{"total_size", 0}}}, {"weight_map", OrderedJson::object()}};
  for (const char* part : {"/model-00001-of-00002.safetensors", "/model-00002-of-00002.safetensors"}) {
    const auto file = formats::Safetensors::open(to + part);
    for (const auto& t : file.tensors()) index["weight_map"][t.name] = part + 1;
  }
  write_file_atomic(to + "/model.safetensors.index.json", index.dump());
  OrderedJson config = parse_ordered_json(read_file(to + "/config.json"), to);
  config["architectures"] = {name == "llama_mqa" ? "LlamaForSequenceClassification" : "Qwen3ForSequenceClassification"};
  config["pad_token_id"] = c["pad"];
  write_file_atomic(to + "/config.json", config.dump());
  return to;
}

std::string recipe(const Json& c, const std::string& model, const std::string& extra = "",
                   const std::string& rows = "") {
  std::string method = fmt::format("kind: reward, center_rewards: {}", c["center"].get<double>());
  if (c["kind"] == "lora")
    method += fmt::format(
        ", lora: {{r: 4, alpha: 8, target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj], "
        "init_adapter: \"{}/adapter\"}}",
        model);
  return fmt::format(R"(meta: {{project: test, run_name: reward}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{0}", torch_dtype: float32}}
data: {{source: local, path: "{1}", seq_len: 64, packing: false, shuffle: false}}
train:
  method: {{{2}}}
  precision: float32
  optimizer: {{lr: 1.0e-3, betas: [0.9, 0.95], weight_decay: 0.1, grad_clip: 1.0}}
  schedule: {{type: linear, warmup_ratio: 0, max_steps: 12}}
  batch: {{per_device: 3, grad_accum: 2}}
{3})",
                     model, rows.empty() ? golden() + "/pairs.jsonl" : rows, method, extra);
}

std::vector<double> scores_of(const std::string& path) {
  std::vector<double> out;
  for (const Json& j : cli::lines(path)) out.push_back(j["reward"]);
  return out;
}

std::string model_arguments(const Json& c, const std::string& base, const std::string& out) {
  return c["kind"] == "lora" ? "--model " + base + " --adapter " + out + "/checkpoint"
                             : "--model " + out + "/checkpoint";
}

class Reward : public testing::TestWithParam<std::string> {};

TEST_P(Reward, EqualsTrl) {
  const Json c = expected()["cases"][GetParam()];
  cli::Folder f("reward");
  const std::string base = classifier(c, f);
  write_file_atomic(f / "r.yaml", recipe(c, base));
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  trl::expect_steps(f / "out/metrics.jsonl", c["steps"], 1.0);
  const auto scored = cli::run("score --reward " + model_arguments(c, base, f / "out") + " --input " + golden() +
                               "/rows.jsonl --output " + (f / "scores.jsonl"));
  ASSERT_EQ(scored.code, 0) << scored.out;
  const std::vector<double> got = scores_of(f / "scores.jsonl"), want = c["scores"];
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-4) << "row " << i + 1;
  if (c["kind"] != "lora") return;
  const auto merged = cli::run("merge " + model_arguments(c, base, f / "out") + " --out " + (f / "merged"));
  ASSERT_EQ(merged.code, 0) << merged.out;
  const auto again = cli::run("score --reward --model " + (f / "merged") + " --input " + golden() +
                              "/rows.jsonl --output " + (f / "merged.jsonl"));
  ASSERT_EQ(again.code, 0) << again.out;
  const std::vector<double> of_merged = scores_of(f / "merged.jsonl");
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(of_merged.at(i), want[i], 2e-4) << "row " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(Golden, Reward,
                         testing::Values("qwen3_full", "qwen3_lora", "qwen3_lora_end_pads", "llama_full", "llama_lora"),
                         [](const auto& i) { return i.param; });

// Launched with this program's rows, TRL does what it does with its own; what it saves scores here.
TEST(RewardRuns, LaunchedTrlEqualsTrl) {
  if (!cli::has_trl()) GTEST_SKIP() << "trl and peft are not installed for " << cli::python();
  for (const char* name : {"qwen3_lora", "qwen3_lora_end_pads", "llama_full"}) {
    const Json c = expected()["cases"][name];
    cli::Folder f("reward_launched");
    const std::string base = classifier(c, f);
    write_file_atomic(f / "r.yaml", recipe(c, base, "  backend: trl\n"));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    const std::string log = f / "out/trainer/log.txt";
    ASSERT_EQ(r.code, 0) << r.out << (fs::exists(log) ? read_file(log) : "");
    trl::expect_steps(f / "out/metrics.jsonl", c["steps"], 1.0);
    EXPECT_EQ(cli::run("receipt " + (f / "out/manifest.json")).code, 0);
    const auto scored = cli::run("score --reward " + model_arguments(c, base, f / "out") + " --input " + golden() +
                                 "/rows.jsonl --output " + (f / "scores.jsonl"));
    ASSERT_EQ(scored.code, 0) << scored.out;
    const std::vector<double> got = scores_of(f / "scores.jsonl"), want = c["scores"];
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got.at(i), want[i], 2e-4) << name << " row " << i + 1;
  }
}

// A row's score does not depend on what is scored with it, bit for bit.
TEST(RewardRuns, ARowAloneScoresAsAmongOthers) {
  const Json c = expected()["cases"]["qwen3_full"];
  cli::Folder f("reward_alone");
  const std::string base = classifier(c, f);
  const auto score = [&](const std::string& input) {
    const auto r = cli::run("score --reward --model " + base + " --input " + input + " --output " + (f / "s.jsonl"));
    EXPECT_EQ(r.code, 0) << r.out;
    return scores_of(f / "s.jsonl");
  };
  const std::vector<double> all = score(golden() + "/rows.jsonl");
  const std::vector<Json> rows = cli::lines(golden() + "/rows.jsonl");
  for (size_t i = 0; i < rows.size(); ++i) {
    write_file_atomic(f / "row.jsonl", rows[i].dump() + "\n");
    EXPECT_EQ(score(f / "row.jsonl").at(0), all[i]) << "row " << i + 1;
  }
}

TEST(RewardRuns, MicroBatchesThreadsAndResumeKeepTheSteps) {
  const Json c = expected()["cases"]["qwen3_lora"];
  cli::Folder f("reward_resume");
  const std::string base = classifier(c, f);
  const auto train = [&](const char* out, const std::string& extra, const std::string& arguments) {
    write_file_atomic(f / "r.yaml", recipe(c, base, extra));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / out) + " " + arguments);
    EXPECT_EQ(r.code, 0) << r.out;
    return hash_file(f / (std::string(out) + "/checkpoint/adapter_model.safetensors")).blake3;
  };
  const std::string whole = train("whole", "  save_every: 5\n", "--threads 2");
  EXPECT_EQ(train("other", "  save_every: 5\n", "--threads 1"), whole);
  fs::remove_all(f / "other/checkpoint");
  EXPECT_EQ(train("other", "  save_every: 5\n", "--threads 1 --resume-from 5"), whole);
  train("single", "  micro_batch: 1\n", "");
  const auto a = cli::lines(f / "whole/metrics.jsonl"), b = cli::lines(f / "single/metrics.jsonl");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i]["loss"], b[i]["loss"], 2e-6) << "step " << i + 1;
}

// From a language model, whose file has no score: drawn from the seed. What is saved is what transformers and peft
// load.
TEST(RewardRuns, SavesWhatTransformersLoads) {
  for (const char* kind : {"full", "lora"}) {
    cli::Folder f("reward_saved");
    const std::string base = trl::model_of("qwen3_gqa", f);
    const Json c{{"kind", kind}, {"center", 0}};
    write_file_atomic(f / "r.yaml", recipe(c, base));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_NE(r.out.find("left out"), std::string::npos) << r.out;  // some pairs are longer than seq_len
    const Json dataset = read_json_file(f / "out/dataset/dataset.json");
    int64_t long_pairs = 0;
    for (const Json& row : cli::lines(golden() + "/pairs.jsonl"))
      long_pairs += row["prompt_ids"].size() + std::max(row["chosen_ids"].size(), row["rejected_ids"].size()) > 64;
    EXPECT_EQ(dataset["dropped"]["no_target"], long_pairs);
    if (std::string_view(kind) == "full") {
      const Json config = read_json_file(f / "out/checkpoint/config.json");
      EXPECT_EQ(config["architectures"], Json::array({"Qwen3ForSequenceClassification"}));
      EXPECT_EQ(config["num_labels"], 1);
      EXPECT_EQ(config["id2label"].size(), 1u);
      EXPECT_EQ(config["pad_token_id"], 1);
      const auto file = formats::Safetensors::open(f / "out/checkpoint/model.safetensors");
      ASSERT_NE(file.find("score.weight"), nullptr);
      EXPECT_EQ(file.find("score.weight")->shape, (std::vector<int64_t>{1, 32}));
      EXPECT_EQ(file.find("lm_head.weight"), nullptr);
    } else {
      const Json config = read_json_file(f / "out/checkpoint/adapter_config.json");
      EXPECT_EQ(config["task_type"], "SEQ_CLS");
      EXPECT_EQ(config["modules_to_save"], Json::array({"score"}));
      const auto file = formats::Safetensors::open(f / "out/checkpoint/adapter_model.safetensors");
      EXPECT_NE(file.find("base_model.model.score.weight"), nullptr);
      // Merged into the language model it is the classifier.
      const auto m =
          cli::run("merge --model " + base + " --adapter " + (f / "out/checkpoint") + " --out " + (f / "merged"));
      ASSERT_EQ(m.code, 0) << m.out;
      EXPECT_EQ(m.out.find("is without"), std::string::npos) << m.out;
      EXPECT_EQ(read_json_file(f / "merged/config.json")["architectures"],
                Json::array({"Qwen3ForSequenceClassification"}));
      const auto whole = formats::Safetensors::open(f / "merged/model.safetensors");
      EXPECT_NE(whole.find("score.weight"), nullptr);
      EXPECT_EQ(whole.find("lm_head.weight"), nullptr);
    }
  }
}

// Of families beside those of the trajectories: what AutoModelForSequenceClassification loads.
TEST(RewardRuns, AreSavedAsTheirFamilysClass) {
  for (const auto& [model, architecture] :
       {std::pair{"gpt_oss", "GptOssForSequenceClassification"}, {"qwen3_5", "Qwen3_5TextForSequenceClassification"}}) {
    cli::Folder f(std::string("reward_") + model);
    write_file_atomic(f / "r.yaml", recipe({{"kind", "full"}, {"center", 0}}, cli::golden(model)));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    ASSERT_EQ(r.code, 0) << r.out;
    const std::string judge = f / "out/checkpoint";
    EXPECT_EQ(read_json_file(judge + "/config.json")["architectures"], Json::array({architecture}));
    EXPECT_NE(formats::Safetensors::open(judge + "/model.safetensors").find("score.weight"), nullptr);
    const auto s = cli::run("score --reward --model " + judge + " --input " + golden() + "/rows.jsonl --output " +
                            (f / "scores.jsonl"));
    ASSERT_EQ(s.code, 0) << s.out;
    EXPECT_EQ(cli::lines(f / "scores.jsonl").size(), cli::lines(golden() + "/rows.jsonl").size());
  }
}

TEST(RewardRuns, WhatDoesNotFitIsSaid) {
  const Json c = expected()["cases"]["qwen3_full"];
  cli::Folder f("reward_bad");
  const std::string base = classifier(c, f), rows = golden() + "/rows.jsonl";
  const auto says = [&](const std::string& command, int code, const char* text) {
    const auto r = cli::run(command);
    EXPECT_EQ(r.code, code) << command << "\n" << r.out;
    EXPECT_NE(r.out.find(text), std::string::npos) << command << "\n" << r.out;
  };
  const std::string to = " --output " + (f / "o.jsonl");
  says("score --model " + base + " --input " + rows + to, 1, "is a reward model");
  says("score --reward --model " + cli::golden("qwen3_gqa") + " --input " + rows + to, 1, "it is no reward model");
  says("score --reward --model " + cli::golden("qwen3_gqa") + " --adapter " + cli::golden("qwen3_gqa") +
           "/adapter --input " + rows + to,
       1, "it is no reward model");
  write_file_atomic(f / "bad.jsonl", "{\"ids\": []}\n");
  says("score --reward --model " + base + " --input " + (f / "bad.jsonl") + to, 1, "bad.jsonl:1: the row is empty");
  write_file_atomic(f / "bad.jsonl", "{\"ids\": [3]}\n{\"ids\": [400]}\n");
  says("score --reward --model " + base + " --input " + (f / "bad.jsonl") + to, 1, "bad.jsonl:2: token id 400");
  EXPECT_FALSE(fs::exists(f / "o.jsonl"));
  const std::tuple<const char*, const char*> bad[] = {
      {R"({"prompt_ids":[3],"chosen_ids":[4],"rejected_ids":[4]})", "are equal"},
      {R"({"prompt_ids":[3],"chosen_ids":[4],"rejected_ids":[]})", "\"rejected_ids\" is empty"},
      {R"({"text":"a"})", "this method compares two answers"},
  };
  for (const auto& [row, message] : bad) {
    write_file_atomic(f / "rows.jsonl", std::string(row) + "\n");
    write_file_atomic(f / "r.yaml", recipe(c, base, "", f / "rows.jsonl"));
    says("train " + (f / "r.yaml") + " --out " + (f / "out"), 1, message);
  }
  write_file_atomic(f / "r.yaml", recipe(c, base) + "eval: {perplexity_path: a.txt}\n");
  says("validate " + (f / "r.yaml"), 1, "a reward model writes none");
  const std::string nanochat = cli::golden("nanochat");
  if (fs::exists(nanochat)) {
    write_file_atomic(f / "r.yaml", recipe(c, nanochat));
    says("train " + (f / "r.yaml") + " --out " + (f / "out2"), 3, "reward models of nanochat");
  }
}

}  // namespace
}  // namespace mxt
