// The probe, the plan and the memory figures as a user meets them.
#include <functional>

#include "e2e/cli.h"
#include "folders.h"

namespace mxt {
namespace {

Json plan_of(const std::string& path) { return Json::parse(read_file(path)); }

struct Case {
  cli::Folder folder{"planning"};
  cli::Tiny tiny;
  std::string recipe, plan;
  Case() {
    tiny.steps = 2;
    tiny.method = "{kind: lora, r: 4}";
    tiny.precision = "bfloat16";
    tiny.probe = true;
    recipe = folder / "r.yaml";
    plan = folder / "plan.json";
    write_file_atomic(recipe, cli::recipe(tiny));
  }
  void edit(const std::function<void(Json&)>& change) const {
    Json j = plan_of(plan);
    change(j);
    write_file_atomic(plan, j.dump(2) + "\n");
  }
  cli::Result train() const { return cli::run("train " + recipe + " --plan " + plan + " --out " + (folder / "out")); }
};

TEST(Bench, MeasuresEveryCallAndTrainReplaysThePlanAsItIs) {
  Case c;
  auto r = cli::run("bench --config " + c.recipe + " --out " + c.plan);
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("gemm nt bf16"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("whole step"), std::string::npos) << r.out;
  const Json p = plan_of(c.plan);
  EXPECT_TRUE(p["measured"].get<bool>());
  EXPECT_LE(p["budget_s"].get<double>(), 60);
  for (const auto& [key, choice] : p["choices"].items())
    if (!key.starts_with("step ")) {
      EXPECT_TRUE(p["candidates"].contains(key)) << key;
    }
  EXPECT_EQ(p["candidates"]["step"].size(), 2u);
  r = c.train();
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(read_file(c.folder / "out/plan.json"), read_file(c.plan));
  const Json manifest = plan_of(c.folder / "out/manifest.json");
  const Json training = plan_of(c.folder / "out/checkpoint/training.json");
  EXPECT_EQ(training["plan_choices"].get<std::string>().size(), 64u);
  EXPECT_EQ(manifest.at("predicate").at("environment").at("decisions_in_loop"), 0);
  r = cli::run("bench --config " + c.recipe + " --out " + (c.folder / "again.json") + " --against " + c.plan);
  EXPECT_TRUE(r.code == 0 || r.code == 2) << r.out;
  EXPECT_NE(r.out.find("calls are slower than before"), std::string::npos) << r.out;
}

// The program that a run keeps is the one that `plan --dump` prints for its recipe and plan, and its digest is a
// subject of the manifest.
TEST(Plan, DumpsTheProgramThatRuns) {
  Case c;
  c.tiny.probe = false;
  write_file_atomic(c.recipe, cli::recipe(c.tiny));
  auto r = cli::run("bench --dry-run --config " + c.recipe + " --out " + c.plan);
  ASSERT_EQ(r.code, 0) << r.out;
  r = c.train();
  ASSERT_EQ(r.code, 0) << r.out;
  const std::string dump = c.folder / "dump.txt";
  r = cli::run("plan " + c.recipe + " --plan " + c.plan + " --dump " + dump);
  ASSERT_EQ(r.code, 0) << r.out;
  const std::string text = read_file(dump);
  EXPECT_EQ(text, read_file(c.folder / "out/program.txt"));
  for (const char* call : {" gemm:auto nt a<arena+", " norm rms ", " attention:", " cross_entropy gradient",
                           "loop over targets", " overwrites-then-adds", " c>grad[", " operations "})
    EXPECT_NE(text.find(call), std::string::npos) << call;
  const Json manifest = plan_of(c.folder / "out/manifest.json");
  EXPECT_TRUE(manifest.at("predicate").at("subjects").contains("program")) << manifest.dump(1).substr(0, 2000);
  write_file_atomic(c.folder / "out/program.txt", text + "\n");
  r = cli::run("receipt " + (c.folder / "out/manifest.json"));
  EXPECT_EQ(r.code, 2) << r.out;
  EXPECT_NE(r.out.find("program.txt"), std::string::npos) << r.out;
}

// What a plan does not choose would be chosen by whatever build runs it.
TEST(Plan, ThatLacksChoicesIsRefusedMadeAnewOrSaid) {
  Case c;
  c.tiny.probe = false;
  c.tiny.extra = "  save_every: 1\n";
  write_file_atomic(c.recipe, cli::recipe(c.tiny));
  auto r = cli::run("bench --dry-run --config " + c.recipe + " --out " + c.plan);
  ASSERT_EQ(r.code, 0) << r.out;
  const std::string whole = read_file(c.plan), out = c.folder / "out", kept = c.folder / "out/plan.json";
  for (const char* kind : {"gemm ", "attention ", "step recompute", "step micro_batch"}) {
    write_file_atomic(c.plan, whole);
    std::string gone;
    c.edit([&](Json& j) {
      for (const auto& [key, choice] : j["choices"].items())
        if (gone.empty() && key.starts_with(kind)) gone = key;
      j["choices"].erase(gone);
    });
    for (const std::string& verb : {"train " + c.recipe + " --out " + out, "plan " + c.recipe}) {
      r = cli::run(verb + " --plan " + c.plan);
      EXPECT_EQ(r.code, 1) << r.out;
      EXPECT_NE(r.out.find("1 of the step's choices is not in it (" + gone), std::string::npos) << r.out;
      EXPECT_NE(r.out.find("mindxtrain bench"), std::string::npos) << r.out;
    }
    EXPECT_FALSE(fs::exists(kept));
  }
  write_file_atomic(c.plan, whole);
  ASSERT_EQ((r = c.train()).code, 0) << r.out;
  c.edit([](Json& j) { j["choices"] = {{"step micro_batch", "2"}, {"step recompute", "none"}}; });
  const std::string little = read_file(c.plan);
  // Its own, which an older build has written: steps that were saved with it go on, a run from the start has a new one.
  write_file_atomic(kept, little);
  r = cli::run("train " + c.recipe + " --resume --out " + out);
  EXPECT_NE(r.out.find("the saved steps go on with this build's defaults there"), std::string::npos) << r.out;
  EXPECT_EQ(read_file(kept), little);
  fs::remove_all(out);
  make_folders(out);
  write_file_atomic(kept, little);
  r = cli::run("train " + c.recipe + " --out " + out);
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("made anew"), std::string::npos) << r.out;
  EXPECT_EQ(read_file(kept), whole);
}

TEST(Throttle, PercentOfTheCoresAndPriorityAreHonoured) {
  Case c;
  c.tiny.extra = "  cpu_throttle: {percent: 1, nice_level: 3}\n";
  write_file_atomic(c.recipe, cli::recipe(c.tiny));
  auto r = cli::run("bench --dry-run --config " + c.recipe + " --out " + c.plan, "OMP_NUM_THREADS=");
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(plan_of(c.plan)["device"]["threads"], 1);
  r = cli::run("bench --dry-run --config " + c.recipe + " --out " + c.plan, "OMP_NUM_THREADS=2");  // what is said wins
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(plan_of(c.plan)["device"]["threads"], 2);
  if (geteuid() == 0) GTEST_SKIP() << "root may have any priority";
  c.tiny.extra = "  cpu_throttle: {nice_level: -20}\n";
  write_file_atomic(c.recipe, cli::recipe(c.tiny));
  r = cli::run("bench --dry-run --config " + c.recipe + " --out " + c.plan);
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_NE(r.out.find("nice_level"), std::string::npos) << r.out;
}

TEST(Doctor, SaysWhatIsThereAndHowToGetTheRest) {
  const auto r = cli::run("doctor --json");
  ASSERT_EQ(r.code, 0) << r.out;
  const Json j = Json::parse(r.out);
  for (const auto& [key, word] : {std::pair{"duckdb", "DuckDB"}, {"python", "python3"}}) {
    std::string remedy;
    for (const Json& m : j["missing"])
      if (m["what"].get<std::string>().find(word) != std::string::npos) remedy = m["remedy"];
    EXPECT_EQ(j[key].is_null(), !remedy.empty()) << key;  // one or the other
  }
  EXPECT_TRUE(j.contains("cuda"));
}

TEST(Bench, ADryRunSaysThatItWasNotMeasured) {
  Case c;
  ASSERT_EQ(cli::run("bench --dry-run --config " + c.recipe + " --out " + c.plan).code, 0);
  const Json p = plan_of(c.plan);
  EXPECT_FALSE(p["measured"].get<bool>());
  EXPECT_TRUE(p["candidates"].empty());
  EXPECT_FALSE(p["choices"].empty());
}

TEST(Plan, OfAnotherMachineIsRefusedByName) {
  const std::vector<std::pair<std::function<void(Json&)>, std::string>> changes = {
      {[](Json& j) { j["device"]["kind"] = "cuda"; }, "device kind"},
      {[](Json& j) { j["device"]["libraries"]["onednn"] = "9.9"; }, "library onednn"},
      {[](Json& j) { j["shapes"]["hidden"] = 12345; }, "shape hidden"},
      {[](Json& j) { j["schema_version"] = 99; }, "schema_version"},
      {[](Json& j) { j["choices"]["step micro_batch"] = "many"; }, "step micro_batch"},
      {[](Json& j) { j["choices"]["step recompute"] = "all of it"; }, "step recompute"},
      {[](Json& j) { j["choices"]["step offload"] = "optimizer"; }, "step offload"},
      {[](Json& j) { j["choices"]["step offload"] = "all of it"; }, "step offload"},
      {[](Json& j) { j["choices"]["step weights"] = "all of it"; }, "step weights"},
      {[](Json& j) { j["choices"]["step threads"] = "2abc"; }, "step threads"},
      {[](Json& j) { j["choices"]["step pinning"] = "sometimes"; }, "step pinning"},
      {[](Json& j) { j["choices"]["step colour"] = "blue"; }, "step colour"},
      {[](Json& j) { j["choices"].begin().value() = "no_such_algorithm"; }, "no_such_algorithm"},
  };
  for (const auto& [change, name] : changes) {
    Case c;
    ASSERT_EQ(cli::run("bench --dry-run --config " + c.recipe + " --out " + c.plan).code, 0);
    c.edit(change);
    const auto r = c.train();
    EXPECT_EQ(r.code, 1) << name << ": " << r.out;
    EXPECT_NE(r.out.find(name), std::string::npos) << name << ": " << r.out;
    EXPECT_NE(r.out.find(c.plan), std::string::npos) << name << ": " << r.out;
  }
}

TEST(Plan, ThatIsNotMadeLeavesNoFolder) {
  Case c;
  const std::string fresh = c.folder / "new";
  const std::string out = fresh + "/deep/plan.json";
  for (const char* wrong : {" --against nowhere.json", " --dry-run --against nowhere.json"}) {
    EXPECT_EQ(cli::run("bench --config " + c.recipe + wrong + " --out " + out).code, 1);
    EXPECT_FALSE(fs::exists(fresh)) << wrong;
  }
  EXPECT_EQ(cli::run("bench --dry-run --config " + c.recipe + " --out " + out).code, 0);
  EXPECT_TRUE(fs::exists(out));
}

// Where the device is not here, too: its choices would be said to be missing, or its times taken for the other's.
TEST(Plan, OfAnotherDeviceIsNotCountedWith) {
  Case c;
  c.tiny.method = "{kind: full}";
  write_file_atomic(c.recipe, cli::recipe(c.tiny));
  ASSERT_EQ(cli::run("bench --dry-run --config " + c.recipe + " --out " + c.plan).code, 0);
  const auto plan = [&] { return cli::run("plan " + c.recipe + " --device h100 --plan " + c.plan); };
  auto r = plan();
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("device kind: the plan was made for cpu, h100 is cuda"), std::string::npos) << r.out;
  c.edit([](Json& j) { j["device"]["kind"] = "cuda", j["device"]["arch"] = "sm_80"; });
  r = plan();
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("device arch: the plan was made for sm_80, h100 is sm_90"), std::string::npos) << r.out;
  c.edit([](Json& j) { j["device"]["arch"] = "sm_90a"; });
  r = plan();
  EXPECT_EQ(r.code, 0) << r.out;
}

TEST(Plan, IsComparedWithItsOwnDeviceAlone) {
  Case c;
  ASSERT_EQ(cli::run("bench --dry-run --config " + c.recipe + " --out " + c.plan).code, 0);
  c.edit([](Json& j) { j["device"]["name"] = "another"; });
  const std::string bench = "bench --config " + c.recipe + " --against " + c.plan + " --out " + (c.folder / "p.json");
  auto r = cli::run(bench);
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("another device"), std::string::npos) << r.out;
  r = cli::run(bench + " --dry-run");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("--dry-run measures nothing"), std::string::npos) << r.out;
}

// A plan is done as it stands: one that cuts a step otherwise than the recipe asks is not mixed with it.
TEST(Plan, OfAnotherCutIsRefused) {
  cli::Folder f("cut");
  cli::Tiny t;
  t.steps = 1;
  t.per_device = 4;
  t.extra = "  micro_batch: 4\n";
  write_file_atomic(f / "four.yaml", cli::recipe(t));
  t.extra = "  micro_batch: 2\n";
  write_file_atomic(f / "two.yaml", cli::recipe(t));
  t.extra = "  gradient_checkpointing: false\n";
  write_file_atomic(f / "keeps.yaml", cli::recipe(t));
  const std::string plan = f / "plan.json";
  const auto train = [&](const std::string& recipe, const std::string& more) {
    return cli::run("train " + (f / recipe) + " --out " + (f / recipe) + ".out" + more);
  };
  ASSERT_EQ(cli::run("bench --dry-run --config " + (f / "four.yaml") + " --out " + plan).code, 0);
  auto r = train("two.yaml", " --plan " + plan);
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("train.micro_batch: the plan was made for 4, here it is 2"), std::string::npos) << r.out;
  Json j = read_json_file(plan);
  j["choices"]["step recompute"] = "layer";
  write_file_atomic(plan, j.dump());
  r = train("keeps.yaml", " --plan " + plan);
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("train.gradient_checkpointing"), std::string::npos) << r.out;
}

// What the steps map is what the rows can hold, not what a data set might.
TEST(Plan, CountsTheDataThatIsThere) {
  cli::Folder f("mapped");
  cli::Tiny t;
  t.steps = 1000000;
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  const auto data = [&](const std::string& more) {
    const auto r = cli::run("plan " + (f / "r.yaml") + " --json" + more);
    EXPECT_EQ(r.code, 0) << r.out;
    return Json::parse(r.out)["categories"]["data"].get<int64_t>();
  };
  const auto file = static_cast<int64_t>(fs::file_size(cli::golden(t.model) + "/rows.jsonl"));
  EXPECT_EQ(data(""), file / 2 * 8);
  ASSERT_EQ(cli::run("dataset prep " + (f / "r.yaml") + " --out " + (f / "data")).code, 0);
  const int64_t prepared = data(" --data " + (f / "data"));
  EXPECT_GT(prepared, 0);
  EXPECT_LT(prepared, file * 4);
  std::string recipe = cli::recipe(t);
  const std::string path = cli::golden(t.model) + "/rows.jsonl";
  make_folders(f / "rows");
  fs::copy_file(path, f / "rows/all.jsonl");
  recipe.replace(recipe.find(path), path.size(), f / "rows");
  write_file_atomic(f / "r.yaml", recipe);
  EXPECT_LT(data(""), 64 << 20);
}

TEST(Plan, OfShortRowsCountsWhatTheyTouch) {
  cli::Folder f("short");
  write_file_atomic(f / "rows.jsonl", R"({"input_ids": [1, 2, 3, 4, 5, 6, 7, 8], "labels": [1, 2, 3, 4, 5, 6, 7, 8]})"
                                      "\n");
  write_file_atomic(f / "r.yaml", R"(meta: {project: test, run_name: short}
hardware: {name: cpu}
autotune: {enabled: false}
model:
  name: random
  init: random
  config: {model_type: llama, vocab_size: 256, hidden_size: 512, intermediate_size: 2048, num_hidden_layers: 4, num_attention_heads: 8, num_key_value_heads: 8, max_position_embeddings: 2048, rms_norm_eps: 1.0e-5, tie_word_embeddings: true, hidden_act: silu}
data: {source: local, path: ")" + (f / "rows.jsonl") +
                                      R"(", seq_len: 2048, packing: false}
train:
  method: {kind: lora, r: 8}
  batch: {per_device: 4, grad_accum: 1}
  micro_batch: 4
  schedule: {max_steps: 1}
)");
  const auto plan = [&](const std::string& more) {
    const auto r = cli::run("plan " + (f / "r.yaml") + " --json" + more);
    EXPECT_EQ(r.code, 0) << r.out;
    return Json::parse(r.out);
  };
  const Json blind = plan("");
  const auto prepared = cli::run("dataset prep " + (f / "r.yaml") + " --out " + (f / "data"));
  ASSERT_EQ(prepared.code, 0) << prepared.out;
  const Json counted = plan(" --data " + (f / "data"));
  EXPECT_TRUE(blind["longest_row"].is_null());
  EXPECT_EQ(counted["longest_row"], 8);
  EXPECT_EQ(counted["activations_bytes"], blind["activations_bytes"]);
  EXPECT_LT(counted["categories"]["activations"].get<double>(), 0.8 * blind["categories"]["activations"].get<double>());
  EXPECT_EQ(counted["fits"], blind["fits"]);
  EXPECT_NE(cli::run("plan " + (f / "r.yaml") + " --data " + (f / "data")).out.find("of the arena"), std::string::npos);
}

// Experts, gated delta heads and windows are sizes as the width is; a plan of before they were written still loads.
TEST(Plan, OfOtherLayersIsRefusedByName) {
  cli::Folder f("layers");
  const std::string named = fmt::format("model: {{name: \"{}\", torch_dtype: float32}}", cli::golden("qwen3_gqa"));
  const auto write = [&](const std::string& file, const std::string& config) {
    std::string text = cli::recipe({.steps = 1});
    text.replace(text.find(named), named.size(),
                 "model: {name: random, init: random, torch_dtype: float32, config: " + config + "}");
    write_file_atomic(f / file, text);
    return f / file;
  };
  const auto bench = [&](const std::string& recipe, const std::string& out) {
    const auto r = cli::run("bench --dry-run --config " + recipe + " --out " + (f / out));
    ASSERT_EQ(r.code, 0) << r.out;
  };
  const auto train = [&](const std::string& recipe, const std::string& plan) {
    return cli::run("train " + recipe + " --plan " + (f / plan) + " --out " + (f / "out"));
  };
  const std::string sizes =
      "vocab_size: 96, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, "
      "head_dim: 8, intermediate_size: 48";
  const auto experts = [&](int n, int k, int width) {
    return fmt::format(
        "{{model_type: qwen3_moe, {}, num_experts: {}, num_experts_per_tok: {}, moe_intermediate_size: {}}}", sizes, n,
        k, width);
  };
  const auto delta = [&](int heads) {
    return fmt::format(
        "{{model_type: qwen3_5_text, {}, layer_types: [linear_attention, full_attention], "
        "linear_num_key_heads: 2, linear_num_value_heads: {}, linear_key_head_dim: 8, "
        "linear_value_head_dim: 8, linear_conv_kernel_dim: 4}}",
        sizes, heads);
  };
  const auto window = [&](int tokens) {
    return fmt::format("{{model_type: mistral, {}, sliding_window: {}}}", sizes, tokens);
  };
  const std::string first = write("experts.yaml", experts(6, 2, 24));
  bench(first, "experts.json");
  for (const auto& [config, shape] :
       {std::pair{experts(8, 2, 24), "shape experts: the plan was made for 6, here it is 8"},
        std::pair{experts(6, 3, 24), "shape experts_per_token"},
        std::pair{experts(6, 2, 16), "shape expert_intermediate"}}) {
    const auto r = train(write("other.yaml", config), "experts.json");
    EXPECT_EQ(r.code, 1) << r.out;
    EXPECT_NE(r.out.find(shape), std::string::npos) << r.out;
  }
  bench(write("delta.yaml", delta(2)), "delta.json");
  auto r = train(write("other.yaml", delta(4)), "delta.json");
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("shape delta_value_heads"), std::string::npos) << r.out;
  bench(write("window.yaml", window(16)), "window.json");
  r = train(write("other.yaml", window(24)), "window.json");
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("shape window"), std::string::npos) << r.out;

  Json older = plan_of(f / "experts.json");
  for (const char* key : {"expert_layers", "experts", "experts_per_token", "expert_intermediate"})
    ASSERT_EQ(older["shapes"].erase(key), 1u) << key;
  write_file_atomic(f / "older.json", older.dump(2) + "\n");
  r = train(first, "older.json");
  EXPECT_EQ(r.code, 0) << r.out;
}

// Frozen weights packed once or in every step: the plan says which, the adapter is the same.
TEST(Plan, OfOtherAdaptersIsRefusedByName) {
  cli::Folder f("adapters");
  cli::Tiny t;
  t.method = "{kind: lora, r: 4, target_modules: [q_proj, v_proj]}";
  write_file_atomic(f / "two.yaml", cli::recipe(t));
  t.method = "{kind: lora, r: 4, target_modules: [q_proj]}";
  write_file_atomic(f / "one.yaml", cli::recipe(t));
  ASSERT_EQ(cli::run("bench --dry-run --config " + (f / "two.yaml") + " --out " + (f / "plan.json")).code, 0);
  const auto r = cli::run("train " + (f / "one.yaml") + " --plan " + (f / "plan.json") + " --out " + (f / "out"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("shape lora v_proj"), std::string::npos) << r.out;
}

TEST(Plan, PackedWeightsChangeNoByteOfTheAdapter) {
  Case c;
  c.tiny.steps = 6;
  write_file_atomic(c.recipe, cli::recipe(c.tiny));
  ASSERT_EQ(cli::run("bench --dry-run --config " + c.recipe + " --out " + c.plan).code, 0);
  const std::string onednn = plan_of(c.plan)["device"]["libraries"]["onednn"];
  if (onednn.find("amx") != std::string::npos) GTEST_SKIP() << "products by AMX pack their own: nothing is packed once";
  auto packed_bytes = [&] {
    const auto r = cli::run("plan " + c.recipe + " --plan " + c.plan + " --json");
    EXPECT_EQ(r.code, 0) << r.out;
    return Json::parse(r.out)["categories"]["packed"].get<int64_t>();
  };
  std::vector<std::string> adapters;
  for (const char* weights : {"packed", "plain"}) {
    if (adapters.empty()) {
      EXPECT_EQ(plan_of(c.plan)["choices"]["step weights"], weights);
      EXPECT_GT(packed_bytes(), 0);
    } else {
      c.edit([&](Json& j) { j["choices"]["step weights"] = weights; });
      EXPECT_EQ(packed_bytes(), 0);
    }
    const std::string out = c.folder / weights;
    const auto r = cli::run("train " + c.recipe + " --plan " + c.plan + " --out " + out);
    ASSERT_EQ(r.code, 0) << r.out;
    adapters.push_back(read_file(out + "/checkpoint/adapter_model.safetensors"));
  }
  EXPECT_EQ(adapters[0], adapters[1]);
}

// Which kernel makes the gradients of adapters, where the device has one for the rank and where it has none.
TEST(Plan, NamesTheKernelOfAdapters) {
  Case c;
  const auto adapters = [&](const std::string& hardware, int rank) {
    c.tiny.method = "{kind: lora, r: " + std::to_string(rank) + "}";
    std::string text = cli::recipe(c.tiny);
    const std::string cpu = "hardware: {name: cpu}";
    write_file_atomic(c.recipe, text.replace(text.find(cpu), cpu.size(), "hardware: " + hardware));
    const auto r = cli::run("plan " + c.recipe + " --json");
    EXPECT_EQ(r.code, 0) << r.out;
    return Json::parse(r.out)["adapters"];
  };
  const std::string h100 = "{name: h100, gpus: 1}";
  for (const int rank : {8, 16}) {
    const Json j = adapters(h100, rank);
    ASSERT_EQ(j["by_rank"].size(), 1u) << j;
    EXPECT_EQ(j["by_rank"][0]["rank"], rank);
    EXPECT_EQ(j["by_rank"][0]["kernel"], "one pass") << j;
    EXPECT_GT(j["by_rank"][0]["gradients"].get<int>(), 0);
  }
  const auto said = [&] { return cli::run("plan " + c.recipe).out; };
  Json j = adapters(h100, 12);
  EXPECT_EQ(j["by_rank"][0]["kernel"], "products") << j;
  EXPECT_EQ(j["one_pass_ranks"], Json::array({8, 16}));
  EXPECT_NE(said().find("kernels of one pass have ranks 8, 16; what that costs is measured by autotune"),
            std::string::npos)
      << said();
  EXPECT_EQ(adapters(h100, 64)["by_rank"][0]["kernel"], "products");
  EXPECT_NE(said().find("by products, which are as fast at this rank"), std::string::npos) << said();
  for (const char* hardware : {"{name: rtx4090, gpus: 1}", "{name: cpu}"}) {
    j = adapters(hardware, 16);
    EXPECT_EQ(j["by_rank"][0]["kernel"], "products") << j;
    EXPECT_TRUE(j["one_pass_ranks"].empty()) << j;
  }
}

TEST(Plan, PrintsBytesTimeAndMoneyForHereAndElsewhere) {
  Case c;
  const std::string lacking = "this build has no kernels for it and cannot train there";
  EXPECT_NE(cli::run("plan " + c.recipe + " --device mi300x").out.find("mi300x: " + lacking), std::string::npos);
  EXPECT_EQ(cli::run("plan " + c.recipe + " --device h100").out.find(lacking), std::string::npos);
  for (const char* device : {"cpu", "h100", "mi300x", "rtx4090", "b200"}) {
    const auto r = cli::run("plan " + c.recipe + " --json --device " + device);
    ASSERT_EQ(r.code, 0) << r.out;
    const Json j = Json::parse(r.out);
    EXPECT_EQ(j["device"], device);
    EXPECT_TRUE(j["fits"].get<bool>());
    EXPECT_EQ(j["driven"].get<bool>(), std::string(device) != "mi300x");
    const bool here = std::string(device) == "cpu";
    EXPECT_GT(j["peak_bytes"]["host"].get<int64_t>(), 0);
    EXPECT_EQ(j["peak_bytes"]["device"].get<int64_t>() == 0, here);
    int64_t sum = 0;
    for (const auto& [name, bytes] : j["categories"].items()) sum += bytes.get<int64_t>();
    if (here) {
      EXPECT_EQ(sum, j["peak_bytes"]["host"].get<int64_t>());
    }
    for (const char* key : {"weights", "gradients", "optimizer", "activations", "workspace", "logits"})
      EXPECT_TRUE(j["categories"].contains(key)) << key;
    EXPECT_GT(j["tokens_per_second"].get<double>(), 0);
    EXPECT_GT(j["seconds"].get<double>(), 0);
    EXPECT_FALSE(j["measured"].get<bool>());
    EXPECT_EQ(j["cost_per_1b_tokens_usd"].get<double>() > 0, !here);
    EXPECT_EQ(j["energy_kwh"].is_null(), here);
  }
}

// Which device is counted decides, not what the recipe says of its own: none, the processor or another card.
TEST(Plan, OfACardIsTheSameWhateverHardwareTheRecipeNames) {
  Case c;
  const std::string text = cli::recipe(c.tiny), own = "hardware: {name: cpu}\n";
  ASSERT_NE(text.find(own), std::string::npos);
  const auto counted = [&](const std::string& hardware, const std::string& device) {
    std::string recipe = text;
    recipe.replace(recipe.find(own), own.size(), hardware);
    write_file_atomic(c.recipe, recipe);
    const auto r = cli::run("plan " + c.recipe + " --json" + device);
    EXPECT_EQ(r.code, 0) << r.out;
    Json j = Json::parse(r.out);
    j["categories"].erase("process");
    return j["categories"].dump() + j["recompute"].dump() + j["micro_batch"].dump() + j["tokens_per_second"].dump();
  };
  const std::string h100 = counted("hardware: {name: h100}\n", "");
  for (const char* hardware : {"", "hardware: {name: cpu}\n", "hardware: {name: rtx4090}\n",
                               "hardware: {name: mi300x}\n", "hardware: {name: h100, gpus: 0}\n"})
    EXPECT_EQ(counted(hardware, " --device h100"), h100) << hardware;
  EXPECT_NE(counted("", " --device cpu"), h100);
  // A card of the user's own table is one of its instruction set.
  write_file_atomic(c.folder / "prices.yaml",
                    "devices: {mine: {arch: sm_90, memory_gb: 80, bandwidth_tb_s: 3.35, peak_tflops: 989.4, "
                    "peak_tflops_float32: 66.9, utilisation: 0.5}}\n");
  EXPECT_EQ(counted("", " --device mine --prices " + (c.folder / "prices.yaml")), h100);
}

TEST(Plan, OfACardThatCannotComputeInTheRecipesPrecisionIsRefused) {
  Case c;
  c.tiny.precision = "fp8_e4m3";
  std::string text = cli::recipe(c.tiny);
  text.replace(text.find("name: cpu"), 9, "name: h100");
  write_file_atomic(c.recipe, text);
  const auto r = cli::run("plan " + c.recipe + " --device rtx3090");
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("train.precision: is fp8_e4m3, which rtx3090 has no units for"), std::string::npos) << r.out;
}

TEST(Plan, OfARecipeForAGpuIsPrintedWhereThereIsNone) {
  Case c;
  std::string text = cli::recipe(c.tiny);
  text.replace(text.find("name: cpu"), 9, "name: h100");
  write_file_atomic(c.recipe, text);
  auto r = cli::run("plan " + c.recipe + " --json");
  ASSERT_EQ(r.code, 0) << r.out;
  Json j = Json::parse(r.out);
  EXPECT_EQ(j["device"], "h100");
  EXPECT_FALSE(j["measured"].get<bool>());
  ASSERT_EQ(j["recompute_options"].size(), 3u);  // of adapters that are joined while nothing is recomputed
  EXPECT_LT(j["recompute_options"][2]["activations"].get<int64_t>(),
            j["recompute_options"][0]["activations"].get<int64_t>());
  // A plan that was measured there: its time counts.
  ASSERT_EQ(cli::run("bench --dry-run --config " + c.recipe + " --out " + c.plan).code, 0);
  c.edit([](Json& p) {
    p["measured"] = true;
    p["device"]["name"] = "NVIDIA H100 80GB HBM3";
    p["choices"]["gemm nt bf16 m1 n1 k1"] = "lt3";
    p["candidates"]["step"] = {{{"algorithm", "default"}, {"median_us", 3e6}, {"spread_us", 0}},
                               {{"algorithm", "planned"}, {"median_us", 2e6}, {"spread_us", 0}}};
  });
  r = cli::run("plan " + c.recipe + " --json --plan " + c.plan);
  ASSERT_EQ(r.code, 0) << r.out;
  j = Json::parse(r.out);
  EXPECT_TRUE(j["measured"].get<bool>());
  EXPECT_DOUBLE_EQ(j["step_seconds"].get<double>(), 2.0);
  r = cli::run("plan " + c.recipe + " --json --device mi300x --plan " + c.plan);
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_FALSE(Json::parse(r.out)["measured"].get<bool>());
}

TEST(Plan, KeepsTheOptimizerOnTheHostWhereAGpuCannotHoldIt) {
  Case c;
  // Qwen3-8B: 16 bytes a parameter are 130 GB; adapters alone are little.
  const auto plan_for = [&](const std::string& method) {
    write_file_atomic(c.recipe, R"(
meta: {project: test, run_name: t}
hardware: {name: h100}
model: {name: random, init: random, config: {model_type: qwen3, vocab_size: 151936, hidden_size: 4096,
  intermediate_size: 12288, num_hidden_layers: 36, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128,
  max_position_embeddings: 40960, rms_norm_eps: 1.0e-6, rope_theta: 1000000, tie_word_embeddings: false,
  hidden_act: silu}}
data: {source: local, path: none.jsonl, seq_len: 2048}
train: {method: {kind: )" + method + R"(}, batch: {per_device: 8, grad_accum: 1}, schedule: {max_steps: 3}}
)");
    const auto r = cli::run("plan " + c.recipe + " --json");
    EXPECT_EQ(r.code, 0) << r.out;
    return Json::parse(r.out);
  };
  const Json full = plan_for("full"), lora = plan_for("lora");
  EXPECT_EQ(full["offload"], "optimizer");
  EXPECT_EQ(lora["offload"], "none");
  for (const Json& j : {full, lora}) {
    EXPECT_TRUE(j["fits"].get<bool>());
    const int64_t params = j["categories"]["gradients"].get<int64_t>() / 4;  // that train
    ASSERT_EQ(j["offload_options"].size(), 1u);
    EXPECT_EQ(j["offload_options"][0]["name"], "optimizer");
    EXPECT_NEAR(j["offload_options"][0]["device_bytes_saved"].get<double>(), 12.0 * static_cast<double>(params),
                1e-3 * 12.0 * static_cast<double>(params));
    EXPECT_GT(j["offload_options"][0]["more_seconds"].get<double>(), 0);
  }
  EXPECT_GT(full["peak_bytes"]["host"].get<int64_t>(), full["offload_options"][0]["device_bytes_saved"].get<int64_t>());
  EXPECT_LT(lora["peak_bytes"]["host"].get<int64_t>(), int64_t{4} << 30);
  EXPECT_LT(full["peak_bytes"]["device"].get<int64_t>(), int64_t{80'000'000'000});
}

// After training the report of a quantized copy runs two models: where that takes more, it is the peak.
TEST(Plan, CountsTheReportOfAQuantizedCopy) {
  Case c;
  std::string type = "float32";
  const auto peak = [&](const std::string& scheme) {
    std::string text = cli::recipe(c.tiny);
    text.replace(text.find("torch_dtype: float32"), 20, "torch_dtype: " + type);
    if (!scheme.empty()) text += "quantize: {scheme: " + scheme + "}\n";
    write_file_atomic(c.recipe, text);
    const auto r = cli::run("plan " + c.recipe + " --json");
    EXPECT_EQ(r.code, 0) << r.out;
    return Json::parse(r.out);
  };
  const Json plain = peak("");
  EXPECT_FALSE(plain.contains("stages"));
  const auto weights = plain["categories"]["weights"].get<int64_t>();
  // Beside the process, of which every start touches a little more or less: two models, the same in every plan.
  const auto models = [](const Json& plan) {
    return plan["stages"]["quantize"].get<int64_t>() - plan["categories"]["process"].get<int64_t>();
  };
  for (const char* scheme : {"gguf_f16", "fp8_dynamic"}) {
    const Json j = peak(scheme), again = peak(scheme);
    const auto train = j["stages"]["train"].get<int64_t>(), quantize = j["stages"]["quantize"].get<int64_t>();
    EXPECT_EQ(j["peak_bytes"]["host"].get<int64_t>(), std::max(train, quantize));
    EXPECT_GT(models(j), 2 * weights) << scheme;
    EXPECT_EQ(models(j), models(again)) << scheme;
  }
  // Of one trained whole in bfloat16 a GGUF's is made in float32, another's in the checkpoint's own type.
  type = "bfloat16", c.tiny.method = "{kind: full}";
  EXPECT_GT(models(peak("gguf_f16")), models(peak("fp8_dynamic")));
}

TEST(Plan, AnotherPriceTableIsReadStrictly) {
  Case c;
  const std::string table = c.folder / "prices.yaml";
  std::string text = read_file(std::string(kSourceDir) + "/recipes/assumptions/prices.yaml");
  const std::string price = "usd_per_hour: 4.00";
  text.replace(text.find(price), price.size(), "usd_per_hour: 8.00");
  write_file_atomic(table, text);
  auto cost = [&](const std::string& more) {
    return Json::parse(cli::run("plan " + c.recipe + " --json --device h100" + more).out)["cost_per_1b_tokens_usd"]
        .get<double>();
  };
  EXPECT_NEAR(cost(" --prices " + table), 2 * cost(""), 1e-6);
  write_file_atomic(table, text + "discount: 3\n");
  const auto r = cli::run("plan " + c.recipe + " --prices " + table);
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("discount: is not a key of a price table"), std::string::npos) << r.out;
  const auto refused = [&](const std::string& device, const std::string& part) {
    write_file_atomic(table,
                      "devices: {mine: {bandwidth_tb_s: 1, peak_tflops: 100, utilisation: 0.4, " + device + "}}\n");
    const auto bad = cli::run("plan " + c.recipe + " --device mine --prices " + table);
    EXPECT_EQ(bad.code, 1) << bad.out;
    EXPECT_NE(bad.out.find(part), std::string::npos) << bad.out;
  };
  refused("arch: sm90, memory_gb: 24", "devices.mine.arch: is `sm90`");
  refused("arch: NVIDIA, memory_gb: 24", "devices.mine.arch: is `NVIDIA`");
  refused("arch: sm_89, memory_gb: 1.0e+300", "devices.mine.memory_gb: is 1e+300");
  for (const char* nothing : {"", "# devices:\n\n#   cpu: {watts: 65}\n"}) {  // a table in which all is a comment yet
    write_file_atomic(table, nothing);
    EXPECT_DOUBLE_EQ(cost(" --prices " + table), cost(""));
  }
}

TEST(Plan, OfDataThatIsNotThereIsRefused) {
  Case c;
  const auto r = cli::run("plan " + c.recipe + " --device h100 --data " + (c.folder / "none"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find(c.folder / "none"), std::string::npos) << r.out;
}

// A Hub's model is counted before its weights are fetched.
TEST(Plan, CountsAModelOfWhichOnlyTheConfigurationIsHere) {
  cli::Folder f("config_only");
  make_folders(f / "model");
  write_file_atomic(
      f / "model/config.json",
      R"({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 64, "hidden_size": 32,
                        "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16,
                        "num_key_value_heads": 1, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
                        "rope_theta": 10000, "tie_word_embeddings": true, "hidden_act": "silu"})");
  write_file_atomic(f / "r.yaml",
                    "meta: {project: mindxtrain, run_name: p}\nhardware: {name: cpu}\nmodel: {name: " + (f / "model") +
                        "}\ndata: {source: synth, synth: {task: tool_calls, rows: 8}, seq_len: 64}\n"
                        "train: {method: {kind: lora, r: 4}, precision: float32}\n");
  const auto plan = cli::run("plan " + (f / "r.yaml") + " --json");
  ASSERT_EQ(plan.code, 0) << plan.out;
  EXPECT_NE(plan.out.find("\"weights\""), std::string::npos) << plan.out;
  const auto bench = cli::run("bench --dry-run --config " + (f / "r.yaml") + " --out " + (f / "plan.json"));
  EXPECT_EQ(bench.code, 0) << bench.out;
  const auto train = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  EXPECT_EQ(train.code, 1) << train.out;
  EXPECT_NE(train.out.find("holds neither model.safetensors"), std::string::npos) << train.out;

  // The same as a Hub's cache has it after `plan`: rows are prepared without weights, training says what it lacks.
  const std::string commit(40, 'a'), repo = f / "hub/models--org--model",
                                     offline = "HF_HUB_OFFLINE=1 HF_HUB_CACHE=" + (f / "hub");
  make_folders(repo + "/refs"), make_folders(repo + "/snapshots");
  write_file_atomic(repo + "/refs/main", commit);
  fs::copy(f / "model", repo + "/snapshots/" + commit);
  write_file_atomic(f / "rows.jsonl", "{\"input_ids\": [1, 2, 3], \"labels\": [1, 2, 3]}\n");
  write_file_atomic(f / "hub.yaml",
                    "meta: {project: mindxtrain, run_name: p}\nhardware: {name: cpu}\nmodel: {name: org/model}\n"
                    "data: {source: local, path: '" +
                        (f / "rows.jsonl") +
                        "', seq_len: 64}\n"
                        "train: {method: {kind: lora, r: 4}, precision: float32}\n");
  const auto prep = cli::run("dataset prep " + (f / "hub.yaml") + " --out " + (f / "data"), offline);
  EXPECT_EQ(prep.code, 0) << prep.out;
  // Into the same folder: nothing was made there yet, so the mended recipe takes it.
  const auto lacks = cli::run("train " + (f / "hub.yaml") + " --out " + (f / "out"), offline);
  EXPECT_EQ(lacks.code, 3) << lacks.out;
  EXPECT_NE(lacks.out.find("org/model: the cache"), std::string::npos) << lacks.out;
  EXPECT_NE(lacks.out.find("hf download org/model"), std::string::npos) << lacks.out;
}

}  // namespace
}  // namespace mxt
