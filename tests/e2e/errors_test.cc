// Bad input: one line that names the place, exit code 1, nothing lost.
#include <algorithm>
#include <array>

#include "e2e/cli.h"

namespace mxt {
namespace {

void expect_error(const cli::Result& r, int code, const std::vector<std::string>& words) {
  EXPECT_EQ(r.code, code) << r.out;
  for (const auto& w : words) EXPECT_NE(r.out.find(w), std::string::npos) << "no \"" << w << "\" in: " << r.out;
}

TEST(Errors, UnknownKeyNamesTheNearest) {
  cli::Folder f("unknown");
  write_file_atomic(f / "r.yaml", cli::recipe({}) + "trian: {}\n");
  expect_error(cli::run("validate " + (f / "r.yaml")), 1, {"r.yaml:", "trian", "train"});
}

TEST(Errors, AnEmptyValueTakesNoOptionForItself) {
  expect_error(cli::run("eval --tasks , --model m --out o"), 1, {"--tasks ,", "a name is missing"});
  expect_error(cli::run("eval --tasks a,,b --model m --out o"), 1, {"--tasks a,,b", "a name is missing"});
  expect_error(cli::run("eval --tasks= --model m --out o"), 1, {"--tasks=", "a value is missing"});
  expect_error(cli::run("serve --adapter a=b c=d --model m"), 1, {"c=d", "not expected"});
}

TEST(Errors, CommandLinesThatCannotBeMeantSo) {
  cli::Folder f("meant");
  const std::string model = " --model " + cli::golden("qwen3_gqa"), rows = f / "rows.jsonl";
  write_file_atomic(rows, "{\"ids\":[1,2]}\n");
  expect_error(cli::run("trian r.yaml"), 1, {"trian", "did you mean train?"});
  expect_error(cli::run("chat --prompt \"\"" + model), 1, {"--prompt", "empty"});
  expect_error(cli::run("score --input " + rows + " --output " + rows + model), 1, {"--output", "overwrite"});
  expect_error(cli::run("embed --input " + rows + " --output " + rows + model), 1, {"--output", "overwrite"});
  for (const std::string text : {"{\n  \"ids\": [1, 2]\n}\n", "[\n{\"ids\": [1, 2]}]\n"}) {
    write_file_atomic(f / "spread.jsonl", text);
    for (const std::string verb : {"score", "score --reward", "embed"})
      expect_error(cli::run(verb + " --input " + (f / "spread.jsonl") + " --output " + (f / "o.jsonl") + model), 1,
                   {"spread.jsonl:1", "goes on in the next line", "name it .json"});
    std::filesystem::rename(f / "spread.jsonl", f / "spread.json");
    const auto r = cli::run("score --input " + (f / "spread.json") + " --output " + (f / "o.jsonl") + model);
    EXPECT_EQ(r.code, 0) << r.out;
  }
  for (const std::string verb : {"encode", "decode", "render"})
    expect_error(cli::run("tokenizer " + verb + " --input " + rows + " --output " + rows + model), 1, {"overwrite"});
  EXPECT_EQ(read_file(rows), "{\"ids\":[1,2]}\n");
  expect_error(cli::run("quantize --scheme gguf_q8_0 --per-tensor --out " + (f / "q") + model), 1, {"--per-tensor"});
}

// What only a run would meet hours later: said by validate, plan and run alike, at its place.
TEST(Errors, RewardsAndRowsThatCannotBeUsedAreNoRun) {
  cli::Folder f("rewards");
  const auto recipe = [&](const std::string& rewards, const std::string& data) {
    write_file_atomic(f / "r.yaml",
                      "meta: {project: test, run_name: rewards}\nhardware: {name: cpu}\nmodel: {name: \"" +
                          cli::golden("qwen3_gqa") + "\"}\ndata: {source: local, seq_len: 64, " + data +
                          "}\ntrain:\n  method:\n    kind: grpo\n    rewards:\n      - {kind: length, max_tokens: "
                          "8}\n      - " +
                          rewards + "\n");
  };
  const std::string good = f / "good.jsonl", bad = f / "bad.jsonl", open = f / "open.jsonl";
  write_file_atomic(good, "{\"prompt\": \"1+1\", \"answer\": \"2\"}\n");
  write_file_atomic(bad, "{\"prompt\": \"1+1\", \"gold\": \"2\"}\n");
  write_file_atomic(open, "{\"messages\": [{\"role\": \"user\", \"content\": \"1+1\"}]}\n");
  const auto expect = [&](const std::string& where, const std::vector<std::string>& words) {
    for (const std::string& verb : {"validate " + (f / "r.yaml"), "plan " + (f / "r.yaml"),
                                    "train " + (f / "r.yaml") + " --out " + (f / "out")}) {
      const cli::Result r = cli::run(verb);
      expect_error(r, 1, words);
      EXPECT_NE(r.out.find("r.yaml:" + where), std::string::npos) << verb << ": " << r.out;
    }
    EXPECT_FALSE(fs::exists(f / "out/data"));
  };
  recipe("{kind: regex, pattern: \"[0-9\"}", "path: \"" + good + "\"");
  expect("10:", {"train.method.rewards[1].pattern: "});
  recipe("{kind: json_schema, schema: /none.json}", "path: \"" + good + "\"");
  expect("10:", {"train.method.rewards[1].schema: /none.json"});
  recipe("{kind: exact}", "path: \"" + bad + "\"");
  expect("4:", {"data.path: " + bad + ":1: ", "gold"});
  recipe("{kind: exact}", "path: \"" + open + "\"");
  expect("4:", {"data.path: " + open + ":1: ", "no assistant's text"});
  recipe("{kind: exact}", "path: \"" + good + "\", columns: {prompt: prompt, gold: answer}");
  expect("4:", {"no column \"gold\""});
  recipe("{kind: exact}", "path: \"" + bad + "\", columns: {prompt: prompt, gold: answer}");
  expect_error(cli::run("validate " + (f / "r.yaml")), 0, {"valid"});
}

// By the verbs that only look, too.
TEST(Errors, AdaptersAndJudgesThatAreNotThereAreNamedBeforeARun) {
  cli::Folder f("start_nowhere");
  make_folders(f / "odd");
  write_file_atomic(f / "odd/adapter_config.json", "[]");
  for (const std::string from : {"nowhere", "odd"})
    for (const bool dpo : {false, true}) {
      cli::Tiny t;
      const std::string start = "r: 4, alpha: 8, init_adapter: \"" + (f / from) + "\"";
      t.method = dpo ? "{kind: dpo, lora: {" + start + "}}" : "{kind: lora, " + start + "}";
      write_file_atomic(f / "r.yaml", cli::recipe(t));
      for (const std::string verb : {"validate", "plan"})
        expect_error(cli::run(verb + " " + (f / "r.yaml")), 1,
                     {dpo ? "train.method.lora.init_adapter: " : "train.method.init_adapter: ", f / from});
    }
  write_file_atomic(f / "rows.jsonl", "{\"prompt\": \"1+1\", \"answer\": \"2\"}\n");
  for (const auto& [judge, key, word] : std::vector<std::array<std::string, 3>>{
           {"reward: model, reward_model: ./nowhere", "train.method.reward_model: ", "./nowhere"},
           {"reward: model, reward_model: \"recipe:nope\"", "train.method.reward_model: ", "no recipe nope"},
           {"rewards: [{kind: exact}, {kind: model, model: ./nowhere}]",
            "train.method.rewards[1].model: ", "./nowhere"},
           {"reward: model, reward_model: \"" + cli::golden("llama_mqa") + "\"",
            "train.method.reward_model: ", "holds no score.weight"},
           {"rewards: [{kind: model, model: \"" + (f / "odd") + "\"}]",
            "train.method.rewards[0].model: ", f / "odd"}}) {
    write_file_atomic(f / "r.yaml", "meta: {project: test, run_name: judged}\nhardware: {name: cpu}\nmodel: {name: \"" +
                                        cli::golden("qwen3_gqa") + "\"}\ndata: {source: local, seq_len: 64, path: \"" +
                                        (f / "rows.jsonl") + "\"}\ntrain: {method: {kind: grpo, " + judge + "}}\n");
    for (const std::string& verb :
         {"validate " + (f / "r.yaml"), "plan " + (f / "r.yaml"), "train " + (f / "r.yaml") + " --out " + (f / "out")})
      expect_error(cli::run(verb), 1, {key, word});
    EXPECT_FALSE(fs::exists(f / "out/dataset"));
  }
}

// What a recipe says and a run does not do is said; what it takes is taken.
TEST(Errors, WhatARunDoesNotTakeIsSaid) {
  cli::Folder f("taken");
  cli::Tiny t;
  t.steps = 1;
  t.extra = "  env: {NCCL_DEBUG: INFO, LD_PRELOAD: /none.so, CUDA_INJECTION64_PATH: /none.so, HF_TOKEN: x}\n";
  std::string text = cli::recipe(t);
  text.replace(text.find("autotune: {"), 11, "autotune: {plan_path: " + (f / "mine.json") + ", ");
  text.replace(text.find("data: {"), 7, "data: {hf_config: main, split: test, gateway: \"https://gateway.test\", ");
  write_file_atomic(f / "r.yaml", text);
  expect_error(cli::run("validate " + (f / "r.yaml")), 0,
               {"data.hf_config: is for source hf", "data.gateway: is for source lighthouse",
                "data.split \"test\": ", "train.env: CUDA_INJECTION64_PATH, HF_TOKEN, LD_PRELOAD are recorded but"});
  ASSERT_EQ(cli::run("bench --dry-run --config " + (f / "r.yaml")).code, 0);
  const cli::Result r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  expect_error(r, 0,
               {"train.env: CUDA_INJECTION64_PATH, HF_TOKEN, LD_PRELOAD are recorded but not set",
                "data.hf_config: is for source hf", "--plan " + (f / "mine.json")});
  EXPECT_EQ(r.out.find("NCCL_DEBUG"), std::string::npos) << r.out;
  // A plan's choices for calls of another step.
  Json plan = read_json_file(f / "out/plan.json");
  plan["choices"]["gemm nn f32 m1 n2 k3"] = "auto";
  write_file_atomic(f / "plan.json", plan.dump());
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "two") + " --plan " + (f / "plan.json")), 0,
               {"1 of its choices are for calls that this step has not: gemm nn f32 m1 n2 k3"});
  EXPECT_EQ(read_json_file(f / "two/plan.json"), plan);
}

TEST(Errors, WhatFailsAfterTrainingIsSaidBefore) {
  cli::Folder f("before");
  cli::Tiny t;
  t.steps = 1;
  make_folders(f / "folder");
  t.extra = "receipt: {output: \"" + (f / "folder") + "\"}\n";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  expect_error(cli::run("run " + (f / "r.yaml") + " --out " + (f / "out")), 1, {"receipt.output", "is a folder"});
  EXPECT_FALSE(fs::exists(f / "out/checkpoint"));
  // A layout that the family has none of, or that wants what the model lacks.
  const auto no_layout = [&](const std::string& golden, const std::string& scheme, int code, const std::string& why) {
    t.model = golden;
    t.extra = "quantize: {scheme: " + scheme + "}\n";
    write_file_atomic(f / "q.yaml", cli::recipe(t));
    expect_error(cli::run("run " + (f / "q.yaml") + " --out " + (f / "small")), code, {why});
    EXPECT_FALSE(fs::exists(f / "small/dataset"));
    if (code == 1) return;  // its tokenizer may come later
    expect_error(cli::run("plan " + (f / "q.yaml")), code, {why});
    expect_error(cli::run("validate " + (f / "q.yaml")), code, {why});
  };
  no_layout("gpt2", "fp8_dynamic", 3, "a gguf_* scheme holds GPT-2");
  no_layout("qwen3_gqa", "gguf_f16", 1, "this model has none");
  t.model = "qwen3_gqa";
  t.extra = "eval: {harness: {tasks: [none]}, regression: {baseline: \"" + (f / "missing.json") + "\"}}\n";
  write_file_atomic(f / "e.yaml", cli::recipe(t));
  const std::string model = " --model " + cli::golden("qwen3_gqa");
  expect_error(cli::run("eval --config " + (f / "e.yaml") + " --out " + (f / "scores") + model), 1, {"missing.json"});
  t.extra = "eval: {harness: {tasks: []}}\n";
  write_file_atomic(f / "e.yaml", cli::recipe(t));
  expect_error(cli::run("eval --config " + (f / "e.yaml") + " --out " + (f / "scores") + model), 1,
               {"what to measure"});
  expect_error(cli::run("eval --text " + (f / "e.yaml") + " --baseline b.json --out " + (f / "scores") + model), 1,
               {"--baseline b.json"});
}

// What is refused leaves a finished run as it was.
TEST(Errors, ARefusedTrainingLosesNothing) {
  cli::Folder f("kept");
  cli::Tiny t;
  t.steps = 4;
  t.extra = "  save_every: 2\n";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  const std::string train = "train " + (f / "r.yaml") + " --out " + (f / "out");
  ASSERT_EQ(cli::run(train).code, 0);
  make_folders(f / "out/quantized");
  write_file_atomic(f / "out/quantized/model", "x");
  const std::string record = read_file(f / "out/train.json"), data = read_file(f / "out/dataset/dataset.json");
  expect_error(cli::run(train + " --resume-from 99"), 1, {"no step-99", "saved: 2"});
  EXPECT_EQ(read_file(f / "out/train.json"), record);
  EXPECT_EQ(read_file(f / "out/quantized/model"), "x");
  fs::copy(f / "out/checkpoints/step-2", f / "out/checkpoints/step-3");
  expect_error(cli::run(train + " --resume-from 3"), 1, {"step-3/state.json", "it is of step 2"});
  EXPECT_EQ(read_file(f / "out/train.json"), record);
  fs::remove_all(f / "out/checkpoints/step-3");
  std::string other = cli::recipe(t);
  other.replace(other.find("seq_len: 64"), 11, "seq_len: 128");
  write_file_atomic(f / "other.yaml", other);
  ASSERT_EQ(cli::run("dataset prep " + (f / "other.yaml") + " --out " + (f / "other")).code, 0);
  expect_error(cli::run(train + " --data " + (f / "other")), 1, {"other settings", "seq_len"});
  EXPECT_EQ(read_file(f / "out/dataset/dataset.json"), data);
}

TEST(Errors, ALossThatIsNoNumberHasOneSpelling) {
  cli::Folder f("nan");
  cli::Tiny t;
  t.lr = 1e30;
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  expect_error(r, 1, {" is nan: lower train.optimizer.lr", "no step was saved before"});
}

// `run` does again what its inputs have changed for, whether steps were saved or not; `train --resume` is told.
TEST(Errors, ChangedDataAreTrainedAnewByRunAndRefusedByResume) {
  cli::Folder f("grown");
  cli::Tiny t;
  t.steps = 4;
  t.extra = "  save_every: 2\n";
  const std::string golden = cli::golden(t.model) + "/rows.jsonl", rows = f / "rows.jsonl";
  write_file_atomic(rows, read_file(golden));
  std::string recipe = cli::recipe(t);
  recipe.replace(recipe.find(golden), golden.size(), rows);
  write_file_atomic(f / "r.yaml", recipe);
  ASSERT_EQ(cli::run("run " + (f / "r.yaml") + " --out " + (f / "out")).code, 0);
  const std::string data = read_file(f / "out/dataset/dataset.json");
  write_file_atomic(rows, read_file(golden) + "{\"input_ids\":[1,2],\"labels\":[1,2]}\n");
  expect_error(cli::run("train " + (f / "r.yaml") + " --resume --out " + (f / "out")), 1, {"other data", "rows.jsonl"});
  EXPECT_EQ(read_file(f / "out/dataset/dataset.json"), data);
  auto r = cli::run("run " + (f / "r.yaml") + " --out " + (f / "out"));
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("another dataset: training begins anew"), std::string::npos) << r.out;
  r = cli::run("run " + (f / "r.yaml") + " --out " + (f / "fresh"));
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(read_file(f / "out/checkpoint/model.safetensors"), read_file(f / "fresh/checkpoint/model.safetensors"));
}

TEST(Errors, ARunAmongItsOwnRowsIsRefusedBeforeItsFirstFile) {
  cli::Folder f("among");
  cli::Tiny t;
  const std::string golden = cli::golden(t.model) + "/rows.jsonl", rows = f / "rows";
  make_folders(rows);
  write_file_atomic(rows + "/a.jsonl", read_file(golden));
  std::string recipe = cli::recipe(t);
  recipe.replace(recipe.find(golden), golden.size(), rows);
  write_file_atomic(f / "r.yaml", recipe);
  for (const char* verb : {"run ", "train "})
    for (const char* out : {"", "/", "/deep/er"})
      expect_error(cli::run(verb + (f / "r.yaml") + " --out " + rows + out), 1, {"read as rows", "another folder"});
  EXPECT_EQ(list_entries(rows), std::vector<std::string>{"a.jsonl"});
}

TEST(Errors, AnAdapterOnAModuleThatNoLayerHasIsRefusedBeforeTraining) {
  cli::Folder f("nowhere");
  for (const char* target : {"layers.5.self_attn.q_proj", "mlp.q_proj", "q_proj, mlp.v_proj"}) {
    cli::Tiny t;
    t.method = fmt::format("{{kind: lora, r: 2, target_modules: [{}]}}", target);
    write_file_atomic(f / "r.yaml", cli::recipe(t));
    expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 1, {"target_modules", "has a module"});
    EXPECT_FALSE(fs::exists(f / "out/metrics.jsonl"));
  }
}

TEST(Errors, AnAdapterOfABaseWithFewerLayersIsRefused) {
  cli::Folder f("deeper");
  cli::Tiny t;
  t.steps = 1;
  t.method = "{kind: lora, r: 2, target_modules: [layers.0.self_attn.q_proj]}";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")).code, 0);
  const std::string adapter = f / "out/checkpoint", config = adapter + "/adapter_config.json";
  const std::string merge = "merge --model " + cli::golden(t.model) + " --adapter " + adapter + " --out ";
  EXPECT_EQ(cli::run(merge + (f / "merged")).code, 0);
  Json j = read_json_file(config);
  j["target_modules"] = {"q_proj"};
  write_file_atomic(config, j.dump());
  expect_error(cli::run(merge + (f / "other")), 1, {"layers.1.self_attn.q_proj", "another base"});
  EXPECT_FALSE(fs::exists(f / "other"));
}

TEST(Errors, DataPreparedFromOtherFilesAreRefused) {
  cli::Folder f("files");
  cli::Tiny t;
  t.steps = 1;
  const std::string recipe = cli::recipe(t), rows = cli::golden(t.model) + "/rows.jsonl";
  write_file_atomic(f / "a.yaml", recipe);
  ASSERT_EQ(cli::run("dataset prep " + (f / "a.yaml") + " --out " + (f / "data")).code, 0);
  EXPECT_EQ(cli::run("train " + (f / "a.yaml") + " --data " + (f / "data") + " --out " + (f / "same")).code, 0);
  write_file_atomic(f / "rows.jsonl", read_file(rows) + "{\"input_ids\":[1,2],\"labels\":[1,2]}\n");
  std::string other = recipe;
  other.replace(other.find("path: \"" + rows), rows.size() + 7, "path: \"" + (f / "rows.jsonl"));
  write_file_atomic(f / "b.yaml", other);
  expect_error(cli::run("train " + (f / "b.yaml") + " --data " + (f / "data") + " --out " + (f / "out")), 1,
               {"other rows", "rows.jsonl"});
  const auto with = [&](const std::string& more) {
    std::string text = recipe;
    text.replace(text.find("shuffle: false"), 14, "shuffle: false, " + more);
    write_file_atomic(f / "c.yaml", text);
    fs::remove_all(f / "other");
    return cli::run("train " + (f / "c.yaml") + " --data " + (f / "data") + " --out " + (f / "other"));
  };
  expect_error(with("eval_path: \"" + (f / "rows.jsonl") + "\""), 1, {"other rows", "nothing", "rows.jsonl"});
  expect_error(with("dedupe: {exact: true}"), 1, {"other rows", "data.dedupe"});
  fs::remove(f / "rows.jsonl");  // prepared elsewhere: nothing to compare with
  const auto elsewhere = cli::run("train " + (f / "b.yaml") + " --data " + (f / "data") + " --out " + (f / "out"));
  expect_error(elsewhere, 0, {"is not compared", "rows.jsonl"});
}

TEST(Errors, AnotherRecipesFolderIsRefused) {
  cli::Folder f("other");
  cli::Tiny t;
  t.steps = 1;
  write_file_atomic(f / "a.yaml", cli::recipe(t));
  t.steps = 2;
  write_file_atomic(f / "b.yaml", cli::recipe(t));
  ASSERT_EQ(cli::run("train " + (f / "a.yaml") + " --out " + (f / "out")).code, 0);
  expect_error(cli::run("train " + (f / "b.yaml") + " --out " + (f / "out")), 1, {"another recipe", "--out"});
}

TEST(Errors, PlanOfOtherShapesNamesTheDifference) {
  cli::Folder f("plan");
  cli::Tiny t;
  t.steps = 1;
  write_file_atomic(f / "a.yaml", cli::recipe(t));
  ASSERT_EQ(cli::run("train " + (f / "a.yaml") + " --out " + (f / "out")).code, 0);
  t.model = "llama_mqa";
  write_file_atomic(f / "b.yaml", cli::recipe(t));
  expect_error(cli::run("train " + (f / "b.yaml") + " --plan " + (f / "out/plan.json") + " --out " + (f / "out2")), 1,
               {"plan", "heads"});
}

TEST(Errors, BadRowIsNamedWithItsLine) {
  cli::Folder f("row");
  cli::Tiny t;
  std::string text = cli::recipe(t);
  const std::string rows = f / "rows.jsonl";
  write_file_atomic(rows, "{\"input_ids\":[1,2,3],\"labels\":[1,2,3]}\n{\"input_ids\":[1,2,\n");
  text.replace(text.find(cli::golden(t.model) + "/rows.jsonl"), (cli::golden(t.model) + "/rows.jsonl").size(), rows);
  write_file_atomic(f / "r.yaml", text);
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 1, {"rows.jsonl:2"});
}

TEST(Errors, IdOutsideTheVocabularyIsNamed) {
  cli::Folder f("vocab");
  cli::Tiny t;
  std::string text = cli::recipe(t);
  const std::string rows = f / "rows.jsonl";
  write_file_atomic(rows, "{\"input_ids\":[1,2,96],\"labels\":[1,2,96]}\n");
  text.replace(text.find(cli::golden(t.model) + "/rows.jsonl"), (cli::golden(t.model) + "/rows.jsonl").size(), rows);
  write_file_atomic(f / "r.yaml", text);
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 1, {"rows.jsonl", "96"});
}

TEST(Errors, MissingModelIsExitThreeWithTheRemedy) {
  cli::Folder f("model");
  std::string text = cli::recipe({});
  const std::string name = "\"" + cli::golden("qwen3_gqa") + "\"";
  text.replace(text.find(name), name.size(), "./no/such/model");
  write_file_atomic(f / "r.yaml", text);
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 3, {"no such model"});
  // Ids of the Hub have an organisation or none.
  for (const char* id : {"distilgpt2", "org/distilgpt2"})
    expect_error(cli::run("score --input r --output o --model " + std::string(id),
                          "HF_HUB_OFFLINE=1 HF_HOME='" + (f / "hub") + "'"),
                 3, {std::string("hf download ") + id});
}

// What lies near a model is taken for one.
TEST(Errors, WhatIsNoModelIsToldWhatItIs) {
  cli::Folder f("near_model");
  write_file_atomic(f / "in.jsonl", "{\"ids\":[1,2]}\n");
  const std::string model = cli::golden("qwen3_gqa");
  const auto score = [&](const std::string& name) {
    return cli::run("score --model " + name + " --input " + (f / "in.jsonl") + " --output " + (f / "out.jsonl"));
  };
  expect_error(score(model + "/adapter"), 1, {"is an adapter", "base"});
  expect_error(score(model + "/model.safetensors"), 1, {"its folder", model + "\n"});
  expect_error(score("https://hub.test/org/name-1"), 1, {"is an address, and a model is named by its id: org/name-1"});
  expect_error(score("https://hub.test/org"), 1, {"is named by its id: ORGANISATION/NAME"});
  make_folders(f / "outer");
  fs::copy(model, f / "outer/inner", fs::copy_options::recursive);
  expect_error(score(f / "outer"), 1, {"no config.json", "outer/inner is one"});
  fs::copy(model, f / "shards", fs::copy_options::recursive);
  fs::rename(f / "shards/model.safetensors", f / "shards/model-00001-of-00002.safetensors");
  expect_error(score(f / "shards"), 1, {"model-00001-of-00002.safetensors", "index.json"});
}

TEST(Errors, WrongShapeAndMissingTensorAreNamed) {
  cli::Folder f("shape");
  fs::copy(cli::golden("qwen3_gqa"), f / "model", fs::copy_options::recursive);
  std::string config = read_file(f / "model/config.json");
  const size_t at = config.find("\"intermediate_size\": 48");
  ASSERT_NE(at, std::string::npos);
  config.replace(at, 23, "\"intermediate_size\": 56");
  write_file_atomic(f / "model/config.json", config);
  std::string text = cli::recipe({});
  const std::string name = "name: \"" + cli::golden("qwen3_gqa") + "\"";
  text.replace(text.find(name), name.size(), "name: \"" + (f / "model") + "\"");
  write_file_atomic(f / "r.yaml", text);
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 1, {"gate_proj", "48", "56"});
}

TEST(Errors, YamlThatIsAnAttackIsRefused) {
  cli::Folder f("yaml");
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += fmt::format("a{0}: &a{0} [", i);
    for (int j = 0; j < 10; ++j) bomb += fmt::format("{}*a{}", j ? ", " : "", i - 1);
    bomb += "]\n";
  }
  write_file_atomic(f / "bomb.yaml", bomb);
  expect_error(cli::run("validate " + (f / "bomb.yaml")), 1, {"bomb.yaml:", "alias"});
  write_file_atomic(f / "twice.yaml", cli::recipe({}) + "meta: {project: a}\n");
  expect_error(cli::run("validate " + (f / "twice.yaml")), 1, {"twice.yaml:", "meta", "1"});
}

TEST(Errors, InvariantsOfTheHardware) {
  cli::Folder f("hardware");
  std::string text = cli::recipe({});
  const std::string cpu = "hardware: {name: cpu}";
  const auto with = [&](const std::string& hardware) {
    std::string t = text;
    return t.replace(t.find(cpu), cpu.size(), hardware);
  };
  write_file_atomic(f / "two.yaml", with("hardware: {name: mi300x, gpus: 2}"));
  expect_error(cli::run("validate " + (f / "two.yaml")), 1, {"two.yaml:2:", "hardware.gpus", "1 or 8"});
  const std::string probe = "autotune: {enabled: false, budget_seconds: 20}";
  text.replace(text.find(probe), probe.size(), "autotune: {policy: jit}");
  write_file_atomic(f / "policy.yaml", text);
  expect_error(cli::run("validate " + (f / "policy.yaml")), 1, {"policy.yaml:3:", "autotune.policy", "aot"});
}

TEST(Errors, PlanWithoutAnEnvironmentKeyIsRefused) {
  cli::Folder f("env");
  std::string text = cli::recipe({});
  const std::string cpu = "hardware: {name: cpu}";
  text.replace(text.find(cpu), cpu.size(), "hardware: {name: mi300x, gpus: 1}");
  write_file_atomic(f / "r.yaml", text);
  const auto dry = cli::run("bench --config " + (f / "r.yaml") + " --out " + (f / "plan.json") + " --dry-run");
  ASSERT_EQ(dry.code, 0) << dry.out;
  Json plan = Json::parse(read_file(f / "plan.json"));
  ASSERT_FALSE(plan["env"].empty());
  const std::string key = plan["env"].begin().key();
  plan["env"].erase(key);
  write_file_atomic(f / "plan.json", plan.dump(1));
  expect_error(cli::run("train " + (f / "r.yaml") + " --plan " + (f / "plan.json") + " --out " + (f / "out")), 1,
               {"plan.json", key});
}

TEST(Errors, EmptyDatasetIsSaid) {
  cli::Folder f("empty");
  std::string text = cli::recipe({});
  const std::string rows = cli::golden("qwen3_gqa") + "/rows.jsonl";
  write_file_atomic(f / "none.jsonl", "");
  text.replace(text.find(rows), rows.size(), f / "none.jsonl");
  write_file_atomic(f / "r.yaml", text);
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 1, {"none.jsonl"});
}

TEST(Errors, TruncatedWeightsAreRefused) {
  cli::Folder f("truncated");
  const std::string model = f / "model";
  fs::copy(cli::golden("qwen3_gqa"), model, fs::copy_options::recursive);
  fs::resize_file(model + "/model.safetensors", fs::file_size(model + "/model.safetensors") / 2);
  std::string text = cli::recipe({});
  const std::string name = "name: \"" + cli::golden("qwen3_gqa") + "\"";
  text.replace(text.find(name), name.size(), "name: \"" + model + "\"");
  write_file_atomic(f / "r.yaml", text);
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 1, {"model.safetensors"});
}

// Nothing of the model is run without a report, and what is written would name sizes that its tensors do not have.
TEST(Errors, QuantizeOfContradictingSizesLeavesNothing) {
  cli::Folder f("sizes");
  const std::string model = f / "model";
  fs::copy(cli::golden("qwen3_gqa"), model, fs::copy_options::recursive);
  Json config = Json::parse(read_file(model + "/config.json"));
  config["hidden_size"] = config["hidden_size"].get<int64_t>() + 32;
  write_file_atomic(model + "/config.json", config.dump());
  expect_error(cli::run("quantize --model " + model + " --scheme fp8_dynamic --no-report --out " + (f / "out")), 1,
               {"has shape", "the configuration says"});
  EXPECT_FALSE(fs::exists(f / "out"));
  EXPECT_FALSE(fs::exists(f / "out.part"));
}

TEST(Errors, WhatThisBuildCannotTrainIsExitThree) {
  cli::Folder f("float16");
  cli::Tiny t;
  t.precision = "float16";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  EXPECT_EQ(cli::run("validate " + (f / "r.yaml")).code, 0);
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 3, {"train.precision float16"});
}

}  // namespace
}  // namespace mxt
