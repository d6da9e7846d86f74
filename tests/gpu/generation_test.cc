// Greedy answers of small models of each kind on the GPU and on the host, in fp32: the same tokens, their
// log-probabilities near; prompts cut into passes, several requests at once, so that caches and carried states are read
// and written.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "folders.h"
#include "infer/scheduler.h"
#include "pair.h"

namespace mxt::test {
namespace {

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
};

std::vector<Answer> answers(const std::string& model, kernels::Ops& ops) {
  infer::Model m(std::string(kSourceDir) + "/tests/golden/models/" + model, "", DType::kF32, 0, ops);
  infer::Scheduler scheduler(m, {.batch = 3, .tokens_per_pass = 16});
  std::vector<Answer> got(5);
  for (size_t i = 0; i < got.size(); ++i) {
    infer::Request r;
    Philox rng(3, i);
    for (size_t t = 0; t < 1 + 9 * i; ++t)
      r.prompt.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(m.vocab()))));
    r.max_tokens = 10;
    r.logprobs = 1;
    infer::Sink s;
    s.token = [&a = got[i]](const infer::NewToken& t) {
      a.ids.push_back(t.id), a.logprobs.push_back(t.logprob);
      return true;
    };
    scheduler.submit(r, s);
  }
  while (scheduler.step()) {
  }
  return got;
}

TEST_F(Gpu, WritesWhatTheHostWrites) {
  for (const char* model : {"qwen3_gqa", "gemma3", "qwen3_moe", "qwen3_5", "qwen3_5_moe"}) {
    SCOPED_TRACE(model);
    const auto want = answers(model, kernels::cpu_ops()), got = answers(model, *gpu(nullptr)->ops);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_FALSE(want[i].ids.empty());
      EXPECT_EQ(got[i].ids, want[i].ids) << i;
      for (size_t t = 0; t < std::min(got[i].ids.size(), want[i].ids.size()); ++t)
        EXPECT_NEAR(got[i].logprobs[t], want[i].logprobs[t], 1e-4) << i << " at " << t;
    }
  }
}

// A copy of a small model that takes longer texts.
std::string with_positions(const std::string& model, int positions) {
  const std::string from = std::string(kSourceDir) + "/tests/golden/models/" + model,
                    to = testing::TempDir() + "/longer_" + model;
  fs::remove_all(to);
  fs::create_directories(to);
  for (const char* f : {"config.json", "model.safetensors"}) fs::copy_file(from + "/" + f, to + "/" + f);
  OrderedJson config = parse_ordered_json(read_file(to + "/config.json"), model);
  (config.contains("text_config") ? config["text_config"] : config)["max_position_embeddings"] = positions;
  write_file_atomic(to + "/config.json", config.dump());
  return to;
}

// A prompt whose beginning is in the cache, keys and values in pages and carried states as copies, is answered as one
// that is read whole, to rounding: products of other numbers of rows add in other orders there.
TEST_F(Gpu, AnswersTheSameAfterAHit) {
  for (const char* model : {"qwen3_gqa", "qwen3_5", "qwen3_5_moe"}) {
    SCOPED_TRACE(model);
    infer::Model m(with_positions(model, 256), "", DType::kF32, 0, *gpu(nullptr)->ops);
    const auto ask = [&](infer::Scheduler& scheduler, int32_t by, size_t more) {
      infer::Request r;
      Philox rng(4, 0);
      for (size_t t = 0; t < 100 + more; ++t)
        r.prompt.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(m.vocab()))));
      r.prompt[70] = (r.prompt[70] + by) % static_cast<int32_t>(m.vocab());
      r.max_tokens = 8;
      r.logprobs = 1;
      std::pair<Answer, int64_t> got;
      infer::Sink s;
      s.token = [&got](const infer::NewToken& t) {
        got.first.ids.push_back(t.id), got.first.logprobs.push_back(t.logprob);
        return true;
      };
      s.done = [&got](const infer::Outcome& o) { got.second = o.shared_tokens; };
      scheduler.submit(r, s);
      while (scheduler.step()) {
      }
      return got;
    };
    infer::Scheduler kept(m, {});
    // Keys and values are shared by pages of 16 tokens, states where a card's pieces of the delta rule end.
    const int64_t most = std::string_view(model) == "qwen3_gqa" ? 96 : 64;
    const struct {
      int32_t by;
      size_t more;
      int64_t shared;
    } asked[] = {{0, 0, 0}, {0, 0, most}, {1, 0, 64}, {2, 0, 64}, {0, 40, most}, {0, 40, 128}};
    for (const auto& a : asked) {
      infer::Scheduler fresh(m, {.prefix_cache = false});
      const auto got = ask(kept, a.by, a.more), want = ask(fresh, a.by, a.more);
      EXPECT_EQ(got.second, a.shared);
      EXPECT_EQ(got.first.ids, want.first.ids);
      ASSERT_EQ(got.first.logprobs.size(), want.first.logprobs.size());
      for (size_t t = 0; t < got.first.logprobs.size(); ++t)
        EXPECT_NEAR(got.first.logprobs[t], want.first.logprobs[t], 1e-4) << t;
    }
  }
}

}  // namespace
}  // namespace mxt::test
