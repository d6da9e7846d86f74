// QLoRA as a user runs it: against peft over the dequantised base, and over folders of bitsandbytes
// (tools/golden/qlora.py).
#include <cmath>

#include "e2e/cli.h"
#include "folders.h"

namespace mxt {
namespace {

std::string qlora_golden(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/qlora/" + name; }

constexpr const char* kTargets = "[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]";

cli::Tiny tiny(const std::string& model, const std::string& more) {
  cli::Tiny t;
  t.model = model;
  t.steps = 12;
  t.method = fmt::format("{{kind: qlora, r: 4, alpha: 8, target_modules: {}{}, init_adapter: \"{}/adapter\"}}",
                         kTargets, more, cli::golden(model));
  return t;
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

void expect_steps(const std::string& metrics, const Json& want) {
  const auto got = cli::lines(metrics);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    for (const char* key : {"loss", "grad_norm", "lr"}) {
      const double a = got[i][key], b = want[i][key];
      EXPECT_NEAR(a, b, 1e-4 * std::abs(b)) << key << " of step " << i + 1;
    }
}

class QLora : public testing::TestWithParam<std::string> {};

TEST_P(QLora, TwelveStepsEqualPeftOverTheDequantisedBase) {
  cli::Folder f("qlora_" + GetParam());
  write_file_atomic(f / "r.yaml", cli::recipe(tiny(GetParam(), "")));
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  expect_steps(f / "out/metrics.jsonl", read_json_file(qlora_golden("expected.json"))[GetParam()]["nf4_double"]);
}

INSTANTIATE_TEST_SUITE_P(Golden, QLora, testing::Values("llama_mqa", "qwen3_gqa"));

// Its own codes, not rounded again: what the model was rounded to gives the same steps.
TEST(QLoraFolder, OfTransformersIsTakenAsItIs) {
  cli::Folder f("qlora_folder");
  std::string text = cli::recipe(tiny("llama_mqa", ""));
  replace(text, "name: \"" + cli::golden("llama_mqa") + "\"", "name: \"" + qlora_golden("folder") + "\"");
  write_file_atomic(f / "r.yaml", text);
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  // The mean of the scales is another by a bit (nested codes may then differ): the definition's tolerance.
  expect_steps(f / "out/metrics.jsonl", read_json_file(qlora_golden("expected.json"))["folder"]);
  EXPECT_EQ(r.out.find("train.method"), std::string::npos) << r.out;
  // What a recipe says of codes has no effect on it, which is said.
  replace(text, "kind: qlora", "kind: qlora, quant_bits: 8");
  write_file_atomic(f / "r.yaml", text);
  const auto other = cli::run("train " + (f / "r.yaml") + " --out " + (f / "other"));
  EXPECT_EQ(other.code, 0) << other.out;
  EXPECT_NE(other.out.find("train.method.quant_bits: not read"), std::string::npos) << other.out;
  EXPECT_EQ(read_file(f / "other/checkpoint/adapter_model.safetensors"),
            read_file(f / "out/checkpoint/adapter_model.safetensors"));
}

// Rows for a model of 96 ids, and a model made of a seed, one step old.
std::string recipe_of(const std::string& model, const std::string& method, const std::string& precision, int steps) {
  cli::Tiny t;
  t.method = method;
  t.precision = precision;
  t.steps = steps;
  std::string text = cli::recipe(t);
  replace(text, "{name: \"" + cli::golden(t.model) + "\", torch_dtype: float32}", model);
  return text;
}

std::string made(const cli::Folder& f, int64_t width, int64_t inner) {
  const std::string config = fmt::format(
      "{{name: made, init: random, torch_dtype: float32, config: {{model_type: llama, vocab_size: 96, hidden_size: {}, "
      "intermediate_size: {}, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2, "
      "max_position_embeddings: 64, tie_word_embeddings: false}}}}",
      width, inner);
  write_file_atomic(f / "made.yaml", recipe_of(config, "{kind: pretrain}", "float32", 1));
  const auto r = cli::run("train " + (f / "made.yaml") + " --out " + (f / "made"));
  EXPECT_EQ(r.code, 0) << r.out;
  return f / "made/checkpoint";
}

// What is decoded where it is multiplied is what lora decodes beforehand: the same adapters, byte by byte.
TEST(QLoraFolder, TrainsTheBytesOfLoraOverItsDecodedWeights) {
  cli::Folder f("qlora_decoded");
  const std::string model = made(f, 64, 96);
  const std::string plain = fmt::format(", r: 4, alpha: 8, target_modules: {}}}", kTargets);
  for (const std::string scheme : {"mxfp4", "quark_mxfp4", "fp8_dynamic", "fp8_block", "quark_fp8", "mxfp4 with DoRA"})
    for (const std::string precision : {"float32", "bfloat16"}) {
      SCOPED_TRACE(scheme + " " + precision);
      const bool dora = scheme.ends_with("DoRA");
      const std::string rest = (dora ? ", use_dora: true" : "") + plain;
      fs::remove_all(f / "small");
      const auto q = cli::run("quantize --no-report --model " + model + " --scheme " +
                              scheme.substr(0, scheme.find(' ')) + " --out " + (f / "small"));
      ASSERT_EQ(q.code, 0) << q.out;
      std::string bytes[2];
      for (const bool coded : {false, true}) {
        const std::string out =
            f / (scheme.substr(0, scheme.find(' ')) + (dora ? "_dora_" : "_") + precision + (coded ? "q" : "l"));
        write_file_atomic(f / "r.yaml", recipe_of("{name: \"" + (f / "small") + "\", torch_dtype: float32}",
                                                  (coded ? "{kind: qlora" : "{kind: lora") + rest, precision, 3));
        const auto r = cli::run("train " + (f / "r.yaml") + " --out " + out);
        ASSERT_EQ(r.code, 0) << r.out;
        bytes[coded] = read_file(out + "/checkpoint/adapter_model.safetensors");
      }
      EXPECT_EQ(bytes[0], bytes[1]);
    }
}

// A GGUF file in its own blocks: what is decoded where it is multiplied is what lora decodes beforehand, byte by byte
// in bf16 and in fp32; no matrix of the base stands whole, and the plan counts the blocks.
TEST(QLoraGguf, TrainsTheBytesOfLoraOverItsDecodedBlocks) {
  const std::string weights = std::string(kSourceDir) + "/weights/SmolLM2-135M-Instruct.gguf";
  if (!fs::exists(weights)) GTEST_SKIP() << "no weights: run ./dev weights";
  cli::Folder f("qlora_gguf");
  const auto write = [&](const std::string& model, const std::string& kind, const std::string& precision) {
    write_file_atomic(f / "r.yaml", fmt::format(R"(meta: {{project: test, run_name: gguf}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{}", torch_dtype: float32}}
data: {{source: synth, synth: {{task: arithmetic, rows: 12, test_rows: 2}}, seq_len: 64, packing: false}}
train:
  method: {{kind: {}, r: 4, alpha: 8, target_modules: {}}}
  precision: {}
  optimizer: {{lr: 1.0e-3}}
  schedule: {{type: constant, warmup_ratio: 0, max_steps: 12}}
  batch: {{per_device: 1, grad_accum: 1}}
)",
                                                model, kind, kTargets, precision));
  };
  for (const std::string precision : {"float32", "bfloat16"}) {
    SCOPED_TRACE(precision);
    std::string bytes[2];
    int64_t held[2];
    for (const bool coded : {false, true}) {
      const std::string out = f / (precision + (coded ? "q" : "l"));
      write(weights, coded ? "qlora, quant_type: as_stored" : "lora", precision);
      const auto plan = cli::run("plan --json " + (f / "r.yaml"));
      ASSERT_EQ(plan.code, 0) << plan.out;
      held[coded] = Json::parse(plan.out.substr(plan.out.find("{\n")))["categories"]["weights"];
      const auto r = cli::run("train " + (f / "r.yaml") + " --out " + out);
      ASSERT_EQ(r.code, 0) << r.out;
      bytes[coded] = read_file(out + "/checkpoint/adapter_model.safetensors");
      EXPECT_EQ(read_file(out + "/program.txt").find(" decode q") != std::string::npos, coded);
    }
    EXPECT_EQ(bytes[0], bytes[1]);
    EXPECT_LT(held[1], held[0] / 2 + (8 << 20));
  }
  write(cli::golden("llama_mqa"), "qlora, quant_type: as_stored", "float32");
  const auto folder = cli::run("plan " + (f / "r.yaml"));
  EXPECT_EQ(folder.code, 1) << folder.out;
  EXPECT_NE(folder.out.find("holds plain numbers"), std::string::npos) << folder.out;
}

// Matrices of many pieces, with an odd last one.
TEST(QLora, PiecesOfLargeMatricesAddUp) {
  cli::Folder f("qlora_pieces");
  const std::string model = made(f, 512, 4064);
  const std::string small = f / "small", rest = fmt::format(", r: 4, alpha: 8, target_modules: {}}}", kTargets);
  ASSERT_EQ(cli::run("quantize --no-report --model " + model + " --scheme mxfp4 --out " + small).code, 0);
  std::vector<Json> steps[2];
  for (const bool coded : {false, true}) {
    write_file_atomic(f / "r.yaml", recipe_of("{name: \"" + small + "\", torch_dtype: float32}",
                                              (coded ? "{kind: qlora" : "{kind: lora") + rest, "float32", 4));
    const std::string out = f / (coded ? "q" : "l");
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + out);
    ASSERT_EQ(r.code, 0) << r.out;
    steps[coded] = cli::lines(out + "/metrics.jsonl");
    const std::string program = read_file(out + "/program.txt");
    EXPECT_EQ(program.find(" decode mxfp4") != std::string::npos, coded);
  }
  ASSERT_EQ(steps[0].size(), 4u);
  for (size_t i = 0; i < 4; ++i)
    for (const char* key : {"loss", "grad_norm"})
      EXPECT_NEAR(steps[0][i][key].get<double>(), steps[1][i][key].get<double>(),
                  1e-5 * steps[0][i][key].get<double>());
}

// bf16, with dropout and accumulation: bytes do not depend on threads, nor on being stopped.
TEST(QLora, ThreadsAndResumeGiveEqualBytes) {
  cli::Folder f("qlora_resume");
  for (const char* type : {"nf4", "mxfp4"}) {
    cli::Tiny t;
    t.model = "llama_scaled";  // 32 and 40 columns
    t.precision = "bfloat16";
    t.steps = 6;
    t.grad_accum = 2;
    t.extra = "  save_every: 2\n";
    t.method = std::string("{kind: qlora, r: 4, alpha: 8, dropout: 0.1, quant_type: ") + type +
               ", target_modules: [q_proj, v_proj]}";
    std::string text = cli::recipe(t);
    if (std::string(type) == "mxfp4") {
      write_file_atomic(f / "r.yaml", text);
      const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "refused"));
      EXPECT_EQ(r.code, 3) << r.out;
      EXPECT_NE(r.out.find("40 columns, and MXFP4 holds multiples of 32: use nf4"), std::string::npos) << r.out;
      continue;
    }
    write_file_atomic(f / "r.yaml", text);
    ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --threads 1 --out " + (f / "one")).code, 0);
    ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --threads 2 --out " + (f / "two")).code, 0);
    const std::string adapter = "checkpoint/adapter_model.safetensors";
    EXPECT_EQ(read_file(f / ("one/" + adapter)), read_file(f / ("two/" + adapter)));
    const std::string whole = read_file(f / ("one/" + adapter));
    ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --threads 1 --resume-from 4 --out " + (f / "one")).code, 0);
    EXPECT_EQ(read_file(f / ("one/" + adapter)), whole);
  }
}

}  // namespace
}  // namespace mxt
