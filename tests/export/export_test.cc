// Recipes as other trainers' settings, held against goldens that the trainers' own loaders have accepted
// (validators.py, which runs here too where they are installed).
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/files.h"
#include "config/recipe.h"
#include "export/rows.h"
#include "export/target.h"
#include "export/yaml.h"
#include "folders.h"

namespace mxt::exporting {
namespace {

std::string fresh(const std::string& name) {
  const std::string f = testing::TempDir() + "mxt_export_" + name;
  std::error_code ec;
  fs::remove_all(f, ec);
  make_folders(f);
  return f;
}

// A recipe for one H100, or what `head` says, with these sections.
config::Recipe recipe(const std::string& data, const std::string& method, const std::string& train = "",
                      const std::string& model = "{name: Qwen/Qwen3-0.6B}",
                      const std::string& hardware = "{name: h100}") {
  return config::parse_recipe(fmt::format(R"(meta: {{project: p, run_name: r, seed: 7}}
hardware: {}
model: {}
data: {}
train:
  method: {}
  optimizer: {{lr: 2.0e-4, weight_decay: 0.05, grad_clip: 0.5}}
  batch: {{per_device: 2, grad_accum: 4}}
  save_every: 50
{})",
                                          hardware, model, data, method, train),
                              "r.yaml");
}

const char* kSteps = "  schedule: {type: cosine, max_steps: 100, warmup_ratio: 0.1, min_lr_ratio: 0.1}\n";
const char* kCosine = "  schedule: {type: cosine, max_steps: 100, warmup_ratio: 0.1}\n";

Job job_of(const config::Recipe& r, const std::string& out, const std::string& family = "qwen3") {
  Job job{r, {.name = r.model.name, .revision = "", .family = family, .config = {}}, {}, out};
  job.rows = describe_rows(r, {}, out + "/data");
  return job;
}

std::string settings(const std::string& target, const Job& job) {
  const Target& t = target_of(target);
  std::string text = settings_text(t, job, t.settings(job));
  for (size_t at = 0; (at = text.find(job.out, at)) != std::string::npos;) text.replace(at, job.out.size(), "/D");
  return text;
}

// MXT_WRITE_GOLDENS=1 writes them: then run validators.py over the folder.
void expect_golden(const std::string& name, const std::string& target, const Job& job) {
  const std::string path = fmt::format("{}/tests/golden/export/{}.{}.yaml", kSourceDir, name, target);
  const std::string text = settings(target, job);
  if (std::getenv("MXT_WRITE_GOLDENS")) write_file_atomic(path, text);
  EXPECT_EQ(text, read_file(path)) << path;
}

std::string why_not(const std::string& target, const Job& job) {
  try {
    target_of(target).settings(job);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kMissing);
    return e.what();
  }
  return "";
}

const char* kToolCalls = "{source: synth, synth: {task: tool_calls, rows: 6, turns: 2, test_rows: 4}, seq_len: 512}";
const char* kPairs =
    "{source: synth, synth: {task: tool_preference, rows: 6, test_rows: 4}, seq_len: 512, packing: false}";

TEST(Export, ConversationsByLora) {
  const config::Recipe r = recipe(kToolCalls, "{kind: lora, r: 8, alpha: 16}", kSteps);
  const Job job = job_of(r, fresh("lora"));
  for (const char* target : {"axolotl", "trl", "llama_factory", "unsloth"}) expect_golden("lora", target, job);
}

TEST(Export, TheBaseInFourBits) {
  const config::Recipe r = recipe(kToolCalls, "{kind: qlora, r: 8, alpha: 16}", kCosine);
  const Job job = job_of(r, fresh("qlora"));
  for (const char* target : {"axolotl", "trl", "llama_factory", "unsloth"}) expect_golden("qlora", target, job);
}

// The scales in 8 bits are the recipe's choice: a trainer that has no other says so.
TEST(Export, ScalesOfABaseInFourBitsAreSaidAsTheRecipeHasThem) {
  const config::Recipe r = recipe(kToolCalls, "{kind: qlora, r: 8, double_quant: false}", kCosine);
  const Job job = job_of(r, fresh("flat_scales"));
  for (const auto& [target, words] : {std::pair("axolotl", "bnb_4bit_use_double_quant: false\n"),
                                      {"trl", "use_bnb_nested_quant: false\n"},
                                      {"llama_factory", "double_quantization: false\n"}})
    EXPECT_NE(settings(target, job).find(words), std::string::npos) << settings(target, job);
  for (const char* target : {"unsloth", "torchtune"})
    EXPECT_NE(why_not(target, job).find("train.method.double_quant"), std::string::npos) << target;
}

// A base in bfloat16 without autocast is multiplied in bfloat16, and LLaMA-Factory settles the type itself.
TEST(Export, ProductsInFloat32AreThatEverywhere) {
  const config::Recipe r = recipe(kToolCalls, "{kind: lora, r: 8}", std::string(kCosine) + "  precision: float32\n"),
                       cpu = recipe(kToolCalls, "{kind: lora, r: 8}", std::string(kCosine) + "  precision: float32\n",
                                    "{name: Qwen/Qwen3-0.6B}", "{name: cpu}");
  const Job job = job_of(r, fresh("float32")), on_cpu = job_of(cpu, fresh("float32_cpu"));
  EXPECT_NE(settings("trl", job).find("\ndtype: float32\n"), std::string::npos) << settings("trl", job);
  EXPECT_NE(why_not("llama_factory", job).find("train.precision"), std::string::npos);
  EXPECT_EQ(why_not("llama_factory", on_cpu), "");
}

// LLaMA-Factory takes a token of a packed row away.
TEST(Export, APackedRowHoldsWhatTheRecipeSays) {
  const std::string f = fresh("packed_rows");
  write_file_atomic(f + "/rows.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  for (const auto& [packing, length] : {std::pair("true", "65"), std::pair("false", "64")}) {
    const config::Recipe r =
        recipe(fmt::format("{{source: local, path: {}/rows.jsonl, seq_len: 64, packing: {}}}", f, packing),
               "{kind: lora}", kCosine);
    const std::string text = settings("llama_factory", job_of(r, f));
    EXPECT_NE(text.find(fmt::format("\ncutoff_len: {}\n", length)), std::string::npos) << text;
  }
}

// LLaMA-Factory packs texts by joining and cutting them, with attention across documents.
TEST(Export, TextsThatWouldSeeEachOtherAreNotPacked) {
  const std::string f = fresh("packed_texts");
  write_file_atomic(f + "/rows.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  const config::Recipe r = recipe("{source: local, path: " + f + "/rows.jsonl, seq_len: 64}", "{kind: cpt}", kCosine);
  const Job job = job_of(r, f);
  const std::string text = settings("llama_factory", job);
  EXPECT_NE(text.find("\npacking: false\n"), std::string::npos) << text;
  EXPECT_NE(text.find("data.packing: a row is one document there, since packed texts"), std::string::npos) << text;
  EXPECT_NE(settings("axolotl", job).find("\nsample_packing: true\n"), std::string::npos);
}

// Unsloth moves a head or an embedding among the targets to what trains whole, and holds no row out.
TEST(Export, WhatUnslothTrainsOtherwiseIsSaid) {
  const config::Recipe adapted = recipe(kToolCalls, "{kind: lora, target_modules: [q_proj, lm_head]}", kCosine);
  const Job head = job_of(adapted, fresh("head"));
  EXPECT_NE(why_not("unsloth", head).find("put an adapter on lm_head"), std::string::npos);
  const std::string f = fresh("held_out");
  write_file_atomic(
      f + "/rows.jsonl",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]}\n");
  const config::Recipe split = recipe("{source: local, path: " + f + "/rows.jsonl, seq_len: 64, eval_fraction: 0.25}",
                                      "{kind: lora}", std::string(kCosine) + "  report_to: [wandb, mlflow]\n");
  const Job part = job_of(split, f);
  EXPECT_NE(settings("unsloth", part).find("no row is held out there"), std::string::npos);
  EXPECT_NE(settings("unsloth", part).find("train.report_to: mlflow is not written"), std::string::npos);
  EXPECT_NE(settings("axolotl", part).find("other rows are held out, as many"), std::string::npos);
  // It settles the schedule itself, and what falls at the end of an unknown number of steps is linear there as well.
  const config::Recipe falls = recipe("{source: local, path: " + f + "/rows.jsonl, seq_len: 64}", "{kind: lora}",
                                      "  schedule: {type: wsd, epochs: 2, warmup_steps: 3}\n");
  const std::string linear = settings("unsloth", job_of(falls, f));
  EXPECT_NE(linear.find("train.schedule.type: linear there"), std::string::npos) << linear;
  EXPECT_NE(linear.find("\n  warmup_steps: 3\n"), std::string::npos) << linear;
  EXPECT_NE(linear.find("step s of W has s/W of the rate there"), std::string::npos) << linear;
  // A part of an unknown number of steps is none there, of which there is nothing more to say.
  const config::Recipe part_of = recipe("{source: local, path: " + f + "/rows.jsonl, seq_len: 64}", "{kind: lora}",
                                        "  schedule: {type: cosine, epochs: 2, warmup_ratio: 0.1}\n");
  const std::string none = settings("unsloth", job_of(part_of, f));
  EXPECT_NE(none.find("train.schedule.warmup_ratio: none there"), std::string::npos) << none;
  EXPECT_EQ(none.find("step s of W"), std::string::npos) << none;
}

TEST(Export, ARewardModelKeepsItsWeight) {
  const std::string f = fresh("reward_weight");
  write_file_atomic(f + "/rows.jsonl", "{\"prompt\": \"2+2=\", \"answer\": \"4\"}\n");
  const config::Recipe r = recipe("{source: local, path: " + f + "/rows.jsonl, seq_len: 64}",
                                  "{kind: grpo, rewards: [{kind: model, model: judge, weight: 0.5}]}", kCosine);
  EXPECT_NE(settings("trl", job_of(r, f + "/out")).find("reward_weights: [0.5]\n"), std::string::npos);
}

TEST(Export, TrainersOfOneTypeRefuseAnother) {
  const config::Recipe amd = recipe(kToolCalls, "{kind: lora}", std::string(kCosine) + "  precision: float32\n",
                                    "{name: Qwen/Qwen3-8B}", "{name: mi300x}");
  EXPECT_NE(why_not("primus", job_of(amd, fresh("float_primus"))).find("train.precision"), std::string::npos);
  const config::Recipe nvidia = recipe(kToolCalls, "{kind: lora}", std::string(kCosine) + "  precision: float32\n");
  EXPECT_NE(why_not("unsloth", job_of(nvidia, fresh("float_unsloth"))).find("train.precision"), std::string::npos);
}

TEST(Export, AdaptersOfOtherKinds) {
  const config::Recipe dora = recipe(kToolCalls, "{kind: lora, r: 8, use_dora: true, modules_to_save: [lm_head]}",
                                     std::string(kSteps) + "  neftune_noise_alpha: 5\n");
  const Job job = job_of(dora, fresh("dora"));
  for (const char* target : {"axolotl", "trl", "llama_factory"}) expect_golden("dora", target, job);
  const config::Recipe pissa = recipe(kToolCalls, "{kind: lora, r: 8, init_lora_weights: pissa}", kSteps);
  const Job start = job_of(pissa, fresh("pissa"));
  for (const char* target : {"axolotl", "llama_factory"}) expect_golden("pissa", target, start);
  const config::Recipe ranks = recipe(
      kToolCalls,
      "{kind: lora, r: 8, rank_pattern: {q_proj: 4}, alpha_pattern: {q_proj: 8}, layers_to_transform: [0, 1]}", kSteps);
  expect_golden("ranks", "axolotl", job_of(ranks, fresh("ranks")));
}

TEST(Export, EveryLinearLayerIsSaidAsEachTrainerSaysIt) {
  const config::Recipe r = recipe(kToolCalls, "{kind: lora, r: 8, target_modules: all-linear}", kSteps);
  const Job job = job_of(r, fresh("all_linear"));
  for (const auto& [target, words] : {std::pair("axolotl", "lora_target_linear: true\n"),
                                      {"trl", "lora_target_modules: [all-linear]\n"},
                                      {"llama_factory", "lora_target: all\n"},
                                      {"unsloth", "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"}})
    EXPECT_NE(settings(target, job).find(words), std::string::npos) << settings(target, job);
}

TEST(Export, PairsAndLabels) {
  const config::Recipe dpo = recipe(kPairs, "{kind: dpo, beta: 0.2, lora: {r: 8, alpha: 16}}", kSteps);
  const Job job = job_of(dpo, fresh("dpo"));
  for (const char* target : {"axolotl", "trl", "llama_factory"}) expect_golden("dpo", target, job);
  const config::Recipe orpo = recipe(kPairs, "{kind: orpo, lora: {r: 8, alpha: 16}}", kSteps);
  const Job orpo_job = job_of(orpo, fresh("orpo"));
  for (const char* target : {"axolotl", "llama_factory"}) expect_golden("orpo", target, orpo_job);
  EXPECT_NE(why_not("trl", orpo_job).find("r.yaml: train.method.kind: TRL cannot train by orpo"), std::string::npos);
  const std::string f = fresh("kto");
  write_file_atomic(f + "/rows.jsonl",
                    "{\"prompt\": \"2+2=\", \"completion\": \"4\", \"label\": true}\n"
                    "{\"prompt\": \"2+3=\", \"completion\": \"4\", \"label\": false}\n");
  const config::Recipe kto =
      recipe("{source: local, path: " + f + "/rows.jsonl, seq_len: 64, packing: false}", "{kind: kto}", kSteps);
  const Job kto_job = job_of(kto, f + "/out");
  for (const char* target : {"axolotl", "trl", "llama_factory"}) expect_golden("kto", target, kto_job);
  const config::Recipe reward = recipe(kPairs, "{kind: reward}", kSteps);
  const Job reward_job = job_of(reward, fresh("reward"));
  for (const char* target : {"axolotl", "trl", "llama_factory"}) expect_golden("reward", target, reward_job);
}

TEST(Export, PlainTextOnTheCpuWithWsd) {
  const std::string f = fresh("cpt");
  write_file_atomic(f + "/a.txt", "Once upon a time.\n");
  const config::Recipe r = recipe(
      "{source: local, path: " + f + "/a.txt, seq_len: 64, shuffle: false}", "{kind: cpt}",
      "  schedule: {type: wsd, max_steps: 50, warmup_steps: 5}\n  eval_every: 10\n  report_to: [tensorboard, wandb]\n",
      "{name: Qwen/Qwen3-0.6B}", "{name: cpu}");
  const Job job = job_of(r, f + "/out");
  for (const char* target : {"axolotl", "trl", "llama_factory"}) expect_golden("cpt", target, job);
  EXPECT_NE(why_not("unsloth", job).find("train on a CPU"), std::string::npos);
}

TEST(Export, TheHubsRowsAreLeftToTheTarget) {
  const config::Recipe r =
      recipe("{source: hf, hf_id: HuggingFaceH4/ultrachat_200k, split: train_sft, dedupe: {minhash: {threshold: 0.8}}}",
             "{kind: full}", kCosine, "{name: Qwen/Qwen3-8B, revision: main}", "{name: mi300x, gpus: 8}");
  Job job = job_of(r, fresh("hub"));
  job.base.revision = "main";
  for (const char* target : {"axolotl", "trl", "llama_factory"}) expect_golden("hub", target, job);
  EXPECT_NE(why_not("primus", job).find("take a revision"), std::string::npos);
  const config::Recipe newest = recipe("{source: hf, hf_id: HuggingFaceH4/ultrachat_200k, split: train_sft}",
                                       "{kind: lora}", kCosine, "{name: Qwen/Qwen3-8B}", "{name: mi300x, gpus: 8}");
  expect_golden("hub", "primus", job_of(newest, fresh("hub")));
}

// Of a folder: sizes from its config.json.
TEST(Export, TorchtuneBuildsAModelFromItsSizes) {
  const std::string f = fresh("torchtune"), model = f + "/model";
  fs::copy(std::string(kSourceDir) + "/tests/golden/models/qwen2", model, fs::copy_options::recursive);
  for (const char* name : {"vocab.json", "merges.txt"}) write_file_atomic(model + "/" + name, "{}");
  const config::Recipe r = recipe(kPairs, "{kind: dpo, lora: {r: 8, alpha: 16}}", kCosine, "{name: " + model + "}");
  Job job = job_of(r, f, "qwen2");
  job.base.config = formats::read_model_config(model);
  expect_golden("dpo", "torchtune", job);
  const config::Recipe dora =
      recipe(kPairs, "{kind: dpo, lora: {r: 8, alpha: 16, use_dora: true}}", kCosine, "{name: " + model + "}");
  Job with = job_of(dora, f, "qwen2");
  with.base.config = job.base.config;
  expect_golden("dora", "torchtune", with);
  // A name that is none of its own would be passed over there.
  const auto targets = [&](const std::string& names, bool tied) {
    const config::Recipe of =
        recipe(kPairs, "{kind: dpo, lora: {r: 8, target_modules: [" + names + "]}}", kCosine, "{name: " + model + "}");
    Job on = job_of(of, f, "qwen2");
    on.base.config = job.base.config;
    on.base.config->tie_embeddings = tied;
    const std::string why = why_not("torchtune", on);
    return why.empty() ? settings("torchtune", on) : why;
  };
  EXPECT_NE(targets("q_proj, lm_head", false).find("apply_lora_to_output: true\n"), std::string::npos);
  EXPECT_NE(targets("q_proj, lm_head", true).find("lm_head, which is the embedding's"), std::string::npos);
  EXPECT_NE(targets("q_proj, embed_tokens", false).find("an adapter on embed_tokens"), std::string::npos);
  EXPECT_NE(targets("gate_proj, up_proj, down_proj", false).find("none of attention's"), std::string::npos);
  const config::Recipe full = recipe("{source: local, path: " + f + "/rows.jsonl, seq_len: 64}", "{kind: full}",
                                     kCosine, "{name: " + model + "}");
  write_file_atomic(
      f + "/rows.jsonl",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]}\n");
  Job whole = job_of(full, f, "qwen2");
  whole.base.config = job.base.config;
  expect_golden("full", "torchtune", whole);
  whole.base.config->model_type = "qwen3";
  EXPECT_NE(why_not("torchtune", whole).find("train the family qwen3"), std::string::npos);
  whole.base.config.reset();
  EXPECT_NE(why_not("torchtune", whole).find("hf download"), std::string::npos);
}

TEST(Export, WhatATargetCannotExpressIsNamed) {
  struct Case {
    std::string method, train, target, want;
  };
  for (const Case& c :
       std::vector<Case>{{"{kind: lora, lora_plus: 8}", "", "trl", "train.method.lora_plus: TRL cannot"},
                         {"{kind: lora, init_adapter: a}", "", "trl", "init_adapter"},
                         {"{kind: lora, init_adapter: \"recipe:other\"}", "", "axolotl", "run the recipe before it"},
                         {"{kind: qlora, quant_bits: 8}", "", "axolotl", "hold the base in FP8"},
                         {"{kind: qlora, quant_type: mxfp4}", "", "llama_factory", "MXFP4"},
                         {"{kind: full}", "  optimizer: {name: muon}\n", "axolotl", "Muon"},
                         {"{kind: lora}", "  neftune_noise_alpha: 5\n", "unsloth", "train.neftune_noise_alpha"},
                         {"{kind: lora, use_dora: true}", "", "primus", "train.method.use_dora"},
                         {"{kind: lora, init_lora_weights: pissa}", "", "trl", "train.method.init_lora_weights"},
                         {"{kind: lora, rank_pattern: {q_proj: 4}}", "", "llama_factory", "train.method.rank_pattern"},
                         {"{kind: lora, bias: all}", "", "axolotl", "train.method.bias"},
                         {"{kind: qlora, init_lora_weights: pissa}", "", "llama_factory", "begin by singular values"},
                         {"{kind: lora, modules_to_save: [lm_head]}", "", "unsloth", "train.method.modules_to_save"},
                         {"{kind: grpo}", "", "trl", "train.method.reward"},
                         {"{kind: grpo}", "", "axolotl", "train by grpo"},
                         {"{kind: ppo}", "", "llama_factory", "train by ppo"},
                         {"{kind: lora}", "  schedule: {type: wsd}\n", "trl", "set max_steps"},
                         {"{kind: lora, use_rslora: true}", "", "primus", "scale by alpha/sqrt(r)"}}) {
    config::Recipe r = config::parse_recipe(
        fmt::format("meta: {{project: p, run_name: r}}\nhardware: {{name: h100}}\nmodel: {{name: Qwen/Qwen3-8B}}\n"
                    "data: {{source: hf, hf_id: a/b}}\ntrain:\n  method: {}\n{}",
                    c.method, c.train),
        "r.yaml");
    const std::string why = why_not(c.target, job_of(r, "/D"));
    EXPECT_NE(why.find(c.want), std::string::npos) << c.method << c.train << ": " << why;
    EXPECT_TRUE(why.starts_with("r.yaml: ")) << why;
  }
  EXPECT_THROW(target_of("axolotls"), Error);
}

TEST(Export, VariablesThatSettingsCannotHoldAreSaid) {
  const std::string out = fresh("env");
  const auto r = recipe(kToolCalls, "{kind: lora}", std::string(kSteps) + "  env: {FOO: \"a: b\", BAR: \"1\"}\n");
  const Job job = job_of(r, out);
  for (const char* target : {"axolotl", "llama_factory", "unsloth"})
    EXPECT_NE(settings(target, job).find("started: BAR=1, FOO=a: b\n"), std::string::npos) << settings(target, job);
  const std::string trl = settings("trl", job);
  EXPECT_NE(trl.find("FOO: \"a: b\""), std::string::npos) << trl;
  EXPECT_EQ(trl.find("train.env"), std::string::npos) << trl;
}

TEST(Export, RowsBecomeWhatTheTargetReads) {
  const std::string f = fresh("rows");
  write_file_atomic(f + "/a.jsonl", R"({"conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"ho"}]})"
                                    "\n");
  const config::Recipe r = recipe("{source: local, path: " + f + "/a.jsonl, seq_len: 64}", "{kind: lora}", kCosine);
  const Job job = job_of(r, f);
  EXPECT_EQ(job.rows.form, Form::kChat);
  write_rows(r, {}, job.rows, target_of("trl"));
  EXPECT_EQ(read_file(f + "/data/train.jsonl"),
            R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]})"
            "\n");
  // A request and its answers under a system message, as axolotl's orpo reads them.
  const config::Recipe orpo = recipe(kPairs, "{kind: orpo}", kSteps);
  write_rows(orpo, {}, job_of(orpo, f).rows, target_of("axolotl"));
  const Json row =
      Json::parse(read_file(f + "/data/train.jsonl").substr(0, read_file(f + "/data/train.jsonl").find('\n')));
  EXPECT_EQ(row["chosen"].size(), 2u);
  EXPECT_EQ(row["chosen"][0], row["rejected"][0]);
  EXPECT_TRUE(row["system"].is_string());
  EXPECT_TRUE(fs::exists(f + "/data/test.jsonl"));
  // Calls under a role of their own.
  data::Example e;
  e.kind = data::Example::Kind::kChat;
  e.messages = std::make_shared<OrderedJson>(OrderedJson::parse(
      R"([{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"type":"function","function":{"name":"f","arguments":{"x":1}}}]}])"));
  const OrderedJson lf = target_of("llama_factory").row(e, r);
  EXPECT_EQ(lf["messages"][1]["role"], "function_call");
  EXPECT_EQ(lf["messages"][1]["content"], R"([{"name":"f","arguments":{"x":1}}])");
}

TEST(Export, NumbersAndTextsStayWhatTheyAre) {
  EXPECT_EQ(
      yaml_text(OrderedJson{{"lr", 1e-5}, {"one", 1.0}, {"count", 3}, {"no", "off"}, {"t", "a: b"}, {"p", "q_proj"}}),
      "lr: 1.0e-05\none: 1.0\ncount: 3\n\"no\": \"off\"\nt: \"a: b\"\np: q_proj\n");
  EXPECT_EQ(yaml_comment("a\x1b[2Jb\nc: !!python"), "# a\\x1b[2Jb\n# c: !!python\n");
  EXPECT_EQ(
      yaml_text(OrderedJson{{"a", OrderedJson::array({{{"b", 1}, {"c", {1, 2}}}})}, {"e", OrderedJson::object()}}),
      "a:\n  - b: 1\n    c: [1, 2]\ne: {}\n");
}

// The trainers' own loaders, where they are installed for the Python that MINDXTRAIN_PYTHON (or python3) is.
TEST(Export, TheRealLoadersAcceptTheGoldens) {
  const char* named = std::getenv("MINDXTRAIN_PYTHON");
  const std::string python = named ? named : "python3";
  const std::string answer = fresh("validators") + "/answer.txt";
  const std::string command = fmt::format("'{}' '{}/tests/export/validators.py' '{}/tests/golden/export' > '{}' 2>&1",
                                          python, kSourceDir, kSourceDir, answer);
  const int status = std::system(command.c_str());
  const std::string said = read_file(answer);
  if (said.find("accepted ") == std::string::npos && WIFEXITED(status) && WEXITSTATUS(status) == 0)
    GTEST_SKIP() << "none of the trainers is installed for " << python << ": " << said;
  EXPECT_EQ(status, 0) << said;
}

}  // namespace
}  // namespace mxt::exporting
