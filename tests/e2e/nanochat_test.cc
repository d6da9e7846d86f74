// nanochat's own checkpoints through the binary: converted, scored and trained on as its gpt.py and optim.py do it
// (tools/golden/nanochat_own.py), and the measures of a base model.
#include "e2e/cli.h"
#include "folders.h"

namespace mxt {
namespace {

std::string own(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/nanochat/" + name; }

class Own : public testing::TestWithParam<const char*> {
 protected:
  Own() : f_(std::string("nanochat_") + GetParam()), d_(own(GetParam())) {
    const auto r = cli::run("convert " + d_ + "/model_000007.pt --out " + (f_ / "model"));
    EXPECT_EQ(r.code, 0) << r.out;
    want_ = read_json_file(d_ + "/expected.json");
    rows_ = cli::lines(d_ + "/rows.jsonl");
    length_ = rows_[0]["input_ids"].size() - 1;
  }
  std::string recipe() const {
    const Json& s = want_["settings"];
    return fmt::format(R"(meta: {{project: test, run_name: own}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{0}", torch_dtype: float32}}
data: {{source: local, path: "{1}/rows.jsonl", seq_len: {2}, shuffle: false, packing: false}}
train:
  method: {{kind: full}}
  precision: float32
  optimizer:
    {{name: muon, weight_decay: 0, grad_clip: 0,
     muon: {{lr: {3}, weight_decay: {4}, embedding_lr: {5}, head_lr: {6}, scalar_lr: {7}, schedule: pretrain}}}}
  schedule: {{type: wsd, warmup_steps: {8}, decay_ratio: {9}, min_lr_ratio: {10}, max_steps: 40}}
  batch: {{per_device: 2, grad_accum: 1}}
)",
                       f_ / "model", d_, length_ + 1, s["lr"].get<double>(), s["weight_decay"].get<double>(),
                       s["embedding_lr"].get<double>(), s["head_lr"].get<double>(), s["scalar_lr"].get<double>(),
                       s["warmup_steps"].get<int>(), s["decay_ratio"].get<double>(), s["min_lr_ratio"].get<double>());
  }
  cli::Folder f_;
  std::string d_;
  Json want_;
  std::vector<Json> rows_;
  size_t length_ = 0;
};

TEST_P(Own, LogProbabilitiesAreItsOwn) {
  Json ids = rows_[0]["input_ids"];
  ids.erase(ids.end() - 1);
  write_file_atomic(f_ / "in.jsonl", Json{{"ids", ids}}.dump() + "\n");
  const auto r = cli::run("score --model " + (f_ / "model") + " --dtype float32 --input " + (f_ / "in.jsonl") +
                          " --output " + (f_ / "out.jsonl"));
  ASSERT_EQ(r.code, 0) << r.out;
  const Json got = cli::lines(f_ / "out.jsonl").at(0)["logprobs"];
  ASSERT_EQ(got.size(), length_);
  for (size_t t = 1; t < got.size(); ++t)
    EXPECT_NEAR(got[t].get<double>(), want_["logprobs"][t - 1].get<double>(), 1e-5) << t;
}

TEST_P(Own, FortyStepsAreItsOwn) {
  // A row is what it reads and one target more.
  Json config = read_json_file(f_ / "model/config.json");
  config["max_position_embeddings"] = length_ + 1;
  write_file_atomic(f_ / "model/config.json", config.dump());
  write_file_atomic(f_ / "r.yaml", recipe());
  const auto r = cli::run("train " + (f_ / "r.yaml") + " --out " + (f_ / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const auto got = cli::lines(f_ / "out/metrics.jsonl");
  ASSERT_EQ(got.size(), want_["losses"].size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i]["loss"].get<double>(), want_["losses"][i].get<double>(), 1e-5 * want_["losses"][i].get<double>())
        << "step " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(Shapes, Own, testing::Values("gqa", "windows", "mqa"), [](const auto& i) { return i.param; });

TEST(Convert, WritesNothingWhereTheCheckpointIsNotWhole) {
  cli::Folder f("convert_bad");
  const std::string bytes = read_file(own("gqa/model_000007.pt"));
  write_file_atomic(f / "model_000007.pt", bytes.substr(0, bytes.size() / 2));
  write_file_atomic(f / "meta_000007.json", read_file(own("gqa/meta_000007.json")));
  auto r = cli::run("convert " + (f / "model_000007.pt") + " --out " + (f / "out"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("cut"), std::string::npos) << r.out;
  EXPECT_FALSE(fs::exists(f / "out"));
  r = cli::run("convert " + (f / "absent.pt") + " --out " + (f / "out"));
  EXPECT_EQ(r.code, 1) << r.out;
}

// Its conversations' golden: a vocabulary learned from four texts, and a small model of that vocabulary.
class Chat : public testing::Test {
 protected:
  Chat() : f_("nanochat_chat"), golden_(read_json_file(own("chat/chat.json"))) {
    std::string corpus;
    for (const Json& text : golden_["corpus"]) corpus += Json{{"text", text}}.dump() + "\n";
    write_file_atomic(f_ / "corpus.jsonl", corpus);
    auto r = cli::run(fmt::format("tokenizer train --input {} --ties rustbpe --vocab-size {} --out {}",
                                  f_ / "corpus.jsonl", golden_["vocab_size"].get<int>(), f_ / "tok"));
    EXPECT_EQ(r.code, 0) << r.out;
    r = cli::run("convert " + own("chat/model_000001.pt") + " --tokenizer " + (f_ / "tok") + " --out " +
                 (f_ / "model"));
    EXPECT_EQ(r.code, 0) << r.out;
  }
  cli::Folder f_;
  Json golden_;
};

TEST_F(Chat, BitsPerByteAreItsOwn) {
  std::string rows;
  for (const Json& row : golden_["bpb"]["rows"]) rows += row.dump() + "\n";
  write_file_atomic(f_ / "rows.jsonl", rows);
  const size_t length = golden_["bpb"]["rows"][0]["input_ids"].size();
  write_file_atomic(f_ / "r.yaml", fmt::format(R"(meta: {{project: test, run_name: bpb}}
hardware: {{name: cpu}}
model: {{name: "{0}"}}
data: {{source: local, path: "{1}", seq_len: {2}, shuffle: false, packing: false}}
)",
                                               f_ / "model", f_ / "rows.jsonl", length));
  auto r = cli::run("dataset prep " + (f_ / "r.yaml") + " --out " + (f_ / "data"));
  ASSERT_EQ(r.code, 0) << r.out;
  r = cli::run("eval --model " + (f_ / "model") + " --dtype float32 --part train --bpb " + (f_ / "data") + " --out " +
               (f_ / "eval"));
  ASSERT_EQ(r.code, 0) << r.out;
  const Json got = read_json_file(f_ / "eval/results.json")["bits_per_byte"];
  EXPECT_NEAR(got["value"].get<double>(), golden_["bpb"]["value"].get<double>(), 1e-5);
}

TEST_F(Chat, ItsFormatIsWhatTheFolderRendersAndAnswersIn) {
  EXPECT_TRUE(fs::exists(f_ / "model/chat_template.jinja"));
  write_file_atomic(f_ / "chats.jsonl", Json{{"messages", golden_["conversations"][0]["messages"]}}.dump() + "\n");
  auto r = cli::run("tokenizer render --json --model " + (f_ / "model") + " --input " + (f_ / "chats.jsonl"));
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("<|python_start|>13 + 28<|python_end|><|output_start|>41<|output_end|>41<|assistant_end|>"),
            std::string::npos)
      << r.out;
  // Rows are read and checked as in training.
  write_file_atomic(f_ / "chats.jsonl",
                    R"({"conversations":[{"from":"human","value":"said"},{"from":"gpt","value":"answered"}]}
{"messages":[{"role":"User","content":"x"},{"role":"assistant","content":"y"}]}
{"messages":[{"role":"user","content":5},{"role":"assistant","content":"y"}]}
)");
  r = cli::run("tokenizer render --model " + (f_ / "model") + " --input " + (f_ / "chats.jsonl"));
  ASSERT_EQ(r.code, 0) << r.out;
  for (const char* part : {"<|user_start|>said<|user_end|>", "answered<|assistant_end|>",
                           "the role \"User\" is written \"user\"", "\"content\" must be a text"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
  r = cli::run("chat --model " + (f_ / "model") + " --prompt 'What is 13 + 28?' --max-tokens 8 --temperature 0");
  EXPECT_EQ(r.code, 0) << r.out;
}

// A vocabulary of another model, and a new depth beside a folder of weights: neither is passed over.
TEST_F(Chat, WhatDoesNotBelongTogetherIsRefused) {
  auto r = cli::run("convert " + own("compiled/model_000003.pt") + " --tokenizer " + (f_ / "tok") + " --out " +
                    (f_ / "small"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("ids and the checkpoint's vocabulary is 61"), std::string::npos) << r.out;
  EXPECT_FALSE(fs::exists(f_ / "small"));
  write_file_atomic(f_ / "r.yaml", fmt::format(R"(meta: {{project: test, run_name: deeper}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{0}", tokenizer: "{0}"}}
pretrain: {{depth: 1, vocab_size: 512}}
data: {{source: local, path: "{1}", seq_len: 64}}
train: {{schedule: {{max_steps: 1}}, batch: {{per_device: 1, grad_accum: 1}}}}
)",
                                               f_ / "model", f_ / "corpus.jsonl"));
  r = cli::run("train " + (f_ / "r.yaml") + " --out " + (f_ / "out"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("pretrain.depth starts a new model from random weights"), std::string::npos) << r.out;
}

}  // namespace
}  // namespace mxt
