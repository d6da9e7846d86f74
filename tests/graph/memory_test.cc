// The memory planner on random graphs: near its lower bound, and right: what it calls dead is never read.
#include "graph/memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "graph/random_graph.h"
#include "kernels/api.h"
#include "runtime/program.h"

namespace mxt::graph {
namespace {

constexpr uint64_t kSeeds = 100;

std::vector<ValueId> kept(const Graph& g) {
  std::vector<ValueId> out;
  for (const Op& op : g.ops)
    if (std::holds_alternative<FusedLinearCrossEntropyOp>(op.attrs)) out.push_back(op.out[0]);
  return out;
}

TEST(Memory, OneHundredRandomGraphsPackNearTheLowerBound) {
  std::vector<double> ratio;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Graph g = random_graph(seed, DType::kBF16);
    const MemoryPlan p = plan_memory(g, steps_of(g), 512, kept(g));
    ASSERT_GE(p.bytes, p.lower_bound);
    ratio.push_back(static_cast<double>(p.bytes) / static_cast<double>(p.lower_bound));
    EXPECT_LE(ratio.back(), 1.15) << "seed " << seed;
  }
  std::sort(ratio.begin(), ratio.end());
  RecordProperty("median", std::to_string(ratio[kSeeds / 2]));
  std::printf("planned over lower bound: median %.4f, worst %.4f\n", ratio[kSeeds / 2], ratio.back());
  EXPECT_LE(ratio[kSeeds / 2], 1.05);
}

TEST(Memory, NoTwoBuffersThatLiveTogetherOverlap) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Graph g = random_graph(seed, DType::kF32, seed % 2 ? Recompute::kLayer : Recompute::kNone);
    const int64_t tokens = 64;
    const MemoryPlan p = plan_memory(g, steps_of(g), tokens, kept(g));
    // Replays who wrote which bytes last: every read must find what its value's operation wrote.
    std::vector<ValueId> owner(static_cast<size_t>(p.bytes / 64), kNone);
    auto each = [&](ValueId v, auto f) {
      const int64_t first = p.offset[static_cast<size_t>(v)] / 64, n = value_bytes(g, g.root(v), tokens) / 64;
      for (int64_t i = first; i < first + n; ++i) f(owner[static_cast<size_t>(i)]);
    };
    for (const Op& op : g.ops) {
      for (ValueId v : op.in)
        if (g.value(v).param == kNone)
          each(v, [&](ValueId o) { ASSERT_EQ(o, v) << "seed " << seed << " " << op_name(op); });
      for (ValueId v : op.out) each(v, [&](ValueId& o) { o = v; });
    }
    for (ValueId v : kept(g)) each(v, [&](ValueId o) { ASSERT_EQ(o, v) << "seed " << seed; });
  }
}

// Two operations that one kernel computes: what lies between them takes no room, and the second one's result is written
// while the first one's operand is still read.
TEST(Memory, OperationsComputedTogetherArePlannedTogether) {
  Graph g;
  g.act_type = DType::kF32;
  const ValueId a = g.add_value(kTokens, 64, DType::kF32), b = g.add_value(kTokens, 64, DType::kF32),
                c = g.add_value(kTokens, 64, DType::kF32);
  std::vector<Step> steps(3);
  steps[0].writes = {a};
  steps[1] = {{a}, {b}};
  steps[2] = {{b}, {c}};
  for (int i = 0; i < 3; ++i) g.add_op(AddOp{}, {}, {});
  const MemoryPlan apart = plan_memory(g, steps, 16, {c});
  EXPECT_EQ(apart.bytes, 2 * value_bytes(g, a, 16));  // c may lie where a lay
  EXPECT_EQ(apart.offset[static_cast<size_t>(c)], apart.offset[static_cast<size_t>(a)]);
  steps[1] = {{a}, {c}};
  steps[2] = {};
  const MemoryPlan together = plan_memory(g, steps, 16, {c});
  EXPECT_EQ(together.offset[static_cast<size_t>(b)], -1);
  EXPECT_EQ(together.bytes, 2 * value_bytes(g, a, 16));
  EXPECT_NE(together.offset[static_cast<size_t>(c)], together.offset[static_cast<size_t>(a)]);
}

struct Result {
  std::vector<float> nll, gradients;
};

// One pass with the memory of dead values poisoned, or left.
Result replay(const Graph& g, bool poison) {
  kernels::Ops& ops = kernels::reference_ops();
  const kernels::KernelPlan plan;
  constexpr int32_t kTokenCount = 24;
  runtime::Program program(g, plan, ops, {kTokenCount, 0, false, 12});
  runtime::ParamStore params(g, true);
  for (size_t i = 0; i < g.params.size(); ++i) {
    const auto& s = params[static_cast<ParamId>(i)];
    Philox r(5, i);
    for (int64_t k = 0; k < s.size; ++k) {
      const float v = (r.uniform() - 0.5f) * (g.params[i].kind == ParamKind::kNormWeight ? 2.0f : 0.3f);
      if (s.master)
        s.master[k] = v;
      else
        static_cast<float*>(s.weight)[k] = v;
    }
  }
  program.allocate(params);
  program.set_poison(poison);
  std::vector<int32_t> ids, positions, cu{0, 12, kTokenCount};
  for (int32_t t = 0; t < kTokenCount; ++t) {
    ids.push_back(t * 7 % 48);
    positions.push_back(t % 12);
  }
  runtime::Batch b;
  b.tokens = kTokenCount;
  b.ids = ids.data();
  b.positions = positions.data();
  b.cu_seqlens = cu.data();
  b.documents = 2;
  b.targets = ids.data();
  b.loss_scale = 1.0f / kTokenCount;
  b.seed = 3;
  program.run(b);
  b.first_micro = false;
  program.run(b);
  Result out;
  out.nll.assign(program.nll(), program.nll() + kTokenCount);
  for (size_t i = 0; i < g.params.size(); ++i)
    if (const auto& s = params[static_cast<ParamId>(i)]; s.grad)
      out.gradients.insert(out.gradients.end(), s.grad, s.grad + s.size);
  return out;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Memory, ReplayWithPoisonedDeadMemoryIsTheSame) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Graph g = random_graph(seed, DType::kF32);
    const Result plain = replay(g, false), poisoned = replay(g, true);
    for (float v : plain.nll) ASSERT_TRUE(std::isfinite(v)) << "seed " << seed;
    EXPECT_TRUE(same(plain.nll, poisoned.nll)) << "seed " << seed;
    EXPECT_TRUE(same(plain.gradients, poisoned.gradients)) << "seed " << seed;
  }
}

TEST(Recompute, AnyNumberOfTensorsGivesTheSameResultsInLessMemory) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Graph whole = random_graph(seed, DType::kF32);
    const Result want = replay(whole, false);
    const auto order = recompute_order(whole, 12);
    for (size_t i = 1; i < order.size(); ++i)
      EXPECT_LE(order[i - 1].cost / order[i - 1].bytes, order[i].cost / order[i].bytes * (1 + 1e-12));
    for (const int64_t n : {int64_t{1}, static_cast<int64_t>(order.size()) / 2, static_cast<int64_t>(order.size())}) {
      if (n == 0) continue;
      const Graph g = random_graph(seed, DType::kF32, {n});
      const Result got = replay(g, true);
      EXPECT_TRUE(same(want.nll, got.nll)) << "seed " << seed << " n " << n;
      ASSERT_EQ(want.gradients.size(), got.gradients.size());
      for (size_t i = 0; i < got.gradients.size(); ++i)
        ASSERT_NEAR(want.gradients[i], got.gradients[i], 1e-5 * (1 + std::abs(want.gradients[i])))
            << "seed " << seed << " n " << n;
    }
  }
}

TEST(Recompute, NamesAreReadBack) {
  for (const Recompute r : {Recompute::kNone, Recompute::kCheap, Recompute::kLayer, Recompute{17}}) {
    Recompute back;
    ASSERT_TRUE(recompute_from_name(recompute_name(r), &back));
    EXPECT_EQ(back, r);
  }
  Recompute r;
  for (const char* bad : {"", "some", "-3", "0", "1x", "99999999999999999999"})
    EXPECT_FALSE(recompute_from_name(bad, &r)) << bad;
}

}  // namespace
}  // namespace mxt::graph
