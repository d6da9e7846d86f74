// Twenty steps against PyTorch's, transformers' and bitsandbytes' own optimizers, and Muon against a script of its
// definition (tools/golden/optimizers.py), on the reference and on the CPU's kernels.
#include "optim/training.h"

namespace mxt::optim::test {
namespace {

struct Case {
  std::string model, optimizer;
  bool reference;
};

class Trajectory : public testing::TestWithParam<Case> {};

TEST_P(Trajectory, EqualsTheOriginal) {
  const Case& c = GetParam();
  const Json golden = golden_of(c.model);
  const Json& want = golden[c.optimizer];
  Training run(c.model, settings(golden, c.optimizer), c.reference ? kernels::reference_ops() : kernels::cpu_ops());
  ASSERT_EQ(want.size(), 20u);
  // In 8 bits a code that falls the other way for the last bit of a moment moves it by a step of the map.
  const double tolerance = c.optimizer == "adamw_8bit" ? 5e-4 : 1e-4;
  for (size_t s = 0; s < want.size(); ++s) {
    const double loss = run.step(static_cast<int64_t>(s));
    EXPECT_NEAR(loss, want[s].get<double>(), tolerance * want[s].get<double>()) << "step " << s + 1;
  }
}

std::vector<Case> cases() {
  const std::vector<std::pair<std::string, std::vector<std::string>>> all{
      {"llama_mqa", {"lion", "adafactor", "muon", "muon_pretrain", "muon_torch"}},
      {"qwen3_tied", {"lion", "adafactor", "muon"}},
      {"gpt2", {"adafactor", "muon"}},
      {"llama_wide", {"adamw", "adamw_8bit", "lion", "muon"}}};
  std::vector<Case> out;
  for (const auto& [model, optimizers] : all)
    for (const std::string& o : optimizers)
      for (const bool reference : {true, false}) out.push_back({model, o, reference});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Golden, Trajectory, testing::ValuesIn(cases()), [](const auto& i) {
  return i.param.model + "_" + i.param.optimizer + (i.param.reference ? "_reference" : "_cpu");
});

}  // namespace
}  // namespace mxt::optim::test
