// From nothing to a chat by one command, small: tokenizer, pretraining, base evaluation, fine-tuning, answers; killed
// anywhere, and with what cannot be.
#include <signal.h>

#include <chrono>

#include "e2e/cli.h"
#include "provenance/manifest.h"

namespace mxt {
namespace {

class NanochatChain : public testing::Test {
 protected:
  NanochatChain() : f_("nanochat_chain") {
    make_folders(f_ / "texts");
    std::string text, rows;
    Philox random(5, 6);
    for (int i = 0; i < 300; ++i)
      text += fmt::format("What is {} + {}? The sum of {} and {} is a number.\n", random.below(100), random.below(100),
                          random.below(100), random.below(100));
    for (int i = 0; i < 40; ++i)
      rows += Json{{"question", fmt::format("How much is {} plus 1?", i)},
                   {"answer", fmt::format("<<{}+1={}>>{}", i, i + 1, i + 1)}}
                  .dump() +
              "\n";
    write_file_atomic(f_ / "texts/a.txt", text);
    write_file_atomic(f_ / "rows.jsonl", rows);
    write_file_atomic(f_ / "base.yaml", base());
    write_file_atomic(f_ / "chat.yaml", chat());
  }
  // `text`: the file that is learned from.
  std::string base(const std::string& text = "texts/*.txt", int vocabulary = 320, int depth = 1) const {
    return fmt::format(R"(meta: {{project: test, run_name: base, seed: 3}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
pretrain: {{depth: {3}, vocab_size: {2}}}
model: {{name: tiny, tokenizer: train, torch_dtype: float32}}
data:
  source: mixture
  mixture: [{{path: "{0}/{1}"}}, {{path: "{0}/rows.jsonl"}}, {{path: "{0}/absent.jsonl", optional: true}}]
  mixture_stop: once
  seq_len: 64
  eval_fraction: 0.1
train:
  precision: float32
  schedule: {{max_steps: 6}}
  batch: {{per_device: 2, grad_accum: 1}}
  save_every: 2
eval: {{harness: {{tasks: []}}, bits_per_byte: true}}
receipt: {{output: "{0}/receipt.json"}}
)",
                       f_.path, text, vocabulary, depth);
  }
  std::string chat() const {
    return fmt::format(R"(meta: {{project: test, run_name: chat, seed: 3}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "recipe:{0}/base.yaml", torch_dtype: float32}}
data:
  source: mixture
  mixture: [{{synth: {{task: sums, rows: 30, test_rows: 4}}}}, {{path: "{0}/rows.jsonl"}}]
  mixture_stop: once
  seq_len: 64
  pack: best_fit
train:
  method: {{kind: full}}
  precision: float32
  optimizer: {{name: muon, lr: 1.0e-3, weight_decay: 0, grad_clip: 0, muon: {{lr: 1.0e-3, schedule: sft}}}}
  schedule: {{type: wsd, warmup_ratio: 0, decay_ratio: 0.5, max_steps: 6}}
  batch: {{per_device: 2, grad_accum: 1}}
  save_every: 2
eval: {{harness: {{tasks: []}}, generation: {{limit: 4, max_tokens: 8}}}}
receipt: {{output: "{0}/receipt.json"}}
)",
                       f_.path);
  }
  cli::Result run(const std::string& out) const {
    return cli::run("run " + (f_ / "chat.yaml") + " --out " + (f_ / out));
  }
  // What must not depend on how often a run was killed.
  Json digests(const std::string& out) const {
    Json d;
    const Json chat = read_json_file(f_ / (out + "/manifest.json")),
               base = read_json_file(f_ / (out + "/before/base/manifest.json"));
    for (const char* s : {"base", "dataset", "checkpoint", "eval"}) d["chat"][s] = provenance::subject_digest(chat, s);
    for (const char* s : {"tokenizer", "dataset", "checkpoint", "eval"})
      d["base"][s] = provenance::subject_digest(base, s);
    return d;
  }
  void refuses_base(const std::string& recipe, const char* what) const {
    write_file_atomic(f_ / "bad.yaml", recipe);
    const auto r = cli::run("run " + (f_ / "bad.yaml") + " --out " + (f_ / "bad"));
    EXPECT_EQ(r.code, 1) << r.out;
    EXPECT_NE(r.out.find(what), std::string::npos) << r.out;
    for (const char* piece : {"tokenizer", "tokenizer.json", "checkpoint", "manifest.json"})
      EXPECT_FALSE(fs::exists(f_ / ("bad/" + std::string(piece)))) << piece << " after: " << r.out;
    fs::remove_all(f_ / "bad");
  }
  cli::Folder f_;
};

TEST_F(NanochatChain, OneCommandMakesAllOfItAndKeepsIt) {
  auto r = run("out");
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("absent.jsonl: is not there, and optional"), std::string::npos) << r.out;
  for (const char* piece : {"before/base/tokenizer/tokenizer.json", "before/base/tokenizer/chat_template.jinja",
                            "before/base/checkpoint/model.safetensors", "checkpoint/chat_template.jinja"})
    EXPECT_TRUE(fs::exists(f_ / ("out/" + std::string(piece)))) << piece;
  const Json base = read_json_file(f_ / "out/before/base/eval/after.json");
  EXPECT_GT(base["bits_per_byte"]["value"].get<double>(), 1);
  EXPECT_LT(base["bits_per_byte"]["value"].get<double>(), 20);
  const Json after = read_json_file(f_ / "out/eval/after.json");
  EXPECT_EQ(after["exact_match"]["rows"], 4);
  EXPECT_EQ(cli::run("receipt " + (f_ / "out/manifest.json")).code, 0);
  for (const auto& [recipe, data] :
       {std::pair{"base.yaml", "out/before/base/dataset"}, {"chat.yaml", "out/dataset/"}}) {
    r = cli::run("dataset show " + (f_ / recipe) + " --data " + (f_ / data));
    EXPECT_EQ(r.code, 0) << r.out;
    EXPECT_EQ(r.out.find("other inputs"), std::string::npos) << r.out;
  }
  const Json want = digests("out");
  r = run("out");
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("tokenizer: " + (f_ / "out/before/base/tokenizer") + " (kept)"), std::string::npos) << r.out;
  EXPECT_EQ(digests("out"), want);
  // A vocabulary that was changed since is learned again, and what stands on it is as it was.
  fs::remove(f_ / "out/before/base/tokenizer/tokenizer.json");
  r = run("out");
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(digests("out"), want);
}

TEST_F(NanochatChain, KilledAnywhereItGoesOnAndEndsAlike) {
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(run("whole").code, 0);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const Json want = digests("whole");
  cli::Kills kills(13, 0.6 * seconds);
  for (int attempt = 0; attempt < 12; ++attempt) kills.one({"run", f_ / "chat.yaml", "--out", f_ / "often"});
  const auto r = run("often");
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_GT(kills.in_time, 0);
  EXPECT_EQ(digests("often"), want);
}

TEST_F(NanochatChain, OtherVerbsKnowThatItsBaseIsNotThereYet) {
  auto r = cli::run("validate " + (f_ / "chat.yaml"));
  EXPECT_EQ(r.code, 0) << r.out;
  r = cli::run("plan --json " + (f_ / "chat.yaml"));
  EXPECT_EQ(r.code, 0) << r.out;
  r = cli::run("dataset prep " + (f_ / "chat.yaml") + " --out " + (f_ / "data"));
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_NE(r.out.find("`mindxtrain run` makes it first"), std::string::npos) << r.out;
  r = cli::run("dataset prep " + (f_ / "base.yaml") + " --out " + (f_ / "data"));
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_NE(r.out.find("model.tokenizer: train"), std::string::npos) << r.out;
  // What its base's family has no layout for is said before that is trained.
  write_file_atomic(f_ / "small.yaml", chat() + "quantize: {scheme: gguf_q8_0}\n");
  r = cli::run("run " + (f_ / "small.yaml") + " --out " + (f_ / "small"));
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_NE(r.out.find("GGUF files of model type \"nanochat_v2\" are not built in"), std::string::npos) << r.out;
  EXPECT_FALSE(fs::exists(f_ / "small/before"));
  // One that starts from itself.
  std::string loop = chat();
  loop.replace(loop.find("base.yaml"), 9, "chat.yaml");
  write_file_atomic(f_ / "chat.yaml", loop);
  r = run("loop");
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("starts from itself"), std::string::npos) << r.out;
}

TEST_F(NanochatChain, WhatCannotBeTrainedIsRefusedAndNothingIsHalfWritten) {
  refuses_base(base("texts/*.txt", 320, 0), "pretrain.depth: is 0");
  refuses_base(base("texts/*.txt", 100000), "hold no more pairs after");
  refuses_base(base("texts/*.txt", 200), "vocab");
  write_file_atomic(f_ / "rows.jsonl", "");
  write_file_atomic(f_ / "texts/empty.md", "");
  refuses_base(base("texts/empty.md"), "texts/empty.md (and 1 more sources): holds no text to learn from");
  write_file_atomic(f_ / "texts/one.md", "a");
  refuses_base(base("texts/one.md"), "hold no more pairs after");
  refuses_base(base("nothing/*.txt"), "nothing/*.txt");
  write_file_atomic(f_ / "rows.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}\n{\"question\": \"cut");
  refuses_base(base(), "rows.jsonl:2");
  write_file_atomic(f_ / "texts/cut.jsonl.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10));
  refuses_base(base("texts/cut.jsonl.gz"), "truncated");
}

}  // namespace
}  // namespace mxt
