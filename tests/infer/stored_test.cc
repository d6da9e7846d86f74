// Weights in the blocks of the file: the same promises, and the values of the file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "folders.h"
#include "formats/gguf.h"
#include "formats/gguf_hf.h"
#include "infer/scheduler.h"
#include "infer/scorer.h"

namespace mxt::infer {
namespace {

const std::string kGolden = std::string(kSourceDir) + "/tests/golden/models/qwen3_gqa";

// The golden model as GGUF: its matrices in `type` where rows are a multiple of the block, in BF16 elsewhere.
std::string gguf(formats::GgmlType type) {
  const std::string path = testing::TempDir() + "/stored-" + std::to_string(::getpid()) + "-" +
                           std::to_string(static_cast<int>(type)) + ".gguf";
  const auto source = formats::WeightSource::open(kGolden);
  const auto& c = source->config();
  formats::GgufWriter w(path);
  using V = formats::GgufValue;
  w.add("general.architecture", V::text("qwen3"));
  const std::pair<const char*, int64_t> sizes[] = {
      {"embedding_length", c.hidden_size},          {"block_count", c.num_layers},
      {"attention.head_count", c.num_heads},        {"attention.head_count_kv", c.num_kv_heads},
      {"feed_forward_length", c.intermediate_size}, {"context_length", c.max_positions},
      {"attention.key_length", c.head_dim},         {"attention.value_length", c.head_dim}};
  for (const auto& [key, n] : sizes) w.add(std::string("qwen3.") + key, V::u32(static_cast<uint32_t>(n)));
  w.add("qwen3.attention.layer_norm_rms_epsilon", V::f32(static_cast<float>(c.norm_eps)));
  w.add("qwen3.rope.freq_base", V::f32(static_cast<float>(c.rope_theta)));
  auto shape = [&](const std::string& name) { return source->shape(name); };
  for (const auto& name : source->names()) {
    const auto s = shape(name);
    const bool matrix = s.size() == 2;
    w.declare(formats::gguf_tensor_name(name, c),
              !matrix          ? formats::GgmlType::kF32
              : s[1] % 32 == 0 ? type
                               : formats::GgmlType::kBF16,
              s);
  }
  for (const auto& name : source->names()) {
    const auto s = shape(name);
    const int64_t rows = s.size() == 2 ? s[0] : 1, cols = s.back();
    std::vector<float> values(static_cast<size_t>(rows * cols));
    source->read(name, DType::kF32, values.data());
    w.append(formats::gguf_tensor_name(name, c), values.data(), rows);
  }
  w.commit();
  return path;
}

struct Got {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  int64_t shared = 0;
  bool operator==(const Got& o) const {
    return ids == o.ids && logprobs.size() == o.logprobs.size() &&
           std::memcmp(logprobs.data(), o.logprobs.data(), 4 * logprobs.size()) == 0;
  }
};

std::vector<Got> answer(Scheduler& s, const std::vector<Request>& requests) {
  std::vector<Got> got(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Sink sink;
    sink.token = [&g = got[i]](const NewToken& t) {
      g.ids.push_back(t.id);
      g.logprobs.push_back(t.logprob);
      return true;
    };
    sink.done = [&g = got[i]](const Outcome& o) { g.shared = o.shared_tokens; };
    s.submit(requests[i], std::move(sink));
  }
  while (s.step()) {
  }
  return got;
}

class Stored : public testing::TestWithParam<formats::GgmlType> {
 protected:
  void SetUp() override {
    path_ = gguf(GetParam());
    model_ = std::make_unique<Model>(path_, "", DType::kBF16, 0, kernels::cpu_ops(), Weights::kAsStored);
    adapter_ = model_->add_adapter(kGolden + "/adapter");
  }
  void TearDown() override { std::filesystem::remove(path_); }
  Request request(size_t n, uint32_t seed, int64_t max_tokens, int adapter = -1) const {
    Request r;
    for (size_t i = 0; i < n; ++i)
      r.prompt.push_back(static_cast<int32_t>((seed = seed * 1664525u + 1013904223u) >> 8) %
                         static_cast<int32_t>(model_->vocab()));
    r.max_tokens = max_tokens;
    r.logprobs = 0;
    r.adapter = adapter;
    return r;
  }
  Got alone(const Request& r) {
    Scheduler s(*model_, {.prefix_cache = false});
    return answer(s, {r})[0];
  }
  std::string path_;
  std::unique_ptr<Model> model_;
  int adapter_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Types, Stored,
                         testing::Values(formats::GgmlType::kQ4_0, formats::GgmlType::kQ4_1, formats::GgmlType::kQ8_0,
                                         formats::GgmlType::kBF16, formats::GgmlType::kQ5_0, formats::GgmlType::kQ5_1),
                         [](const auto& p) { return std::string(formats::ggml_type_info(p.param)->name); });

TEST_P(Stored, TheSameAloneInABatchOf32AndAfterAPrefixHit) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 32; ++i)
    requests.push_back(request(1 + i * 2 % 50, i, 3 + i % 9, i % 3 == 0 ? adapter_ : -1));
  Scheduler s(*model_, {.batch = 32, .tokens_per_pass = 64});
  const auto first = answer(s, requests), again = answer(s, requests);
  int64_t shared = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Got want = alone(requests[i]);
    EXPECT_EQ(first[i], want) << i;
    EXPECT_EQ(again[i], want) << i;
    shared += again[i].shared;
  }
  EXPECT_GT(shared, 0);
}

TEST_P(Stored, AnAdapterChangesWhatIsSaid) {
  EXPECT_FALSE(alone(request(40, 8, 12)) == alone(request(40, 8, 12, adapter_)));
}

// The blocks hold the file's values: against the same file decoded to fp32 nothing is left but the order of sums.
TEST_P(Stored, InFp32TheLogprobsAreThoseOfTheDecodedFile) {
  Model stored(path_, "", DType::kF32, 0, kernels::cpu_ops(), Weights::kAsStored),
      decoded(path_, "", DType::kF32, 0, kernels::cpu_ops());
  Scorer a(stored), b(decoded);
  const std::vector<int32_t> row = request(60, 3, 1).prompt;
  const auto got = a.score({row})[0], want = b.score({row})[0];
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 1; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5f) << i;
}

}  // namespace
}  // namespace mxt::infer
