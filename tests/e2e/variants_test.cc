// Variants of adapters as a user runs them, against peft's own training (tools/golden/variants.py): steps, files, and
// what the trained model says.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "e2e/cli.h"
#include "folders.h"
#include "formats/safetensors.h"

namespace mxt {
namespace {

std::string golden(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/variants/" + name; }

constexpr const char* kAll = "[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]";

struct Case {
  std::string name, settings;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
const Case kCases[] = {
    {"dora", std::string("use_dora: true, target_modules: ") + kAll},
    {"dora_biases", "use_dora: true, target_modules: [q_proj, o_proj, up_proj]"},
    {"dora_turned", "use_dora: true, target_modules: [c_attn, c_proj, c_fc]"},
    {"pissa", std::string("init_lora_weights: pissa, target_modules: ") + kAll},
    {"plus", std::string("lora_plus: 4, target_modules: ") + kAll},
    {"patterns", std::string("layers_to_transform: [1], rank_pattern: {q_proj: 2, layers.1.mlp.down_proj: 6}, "
                             "alpha_pattern: {down_proj: 3}, target_modules: ") +
                     kAll},
    {"lora_only", "bias: lora_only, target_modules: [q_proj, v_proj]"},
    {"saved", "modules_to_save: [embed_tokens, lm_head], target_modules: [q_proj, v_proj]"},
    {"saved_tied", "modules_to_save: [embed_tokens, lm_head], target_modules: [q_proj, v_proj]"},
    {"saved_half", "modules_to_save: [embed_tokens], target_modules: [q_proj, v_proj]"},
    {"ends", "target_modules: [q_proj, v_proj, embed_tokens, lm_head]"},
    {"ends_tied", "target_modules: [q_proj, v_proj, embed_tokens, lm_head]"},
    {"plus_ends", "lora_plus: 4, target_modules: [q_proj, v_proj, embed_tokens, lm_head]"},
};

Json expected(const std::string& name) { return read_json_file(golden(name) + "/expected.json"); }

std::string recipe(const Case& c, int steps = 12, const std::string& extra = "") {
  cli::Tiny t;
  t.model = expected(c.name)["base"];
  t.steps = steps;
  t.extra = extra;
  const std::string start = golden(c.name) + "/start";
  t.method = fmt::format("{{kind: lora, r: 4, alpha: 8, {}{}}}", c.settings,
                         fs::exists(start) ? fmt::format(", init_adapter: \"{}\"", start) : "");
  return cli::recipe(t);
}

using Tensors = std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>>;

Tensors read_adapter(const std::string& folder) {
  Tensors out;
  const auto file = formats::Safetensors::open(folder + "/adapter_model.safetensors");
  for (const auto& t : file.tensors()) {
    EXPECT_EQ(t.type, DType::kF32) << t.name;
    std::vector<float> v(static_cast<size_t>(t.count()));
    std::memcpy(v.data(), file.bytes(t).data(), v.size() * 4);
    out[t.name] = {t.shape, std::move(v)};
  }
  return out;
}

// Singular vectors have either sign: what B·A is decides.
Tensors multiplied(const Tensors& t) {
  Tensors out;
  for (const auto& [name, a] : t) {
    const size_t at = name.find(".lora_A.");
    if (at == std::string::npos) continue;
    const auto& b = t.at(name.substr(0, at) + ".lora_B." + name.substr(at + 8));
    const auto rank = static_cast<size_t>(a.first[0]), in = static_cast<size_t>(a.first[1]),
               rows = static_cast<size_t>(b.first[0]);
    std::vector<float> product(rows * in);
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < in; ++j)
        for (size_t k = 0; k < rank; ++k) product[i * in + j] += b.second[i * rank + k] * a.second[k * in + j];
    out[name] = {{b.first[0], a.first[1]}, std::move(product)};
  }
  return out;
}

void expect_equal(const Tensors& got, const Tensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, w] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    const auto& g = got.at(name);
    ASSERT_EQ(g.first, w.first) << name;
    double most = 0;
    for (size_t i = 0; i < w.second.size(); ++i)
      most = std::max(most, std::abs(static_cast<double>(g.second[i]) - static_cast<double>(w.second[i])));
    EXPECT_LT(most, 2e-4) << name;
  }
}

// Log-probabilities of the golden document by `score`.
std::vector<double> score(const cli::Folder& f, const std::string& name, const std::string& arguments) {
  write_file_atomic(f / "rows.jsonl", Json{{"ids", expected(name)["ids"]}}.dump() + "\n");
  const auto r = cli::run("score --dtype float32 " + arguments + " --input " + (f / "rows.jsonl") + " --output " +
                          (f / "scores.jsonl"));
  EXPECT_EQ(r.code, 0) << r.out;
  std::vector<double> out;
  if (r.code != 0) return out;
  const Json row = cli::lines(f / "scores.jsonl").at(0);
  for (const Json& x : row["logprobs"])
    if (!x.is_null()) out.push_back(x);
  return out;
}

void expect_scores(const std::vector<double>& got, const std::string& name) {
  const Json want = expected(name)["logprobs"];
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i].get<double>(), 5e-4) << "token " << i + 1;
}

class Variant : public testing::TestWithParam<Case> {};

TEST_P(Variant, TwelveStepsAndFilesEqualPeft) {
  const Case& c = GetParam();
  cli::Folder f("variant_" + c.name);
  write_file_atomic(f / "r.yaml", recipe(c));
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const Json want = expected(c.name)["steps"];
  const auto got = cli::lines(f / "out/metrics.jsonl");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    for (const char* key : {"loss", "grad_norm", "lr"}) {
      const double a = got[i][key], b = want[i][key];
      EXPECT_NEAR(a, b, 1e-4 * std::abs(b)) << key << " of step " << i + 1;
    }
  const Tensors ours = read_adapter(f / "out/checkpoint"), theirs = read_adapter(golden(c.name) + "/final");
  if (c.name == "pissa")
    expect_equal(multiplied(ours), multiplied(theirs));
  else
    expect_equal(ours, theirs);
  const Json a = read_json_file(f / "out/checkpoint/adapter_config.json"),
             b = read_json_file(golden(c.name) + "/final/adapter_config.json");
  for (const char* key : {"r", "lora_alpha", "use_dora", "use_rslora", "bias", "layers_to_transform", "rank_pattern",
                          "alpha_pattern", "modules_to_save", "init_lora_weights", "peft_type"})
    EXPECT_EQ(a[key], b[key]) << key;
  // What was trained is what is said afterwards: beside the base, and merged into it.
  const std::string base = cli::golden(expected(c.name)["base"]);
  expect_scores(score(f, c.name, "--model " + base + " --adapter " + (f / "out/checkpoint")), c.name);
  const auto m =
      cli::run("merge --model " + base + " --adapter " + (f / "out/checkpoint") + " --out " + (f / "merged"));
  ASSERT_EQ(m.code, 0) << m.out;
  expect_scores(score(f, c.name, "--model " + (f / "merged")), c.name);
}

// An adapter that peft trained is read as it is.
TEST_P(Variant, PeftsAdapterSaysTheSame) {
  const Case& c = GetParam();
  cli::Folder f("variant_read_" + c.name);
  expect_scores(
      score(f, c.name, "--model " + cli::golden(expected(c.name)["base"]) + " --adapter " + golden(c.name) + "/final"),
      c.name);
}

INSTANTIATE_TEST_SUITE_P(Golden, Variant, testing::ValuesIn(kCases), [](const auto& i) { return i.param.name; });

TEST(Variants, ThreadsAndResumeGiveEqualBytes) {
  cli::Folder f("variants_resume");
  for (const size_t i : {0u, 3u, 6u, 8u, 11u}) {  // dora, pissa, lora_only, saved_tied, ends_tied
    const Case& c = kCases[i];
    SCOPED_TRACE(c.name);
    write_file_atomic(f / "r.yaml", recipe(c, 6, "  save_every: 2\n  neftune_noise_alpha: 5\n"));
    const std::string one = f / (c.name + "1"), two = f / (c.name + "2");
    ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --threads 1 --out " + one).code, 0);
    ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --threads 2 --out " + two).code, 0);
    const std::string adapter = "/checkpoint/adapter_model.safetensors", whole = read_file(one + adapter);
    EXPECT_EQ(read_file(two + adapter), whole);
    const auto r = cli::run("train " + (f / "r.yaml") + " --threads 1 --resume-from 4 --out " + one);
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_EQ(read_file(one + adapter), whole);
  }
}

// Noise changes training and not what is evaluated; the same seed, the same noise; how a step is cut does not matter.
TEST(Variants, NeftuneIsSeededAndOffInEvaluation) {
  cli::Folder f("neftune");
  const auto train = [&](const std::string& name, const std::string& extra) {
    cli::Tiny t;
    t.model = "qwen3_gqa";
    t.method = "{kind: lora, r: 4, alpha: 8, target_modules: [q_proj]}";
    t.steps = 3;
    t.lr = 1e-12;
    t.extra = "  eval_every: 3\n" + extra;
    std::string text = cli::recipe(t);
    const size_t at = text.find("shuffle: false");
    text.insert(at, "eval_fraction: 0.2, ");
    write_file_atomic(f / "r.yaml", text);
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / name));
    EXPECT_EQ(r.code, 0) << r.out;
    return cli::lines(f / (name + "/metrics.jsonl"));
  };
  const auto plain = train("plain", ""), noisy = train("noisy", "  neftune_noise_alpha: 8\n"),
             again = train("again", "  neftune_noise_alpha: 8\n  micro_batch: 1\n");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GT(std::abs(plain[i]["loss"].get<double>() - noisy[i]["loss"].get<double>()), 1e-4);
    EXPECT_NEAR(noisy[i]["loss"].get<double>(), again[i]["loss"].get<double>(), 1e-5);
  }
  EXPECT_NEAR(plain[2]["eval_loss"].get<double>(), noisy[2]["eval_loss"].get<double>(), 1e-6);
}

// Ten lines of a recipe train any family: the usual names mean what its linear layers are called.
TEST(Variants, TheUsualModulesAreTheFamilysOwn) {
  cli::Folder f("usual");
  struct Usual {
    const char* model;
    std::vector<std::string> modules;
    const char* says;
  };
  const Usual cases[] = {
      {"phi3", {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}, "phi3 has other names than the usual ones"},
      {"gpt2", {"c_attn", "c_proj", "c_fc"}, "gpt2 has other names"},
      {"nanochat", {"q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2"}, "nanochat has other names"},
      {"qwen3_5",
       {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
       "all-linear adds them"},
      {"llama_mqa", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}, ""}};
  for (const Usual& c : cases) {
    cli::Tiny t;
    t.model = c.model;
    t.steps = 1;
    t.method = "{kind: lora, r: 2}";
    write_file_atomic(f / "r.yaml", cli::recipe(t));
    const std::string out = f / c.model;
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + out);
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_NE(r.out.find(c.says), std::string::npos) << r.out;
    EXPECT_EQ(r.out.find("train.method.target_modules") != std::string::npos, *c.says != 0) << r.out;
    Json saved = read_json_file(out + "/checkpoint/adapter_config.json")["target_modules"];
    std::vector<std::string> want = c.modules;
    std::sort(want.begin(), want.end()), std::sort(saved.begin(), saved.end());
    EXPECT_EQ(saved, Json(want)) << c.model;
  }
  // Names that somebody chose are not made up for.
  cli::Tiny t;
  t.model = "gpt2";
  t.method = "{kind: lora, r: 2, target_modules: [q_proj]}";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  EXPECT_EQ(cli::run("train " + (f / "r.yaml") + " --out " + (f / "other")).code, 1);
}

// As transformers builds the table (padding_idx): where it is read the padding token's row learns nothing.
TEST(Variants, ThePaddingTokensRowStays) {
  cli::Folder f("padding");
  cli::Tiny t;
  t.model = "llama_mqa";
  t.steps = 2;
  const std::string base = cli::golden(t.model);
  fs::copy(base, f / "model", fs::copy_options::recursive);
  const auto changed_rows = [&](const Json& pad) {
    Json config = read_json_file(base + "/config.json");
    config["pad_token_id"] = pad;
    write_file_atomic(f / "model/config.json", config.dump());
    std::string text = cli::recipe(t);
    text.replace(text.find(base), base.size(), f / "model");
    text.replace(text.find("weight_decay: 0.1"), 17, "weight_decay: 0.0");
    write_file_atomic(f / "r.yaml", text);
    fs::remove_all(f / "out");
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    EXPECT_EQ(r.code, 0) << r.out;
    const auto was = formats::Safetensors::open(base + "/model.safetensors"),
               is = formats::Safetensors::open(f / "out/checkpoint/model.safetensors");
    const auto& table = was.at("model.embed_tokens.weight");
    const size_t row = table.bytes / static_cast<size_t>(table.shape[0]);
    std::set<size_t> out;
    for (size_t i = 0; i < static_cast<size_t>(table.shape[0]); ++i)
      if (std::memcmp(was.bytes(table).data() + i * row, is.bytes(is.at("model.embed_tokens.weight")).data() + i * row,
                      row) != 0)
        out.insert(i);
    return out;
  };
  std::set<size_t> all = changed_rows(nullptr);
  ASSERT_TRUE(all.contains(12)) << "a row of the data has it";
  all.erase(12);
  EXPECT_EQ(changed_rows(12), all);
}

// PEFT counts whatever is called a bias, a delta layer's dt_bias too: what a run wrote is read, merged and begun from.
TEST(Variants, BiasesOfDeltaLayersComeBack) {
  cli::Folder f("delta_biases");
  const std::string base = cli::golden("qwen3_5"), adapter = f / "out/checkpoint";
  cli::Tiny t;
  t.model = "qwen3_5";
  t.steps = 2;
  t.method = "{kind: lora, r: 2, alpha: 4, target_modules: [q_proj], bias: all}";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const auto file = formats::Safetensors::open(adapter + "/adapter_model.safetensors");
  ASSERT_NE(file.find("base_model.model.model.layers.0.linear_attn.dt_bias"), nullptr);
  write_file_atomic(f / "rows.jsonl", "{\"ids\":[1,2,3,4,5]}\n");
  const auto score = [&](const std::string& model) {
    r = cli::run("score --model " + model + " --dtype float32 --input " + (f / "rows.jsonl") + " --output " +
                 (f / "o.jsonl"));
    EXPECT_EQ(r.code, 0) << r.out;
    return r.code == 0 ? cli::lines(f / "o.jsonl").at(0)["logprobs"] : Json();
  };
  const Json want = score(base + " --adapter " + adapter);
  r = cli::run("merge --model " + base + " --adapter " + adapter + " --out " + (f / "merged"));
  ASSERT_EQ(r.code, 0) << r.out;
  const Json got = score(f / "merged");
  for (size_t i = 1; i < got.size(); ++i) EXPECT_NEAR(got[i].get<double>(), want[i].get<double>(), 1e-4);
  t.method.insert(t.method.size() - 1, ", init_adapter: \"" + adapter + "\"");
  write_file_atomic(f / "again.yaml", cli::recipe(t));
  r = cli::run("train " + (f / "again.yaml") + " --out " + (f / "again"));
  EXPECT_EQ(r.code, 0) << r.out;
}

// Known from its headers: not after rows were prepared, which may take hours.
TEST(Variants, AnAdapterThatNoRunCanStartFromIsRefusedBeforeRowsArePrepared) {
  cli::Folder f("variant_start");
  const std::string own = cli::golden("qwen3_gqa") + "/adapter", other = cli::golden("llama_mqa") + "/adapter";
  const std::vector<std::array<std::string, 3>> cases = {
      {f / "nowhere", "r: 4, alpha: 8", "no such file"},
      {other, "r: 4, alpha: 8", "another base or rank"},
      {own, "r: 5, alpha: 8", "another base or rank"},
      {own, "r: 4, alpha: 9", "alpha: 8"},
      {own, "r: 4, alpha: 8, use_dora: true", "use_dora: false"},
      {own, "r: 4, alpha: 8, target_modules: [q_proj]", "does not train"}};
  for (const auto& [adapter, settings, why] : cases) {
    cli::Tiny t;
    t.method = fmt::format("{{kind: lora, {}, init_adapter: \"{}\"}}", settings, adapter);
    write_file_atomic(f / "r.yaml", cli::recipe(t));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    EXPECT_EQ(r.code, 1) << r.out;
    EXPECT_NE(r.out.find(why), std::string::npos) << r.out;
    EXPECT_FALSE(fs::exists(f / "out/dataset")) << settings;
  }
}

TEST(Variants, WhatCannotTrainIsOneLine) {
  cli::Folder f("variants_refused");
  write_file_atomic(f / "pairs.jsonl", R"({"prompt_ids": [1, 2], "chosen_ids": [3], "rejected_ids": [4]})"
                                       "\n");
  const auto refused = [&](const std::string& method, int code, const std::string& line,
                           const std::string& extra = "") {
    cli::Tiny t;
    t.model = "qwen3_gqa";
    t.method = method;
    t.steps = 1;
    t.extra = extra;
    std::string recipe = cli::recipe(t);
    const std::string rows = cli::golden(t.model) + "/rows.jsonl";
    if (method.starts_with("{kind: dpo")) recipe.replace(recipe.find(rows), rows.size(), f / "pairs.jsonl");
    write_file_atomic(f / "r.yaml", recipe);
    fs::remove_all(f / "out");
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    EXPECT_EQ(r.code, code) << r.out;
    EXPECT_NE(r.out.find(line), std::string::npos) << r.out;
  };
  refused("{kind: lora, layers_to_transform: [7]}", 1, "the model has layers 0 to 1, and not 7");
  refused("{kind: lora, rank_pattern: {q_prj: 2}}", 1, "train.method.rank_pattern: \"q_prj\" matches no module");
  refused("{kind: lora, alpha_pattern: {\"q_proj(\": 2}}", 1,
          "r.yaml: train.method.alpha_pattern: \"q_proj(\" is not a valid pattern");
  refused("{kind: lora, modules_to_save: [norm]}", 3, "train.method.modules_to_save: \"norm\" is not built in");
  refused("{kind: lora, use_dora: true, dropout: 0.1}", 3, "train.method.use_dora with dropout is not built in");
  refused("{kind: lora, use_dora: true}", 3, "train.method.use_dora is not built in over a base that is held in FP8",
          "  base_precision: fp8_e4m3\n");
  refused("{kind: qlora, init_lora_weights: pissa}", 3, "init_lora_weights: pissa is not built in over a base");
  refused("{kind: lora, r: 40, init_lora_weights: pissa}", 1, "lower train.method.r");
  refused("{kind: lora, init_lora_weights: pissa, init_adapter: x}", 1, "keep one");
  refused("{kind: dpo, lora: {target_modules: [lm_head]}}", 3, "for methods that compare log-probabilities");
}

}  // namespace
}  // namespace mxt
