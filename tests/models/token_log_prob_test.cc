// A loss outside the graph: with the right seeds, log-probabilities give the gradients that the fused head gives.
#include "models/tiny.h"

namespace mxt {
namespace {

models::BuildOptions options(models::Head head, float logit_scale, bool entropy) {
  models::BuildOptions o;
  o.type = DType::kF32;
  o.train_base = true;
  o.positions = 64;
  o.head_chunk = 7;  // several chunks
  o.head = head;
  o.logit_scale = logit_scale;
  o.entropy = entropy;
  return o;
}

class TokenLogProb : public testing::TestWithParam<bool> {
 protected:
  kernels::Ops& ops() { return GetParam() ? kernels::reference_ops() : kernels::cpu_ops(); }
};

TEST_P(TokenLogProb, GivesTheFusedHeadsGradients) {
  for (const char* name : {"qwen3_gqa", "llama_mqa", "qwen3_tied"}) {
    const std::string folder = tiny::golden(name);
    const tiny::Packed rows = tiny::read_rows(folder, 0, 3);
    tiny::Model fused(folder, options(models::Head::kLoss, 1, false), ops());
    const double loss = fused.loss(rows);

    tiny::Model apart(folder, options(models::Head::kLogProb, 1, true), ops());
    apart.program.set_poison(true);
    runtime::Batch b = rows.batch();
    const auto n = static_cast<size_t>(b.tokens);
    int64_t targets = 0;
    for (size_t t = 0; t < n; ++t) targets += b.targets[t] != -100;
    double mean = 0;
    apart.program.run(b, [&] {
      const graph::Root root = apart.graph.roots[0];
      std::vector<float> logp(n), seed(n);
      apart.program.read(root.value, logp.data());
      for (size_t t = 0; t < n; ++t) {
        if (b.targets[t] == -100) {
          EXPECT_EQ(logp[t], 0);
          continue;
        }
        mean -= static_cast<double>(logp[t]) / static_cast<double>(targets);
        seed[t] = -1.0f / static_cast<float>(targets);
      }
      apart.program.write(root.seed, seed.data());
    });
    EXPECT_NEAR(mean, loss, 1e-5 * loss);
    size_t compared = 0;
    for (const graph::Param& p : apart.graph.params) {
      const graph::ParamId id = apart.graph.value(p.value).param;
      EXPECT_LT(tiny::relative(apart.params[id].grad, fused.params[id].grad, static_cast<size_t>(p.rows * p.cols)),
                1e-5)
          << name << " " << p.name;
      ++compared;
    }
    EXPECT_GT(compared, 8u);
  }
}

// d/dlogit_scale and softmax by hand: the log-probability at temperature 2 against the one computed from logits.
TEST_P(TokenLogProb, ScalesLogitsAndTellsTheEntropy) {
  const std::string folder = tiny::golden("qwen3_gqa");
  const tiny::Packed rows = tiny::read_rows(folder, 0, 3);
  models::BuildOptions o = options(models::Head::kLogProb, 0.5f, true);
  o.purpose = models::Purpose::kScore;
  o.train_base = false;
  tiny::Model scored(folder, o, ops());
  runtime::Batch b = rows.batch();
  const auto n = static_cast<size_t>(b.tokens);
  scored.program.run(b);
  std::vector<float> logp(n), entropy(n);
  scored.program.read(scored.graph.roots[0].value, logp.data());
  for (const graph::Op& op : scored.graph.ops)
    if (std::holds_alternative<graph::TokenLogProbOp>(op.attrs)) scored.program.read(op.out[1], entropy.data());

  models::BuildOptions g = options(models::Head::kLoss, 1, false);
  g.purpose = models::Purpose::kGenerate;
  g.train_base = false;
  tiny::Model generates(folder, g, ops());
  std::vector<int32_t> all(n);
  for (size_t i = 0; i < n; ++i) all[i] = static_cast<int32_t>(i);
  const auto vocab = static_cast<size_t>(generates.graph.vocab);
  std::vector<float> logits(n * vocab);
  runtime::Batch with = rows.batch();
  with.logit_rows = all.data();
  with.logit_count = static_cast<int64_t>(n);
  with.logits = logits.data();
  generates.program.run(with);
  for (size_t t = 0; t < n; ++t) {
    if (b.targets[t] == -100) continue;
    const float* x = logits.data() + t * vocab;
    double top = -INFINITY, sum = 0, h = 0;
    for (size_t i = 0; i < vocab; ++i) top = std::max(top, 0.5 * static_cast<double>(x[i]));
    for (size_t i = 0; i < vocab; ++i) sum += std::exp(0.5 * static_cast<double>(x[i]) - top);
    for (size_t i = 0; i < vocab; ++i) {
      const double lp = 0.5 * static_cast<double>(x[i]) - top - std::log(sum);
      h -= std::exp(lp) * lp;
    }
    const double want = 0.5 * static_cast<double>(x[static_cast<size_t>(b.targets[t])]) - top - std::log(sum);
    EXPECT_NEAR(logp[t], want, 2e-5);
    EXPECT_NEAR(entropy[t], h, 2e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, TokenLogProb, testing::Bool(),
                         [](const auto& i) { return i.param ? "reference" : "cpu"; });

}  // namespace
}  // namespace mxt
