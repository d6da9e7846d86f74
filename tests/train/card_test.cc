// How a step is cut for a card that is not here: as much as it holds is kept.
#include "train/card.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "config/recipe.h"
#include "kernels/plan.h"
#include "train/setup.h"

namespace mxt::train {
namespace {

config::Recipe recipe_of(int64_t gigabytes, const char* more = "") {
  config::Recipe r = config::parse_recipe(fmt::format(R"(meta: {{project: test, run_name: card}}
hardware: {{name: h100, gpus: 1}}
autotune: {{enabled: false}}
model:
  name: random
  init: random
  config: {{model_type: llama, vocab_size: 256, hidden_size: 1024, intermediate_size: 4096, num_hidden_layers: 16,
    num_attention_heads: 8, num_key_value_heads: 8, max_position_embeddings: 4096, rms_norm_eps: 1.0e-5,
    tie_word_embeddings: true, hidden_act: silu}}
data: {{source: local, path: rows.jsonl, seq_len: 4096}}
train:
  method: {{kind: lora, r: 16}}
  batch: {{per_device: 4, grad_accum: 1}}
{})",
                                                      more),
                                          "card.yaml");
  r.hardware.expected_hbm_gb = gigabytes;  // less than a recipe may say: a small model will do
  return r;
}

std::unique_ptr<Setup> setup_of(int64_t gigabytes, const kernels::KernelPlan* plan = nullptr, const char* more = "") {
  return make_setup(recipe_of(gigabytes, more), "", 0, plan);
}

TEST(Card, AsFewTensorsAreMadeAgainAsItHolds) {
  EXPECT_EQ(setup_of(80)->options.recompute, graph::Recompute::kNone);
  int64_t last = 0;
  std::set<int64_t> numbers;
  for (const int64_t gigabytes : {10, 9, 8, 7}) {
    const auto s = setup_of(gigabytes, nullptr, "  micro_batch: 4\n");
    SCOPED_TRACE(
        fmt::format("{} GB: {} rows, {}", gigabytes, s->micro_batch, graph::recompute_name(s->options.recompute)));
    EXPECT_GE(s->options.recompute.tensors, last);
    last = s->options.recompute.tensors;
    numbers.insert(last);
  }
  EXPECT_GE(numbers.size(), 3u) << "between none and all";
}

// What is chosen goes into a plan, and a run by the plan is the run with that number by hand.
TEST(Card, ANumberOfTensorsIsAPlansChoice) {
  const auto s = setup_of(9, nullptr, "  micro_batch: 4\n");
  EXPECT_EQ(s->micro_batch, 4);
  ASSERT_GT(s->options.recompute.tensors, 0);
  ASSERT_NE(s->options.recompute, graph::Recompute::kLayer);
  kernels::KernelPlan plan;
  plan.choices["step micro_batch"] = std::to_string(s->micro_batch);
  plan.choices["step recompute"] = graph::recompute_name(s->options.recompute);
  const auto by_plan = setup_of(80, &plan);
  EXPECT_EQ(by_plan->micro_batch, s->micro_batch);
  EXPECT_EQ(by_plan->training_graph().print(), s->training_graph().print());
}

// Half of them would not fit; the search stops within a fiftieth of all.
TEST(Card, TheFewestAreFound) {
  const auto s = setup_of(80);
  const auto all = static_cast<int64_t>(s->recompute_order().size());
  for (const int64_t least : {int64_t{1}, all / 3, all - 1}) {
    bool found = false;
    const graph::Recompute r = fewest(*s, [&](graph::Recompute asked) { return asked.tensors >= least; }, &found);
    EXPECT_TRUE(found);
    if (r == graph::Recompute::kLayer) {
      EXPECT_GE(least, all - std::max<int64_t>(1, all / 50));
    } else {
      EXPECT_GE(r.tensors, least);
      EXPECT_LE(r.tensors, least + std::max<int64_t>(1, all / 50));
    }
  }
  bool found = true;
  fewest(*s, [](graph::Recompute) { return false; }, &found);
  EXPECT_FALSE(found);
}

// Without the permission nothing is made again, and fewer rows go at a time instead.
TEST(Card, NothingIsMadeAgainWithoutPermission) {
  const auto s = setup_of(10, nullptr, "  gradient_checkpointing: false\n");
  EXPECT_EQ(s->options.recompute, graph::Recompute::kNone);
  EXPECT_LT(s->micro_batch, setup_of(80)->micro_batch);
  EXPECT_EQ(setup_of(7, nullptr, "  gradient_checkpointing: false\n  micro_batch: 4\n")->options.recompute,
            graph::Recompute::kNone);
}

// A base in E4M3 has its adapters joined to its products also where these are made again.
TEST(Card, AdaptersOfABaseInFp8AreJoinedEitherWay) {
  for (const int64_t gigabytes : {80, 8}) {
    const auto s = setup_of(gigabytes, nullptr, "  base_precision: fp8_e4m3\n");
    int64_t added = 0, joined = 0;
    for (const graph::Op& op : s->training_graph().ops) {
      added += std::holds_alternative<graph::LoraAddOp>(op.attrs);
      joined += std::holds_alternative<graph::LoraJoinOp>(op.attrs);
    }
    EXPECT_EQ(added, 0);
    EXPECT_EQ(joined, 4 * 16);  // qkv, o, gate and up, down
    EXPECT_EQ(s->options.recompute == graph::Recompute::kNone, gigabytes == 80);
  }
}

}  // namespace
}  // namespace mxt::train
