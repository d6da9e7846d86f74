// What a request gets must not depend on anything but the request: alone, among others, in pieces, from the cache,
// after eviction.
#include "infer/scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <future>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "folders.h"
#include "infer/engine.h"
#include "infer/scorer.h"

namespace mxt::infer {
namespace {

std::string golden(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/models/" + name; }

Model& model() {
  static Model m(golden("qwen3_gqa"), "", DType::kBF16, 0, kernels::cpu_ops());
  return m;
}

std::vector<int32_t> prompt(size_t n, uint32_t seed) {
  std::vector<int32_t> p;
  for (size_t i = 0; i < n; ++i)
    p.push_back(static_cast<int32_t>((seed = seed * 1664525u + 1013904223u) >> 8) %
                static_cast<int32_t>(model().vocab()));
  return p;
}

Request request(size_t n, uint32_t seed, int64_t max_tokens = 12) {
  Request r;
  r.prompt = prompt(n, seed);
  r.max_tokens = max_tokens;
  r.logprobs = 3;
  return r;
}

struct Got {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<NewToken> prompt;
  std::vector<float> hidden;
  Outcome outcome;
  bool done = false;
  bool operator==(const Got& o) const {
    return ids == o.ids && logprobs.size() == o.logprobs.size() &&
           std::memcmp(logprobs.data(), o.logprobs.data(), 4 * logprobs.size()) == 0;
  }
};

Sink into(Got& g) {
  Sink s;
  s.token = [&g](const NewToken& t) {
    g.ids.push_back(t.id);
    g.logprobs.push_back(t.logprob);
    for (const auto& l : t.likely) g.logprobs.push_back(l.logprob);
    return true;
  };
  s.prompt = [&g](const std::vector<NewToken>& p) { g.prompt = p; };
  s.hidden = [&g](const std::vector<float>& h) { g.hidden = h; };
  s.done = [&g](const Outcome& o) {
    EXPECT_FALSE(g.done);
    g.outcome = o;
    g.done = true;
  };
  return s;
}

std::vector<Got> answer(Scheduler& s, const std::vector<Request>& requests) {
  std::vector<Got> got(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) s.submit(requests[i], into(got[i]));
  while (s.step()) {
  }
  for (const Got& g : got) EXPECT_TRUE(g.done);
  return got;
}

Got alone(const Request& r, SchedulerSettings settings = {}) {
  settings.prefix_cache = false;
  Scheduler s(model(), settings);
  return answer(s, {r})[0];
}

TEST(Scheduler, TheSameAloneAndInABatchOf32) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 32; ++i) requests.push_back(request(1 + i * 2 % 50, i, 3 + i % 9));
  Scheduler s(model(), {.batch = 32, .tokens_per_pass = 64});
  const auto got = answer(s, requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(got[i], alone(requests[i])) << i;
}

TEST(Scheduler, TheSameWhateverTheThreadsAndThePieces) {
  const Request r = request(50, 5);
  const Got whole = alone(r);
  EXPECT_EQ(alone(r, {.batch = 1, .tokens_per_pass = 7}), whole);
  EXPECT_EQ(alone(r, {.batch = 1, .tokens_per_pass = 1}), whole);
}

// Experts, and layers whose state a sequence carries on from pass to pass: cut at any token, among others, after others
// had the slot, and as they score whole.
TEST(Scheduler, TheSameOfExpertsAndOfStates) {
  for (const char* name : {"qwen3_moe", "qwen3_5", "qwen3_5_moe", "gpt_oss"}) {
    SCOPED_TRACE(name);
    Model m(golden(name), "", DType::kF32, 0, kernels::cpu_ops());
    std::vector<Request> requests;
    for (uint32_t i = 0; i < 6; ++i) requests.push_back(request(1 + i * 7, i, 5 + i));
    Scheduler one(m, {.batch = 1});
    std::vector<Got> apart;
    for (const Request& r : requests) apart.push_back(answer(one, {r})[0]);
    for (const int64_t tokens : {1, 7, 64}) {
      Scheduler many(m, {.batch = tokens == 1 ? 1 : 4, .tokens_per_pass = tokens});
      const auto got = answer(many, requests);
      for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(got[i], apart[i]) << i << " in passes of " << tokens;
    }
    Request r = request(40, 77, 1);
    r.prompt_logprobs = 0;
    const Got read = answer(one, {r})[0];
    Scorer scorer(m, 64);
    const auto scored = scorer.score({r.prompt})[0];
    ASSERT_EQ(read.prompt.size(), scored.size());
    for (size_t t = 1; t < scored.size(); ++t) EXPECT_NEAR(read.prompt[t].logprob, scored[t], 2e-5) << t;
  }
}

// Sinks, clamped gates and windows through the cache: the likeliest token after the other, as transformers has it.
TEST(Scheduler, GreedyTextOfGptOssIsTransformers) {
  for (const char* name : {"gpt_oss", "gpt_oss_balanced"}) {
    const Json want = read_json_file(golden(name) + "/expected.json")["greedy"];
    Model m(golden(name), "", DType::kF32, 0, kernels::cpu_ops());
    Request r;
    r.prompt = want["prompt"].get<std::vector<int32_t>>();
    r.max_tokens = 24;
    r.sampling = {.temperature = 0};
    Scheduler s(m, {});
    EXPECT_EQ(answer(s, {r})[0].ids, want["answer"].get<std::vector<int32_t>>()) << name;
  }
}

// Answers to one prompt that are asked for together: what of it stands in full pages is computed once, and each is what
// it is alone.
TEST(Scheduler, APromptOfManyAnswersIsComputedOnce) {
  std::vector<Request> requests(8, request(50, 9));
  for (size_t i = 0; i < requests.size(); ++i) requests[i].sampling = {.temperature = 1, .seed = i};
  requests.push_back(request(50, 10));
  Scheduler s(model(), {});
  const auto got = answer(s, requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(got[i], alone(requests[i])) << i;
  EXPECT_EQ(s.stats().shared_tokens, 7 * 48);
  EXPECT_EQ(s.stats().prompt_tokens, 2 * 50 + 7 * 2);
}

// Of two tokens the odds at temperature t are those at 1 to the power 1/t.
TEST(Scheduler, LogProbabilitiesAtATemperature) {
  Request r = request(20, 3, 1);
  const Got plain = alone(r);
  r.tempered = true;
  EXPECT_EQ(alone(r), plain);  // at 1
  r.sampling = {.temperature = 0.5, .seed = 1};
  const Got warm = alone(r);
  ASSERT_EQ(warm.logprobs.size(), 4u);  // the token's own, then the three likeliest
  EXPECT_NEAR(warm.logprobs[1] - warm.logprobs[2], 2 * (plain.logprobs[1] - plain.logprobs[2]), 1e-4);
  EXPECT_GT(warm.logprobs[1], plain.logprobs[1]);
}

TEST(Scheduler, TheSameAfterAHitInThePrefixCache) {
  Request r = request(50, 9);
  const Got fresh = alone(r);
  Scheduler s(model(), {});
  EXPECT_EQ(answer(s, {r})[0], fresh);
  const Got again = answer(s, {r})[0];
  EXPECT_EQ(again, fresh);
  EXPECT_EQ(again.outcome.shared_tokens, 48);
  // Another ending: the pages of the common beginning alone.
  Request other = r;
  other.prompt[40] = (other.prompt[40] + 1) % static_cast<int32_t>(model().vocab());
  const Got o = answer(s, {other})[0];
  EXPECT_EQ(o.outcome.shared_tokens, 32);
  EXPECT_EQ(o, alone(other));
  EXPECT_EQ(s.stats().shared_tokens, 80);
  EXPECT_EQ(s.stats().cache_available, s.stats().cache_pages);
}

// Layers that carry a state share a beginning where a copy of that was kept: at the end of a prompt's last full page,
// and where prompts that came together, or one that came before, part. Answers stay the same to the bit.
TEST(Scheduler, TheSameAfterAHitAmongStates) {
  for (const char* name : {"qwen3_5", "qwen3_5_moe"}) {
    SCOPED_TRACE(name);
    Model m(golden(name), "", DType::kBF16, 0, kernels::cpu_ops());
    const auto fresh = [&](const Request& r) {
      Scheduler s(m, {.prefix_cache = false});
      return answer(s, {r})[0];
    };
    const Request r = request(40, 9);
    const auto another = [&](int32_t by) {  // which parts from it amid the second page
      Request o = r;
      o.prompt[20] = (o.prompt[20] + by) % static_cast<int32_t>(m.vocab());
      return o;
    };
    const auto expect = [&](Scheduler& s, const Request& asked, int64_t shared) {
      const Got got = answer(s, {asked})[0];
      EXPECT_EQ(got, fresh(asked));
      EXPECT_EQ(got.outcome.shared_tokens, shared);
    };
    Scheduler s(m, {});
    expect(s, r, 0);
    expect(s, r, 32);
    expect(s, another(1), 0);  // nobody knew that prompts would part there
    expect(s, another(2), 16);
    Request longer = r;  // a conversation's next turn
    for (int32_t i = 0; i < 12; ++i) longer.prompt.push_back(i);
    expect(s, longer, 32);
    expect(s, longer, 48);
    EXPECT_EQ(s.stats().shared_tokens, 32 + 16 + 32 + 48);
    s.forget_cache();
    expect(s, r, 0);

    // Together: what they have in common is computed once, where they part a copy is kept.
    std::vector<Request> many = {r, another(1), another(2), r, another(3)};
    many[3].sampling = {.temperature = 1, .seed = 7};
    for (const int64_t tokens : {20, 512}) {
      Scheduler crowd(m, {.batch = 8, .tokens_per_pass = tokens});
      const auto got = answer(crowd, many);
      for (size_t i = 0; i < many.size(); ++i) EXPECT_EQ(got[i], fresh(many[i])) << i;
      EXPECT_EQ(crowd.stats().shared_tokens, 16 + 16 + 32 + 16);
    }

    // One copy alone, over which they quarrel.
    Scheduler narrow(m, {.batch = 1});
    for (const Request& one : {r, another(1), r, another(2), another(1), another(1)})
      EXPECT_EQ(answer(narrow, {one})[0], fresh(one));
    EXPECT_EQ(narrow.stats().cache_available, narrow.stats().cache_pages);
  }
}

TEST(Scheduler, TheSameWhenTheCacheIsTooSmallForAll) {
  const int64_t full = (model().positions() + PagedCache::kPage - 1) / PagedCache::kPage;
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 8; ++i) requests.push_back(request(static_cast<size_t>(model().positions()) - 40, i, 30));
  Scheduler s(model(), {.batch = 8, .tokens_per_pass = 64, .cache_pages = full * 3 / 2});
  const auto got = answer(s, requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(got[i], alone(requests[i])) << i;
  EXPECT_GT(s.stats().preemptions, 0);
  EXPECT_EQ(s.stats().cache_available, s.stats().cache_pages);
}

TEST(Scheduler, SampledAnswersDependOnTheSeedAlone) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 6; ++i) {
    requests.push_back(request(20, 3));
    requests.back().sampling = {.temperature = 1.2,
                                .top_k = 30,
                                .top_p = 0.9,
                                .min_p = 0.01,
                                .seed = i / 2,
                                .repetition_penalty = 1.1,
                                .presence_penalty = 0.2};
  }
  Scheduler s(model(), {});
  const auto got = answer(s, requests);
  for (size_t i = 0; i < 6; i += 2) EXPECT_EQ(got[i], got[i + 1]);
  EXPECT_FALSE(got[0] == got[2] && got[2] == got[4]);
}

TEST(Scheduler, PromptLogprobsAreTheScorers) {
  Request r = request(50, 21, 1);
  r.prompt_logprobs = 1;
  Scheduler s(model(), {.batch = 4, .tokens_per_pass = 32});
  answer(s, {request(50, 21)});  // what the cache holds must not shorten them
  const Got g = answer(s, {r})[0];
  ASSERT_EQ(g.prompt.size(), 50u);
  Scorer scorer(model());
  const auto want = scorer.score({r.prompt})[0];
  EXPECT_TRUE(std::isnan(g.prompt[0].logprob));
  for (size_t i = 1; i < 50; ++i) {
    EXPECT_EQ(g.prompt[i].id, r.prompt[i]);
    EXPECT_NEAR(g.prompt[i].logprob, want[i], 0.03) << i;  // the scorer rounds its logits to bf16
    ASSERT_EQ(g.prompt[i].likely.size(), 1u);
    EXPECT_GE(g.prompt[i].likely[0].logprob, g.prompt[i].logprob);
  }
  EXPECT_EQ(g.ids.size(), 1u);
  r.max_tokens = 0;
  const Got none = answer(s, {r})[0];
  EXPECT_EQ(none.prompt.size(), 50u);
  EXPECT_TRUE(none.ids.empty());
}

TEST(Scheduler, HiddenStatesAreAveragedOverThePrompt) {
  Request r = request(50, 4);
  r.hidden = true;
  const Got a = alone(r), b = alone(r, {.batch = 1, .tokens_per_pass = 5});
  ASSERT_EQ(static_cast<int64_t>(a.hidden.size()), model().config().hidden_size);
  EXPECT_TRUE(a.ids.empty());
  for (size_t i = 0; i < a.hidden.size(); ++i) EXPECT_FLOAT_EQ(a.hidden[i], b.hidden[i]);
}

TEST(Scheduler, AdaptersShareTheBaseAndGiveWhatTheyGiveAlone) {
  const std::string folder = golden("qwen3_gqa") + "/adapter";
  Model shared(golden("qwen3_gqa"), "", DType::kBF16, 0, kernels::cpu_ops());
  EXPECT_EQ(shared.add_adapter(folder), 0);
  Model one(golden("qwen3_gqa"), folder, DType::kBF16, 0, kernels::cpu_ops());
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 6; ++i) {
    requests.push_back(request(40, 8));
    requests.back().adapter = i % 2 == 0 ? -1 : 0;
  }
  Scheduler s(shared, {}), t(one, {.prefix_cache = false});
  const auto got = answer(s, requests);
  Request plain = requests[1];
  plain.adapter = -1;
  const Got with = answer(t, {plain})[0], base = alone(requests[0]);
  EXPECT_FALSE(with == base);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(got[i], i % 2 == 0 ? base : with) << i;
}

class Only final : public Constraint {
 public:
  explicit Only(std::vector<int32_t> ids)
      : ids_(std::move(ids)), mask_(static_cast<size_t>(model().vocab() + 63) / 64) {}
  std::span<const uint64_t> allowed() override {
    std::fill(mask_.begin(), mask_.end(), 0);
    if (at_ < ids_.size()) mask_[static_cast<size_t>(ids_[at_]) / 64] |= uint64_t{1} << (ids_[at_] % 64);
    return mask_;
  }
  bool complete() const override { return at_ >= ids_.size(); }
  void accept(int32_t id) override { EXPECT_EQ(id, ids_[at_++]); }

 private:
  std::vector<int32_t> ids_;
  std::vector<uint64_t> mask_;
  size_t at_ = 0;
};

TEST(Scheduler, AConstraintLeavesNoChoice) {
  Request r = request(20, 2, 10);
  r.constraint = std::make_shared<Only>(std::vector<int32_t>{5, 1, 9});
  Scheduler s(model(), {});
  const Got g = answer(s, {r})[0];
  EXPECT_EQ(g.ids, (std::vector<int32_t>{5, 1, 9}));
  EXPECT_EQ(g.outcome.finish, Finish::kStop);
}

TEST(Scheduler, MinTokensAndAConstraintLeaveWhatTheyLeave) {
  Scheduler s(model(), {});
  // The constraint is complete after three: the answer ends with its reason, however many were wanted.
  Request r = request(20, 2, 10);
  r.constraint = std::make_shared<Only>(std::vector<int32_t>{5, 1, 9});
  r.stop = {7};
  r.min_tokens = 8;
  Got g = answer(s, {r})[0];
  EXPECT_EQ(g.ids, (std::vector<int32_t>{5, 1, 9}));
  EXPECT_EQ(g.outcome.finish, Finish::kStop);
  // A stop token that the constraint wants is held back before it: nothing is left, and that is an error of its own.
  r.constraint = std::make_shared<Only>(std::vector<int32_t>{5, 7, 9});
  g = answer(s, {r})[0];
  EXPECT_EQ(g.ids, (std::vector<int32_t>{5}));
  EXPECT_EQ(g.outcome.finish, Finish::kFailed);
  EXPECT_NE(g.outcome.error.find("vocabulary"), std::string::npos);
  // Every token ends the answer, and none may.
  r.constraint = nullptr;
  r.stop.clear();
  for (int32_t id = 0; id < model().vocab(); ++id) r.stop.push_back(id);
  g = answer(s, {r})[0];
  EXPECT_TRUE(g.ids.empty());
  EXPECT_EQ(g.outcome.finish, Finish::kStop);
}

// Takes nothing twice.
class Once final : public Constraint {
 public:
  std::span<const uint64_t> allowed() override {
    mask_.assign(static_cast<size_t>(model().vocab() + 63) / 64, 0);
    mask_[0] = 0b1110;
    return mask_;
  }
  bool complete() const override { return seen_.size() == 3; }
  bool takes(int32_t id) override { return !seen_.contains(id); }
  void accept(int32_t id) override { EXPECT_TRUE(seen_.insert(id).second); }

 private:
  std::set<int32_t> seen_;
  std::vector<uint64_t> mask_;
};

TEST(Scheduler, WhatAConstraintDoesNotTakeIsDrawnAgain) {
  Scheduler s(model(), {});
  for (const double temperature : {0.0, 1.5}) {
    Request r = request(20, 2, 10);
    r.constraint = std::make_shared<Once>();
    r.sampling.temperature = temperature;
    r.logprobs = 2;
    const Got g = answer(s, {r})[0];
    EXPECT_EQ(std::set<int32_t>(g.ids.begin(), g.ids.end()), (std::set<int32_t>{1, 2, 3}));
    EXPECT_EQ(g.ids.size(), 3u);
    EXPECT_EQ(g.outcome.finish, Finish::kStop);
  }
}

TEST(Scheduler, ASinkThatThrowsHarmsNobodyElse) {
  Scheduler s(model(), {});
  int ended = 0;
  for (int i = 0; i < 3; ++i) {
    Sink sink;
    sink.token = [i](const NewToken&) -> bool { return i == 0 ? throw std::runtime_error("mine") : true; };
    sink.done = [i, &ended](const Outcome& o) {
      ++ended;
      EXPECT_EQ(o.finish, i == 0 ? Finish::kFailed : Finish::kLength);
      if (i == 1) throw std::runtime_error("mine too");
    };
    s.submit(request(8, static_cast<uint32_t>(i), 4), std::move(sink));
  }
  while (s.step()) {
  }
  EXPECT_EQ(ended, 3);
}

TEST(Scheduler, BadRequestsAreRefusedAndCostNothing) {
  Scheduler s(model(), {});
  Request r = request(4, 1);
  r.prompt.clear();
  EXPECT_THROW(s.submit(r, {}), Error);
  r.prompt = {static_cast<int32_t>(model().vocab())};
  EXPECT_THROW(s.submit(r, {}), Error);
  r.prompt = {-1};
  EXPECT_THROW(s.submit(r, {}), Error);
  EXPECT_THROW(s.submit(request(static_cast<size_t>(model().positions()), 1), {}), Error);
  r.prompt = {1};
  r.sampling.logit_bias = {{-5, 1.0f}};
  EXPECT_THROW(s.submit(r, {}), Error);
  r.sampling.logit_bias.clear();
  r.stop = {static_cast<int32_t>(model().vocab())};
  EXPECT_THROW(s.submit(r, {}), Error);
  EXPECT_FALSE(s.step());
}

TEST(Scheduler, RunsOnItsOwnThreadAndCancels) {
  Scheduler s(model(), {.batch = 2, .tokens_per_pass = 16});
  s.start();
  std::vector<std::promise<Finish>> ends(12);
  std::vector<Scheduler::Id> ids;
  for (size_t i = 0; i < ends.size(); ++i) {
    Sink sink;
    sink.done = [&, i](const Outcome& o) { ends[i].set_value(o.finish); };
    ids.push_back(s.submit(request(30, static_cast<uint32_t>(i), 15), std::move(sink)));
  }
  s.cancel(ids[11]);
  EXPECT_EQ(ends[11].get_future().get(), Finish::kCancelled);
  for (size_t i = 0; i + 1 < ends.size(); ++i) EXPECT_EQ(ends[i].get_future().get(), Finish::kLength);
  s.cancel(ids[0]);  // long done
  std::promise<Finish> last;
  Sink sink;
  sink.done = [&](const Outcome& o) { last.set_value(o.finish); };
  s.submit(request(2, 1, 1000000), std::move(sink));
  s.stop();
  const Finish f = last.get_future().get();
  EXPECT_TRUE(f == Finish::kCancelled || f == Finish::kLength);
}

TEST(Scheduler, GroupsTakeTurns) {
  Scheduler s(model(), {.batch = 1, .tokens_per_pass = 64});
  std::vector<int> order;
  auto add = [&](uint64_t group, int name, int64_t priority = 0) {
    Request r = request(4, 1, 2);
    r.group = group;
    r.priority = priority;
    Sink sink;
    sink.done = [&order, name](const Outcome&) { order.push_back(name); };
    s.submit(r, std::move(sink));
  };
  add(1, 10), add(1, 11), add(2, 20), add(3, 30, -1);
  while (s.step()) {
  }
  EXPECT_EQ(order, (std::vector<int>{30, 10, 20, 11}));
}

TEST(Engine, AnswersInTheOrderOfTheRequests) {
  Engine e(model(), {3, 64});
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 7; ++i) requests.push_back(request(5 + i, i, 4));
  const auto a = e.generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].logprobs = 0;
    const Got g = alone(requests[i]);
    EXPECT_EQ(a[i].tokens, g.ids);
    EXPECT_EQ(a[i].logprobs, g.logprobs);
  }
  requests[3].prompt.clear();
  EXPECT_THROW(e.generate(requests), Error);
  EXPECT_EQ(e.generate({requests[0]}, [](size_t, int32_t) { return false; })[0].tokens.size(), 1u);
}

}  // namespace
}  // namespace mxt::infer
