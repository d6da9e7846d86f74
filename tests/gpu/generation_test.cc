// Greedy answers of small models of each kind on the GPU and on the host, in fp32: the same tokens, their
// log-probabilities near; prompts cut into passes, several requests at once, so that caches and carried states are read
// and written.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace mxt::test
