// The probe on a small model: what it asks, what it writes, that it ends in time.
#include "autotune/probe.h"
#include "models/modules.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/threads.h"
#include "runtime/program.h"

namespace mxt::autotune {
namespace {

models::LoraPlan adapters() {
  models::LoraPlan lora;
  lora.target = [](const std::string& module) -> std::optional<models::LoraTarget> {
    if (!models::is_of_layers(module)) return std::nullopt;
    return models::LoraTarget{8, 16.0, false};
  };
  return lora;
}

Subject subject(const models::LoraPlan& lora) {
  Subject s;
  s.model = formats::parse_model_config(
      OrderedJson::parse(
          R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "hidden_act": "silu"})"),
      "test");
  s.options.type = DType::kBF16;
  s.options.lora = &lora;
  s.options.positions = 64;
  s.seq_len = 64;
  s.rows = 8;
  s.packed = true;
  s.passes = {{8, graph::Recompute::kNone}, {2, graph::Recompute::kNone}};
  s.plan.device.kind = "cpu";
  // The default plan names a choice for every call; it stays where the whole step does not gain.
  kernels::Ops& ops = kernels::cpu_ops();
  s.plan.choices["step micro_batch"] = "8";
  const graph::Graph g = models::build(s.model, s.options);
  for (const auto& t : runtime::Program(g, s.plan, ops, {8 * s.seq_len, 0, false, s.seq_len}).tunables())
    s.plan.choices[t.key] =
        (std::holds_alternative<kernels::Gemm>(t.call) ? ops.gemm_algorithms() : ops.attention_algorithms()).front();
  return s;
}

TEST(Probe, AsksForEveryCallOfTheStepAndAnswersEachFromTheBackendsList) {
  const auto lora = adapters();
  const Subject s = subject(lora);
  kernels::Ops& ops = kernels::cpu_ops();
  set_num_threads(1);  // two that wait for each other on a busy machine take all the time there is
  const Report r = probe(s, ops, {60, false});
  EXPECT_TRUE(r.plan.measured);
  EXPECT_EQ(r.unmeasured, 0);
  EXPECT_LT(r.seconds, 60);
  const int64_t micro = std::stoll(r.plan.choices.at("step micro_batch"));
  EXPECT_TRUE(micro == 8 || micro == 2);
  const graph::Graph g = models::build(s.model, s.options);
  const runtime::Program program(g, r.plan, ops,
                                 {micro * s.seq_len, 0, false, s.seq_len});  // a name that it does not have throws
  size_t thin = 0, gradients = 0;
  for (const auto& t : program.tunables()) {
    ASSERT_TRUE(r.plan.choices.contains(t.key)) << t.key;
    if (const auto* gemm = std::get_if<kernels::Gemm>(&t.call)) {
      thin += gemm->c.cols == 8 || gemm->c.rows == 8;
      gradients += gemm->trans_a;
    }
    if (r.kept_default && !r.plan.candidates.contains(t.key)) continue;  // another size of a pass was asked about
    const auto& list = r.plan.candidates.at(t.key);
    std::set<std::string> own;  // what does something of its own for this call
    const auto* product = std::get_if<kernels::Gemm>(&t.call);
    const auto names = product ? ops.gemm_algorithms() : ops.attention_algorithms();
    for (int a = 0; product && a < static_cast<int>(names.size()); ++a)
      own.insert(names[static_cast<size_t>(ops.same_gemm(*product, a))]);
    if (product) {
      EXPECT_EQ(list.size(), own.size()) << t.key;
    }
    EXPECT_EQ(list[0].algorithm, names[0]);
    for (const auto& c : list) EXPECT_GT(c.median_us, 0) << t.key << c.algorithm;
  }
  EXPECT_GT(thin, 0u);
  EXPECT_GT(gradients, 0u);
  EXPECT_GT(r.chosen_step_us, 0);
  EXPECT_LE(r.chosen_step_us, r.usual_step_us * 1.5);
}

TEST(Probe, AttentionAndItsGradientAreOneChoice) {
  const auto lora = adapters();
  const Report r = probe(subject(lora), kernels::cpu_ops(), {10, false});
  std::string forward, backward;
  for (const auto& [key, name] : r.plan.choices) {
    if (key.starts_with("attention ")) forward = name;
    if (key.starts_with("attention_grad ")) backward = name;
  }
  EXPECT_FALSE(forward.empty());
  EXPECT_EQ(forward, backward);
}

TEST(Probe, WithoutTimeItStaysWithTheDefaultAndSaysWhatWasNotMeasured) {
  const auto lora = adapters();
  const Report r = probe(subject(lora), kernels::cpu_ops(), {1e-9, false});
  EXPECT_GT(r.unmeasured, 0);
  for (const auto& [key, name] : r.plan.choices)
    if (key.starts_with("gemm")) {
      EXPECT_EQ(name, kernels::cpu_ops().gemm_algorithms().front()) << key;
    }
  for (const auto& [key, list] : r.plan.candidates)
    for (const auto& c : list) EXPECT_EQ(c.median_us, 0) << key;
  EXPECT_EQ(r.usual_step_us, 0);
}

TEST(Probe, KeepsTheBudget) {
  const auto lora = adapters();
  const Report r = probe(subject(lora), kernels::cpu_ops(), {0.3, true});
  EXPECT_LT(r.seconds, 0.6);  // what is not divided: building graphs and memory
}

TEST(Probe, NumberOfThreadsIsAskedWhereItIsOpen) {
  const auto lora = adapters();
  Subject s = subject(lora);
  const int before = num_threads();
  s.threads = {2, 1};
  const Report r = probe(s, kernels::cpu_ops(), {5, false});
  set_num_threads(before);
  EXPECT_EQ(r.plan.candidates.at("step threads").size(), 2u);
  EXPECT_TRUE(r.plan.choices.at("step threads") == "1" || r.plan.choices.at("step threads") == "2");
}

TEST(Probe, PinningIsAskedWhereItMayBeAndEveryCoreIsUsed) {
  const auto lora = adapters();
  Subject s = subject(lora);
  const int before = num_threads();
  set_num_threads(usable_cores());
  EXPECT_FALSE(probe(s, kernels::cpu_ops(), {5, false}).plan.choices.contains("step pinning"));
  s.pinning = true;
  const Report r = probe(s, kernels::cpu_ops(), {5, false});
  pin_threads(false);
  set_num_threads(before);
  if (usable_cores() == 1) GTEST_SKIP() << "one core: there is nothing to bind";
  ASSERT_TRUE(r.plan.choices.contains("step pinning"));
  EXPECT_EQ(r.plan.candidates.at("step pinning").size(), 2u);
}

}  // namespace
}  // namespace mxt::autotune
