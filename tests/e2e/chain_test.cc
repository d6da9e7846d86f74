// `run` from recipe to receipt on a model that the test makes: kill -9 at any moment, tampering, replay, the registry.
#include <signal.h>

#include <chrono>

#include "base/within.h"
#include "config/recipe.h"
#include "e2e/cli.h"
#include "provenance/manifest.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/train.h"

namespace mxt {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt "
    "%}<|assistant|>{% endif %}";

std::string text_of_corpus() {
  std::string s;
  Philox random(3, 4);
  for (int i = 0; i < 400; ++i)
    s += fmt::format("What is {} plus {}? Answer with the number alone. Take {} from {}.\n", random.below(100),
                     random.below(100), random.below(100), random.below(100));
  return s;
}

// A folder with a tokenizer, a text and a recipe that trains a small random model on tool calls.
class Chain {
 public:
  explicit Chain(const std::string& name, const std::string& scheme = "gguf_q8_0", int steps = 24) : f(name) {
    const std::string corpus = text_of_corpus();
    write_file_atomic(f / "text.txt", corpus.substr(0, 1500));
    tokenizer::TrainOptions o;
    o.vocab_size = 320;
    o.pattern = "gpt2";
    o.special_tokens = {"<|end|>", "<|user|>", "<|assistant|>", "<|system|>"};
    o.eos_token = "<|end|>";
    o.chat_template = kTemplate;
    bool more = true;
    tokenizer::Tokenizer::from_spec(tokenizer::train_byte_level_bpe(o,
                                                                    [&](std::string_view& t) {
                                                                      t = corpus;
                                                                      return std::exchange(more, false);
                                                                    })
                                        .spec)
        ->save(f / "tokenizer");
    make_folders(f / "tasks");
    write_file_atomic(f / "tasks/sums.yaml", fmt::format(R"(task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{}"}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{a}}}} plus {{{{b}}}} is"
doc_to_choice: choices
doc_to_target: gold
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
)",
                                                         f / "tasks/sums.jsonl"));
    std::string rows;
    for (int i = 0; i < 6; ++i)
      rows +=
          fmt::format(R"({{"a": {}, "b": {}, "choices": ["{}", "{}"], "gold": 0}})", i, i + 1, 2 * i + 1, 3 * i + 5) +
          "\n";
    write_file_atomic(f / "tasks/sums.jsonl", rows);
    write_file_atomic(f / "r.yaml", recipe(scheme, steps));
  }

  std::string recipe(const std::string& scheme, int steps) const {
    return fmt::format(R"(meta: {{project: test, run_name: chain, seed: 7}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model:
  name: tiny
  init: random
  tokenizer: "{0}/tokenizer"
  torch_dtype: float32
  config: {{model_type: llama, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1,
            max_position_embeddings: 2048, vocab_size: 320, tie_word_embeddings: true}}
data: {{source: synth, synth: {{task: tool_calls, rows: 40, test_rows: 8}}, seq_len: 768}}
train:
  method: {{kind: full}}
  precision: float32
  optimizer: {{lr: 3.0e-3}}
  schedule: {{max_steps: {2}}}
  batch: {{per_device: 2, grad_accum: 1}}
  save_every: 4
eval: {{harness: {{tasks: [sums], task_path: "{0}/tasks"}}, generation: {{limit: 4, max_tokens: 8}}, perplexity_path: "{0}/text.txt"}}
quantize: {{scheme: {1}}}
receipt: {{output: "{0}/receipt.json"}}
)",
                       f.path, scheme, steps);
  }

  cli::Result run(const std::string& out, const std::string& extra = "") const {
    return cli::run("run " + (f / "r.yaml") + " --out " + (f / out) + " " + extra);
  }

  // The digests that must not depend on how often a run was killed.
  Json digests(const std::string& out) const {
    const Json m = read_json_file(f / (out + "/manifest.json"));
    Json d;
    for (const char* s : {"dataset", "checkpoint", "eval", "quantized"}) d[s] = provenance::subject_digest(m, s);
    return d;
  }

  cli::Folder f;
};

TEST(Killed, TheNextRunGoesOnAndEndsAlike) {
  const Chain c("killed");
  const auto begin = std::chrono::steady_clock::now();
  auto r = c.run("whole");
  ASSERT_EQ(r.code, 0) << r.out;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const Json want = c.digests("whole");
  for (const auto& [subject, digest] : want.items()) ASSERT_NE(digest, "") << subject;
  const std::string plan = "--plan " + (c.f / "whole/plan.json");
  cli::Kills kills(11, seconds);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const std::string out = c.f / fmt::format("cut{}", attempt);
    kills.one({"run", c.f / "r.yaml", "--plan", c.f / "whole/plan.json", "--out", out});
    r = c.run(fmt::format("cut{}", attempt), plan);
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_EQ(c.digests(fmt::format("cut{}", attempt)), want) << "attempt " << attempt;
    EXPECT_EQ(cli::run("receipt " + out + "/manifest.json").code, 0);
  }
  EXPECT_GT(kills.in_time, 0);
  // Again and again in one folder.
  cli::Kills often(12, seconds / 2);
  for (int attempt = 0; attempt < 10; ++attempt)
    often.one({"run", c.f / "r.yaml", "--plan", c.f / "whole/plan.json", "--out", c.f / "often"});
  r = c.run("often", plan);
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(c.digests("often"), want);
}

// Its weights stand for float32 numbers; a Hugging Face folder is used in the type that it says it is held in.
TEST(Dtype, AGgufFileIsUsedInFloat32UnlessSaidOtherwise) {
  const Chain c("dtype", "gguf_q8_0", 3);
  ASSERT_EQ(c.run("out").code, 0);
  write_file_atomic(c.f / "rows.jsonl", "{\"ids\": [5, 9, 80, 31, 200, 7]}\n");
  const auto score = [&](const std::string& model, const std::string& dtype) {
    const auto r = cli::run("score --model " + (c.f / model) + " --input " + (c.f / "rows.jsonl") + " --output " +
                            (c.f / "scores.jsonl") + (dtype.empty() ? "" : " --dtype " + dtype));
    EXPECT_EQ(r.code, 0) << r.out;
    return read_file(c.f / "scores.jsonl");
  };
  EXPECT_EQ(score("out/quantized", ""), score("out/quantized", "float32"));
  const std::string config = c.f / "out/checkpoint/config.json";
  Json j = read_json_file(config);
  const char* key = j.contains("dtype") ? "dtype" : "torch_dtype";
  // The weights are in float32, whatever the configuration says of them.
  for (const char* said : {"bfloat16", "float16", "float32"}) {
    j[key] = said;
    write_file_atomic(config, j.dump());
    EXPECT_EQ(score("out/checkpoint", ""), score("out/checkpoint", "float32")) << said;
  }
  for (const char* model : {"out/quantized", "out/checkpoint"})
    EXPECT_NE(score(model, "float32"), score(model, "bfloat16"));
}

// What a kill may leave: some answers of the harness and not the others, and a file that was not whole yet.
TEST(Killed, AnEvaluationThatFindsSomeAnswersGivesTheSameScores) {
  const Chain c("some_answers", "gguf_q8_0", 4);
  ASSERT_EQ(c.run("out").code, 0);
  const Json want = c.digests("out");
  const std::string cache = c.f / "out/cache/eval_after.jsonl", answers = read_file(cache);
  const auto lines = static_cast<size_t>(std::count(answers.begin(), answers.end(), '\n'));
  ASSERT_EQ(lines, 12u);
  size_t end = 0;
  for (size_t kept = 0; kept < lines; ++kept) {
    fs::remove_all(c.f / "out/eval/after");
    fs::remove(c.f / "out/manifest.json");
    write_file_atomic(cache, answers.substr(0, end + 1));  // and a line cut off after one byte
    write_file_atomic(c.f / "out/eval/.after.json.1.0.tmp", "{");
    write_file_atomic(c.f / "out/.plan.json.1.0.tmp", "{");
    const auto r = c.run("out");
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_EQ(c.digests("out"), want) << kept;
    EXPECT_FALSE(fs::exists(c.f / "out/eval/.after.json.1.0.tmp"));
    EXPECT_FALSE(fs::exists(c.f / "out/.plan.json.1.0.tmp"));
    end = answers.find('\n', end) + 1;
  }
}

TEST(Stages, AreKeptWhenNothingChangedAndRedoneWhenSomethingDid) {
  const Chain c("kept", "fp8_dynamic", 4);
  auto r = c.run("out");
  ASSERT_EQ(r.code, 0) << r.out;
  const Json want = c.digests("out");
  const Json energy = read_json_file(c.f / "out/manifest.json")["predicate"]["environment"];
  r = c.run("out");
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("training: already finished"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("quantize: already done"), std::string::npos) << r.out;
  EXPECT_EQ(c.digests("out"), want);
  EXPECT_EQ(read_json_file(c.f / "out/manifest.json")["predicate"]["environment"], energy);
  // A lost file is made again, and only what needs it.
  fs::remove(c.f / "out/quantized/model.safetensors");
  r = c.run("out");
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("training: already finished"), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("quantize: already done"), std::string::npos) << r.out;
  EXPECT_EQ(c.digests("out"), want);
}

TEST(HumanEval, WhatTheModelWritesRunsInTheSandbox) {
  const Chain c("humaneval", "fp8_dynamic", 2);
  ASSERT_EQ(c.run("out").code, 0);
  // The prompt ends in a comment, so that the function is whole whatever the model adds; the second one's test is not
  // met.
  const std::string prompt = R"(def one():\n    return 1\n#)";
  std::string rows;
  for (int wanted : {1, 2})
    rows +=
        fmt::format(
            R"({{"task_id": "t/{0}", "prompt": "{1}", "test": "def check(f):\n    assert f() == {0}\n", "entry_point": "one"}})",
            wanted, prompt) +
        "\n";
  write_file_atomic(c.f / "tasks/he.jsonl", rows);
  write_file_atomic(c.f / "tasks/he.yaml", fmt::format(R"T(task: he
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{}"}}}}
unsafe_code: true
output_type: generate_until
test_split: test
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{test}}}}\ncheck({{{{entry_point}}}})"
metric_list: [{{metric: !function humaneval/utils.pass_at_k, aggregation: mean, higher_is_better: true, k: [1]}}]
generation_kwargs: {{until: ["\n"], max_gen_toks: 1, do_sample: false}}
filter_list: [{{name: create_test, filter: [{{function: custom, filter_fn: !function humaneval/utils.build_predictions}}]}}]
)T",
                                                       c.f / "tasks/he.jsonl"));
  const auto r = cli::run("eval --model " + (c.f / "out/checkpoint") + " --tasks he --task-path " + (c.f / "tasks") +
                          " --json --out " + (c.f / "he"));
  if (r.code == 3) GTEST_SKIP() << r.out;  // no python3, or no namespaces
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("\"pass@1,create_test\": 0.5"), std::string::npos) << r.out;
}

TEST(Tampering, EveryArtifactIsNamed) {
  const Chain c("tamper", "gguf_q8_0", 3);
  ASSERT_EQ(c.run("out").code, 0);
  const std::string manifest = c.f / "out/manifest.json";
  const Json m = read_json_file(manifest);
  std::vector<std::string> files{"recipe.yaml", "plan.json"};
  for (const auto& [name, subject] : m["predicate"]["subjects"].items())
    if (subject.contains("files"))
      for (const Json& file : subject["files"]) files.push_back(file["path"]);
  EXPECT_GT(files.size(), 8u);
  for (const char* f : {"eval/after/results.json", "eval/after/samples_sums.jsonl"})
    EXPECT_NE(std::find(files.begin(), files.end(), f), files.end()) << f;
  for (const std::string& name : files) {
    const std::string path = c.f / ("out/" + name), good = read_file(path);
    for (int kind = 0; kind < 3; ++kind) {
      std::string bad = good;
      if (kind == 0) bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
      if (kind == 1) bad.pop_back();
      if (kind == 2)
        fs::remove(path);
      else
        write_file_atomic(path, bad);
      const auto r = provenance::verify(manifest);
      ASSERT_FALSE(r.ok()) << name;
      EXPECT_EQ(r.findings.front().field, name);
    }
    const auto r = cli::run("receipt " + manifest);
    EXPECT_EQ(r.code, 2) << name;
    EXPECT_NE(r.out.find(name), std::string::npos) << r.out;
    write_file_atomic(path, good);
  }
  // A file that nobody wrote, in a subject's folder.
  write_file_atomic(c.f / "out/checkpoint/extra.bin", "x");
  EXPECT_NE(cli::run("receipt " + manifest).out.find("checkpoint/extra.bin"), std::string::npos);
  EXPECT_EQ(cli::run("receipt " + manifest).code, 2);
  fs::remove(c.f / "out/checkpoint/extra.bin");
  EXPECT_EQ(cli::run("receipt " + manifest).code, 0);
}

// Whoever changes a file can seal a new manifest over it; what its parts say of each other still tells.
TEST(Tampering, ASealedManifestThatContradictsItselfIsNamed) {
  const Chain c("forged", "gguf_q8_0", 3);
  ASSERT_EQ(c.run("out").code, 0);
  const std::string out = c.f / "out";
  const Json choices = read_json_file(out + "/manifest.json")["predicate"]["subjects"]["plan_choices"]["value"];
  const auto sealed = [&](const config::Recipe& recipe, bool checkpoint = true) {
    provenance::ManifestBuilder b(out);
    b.set_recipe(recipe);
    b.add_file("recipe", "recipe.yaml");
    b.add_file("plan", "plan.json");
    b.add_value("plan_choices", choices);
    b.add_folder("dataset", "dataset");
    if (checkpoint) b.add_folder("checkpoint", "checkpoint");
    b.write();
    return cli::run("receipt " + out);
  };
  const config::Recipe own = config::load_recipe(out + "/recipe.yaml");
  EXPECT_EQ(sealed(own).code, 0);
  auto r = sealed(own, false);
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.out.find("/predicate/subjects/checkpoint: is missing"), std::string::npos) << r.out;
  const auto forged = [&](const std::string& file, const std::function<void(std::string&)>& edit, const char* named) {
    const std::string good = read_file(out + "/" + file);
    std::string bad = good;
    edit(bad);
    write_file_atomic(out + "/" + file, bad);
    r = sealed(own);
    EXPECT_EQ(r.code, 2) << file;
    EXPECT_NE(r.out.find(named), std::string::npos) << r.out;
    write_file_atomic(out + "/" + file, good);
  };
  forged(
      "plan.json", [](std::string& s) { s.replace(s.find("\"auto\""), 6, "\"rows\""); },
      "plan_choices: are not plan.json's");
  forged("dataset/train-00001-of-00001.safetensors", [](std::string& s) { s.back() ^= 1; }, "dataset.json says");
  forged("recipe.yaml", [](std::string& s) { s.replace(s.find("seed: 7"), 7, "seed: 8"); }, "is not recipe.yaml's");
  EXPECT_EQ(sealed(own).code, 0);
}

void leaves(const Json& j, const Json::json_pointer& at, std::vector<Json::json_pointer>& out) {
  if (j.is_object() && !j.empty())
    for (const auto& [k, v] : j.items()) leaves(v, at / k, out);
  else if (j.is_array() && !j.empty())
    for (size_t i = 0; i < j.size(); ++i) leaves(j[i], at / i, out);
  else
    out.push_back(at);
}

TEST(Tampering, EveryFieldOfTheManifestIsNamed) {
  const Chain c("fields", "gguf_q8_0", 3);
  ASSERT_EQ(c.run("out").code, 0);
  const std::string manifest = c.f / "out/manifest.json", good = read_file(manifest);
  const OrderedJson m = OrderedJson::parse(good);
  std::vector<Json::json_pointer> all;
  leaves(Json::parse(good), Json::json_pointer(), all);
  EXPECT_GT(all.size(), 60u);
  // The harness's scores stand in it as its own files say them.
  const Json scores = read_json_file(c.f / "out/eval/after/results.json")["results"];
  EXPECT_EQ(Json::parse(m["predicate"]["results"]["eval"]["harness"]["after"].dump()), scores);
  const auto score = Json::json_pointer("/predicate/results/eval/harness/after/sums") / "acc,none";
  EXPECT_NE(std::find(all.begin(), all.end(), score), all.end());
  for (const auto& at : all) {
    OrderedJson bad = m;
    OrderedJson& leaf = bad[OrderedJson::json_pointer(at.to_string())];
    if (leaf.is_string()) {
      std::string s = leaf;
      if (s.empty())
        s = "x";
      else
        s.back() = s.back() == '0' ? '1' : '0';
      leaf = s;
    } else {
      leaf = leaf.is_number() ? OrderedJson(leaf.get<double>() + 1) : OrderedJson("x");
    }
    write_file_atomic(manifest, bad.dump(2) + "\n");
    try {
      const auto r = provenance::verify(manifest);
      ASSERT_FALSE(r.ok()) << at.to_string();
      bool named = at.to_string().starts_with("/predicate/integrity");
      std::string findings;
      for (const auto& f : r.findings) {
        named = named || f.field == at.to_string();
        findings += f.field + ": " + f.what + "\n";
      }
      EXPECT_TRUE(named) << at.to_string() << " in\n" << findings;
    } catch (const Error& e) {
      // No manifest any more: its kind itself was changed.
      EXPECT_EQ(e.code(), Exit::kVerifyFailed) << at.to_string();
      EXPECT_NE(std::string(e.what()).find(at.to_string()), std::string::npos) << e.what();
    }
  }
  write_file_atomic(manifest, good);
  EXPECT_EQ(cli::run("receipt " + manifest).code, 0);
}

TEST(Tampering, ASwappedPlanAndAnotherRecipeAreNamed) {
  const Chain c("swap", "fp8_dynamic", 3);
  ASSERT_EQ(c.run("out").code, 0);
  const std::string manifest = c.f / "out/manifest.json";
  // A valid plan of the same kind, from a run with another micro-batch.
  std::string other = c.recipe("fp8_dynamic", 3);
  other.replace(other.find("per_device: 2"), 13, "per_device: 4");
  write_file_atomic(c.f / "other.yaml", other);
  ASSERT_EQ(cli::run("run " + (c.f / "other.yaml") + " --out " + (c.f / "other")).code, 0);
  const std::string plan = read_file(c.f / "out/plan.json");
  write_file_atomic(c.f / "out/plan.json", read_file(c.f / "other/plan.json"));
  auto r = cli::run("receipt " + manifest);
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.out.find("plan.json"), std::string::npos) << r.out;
  write_file_atomic(c.f / "out/plan.json", plan);
  r = cli::run("receipt " + manifest + " --config " + (c.f / "other.yaml"));
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.out.find("train.batch.per_device"), std::string::npos) << r.out;
}

// A run on a finished folder makes again what was damaged or edited since; it never puts an edit under a new manifest.
TEST(Stages, WhatEvaluationsReadIsAPartOfThem) {
  const Chain c("texts", "gguf_q8_0", 3);
  ASSERT_EQ(c.run("out").code, 0);
  const Json before = read_json_file(c.f / "out/manifest.json")["predicate"]["results"]["eval"];
  write_file_atomic(c.f / "text.txt", read_file(c.f / "text.txt").substr(0, 700));
  std::string rows = read_file(c.f / "tasks/sums.jsonl");
  for (char& ch : rows)
    if (ch == '0') ch = '7';
  write_file_atomic(c.f / "tasks/sums.jsonl", rows);
  const auto r = c.run("out");
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("already finished"), std::string::npos) << r.out;  // training read neither
  ASSERT_EQ(c.run("fresh").code, 0);
  const Json again = read_json_file(c.f / "out/manifest.json")["predicate"]["results"]["eval"];
  EXPECT_EQ(again, read_json_file(c.f / "fresh/manifest.json")["predicate"]["results"]["eval"]);
  EXPECT_NE(again["perplexity"], before["perplexity"]);
}

TEST(Stages, TrainingAnewLeavesNothingThatWasMadeOfAnEarlierCheckpoint) {
  const Chain c("anew", "gguf_q8_0", 3);
  ASSERT_EQ(c.run("out").code, 0);
  fs::remove_all(c.f / "out/checkpoint");
  const auto r = cli::run("train " + (c.f / "r.yaml") + " --out " + (c.f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const Json m = read_json_file(c.f / "out/manifest.json");
  for (const Json& subject : m["subject"]) {
    EXPECT_NE(subject["name"], "eval");
    EXPECT_NE(subject["name"], "quantized");
  }
  EXPECT_FALSE(fs::exists(c.f / "out/quantized"));
}

TEST(Dataset, PreparedDataMustBeTheRecipesAndWhole) {
  const Chain c("prepared", "none", 3);
  ASSERT_EQ(cli::run("dataset prep " + (c.f / "r.yaml") + " --out " + (c.f / "data")).code, 0);
  std::string recipe = read_file(c.f / "r.yaml");
  recipe.replace(recipe.find("seq_len: 768"), 12, "seq_len: 512");
  write_file_atomic(c.f / "short.yaml", recipe);
  const auto train = [&](const char* name, const char* out) {
    return cli::run("train " + (c.f / name) + " --data " + (c.f / "data") + " --out " + (c.f / out));
  };
  auto r = train("short.yaml", "short");
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("data.seq_len 768 (the recipe: 512)"), std::string::npos) << r.out;
  std::string shard;
  for (const std::string& name : list_files(c.f / "data"))
    if (name.starts_with("train-")) shard = c.f / ("data/" + name);
  ASSERT_NE(shard, "");
  std::string bytes = read_file(shard);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file_atomic(shard, bytes);
  r = train("r.yaml", "damaged");
  EXPECT_EQ(r.code, 2) << r.out;
}

TEST(Quantize, NeverTakesThePlaceOfWhatItReadsNorOfAnothersFolder) {
  const Chain c("places", "none", 3);
  ASSERT_EQ(c.run("out").code, 0);
  fs::copy(c.f / "out/checkpoint", c.f / "small.part", fs::copy_options::recursive);
  const auto quantize = [&](const std::string& model, const std::string& out) {
    return cli::run("quantize --model " + (c.f / model) + " --scheme gguf_q8_0 --no-report --out " + (c.f / out));
  };
  auto r = quantize("small.part", "small");
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_TRUE(fs::exists(c.f / "small.part/model.safetensors"));
  r = quantize("small", "small");
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("what it is made of"), std::string::npos) << r.out;
  EXPECT_TRUE(fs::exists(c.f / "small/model.gguf"));
  write_file_atomic(c.f / "file", "mine");
  EXPECT_EQ(quantize("out/checkpoint", "file").code, 1);
  EXPECT_EQ(read_file(c.f / "file"), "mine");
}

TEST(Stages, DamagedPiecesAreMadeAgain) {
  const Chain c("damaged", "fp8_dynamic", 2);
  ASSERT_EQ(c.run("out").code, 0);
  const Json want = c.digests("out");
  for (const char* name : {"eval/after.json", "eval/after/results.json", "eval/after/samples_sums.jsonl",
                           "dataset/dataset.json", "checkpoint/config.json", "quantized/config.json", "usage.json",
                           "train.json", "quantize.json", "pieces.json", "manifest.json", "receipt.json"}) {
    const std::string path = c.f / (std::string("out/") + name), good = read_file(path);
    std::string edited = good;
    edited[edited.size() / 2] = edited[edited.size() / 2] == '1' ? '2' : '1';
    for (const std::string& bad : {good.substr(0, good.size() / 2), std::string(), std::string("[]"), edited}) {
      write_file_atomic(path, bad);
      const auto r = c.run("out");
      ASSERT_EQ(r.code, 0) << name << "\n" << r.out;
      EXPECT_EQ(c.digests("out"), want) << name;
    }
  }
  // What the run has cost is lost, and it trains once more.
  write_file_atomic(c.f / "out/usage.json", "{");
  fs::remove(c.f / "out/train.json");
  const auto r = c.run("out");
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(c.digests("out"), want);
  EXPECT_TRUE(Json::parse(read_file(c.f / "out/usage.json"))["energy"]["kwh"].is_null());
}

TEST(Signed, ARunSignsWithTheRecipesKey) {
  const Chain c("signed", "fp8_dynamic", 2);
  std::string recipe = c.recipe("fp8_dynamic", 2);
  const std::string key = c.f / "key";
  recipe.insert(recipe.rfind('}'), ", sign_key: \"" + key + "\"");
  write_file_atomic(c.f / "r.yaml", recipe);
  auto r = c.run("out");
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_NE(r.out.find("mindxtrain receipt keygen " + key), std::string::npos) << r.out;
  r = cli::run("receipt keygen " + key);
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(cli::run("receipt keygen " + key).code, 1);  // never over another key
  for (const std::string verb : {"receipt keygen ", "key new "}) {
    const std::string locked = c.f / ("locked by " + verb.substr(0, 3));
    EXPECT_EQ(cli::run(verb + "'" + locked + "' --encrypt").code, 3) << verb;
    ASSERT_EQ(cli::run(verb + "'" + locked + "' --encrypt", "MINDXTRAIN_KEY_PASSPHRASE=w").code, 0) << verb;
    EXPECT_TRUE(read_file(locked).find("argon2id") != std::string::npos) << verb;
  }
  ASSERT_EQ(c.run("out").code, 0);
  r = cli::run("receipt " + (c.f / "out") + " --key " + key + ".pub");
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("signer              ed25519:"), std::string::npos) << r.out;
  EXPECT_EQ(cli::run("receipt " + (c.f / "out") + " --replay").code, 0);
  // A proof of one file asks for the signature like the whole.
  const std::string out = "receipt " + (c.f / "out");
  ASSERT_EQ(cli::run(out + " --prove checkpoint/tokenizer_config.json > " + (c.f / "proof.json")).code, 0);
  ASSERT_EQ(cli::run("key new " + (c.f / "other")).code, 0);
  const std::string proof = out + " --proof " + (c.f / "proof.json");
  EXPECT_EQ(cli::run(proof + " --key " + key + ".pub").code, 0);
  EXPECT_EQ(cli::run(proof + " --key " + (c.f / "other.pub")).code, 2);
  EXPECT_EQ(cli::run(proof + " --replay").code, 1);
  const std::string envelope = c.f / "out/manifest.dsse.json", good = read_file(envelope);
  for (size_t at : {size_t{5}, good.size() / 2, good.size() - 30}) {
    std::string bad = good;
    bad[at] = bad[at] == 'A' ? 'B' : 'A';
    write_file_atomic(envelope, bad);
    r = cli::run("receipt " + (c.f / "out"));
    EXPECT_EQ(r.code, 2) << at;
    EXPECT_NE(r.out.find("manifest.dsse.json"), std::string::npos) << r.out;
    EXPECT_EQ(cli::run(proof).code, 2) << at;
  }
  fs::remove(envelope);
  EXPECT_EQ(cli::run("receipt " + (c.f / "out")).code, 2);
}

// What a killed `dataset prep` leaves, a dot file of somebody, a folder of data from elsewhere.
TEST(Dataset, TheRunsFolderHoldsItsDataAndNothingElse) {
  const Chain c("own_data", "fp8_dynamic", 2);
  ASSERT_EQ(c.run("out").code, 0);
  const Json want = c.digests("out");
  make_folders(c.f / "out/dataset/.work/tokens");
  write_file_atomic(c.f / "out/checkpoint/.note", "x");
  EXPECT_EQ(cli::run("receipt " + (c.f / "out")).code, 2);
  ASSERT_EQ(c.run("out").code, 0);
  EXPECT_EQ(c.digests("out"), want);
  EXPECT_FALSE(fs::exists(c.f / "out/dataset/.work"));
  ASSERT_EQ(cli::run("dataset prep " + (c.f / "r.yaml") + " --out " + (c.f / "data")).code, 0);
  auto r = cli::run("train " + (c.f / "r.yaml") + " --out " + (c.f / "trained") + " --data " + (c.f / "data"));
  ASSERT_EQ(r.code, 0) << r.out;
  for (const char* s : {"dataset", "checkpoint"}) EXPECT_EQ(c.digests("trained")[s], want[s]) << s;
  r = cli::run("train " + (c.f / "r.yaml") + " --out " + (c.f / "other") + " --data " + (c.f / "tasks"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("is no prepared dataset"), std::string::npos) << r.out;
  EXPECT_EQ(cli::run("train " + (c.f / "r.yaml") + " --out " + (c.f / "trained") + " --resume-from 99").code, 1);
  fs::rename(c.f / "out/eval", c.f / "eval");
  fs::create_symlink(c.f / "eval", c.f / "out/eval");
  r = c.run("out");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("is a symbolic link"), std::string::npos) << r.out;
}

TEST(Replay, AnotherFolderGivesTheSameCheckpoint) {
  const Chain c("replay", "gguf_q8_0", 8);
  ASSERT_EQ(c.run("out").code, 0);
  // The run moved elsewhere: only recipe, plan and manifest and what they name.
  fs::copy(c.f / "out", c.f / "moved", fs::copy_options::recursive);
  const std::string manifest = c.f / "moved/manifest.json";
  // What has the name that a replay would take is somebody's.
  make_folders(c.f / "moved.replay");
  write_file_atomic(c.f / "moved.replay/kept", "x");
  auto r = cli::run("receipt " + manifest + " --replay");
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("replay: the same"), std::string::npos) << r.out;
  EXPECT_EQ(read_file(c.f / "moved.replay/kept"), "x");
  EXPECT_FALSE(fs::exists(c.f / "moved.replay2"));
  // One that cannot be done leaves nothing.
  fs::rename(c.f / "tokenizer", c.f / "elsewhere");
  r = cli::run("receipt " + manifest + " --replay");
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_FALSE(fs::exists(c.f / "moved.replay2")) << r.out;
  fs::rename(c.f / "elsewhere", c.f / "tokenizer");
  // What the checkpoint was made of has changed since: the replay names what comes out differently.
  std::string recipe = read_file(c.f / "r.yaml");
  const auto tokenizer = c.f / "tokenizer/tokenizer_config.json";
  std::string template_file = read_file(c.f / "tokenizer/chat_template.jinja");
  write_file_atomic(c.f / "tokenizer/chat_template.jinja",
                    "{% for m in messages %}<|{{ m.role }}|> {{ m.content }}<|end|>{% endfor %}{% if "
                    "add_generation_prompt %}<|assistant|> {% endif %}");
  r = cli::run("receipt " + manifest + " --replay --work " + (c.f / "again"));
  EXPECT_EQ(r.code, 2) << r.out;
  // What a replay leaves lies beside a published copy, never in it.
  const std::string copy = c.f / "copy";
  fs::copy(c.f / "out/checkpoint", copy, fs::copy_options::recursive);
  make_folders(copy + "/provenance");
  for (const char* part : {"manifest.json", "receipt.json", "recipe.yaml", "plan.json", "program.txt", "metrics.jsonl",
                           "loss.svg", "log.txt", "tensorboard", "eval", "quantized"})
    if (fs::exists(c.f / ("out/" + std::string(part))))
      fs::copy(c.f / ("out/" + std::string(part)), copy + "/provenance/" + part, fs::copy_options::recursive);
  EXPECT_EQ(cli::run("receipt " + copy).code, 0);
  EXPECT_EQ(cli::run("receipt " + copy + " --replay").code, 2);
  EXPECT_TRUE(fs::exists(copy + ".replay/manifest.json"));
  EXPECT_NE(r.out.find("is left in " + (c.f / "again")), std::string::npos) << r.out;
  const auto inside = cli::run("receipt " + copy + " --replay --work " + copy + "/work");
  EXPECT_EQ(inside.code, 1) << inside.out;
  EXPECT_EQ(cli::run("receipt " + copy).code, 0);
  EXPECT_NE(r.out.find("dataset/"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("checkpoint/model.safetensors"), std::string::npos) << r.out;
}

TEST(Registry, ListsShowsAndComparesRuns) {
  const Chain c("registry", "fp8_dynamic", 3);
  const std::string home = "MINDXTRAIN_HOME='" + (c.f / "home") + "'";
  const auto run = [&](const std::string& recipe, const std::string& out) {
    return cli::run("run " + (c.f / recipe) + " --out " + (c.f / out), home);
  };
  ASSERT_EQ(run("r.yaml", "a").code, 0);
  std::string other = c.recipe("mxfp4", 3);
  write_file_atomic(c.f / "other.yaml", other);
  ASSERT_EQ(run("other.yaml", "b").code, 0);
  write_file_atomic(c.f / "bad.yaml", other.replace(other.find("text.txt"), 8, "gone.txt"));
  EXPECT_NE(run("bad.yaml", "c").code, 0);
  auto r = cli::run("runs list --json", home);
  ASSERT_EQ(r.code, 0) << r.out;
  const Json list = Json::parse(r.out);
  ASSERT_EQ(list.size(), 3u);
  std::map<std::string, Json> by_folder;
  for (const Json& row : list) by_folder[fs::path(row["folder"].get<std::string>()).filename().string()] = row;
  EXPECT_EQ(by_folder["a"]["state"], "finished");
  EXPECT_EQ(by_folder["a"]["digests"]["checkpoint"], c.digests("a")["checkpoint"]);
  EXPECT_TRUE(by_folder["a"]["metrics"].contains("last_loss"));
  EXPECT_EQ(by_folder["c"]["state"], "failed");
  EXPECT_NE(by_folder["c"]["message"].get<std::string>().find("gone.txt"), std::string::npos);
  r = cli::run("runs show " + (c.f / "a"), home);
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("finished"), std::string::npos) << r.out;
  r = cli::run("runs compare --json " + (c.f / "a") + " " + (c.f / "b"), home);
  ASSERT_EQ(r.code, 0) << r.out;
  const Json diff = Json::parse(r.out);
  EXPECT_EQ(diff["recipe"], Json({{"quantize.scheme", {"fp8_dynamic", "mxfp4"}}}));
  EXPECT_EQ(diff["digests"]["dataset"][0], diff["digests"]["dataset"][1]);
  EXPECT_NE(diff["digests"]["quantized"][0], diff["digests"]["quantized"][1]);
  EXPECT_EQ(cli::run("runs show nothing", home).code, 1);
}

TEST(Registry, AKilledRunIsShownAsInterrupted) {
  const Chain c("registry_kill", "fp8_dynamic", 100000);
  const std::string home = c.f / "home";
  const pid_t child = cli::start({"run", c.f / "r.yaml", "--out", c.f / "out"}, home);
  within(120, [&] { return fs::exists(c.f / "out/metrics.jsonl") && fs::file_size(c.f / "out/metrics.jsonl") > 0; });
  const auto state = [&] {
    return Json::parse(cli::run("runs list --json", "MINDXTRAIN_HOME='" + home + "'").out)[0]["state"];
  };
  EXPECT_EQ(state(), "running");
  cli::stop(child, SIGKILL);
  EXPECT_EQ(state(), "interrupted");
}

}  // namespace
}  // namespace mxt
