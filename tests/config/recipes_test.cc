#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "config/builtin.h"
#include "config/prices.h"
#include "config/recipe_file.h"
#include "config/support.h"
#include "folders.h"

namespace mxt::config {
namespace {

const char* const kSeeds[] = {"instella_3b_lora",   "qwen3_8b_sft_lora",   "qwen3_8b_sft_full",    "qwen3_8b_cpt",
                              "qwen3_30b_a3b_lora", "qwen3_32b_full_fsdp", "qwen3_32b_dpo",        "qwen3_32b_orpo",
                              "qwen3_32b_grpo",     "qwen3_6_27b_lora",    "qwen3_6_35b_a3b_lora", "qwen3_vl_8b_sft"};
const char* const kOurs[] = {"quickstart_cpu",
                             "qlora_smollm2_cpu",
                             "shakespeare_char",
                             "gsm8k_qwen3_0_6b_lora",
                             "gsm8k_smollm2_lora",
                             "nanochat_d24",
                             "nanochat_d4_base_cpu",
                             "nanochat_d4_cpu",
                             "gpt2_760m",
                             "hopper_qwen3_8b_lora",
                             "hopper_qwen3_8b_lora_fp8",
                             "tool_habits_smollm2_cpu",
                             "orpo_smollm2_cpu",
                             "dpo_smollm2_cpu",
                             "kto_smollm2_cpu",
                             "grpo_arithmetic_smollm2_cpu",
                             "gspo_arithmetic_smollm2_cpu",
                             "addition_form_smollm2_cpu",
                             "grpo_exact_smollm2_cpu",
                             "grpo_gsm8k_qwen3_0_6b",
                             "shapes_vl_cpu",
                             "tool_calls_moe_cpu",
                             "tool_calls_hybrid_cpu"};

TEST(Recipes, AllAreBuiltInAndValid) {
  std::set<std::string> names;
  for (const auto& b : builtin_recipes()) {
    names.emplace(b.name);
    const Recipe r = parse_recipe(b.text, b.name);
    EXPECT_EQ(r.meta.run_name, b.name);
    EXPECT_FALSE(b.head().empty()) << b.name;
    EXPECT_EQ(r.train.backend, Backend::kNative);
    EXPECT_FALSE(r.publish && r.publish->enabled) << b.name;
    EXPECT_EQ(b.text, read_file(fmt::format("{}/recipes/{}.yaml", kSourceDir, b.name)));
  }
  for (const char* n : kSeeds) EXPECT_TRUE(names.contains(n)) << n;
  for (const char* n : kOurs) EXPECT_TRUE(names.contains(n)) << n;
}

TEST(Recipes, SeedsRecipesAreForMi300x) {
  for (const char* n : kSeeds) {
    const Recipe r = parse_recipe(builtin_recipe(n).text, n);
    EXPECT_EQ(r.hardware.name, GpuName::kMi300x);
    EXPECT_TRUE(r.hardware.gpus == 1 || r.hardware.gpus == 8);
    EXPECT_EQ(r.train.env.size(), 8u);
  }
  EXPECT_EQ(parse_recipe(builtin_recipe("qwen3_30b_a3b_lora").text, "").autotune.budget_seconds, 90);
  EXPECT_EQ(parse_recipe(builtin_recipe("qwen3_6_35b_a3b_lora").text, "").autotune.budget_seconds, 120);
}

TEST(Recipes, TwoGpusInAnyOfThemAreRefused) {
  for (const char* n : kSeeds) {
    std::string text(builtin_recipe(n).text);
    const size_t at = text.find("gpus: ");
    ASSERT_NE(at, std::string::npos);
    text[at + 6] = '2';
    EXPECT_NE(lines(text).find("hardware.gpus: is 2"), std::string::npos) << n;
  }
}

TEST(Recipes, FactsThatOthersRelyOn) {
  const Recipe q = parse_recipe(builtin_recipe("quickstart_cpu").text, "");
  EXPECT_EQ(q.model.name, "./weights/SmolLM2-135M-Instruct.gguf");
  EXPECT_EQ(q.data.source, DataSource::kSynth);
  EXPECT_EQ(q.data.synth->rows * q.data.synth->turns, 550);
  ASSERT_TRUE(q.eval && q.eval->generation && q.eval->harness.tasks.empty());
  const Recipe s = parse_recipe(builtin_recipe("shakespeare_char").text, "");
  EXPECT_EQ(s.model.init, Init::kRandom);
  EXPECT_NE(s.model.config.json.find("\"bias\":false"), std::string::npos);
  EXPECT_EQ(s.data.sampling, Sampling::kRandomWindows);
  EXPECT_EQ(s.train.schedule.max_steps, 2000);
  const Recipe f = parse_recipe(builtin_recipe("hopper_qwen3_8b_lora_fp8").text, "");
  EXPECT_EQ(f.train.base_precision, Precision::kFp8E4M3);
  const Recipe n = parse_recipe(builtin_recipe("nanochat_d24").text, "");
  EXPECT_EQ(n.train.batch.per_device * n.train.batch.grad_accum * n.data.seq_len, 524288);
  EXPECT_NE(n.model.config.json.find("nanochat_v2"), std::string::npos);
  EXPECT_EQ(n.train.schedule.warmup_steps, 40);
  EXPECT_NEAR(n.train.optimizer.muon->weight_decay, 0.0422, 1e-4);
  // Fine-tuning goes on with the rates of its base, times 0.8.
  const Recipe base = parse_recipe(builtin_recipe("nanochat_d4_base_cpu").text, ""),
               chat = parse_recipe(builtin_recipe("nanochat_d4_cpu").text, "");
  EXPECT_EQ(chat.model.name, "recipe:nanochat_d4_base_cpu");
  const Muon &was = *base.train.optimizer.muon, &is = *chat.train.optimizer.muon;
  EXPECT_NEAR(is.lr, 0.8 * was.lr, 1e-5);
  EXPECT_NEAR(*is.embedding_lr, 0.8 * *was.embedding_lr, 1e-4);
  EXPECT_NEAR(*is.head_lr, 0.8 * *was.head_lr, 1e-5);
  EXPECT_NEAR(*is.scalar_lr, 0.8 * *was.scalar_lr, 1e-4);
}

// What a recipe's path names may be endless, or silent.
TEST(Recipes, AFileOrAPipeOfAtMostAMebibyteIsRead) {
  const std::string folder = testing::TempDir() + "mxt_recipe_files_" + std::to_string(getpid());
  make_folders(folder);
  const auto refused = [](const std::string& path) {
    try {
      read_recipe_file(path, 0.2);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kBadInput);
      return std::string(e.what());
    }
    return std::string();
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(refused("/dev/zero"), "neither a file nor a pipe"));
  EXPECT_TRUE(has(refused("/dev/null"), "neither a file nor a pipe"));
  EXPECT_TRUE(has(refused(folder), "is a folder"));
  EXPECT_TRUE(has(refused(folder + "/none"), "cannot be read"));
  EXPECT_TRUE(has(refused("https://example.com/r.yaml"), "is an address"));
  EXPECT_TRUE(has(refused(folder + "/rows.jsonl"), "holds rows"));
  write_file_atomic(folder + "/large.yaml", std::string(kMaxRecipeBytes + 1, '#'));
  EXPECT_TRUE(has(refused(folder + "/large.yaml"), "larger than 1024 KiB"));
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(has(refused(pipe), "nothing has come through it"));
  const auto write = [&](const std::string& text) { std::ofstream(pipe) << text; };
  std::thread small(write, "meta: {}\n");
  EXPECT_EQ(read_recipe_file(pipe), "meta: {}\n");
  small.join();
  const auto before = std::signal(SIGPIPE, SIG_IGN);  // its reader goes away
  std::thread large(write, std::string(4 * kMaxRecipeBytes, '#'));
  EXPECT_TRUE(has(refused(pipe), "larger than 1024 KiB"));
  large.join();
  std::signal(SIGPIPE, before);
  std::error_code ec;
  fs::remove_all(folder, ec);
}

TEST(Prices, ThePageHasATableThatIsReadAndNamesEveryDevice) {
  const std::string page = read_file(std::string(kSourceDir) + "/docs/planning.md");
  const size_t section = page.find("## A price table of your own"), begin = page.find("```yaml\n", section) + 8;
  ASSERT_NE(section, std::string::npos);
  const Prices own = parse_prices(page.substr(begin, page.find("```", begin) - begin), "page", builtin_prices());
  ASSERT_TRUE(own.find("rtx4070"));
  EXPECT_TRUE(own.find("rtx4070")->has_figures());
  EXPECT_EQ(own.find("cpu")->watts, 65);
  EXPECT_EQ(own.find("h100")->memory_gb, 80);  // what the table does not say stays
  for (const std::string& name : builtin_prices().names())
    EXPECT_NE(page.find("`" + name + "`"), std::string::npos) << name;
}

TEST(Recipes, UnknownNameIsAnswered) {
  try {
    builtin_recipe("qwen3_8b_sft_lorra");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean qwen3_8b_sft_lora?"), std::string::npos);
  }
}

// A recipe as the original project writes them: every section, its backend, its seven environment keys.
TEST(Recipes, OneOfTheOriginalProjectLoadsUnchanged) {
  const Recipe r = parse_recipe(R"(
meta:
  project: demo
  run_name: cpu_smoke
  seed: 2048
  license: apache-2.0
  description: >-
    folded
    text
hardware: {name: mi300x, gfx_arch: gfx942, gpus: 0, expected_hbm_gb: 192}
autotune: {enabled: false, budget_seconds: 60, policy: aot_only}
model: {name: HuggingFaceTB/SmolLM2-135M, attn_implementation: eager, torch_dtype: float32, trust_remote_code: false}
data: {source: mindx_dreams, path: /data/memory, include_evolutions: true, max_samples: 32, seq_len: 256, packing: false}
train:
  backend: trl_cpu
  method: {kind: lora, r: 8, alpha: 16, dropout: 0.0, target_modules: [q_proj, k_proj, v_proj, o_proj]}
  optimizer: {name: adamw_torch, lr: 1.0e-4, betas: [0.9, 0.95], weight_decay: 0.1, grad_clip: 1.0}
  schedule: {type: cosine, warmup_ratio: 0.03, epochs: 1}
  batch: {per_device: 1, grad_accum: 4}
  precision: float32
  gradient_checkpointing: false
  flash_attention: {backend: ck}
  fsdp: {enabled: false}
  cpu_throttle: {percent: 50, nice_level: 10, omp_proc_bind: true}
  env: {PYTORCH_ROCM_ARCH: "gfx942", HSA_NO_SCRATCH_RECLAIM: "1", HIP_FORCE_DEV_KERNARG: "1"}
eval:
  harness: {tasks: [mmlu], fewshot: 0}
  regression: {baseline: "", threshold_pct: -100.0}
quantize: {enabled: false, scheme: none, ptpc: false}
serve: {backend: vllm-rocm, reasoning_parser: none, tool_call_parser: none, tensor_parallel: 1, max_model_len: 2048, port: 8000}
publish: {enabled: false}
receipt: {output: ./out/receipt.json, include: [yaml_hash, dataset_cids]}
)",
                                "original.yaml");
  EXPECT_EQ(r.train.backend, Backend::kTrlCpu);
  EXPECT_EQ(r.train.env.size(), 8u);
  EXPECT_EQ(r.receipt.include, (std::vector{ReceiptField::kYamlHash, ReceiptField::kDatasetCids}));
  EXPECT_EQ(r.meta.description, "folded text");
}

}  // namespace
}  // namespace mxt::config
