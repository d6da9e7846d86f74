// Every family says through the paged cache, with its prompt in pieces and beside another request, what the whole
// sequence read at once makes most likely.
#include <algorithm>

#include "infer/engine.h"
#include "models/tiny.h"

namespace mxt::infer {
namespace {

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, SayThroughTheCacheWhatTheWholeSequenceSays) {
  constexpr int64_t kNew = 24;
  const std::string folder = tiny::golden(GetParam());
  std::vector<int32_t> ids = tiny::read_rows(folder, 1, 1).ids;
  const auto prompt = static_cast<std::ptrdiff_t>(ids.size());

  Model model(folder, "", DType::kF32, 0, kernels::cpu_ops());
  Engine engine(model, {4, 7});  // seven tokens a pass
  Request wanted, other;
  wanted.prompt = ids;
  wanted.max_tokens = kNew;
  other.prompt = {3, 5, 7};
  other.max_tokens = kNew;
  const auto answers = engine.generate({other, wanted});

  models::BuildOptions o;
  o.type = DType::kF32;
  o.purpose = models::Purpose::kGenerate;
  o.positions = 64;
  tiny::Model whole(folder, o, kernels::cpu_ops());
  for (int64_t k = 0; k < kNew; ++k) {
    tiny::Packed p;
    p.add(ids, std::vector<int32_t>(ids.size(), -100));
    runtime::Batch b = p.batch();
    const auto last = static_cast<int32_t>(ids.size()) - 1;
    std::vector<float> logits(static_cast<size_t>(whole.graph.vocab));
    b.logit_rows = &last;
    b.logit_count = 1;
    b.logits = logits.data();
    whole.program.run(b);
    ids.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  EXPECT_EQ(answers[1].tokens, std::vector<int32_t>(ids.begin() + prompt, ids.end()));
}

INSTANTIATE_TEST_SUITE_P(Golden, Families,
                         testing::Values("llama_mqa", "mistral", "qwen2", "instella", "olmo2", "phi3", "phi3_longrope",
                                         "gemma3", "nanochat", "nanochat_v2", "nanochat_v2_values"),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace mxt::infer
