// What the harness asks of the engine: scores that depend on the request alone.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "eval/lm/language_model.h"
#include "folders.h"
#include "infer/continuations.h"
#include "infer/engine.h"
#include "infer/scorer.h"
#include "kernels/api.h"
#include "tokenizer/train.h"

namespace mxt::infer {
namespace {

std::string golden(const char* name) { return std::string(kSourceDir) + "/tests/golden/models/" + name; }

// Requests that share beginnings, in the way of multiple choice with examples, and some that share nothing.
std::vector<Continuation> requests(int64_t vocab, int64_t longest) {
  std::mt19937 rng(5);
  auto ids = [&](size_t n) {
    std::vector<int32_t> v(n);
    for (int32_t& x : v) x = static_cast<int32_t>(rng() % static_cast<uint64_t>(vocab));
    return v;
  };
  std::vector<Continuation> out;
  const auto shots = ids(37);
  for (size_t q = 0; q < 9; ++q) {
    std::vector<int32_t> context = shots;
    const auto question = ids(3 + 5 * (q % 4));
    context.insert(context.end(), question.begin(), question.end());
    for (size_t c = 0; c < 4; ++c) {
      Continuation r;
      r.ids = context;
      const auto choice = ids(q % 3 == 0 ? 1 : 1 + c * 2);
      r.ids.insert(r.ids.end(), choice.begin(), choice.end());
      r.scored = static_cast<int64_t>(choice.size());
      out.push_back(std::move(r));
    }
  }
  for (size_t n : {size_t{2}, size_t{3}, static_cast<size_t>(longest)})
    out.push_back({ids(n), static_cast<int64_t>(n) - 1});
  out.push_back(out.front());
  return out;
}

std::vector<ContinuationScore> run(Model& model, const std::vector<Continuation>& rows, int64_t batch, int64_t tokens) {
  std::vector<ContinuationScore> out(rows.size());
  std::vector<int> times(rows.size(), 0);
  ContinuationScorer scorer(model, batch, tokens);
  scorer.score(rows, [&](size_t i, const ContinuationScore& s) {
    out[i] = s;
    ++times[i];
  });
  for (int t : times) EXPECT_EQ(t, 1);
  return out;
}

class Continuations : public testing::TestWithParam<DType> {};

TEST_P(Continuations, DoNotDependOnBatchOrPass) {
  Model model(golden("qwen3_gqa"), "", GetParam(), 96, kernels::cpu_ops());
  const auto rows = requests(model.vocab(), model.positions());
  const auto one = run(model, rows, 1, 64);
  for (const auto& [batch, tokens] : {std::pair{int64_t{7}, int64_t{64}}, {64, 64}, {64, 1024}, {7, 17}}) {
    const auto other = run(model, rows, batch, tokens);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(one[i].logprob, other[i].logprob) << "row " << i << " batch " << batch << " tokens " << tokens;
      EXPECT_EQ(one[i].greedy, other[i].greedy);
    }
  }
}

TEST_P(Continuations, AgreeWithTheScorer) {
  Model model(golden("qwen3_gqa"), "", GetParam(), 96, kernels::cpu_ops());
  const auto rows = requests(model.vocab(), model.positions());
  const auto got = run(model, rows, 16, 256);
  Scorer scorer(model, 512);
  std::vector<std::vector<int32_t>> ids;
  for (const auto& r : rows) ids.push_back(r.ids);
  const auto want = scorer.score(ids);
  for (size_t i = 0; i < rows.size(); ++i) {
    double sum = 0;
    for (size_t t = rows[i].ids.size() - static_cast<size_t>(rows[i].scored); t < rows[i].ids.size(); ++t)
      sum += want[i][t];
    EXPECT_NEAR(got[i].logprob, sum, (GetParam() == DType::kF32 ? 1e-4 : 5e-2) * (1 + std::fabs(sum))) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Continuations, testing::Values(DType::kF32, DType::kBF16));

TEST(Continuations, GreedyIsWhatTheEngineWrites) {
  Model model(golden("qwen3_gqa"), "", DType::kF32, 96, kernels::cpu_ops());
  Engine engine(model, {});
  Request r;
  r.prompt = {1, 5, 9, 3};
  r.max_tokens = 6;
  const Answer a = engine.generate({r})[0];
  Continuation c{r.prompt, 6};
  c.ids.insert(c.ids.end(), a.tokens.begin(), a.tokens.end());
  Continuation wrong = c;
  wrong.ids.back() = wrong.ids.back() == 0 ? 1 : 0;
  const auto s = run(model, {c, wrong}, 4, 64);
  EXPECT_TRUE(s[0].greedy);
  EXPECT_FALSE(s[1].greedy);
  double sum = 0;
  for (float x : a.logprobs) sum += x;
  EXPECT_NEAR(s[0].logprob, sum, 1e-4);
}

TEST(Continuations, AnswersDoNotDependOnTheBatch) {
  Model model(golden("qwen3_gqa"), "", DType::kBF16, 96, kernels::cpu_ops());
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) {
    Request r;
    for (int k = 0; k < 3 + 4 * i; ++k) r.prompt.push_back((7 * i + 3 * k) % 50);
    r.max_tokens = 12;
    if (i % 2) r.sampling.temperature = 0.8, r.sampling.seed = static_cast<uint64_t>(i);
    requests.push_back(r);
  }
  std::vector<std::vector<Answer>> all;
  for (int64_t batch : {1, 7, 64}) {
    EngineSettings s;
    s.batch = batch;
    s.tokens_per_pass = batch == 7 ? 16 : 512;
    size_t done = 0;
    all.push_back(Engine(model, s).generate(requests, {}, [&](size_t, const Answer&) { ++done; }));
    EXPECT_EQ(done, requests.size());
  }
  for (size_t b = 1; b < all.size(); ++b)
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(all[0][i].tokens, all[b][i].tokens);
      EXPECT_EQ(all[0][i].logprobs, all[b][i].logprobs);
    }
}

TEST(Continuations, BadRowsAreNamed) {
  Model model(golden("qwen3_gqa"), "", DType::kF32, 96, kernels::cpu_ops());
  ContinuationScorer s(model, 4);
  const auto ignore = [](size_t, const ContinuationScore&) {};
  EXPECT_THROW(s.score({{{1}, 1}}, ignore), Error);
  EXPECT_THROW(s.score({{{1, 2}, 0}}, ignore), Error);
  EXPECT_THROW(s.score({{{1, 100000}, 1}}, ignore), Error);
  EXPECT_THROW(s.score({{std::vector<int32_t>(98, 1), 1}}, ignore), Error);
  s.score({}, ignore);
}

// LongRoPE has other frequencies for texts of more than 64 tokens here: short rows are as they are without long ones,
// whichever come first.
TEST(LongRope, ARowsNumbersDoNotDependOnTheOthers) {
  const auto rows = requests(96, 90);
  tokenizer::TrainOptions bytes_alone;
  bytes_alone.vocab_size = 257;
  bytes_alone.pattern = "gpt2";
  bytes_alone.special_tokens = {bytes_alone.eos_token = "<eos>"};
  const auto tok = tokenizer::Tokenizer::from_spec(
      tokenizer::train_byte_level_bpe(bytes_alone, [](std::string_view&) { return false; }).spec);
  const auto score = [&](const std::vector<Continuation>& some) {
    eval::ModelChoice choice;
    choice.path = golden("phi3_longrope");
    choice.type = DType::kF32;
    choice.tokenizer = tok;
    choice.ops = &kernels::cpu_ops();
    eval::LanguageModel model(choice, nullptr);
    eval::RequestCache cache("");
    std::vector<ContinuationScore> out;
    EXPECT_TRUE(model.score(some, cache, &out));
    return out;
  };
  const auto all = score(rows);
  for (const size_t i : {size_t{0}, size_t{5}, rows.size() - 4, rows.size() - 2}) {
    EXPECT_EQ(score({rows[i]})[0].logprob, all[i].logprob) << i << ": " << rows[i].ids.size() << " tokens";
  }
  EXPECT_GT(rows[rows.size() - 2].ids.size(), 64u);
}

}  // namespace
}  // namespace mxt::infer
