// Preference methods against TRL's trainers (tools/golden/preference.py): twelve steps each, of LoRA and of all
// weights.
#include <set>

#include "e2e/trl.h"
#include "folders.h"

namespace mxt {
namespace {

std::string folder() { return std::string(kSourceDir) + "/tests/golden/preference"; }

struct Case {
  std::string method, model, kind;
  int per_device = 3, grad_accum = 2;
  std::string extra, rows, settings = {};
};

std::string recipe(const Case& c) {
  std::string method = c.method.starts_with("dpo") ? "dpo" : c.method;
  std::string settings = "kind: " + method + ", beta: 0.3";
  if (c.method.starts_with("dpo_")) settings += ", loss: " + c.method.substr(4);
  if (method == "kto") settings += ", undesirable_weight: 0.7";
  settings += c.settings;
  if (c.kind == "lora")
    settings += fmt::format(
        ", lora: {{r: 4, alpha: 8, target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj], "
        "init_adapter: \"{}/adapter\"}}",
        cli::golden(c.model));
  if (c.kind == "fresh") settings += ", lora: {r: 4, alpha: 8}";
  if (c.kind == "wide") settings += ", lora: {r: 4, alpha: 8, modules_to_save: [embed_tokens], bias: all}";
  const std::string rows = !c.rows.empty() ? c.rows : folder() + (method == "kto" ? "/answers.jsonl" : "/pairs.jsonl");
  return fmt::format(R"(meta: {{project: test, run_name: preference}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{0}", torch_dtype: float32}}
data: {{source: local, path: "{1}", seq_len: 64, packing: false, shuffle: false}}
train:
  method: {{{2}}}
  precision: float32
  optimizer: {{lr: 1.0e-3, betas: [0.9, 0.95], weight_decay: 0.1, grad_clip: 1.0}}
  schedule: {{type: linear, warmup_ratio: 0, epochs: 1}}
  batch: {{per_device: {3}, grad_accum: {4}}}
{5})",
                     cli::golden(c.model), rows, settings, c.per_device, c.grad_accum, c.extra);
}

class Preference : public testing::TestWithParam<std::string> {};

TEST_P(Preference, EqualsTrl) {
  const std::string name = GetParam();
  const size_t a = name.find(' '), b = name.rfind(' ');
  const Case c{name.substr(0, a), name.substr(a + 1, b - a - 1), name.substr(b + 1)};
  cli::Folder f("preference");
  write_file_atomic(f / "r.yaml", recipe(c));
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const Json want = read_json_file(folder() + "/expected.json")["cases"][name];
  trl::expect_steps(f / "out/metrics.jsonl", want, 1.0);
}

INSTANTIATE_TEST_SUITE_P(Golden, Preference,
                         testing::Values("dpo qwen3_gqa full", "dpo qwen3_gqa lora", "dpo llama_mqa full",
                                         "dpo llama_mqa lora", "dpo_hinge qwen3_gqa lora", "dpo_ipo qwen3_gqa lora",
                                         "orpo qwen3_gqa full", "orpo qwen3_gqa lora", "orpo llama_mqa full",
                                         "orpo llama_mqa lora", "kto qwen3_gqa full", "kto qwen3_gqa lora",
                                         "kto llama_mqa full", "kto llama_mqa lora"),
                         [](const auto& i) {
                           std::string s = i.param;
                           std::replace(s.begin(), s.end(), ' ', '_');
                           return s;
                         });

// Launched with this program's rows, TRL does what it does with its own, and its checkpoint passes the receipt.
class LaunchedPreference : public testing::TestWithParam<std::string> {};

TEST_P(LaunchedPreference, EqualsTrl) {
  if (!cli::has_trl()) GTEST_SKIP() << "trl and peft are not installed for " << cli::python();
  const std::string name = GetParam();
  const size_t a = name.find(' '), b = name.rfind(' ');
  const Case c{name.substr(0, a), name.substr(a + 1, b - a - 1), name.substr(b + 1), 3, 2, "  backend: trl\n"};
  cli::Folder f("preference_launched");
  write_file_atomic(f / "r.yaml", recipe(c));
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  const std::string log = f / "out/trainer/log.txt";
  ASSERT_EQ(r.code, 0) << r.out << (fs::exists(log) ? read_file(log) : "");
  const Json want = read_json_file(folder() + "/expected.json")["cases"][name];
  trl::expect_steps(f / "out/metrics.jsonl", want, 1.0);
  const auto checked = cli::run("receipt " + (f / "out/manifest.json"));
  EXPECT_EQ(checked.code, 0) << checked.out;
  const Json receipt = read_json_file(f / "out/receipt.json");
  EXPECT_EQ(receipt["trainer"]["name"], "trl");
  EXPECT_EQ(receipt.contains("reference"), c.method != "orpo");
  if (c.method != "orpo") {
    EXPECT_EQ(receipt["reference"]["log_probabilities"], "live");
  }
  // The trained adapter alone: its frozen copy is no part of it.
  EXPECT_FALSE(fs::exists(f / "out/checkpoint/ref"));
}

INSTANTIATE_TEST_SUITE_P(Golden, LaunchedPreference,
                         testing::Values("dpo qwen3_gqa full", "dpo_ipo qwen3_gqa lora", "orpo llama_mqa lora",
                                         "kto qwen3_gqa lora"),
                         [](const auto& i) {
                           std::string s = i.param;
                           std::replace(s.begin(), s.end(), ' ', '_');
                           return s;
                         });

// How a step is cut into passes changes no method: what is defined by device batches follows per_device.
TEST(PreferenceRuns, MicroBatchesChangeNothingBeyondRounding) {
  for (const char* method : {"dpo", "orpo", "kto"}) {
    cli::Folder f("preference_micro");
    std::vector<std::vector<Json>> runs;
    for (const int micro : {1, 3}) {
      const Case c{method, "qwen3_gqa", "lora", 3, 2, fmt::format("  micro_batch: {}\n", micro), ""};
      write_file_atomic(f / "r.yaml", recipe(c));
      const std::string out = f / fmt::format("out{}", micro);
      const auto r = cli::run("train " + (f / "r.yaml") + " --out " + out);
      ASSERT_EQ(r.code, 0) << r.out;
      runs.push_back(cli::lines(out + "/metrics.jsonl"));
    }
    for (size_t i = 0; i < runs[0].size(); ++i)
      EXPECT_NEAR(runs[0][i]["loss"].get<double>(), runs[1][i]["loss"].get<double>(), 2e-6) << method << " step " << i;
  }
}

// Pairs are taken apart as TRL does it, all chosen answers before the rejected ones: side by side a mismatched answer
// would be one to the same prompt.
TEST(PreferenceRuns, KtoTakesPairsApart) {
  cli::Folder f("preference_apart");
  std::string chosen, rejected;
  for (const Json& pair : cli::lines(folder() + "/pairs.jsonl"))
    for (const bool good : {true, false})
      (good ? chosen : rejected) += Json{{"prompt_ids", pair["prompt_ids"]},
                                         {"completion_ids", pair[good ? "chosen_ids" : "rejected_ids"]},
                                         {"label", good}}
                                        .dump() +
                                    "\n";
  write_file_atomic(f / "rows.jsonl", chosen + rejected);
  std::vector<std::vector<Json>> runs;
  for (const std::string& rows : {folder() + "/pairs.jsonl", f / "rows.jsonl"}) {
    const Case c{"kto", "qwen3_gqa", "lora", 3, 2, "", rows};
    write_file_atomic(f / "r.yaml", recipe(c));
    const std::string out = f / fmt::format("out{}", runs.size());
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + out);
    ASSERT_EQ(r.code, 0) << r.out;
    runs.push_back(cli::lines(out + "/metrics.jsonl"));
  }
  ASSERT_EQ(runs[0].size(), runs[1].size());
  for (size_t i = 0; i < runs[0].size(); ++i)
    for (const char* key : {"loss", "kl", "grad_norm"}) EXPECT_EQ(runs[0][i][key], runs[1][i][key]) << "step " << i;
}

std::string digest(const std::string& file) { return hash_file(file).blake3; }

TEST(PreferenceRuns, ResumeAndThreadsKeepTheBytes) {
  for (const char* method : {"dpo", "orpo", "kto"}) {
    cli::Folder f("preference_resume");
    const Case c{method, "qwen3_gqa", "lora", 3, 2, "  save_every: 5\n", ""};
    write_file_atomic(f / "r.yaml", recipe(c));
    ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --threads 2 --out " + (f / "whole")).code, 0);
    ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --threads 1 --out " + (f / "one")).code, 0);
    EXPECT_EQ(digest(f / "whole/checkpoint/adapter_model.safetensors"),
              digest(f / "one/checkpoint/adapter_model.safetensors"))
        << method;
    // Back to step 5, with a reference that has to be made anew.
    fs::remove_all(f / "one/checkpoint");
    fs::remove(f / "one/checkpoints/reference.safetensors");
    const auto r = cli::run("train " + (f / "r.yaml") + " --threads 1 --resume-from 5 --out " + (f / "one"));
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_NE(r.out.find("resumed at step 5"), std::string::npos) << r.out;
    EXPECT_EQ(digest(f / "whole/checkpoint/adapter_model.safetensors"),
              digest(f / "one/checkpoint/adapter_model.safetensors"))
        << method;
  }
}

// Asked in every step, the reference says what it says ahead of time, whatever of the policy trains: the same weights
// and the same numbers in every step, the held-out part's too.
TEST(PreferenceRuns, AReferenceAskedInTheStepSaysTheSame) {
  for (const char* method : {"dpo", "dpo_ipo", "kto"})
    for (const char* kind : {"lora", "fresh", "wide", "full"}) {
      cli::Folder f("preference_live");
      const std::string rows = folder() + (std::string(method) == "kto" ? "/answers.jsonl" : "/pairs.jsonl");
      const std::string extra = "  micro_batch: 2\n  eval_every: 4\n  save_every: 5\n";
      for (const char* precompute : {"true", "false"}) {
        const Case c{method, "qwen3_gqa", kind, 3,
                     2,      extra,       "",   fmt::format(", precompute_ref_log_probs: {}", precompute)};
        std::string text = recipe(c);
        const std::string at = "packing: false";
        text.replace(text.find(at), at.size(), at + ", eval_path: \"" + rows + "\"");
        write_file_atomic(f / "r.yaml", text);
        const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / precompute));
        ASSERT_EQ(r.code, 0) << r.out;
      }
      const auto ahead = cli::lines(f / "true/metrics.jsonl"), live = cli::lines(f / "false/metrics.jsonl");
      ASSERT_EQ(ahead.size(), live.size());
      const std::set<std::string> machine = {"tok_s", "tflops", "mfu", "watts", "memory_bytes", "peak_memory_bytes"};
      for (size_t i = 0; i < live.size(); ++i)
        for (const auto& [key, value] : ahead[i].items()) {
          if (machine.contains(key)) continue;
          EXPECT_EQ(value, live[i][key]) << method << " " << kind << " " << key << " " << i;
        }
      EXPECT_TRUE(ahead[3].contains("eval_loss"));
      const std::string weights =
          std::string("/checkpoint/") + (std::string(kind) == "full" ? "model" : "adapter_model") + ".safetensors";
      EXPECT_EQ(digest(f / ("true" + weights)), digest(f / ("false" + weights))) << method << " " << kind;
      EXPECT_FALSE(fs::exists(f / "false/checkpoints/reference.safetensors"));
      EXPECT_EQ(read_json_file(f / "false/receipt.json")["reference"]["log_probabilities"], "live");
      // The reference of a resumed run is still what the run began from.
      const std::string whole = digest(f / ("false" + weights));
      fs::remove_all(f / "false/checkpoint");
      const auto r = cli::run("train " + (f / "r.yaml") + " --resume-from 5 --out " + (f / "false"));
      ASSERT_EQ(r.code, 0) << r.out;
      EXPECT_NE(r.out.find("resumed at step 5"), std::string::npos) << r.out;
      EXPECT_EQ(digest(f / ("false" + weights)), whole) << method << " " << kind;
    }
}

// The receipt names what the policy is compared with, and the digest of what that said.
TEST(PreferenceRuns, TheReceiptNamesTheReference) {
  for (const char* kind : {"lora", "full"}) {
    cli::Folder f("preference_receipt");
    const Case c{"dpo", "qwen3_gqa", kind, 3, 2, "", ""};
    write_file_atomic(f / "r.yaml", recipe(c));
    ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")).code, 0);
    const Json receipt = read_json_file(f / "out/receipt.json");
    EXPECT_EQ(receipt["reference"]["log_probabilities"],
              read_json_file(f / "out/checkpoint/training.json")["reference"]);
    const bool lora = std::string(kind) == "lora";
    EXPECT_EQ(receipt["reference"]["policy"], lora ? "init_adapter, frozen" : "the starting weights");
    ASSERT_EQ(receipt.contains("init_adapter"), lora);
    if (lora) {
      EXPECT_EQ(receipt["init_adapter"]["name"], cli::golden("qwen3_gqa") + "/adapter");
    }
    const auto r = cli::run("receipt " + (f / "out/manifest.json"));
    EXPECT_EQ(r.code, 0) << r.out;
    EXPECT_NE(r.out.find("reference           "), std::string::npos) << r.out;
  }
}

TEST(PreferenceRuns, RowsThatTeachNothingAreNamed) {
  const std::tuple<const char*, const char*, const char*> bad[] = {
      {"dpo", R"({"prompt":"a","chosen":"b","rejected":"b"})", "are equal"},
      {"dpo", R"({"prompt":"a","chosen":"","rejected":"b"})", "\"chosen\" is empty"},
      {"dpo", R"({"prompt":"a","chosen":"b","rejected":""})", "\"rejected\" is empty"},
      {"dpo", R"({"chosen":"xb","rejected":"yb"})", "has no \"prompt\""},
      {"dpo", R"({"prompt_ids":[3],"chosen_ids":[4],"rejected_ids":[]})", "\"rejected_ids\" is empty"},
      {"dpo", R"({"text":"a"})", "this method compares two answers"},
      {"dpo", R"({"prompt_ids":[3],"chosen_ids":[4,96],"rejected_ids":[5]})", "chosen_ids[1] is 96"},
      {"dpo", R"({"prompt_ids":[3],"chosen_ids":[4],"rejected_ids":[97]})", "rejected_ids[0] is 97"},
      {"orpo", R"({"prompt_ids":[3,98],"chosen_ids":[4],"rejected_ids":[5]})", "prompt_ids[1] is 98"},
      {"kto", R"({"prompt_ids":[3],"completion_ids":[99],"label":true})", "completion_ids[0] is 99"},
      {"kto", R"({"text":"a"})", "this method judges answers"},
      {"kto", R"({"prompt_ids":[3],"completion_ids":[4],"label":"yes"})", "true (a good answer) or false"},
      {"kto", R"({"prompt_ids":[3],"completion_ids":[4],"label":true})", "needs good and bad answers"},
  };
  for (const auto& [method, row, message] : bad) {
    cli::Folder f("preference_bad");
    write_file_atomic(f / "rows.jsonl", std::string(row) + "\n");
    const Case c{method, "qwen3_gqa", "full", 3, 2, "", f / "rows.jsonl"};
    write_file_atomic(f / "r.yaml", recipe(c));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    EXPECT_EQ(r.code, 1) << row << "\n" << r.out;
    EXPECT_NE(r.out.find(message), std::string::npos) << r.out;
  }
}

}  // namespace
}  // namespace mxt
