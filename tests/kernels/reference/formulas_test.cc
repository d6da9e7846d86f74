// The reference against values worked out elsewhere: by hand, or by PyTorch 2 (as each test says).
#include <cmath>

#include "base/philox.h"
#include "kernels/harness.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::test {
namespace {

ConstMat f32(const std::vector<float>& v, int64_t rows) {
  const auto cols = static_cast<int64_t>(v.size()) / rows;
  return {v.data(), rows, cols, cols, DType::kF32};
}
Mat f32(std::vector<float>& v, int64_t rows) {
  const auto cols = static_cast<int64_t>(v.size()) / rows;
  return {v.data(), rows, cols, cols, DType::kF32};
}
void expect_near(const std::vector<float>& got, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(static_cast<double>(got[i]), expected[i], tolerance) << i;
}

TEST(Formula, GemmFormsAgree) {
  const std::vector<float> a{1, 2, 3, 4, 5, 6}, at{1, 4, 2, 5, 3, 6}, b{1, -1, 2, 0, 0, 3}, bt{1, 2, 0, -1, 0, 3};
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      std::vector<float> c{10, 20, 30, 40};
      const std::vector<float> bias{100, 200};
      Gemm g;
      g.a = ta ? f32(at, 3) : f32(a, 2);
      g.b = tb ? f32(bt, 2) : f32(b, 3);
      g.c = f32(c, 2), g.trans_a = ta, g.trans_b = tb, g.alpha = 2, g.bias = bias.data();
      reference::gemm(g);
      EXPECT_EQ(c, (std::vector<float>{110, 216, 128, 228}));
      g.bias = nullptr, g.accumulate = true;
      reference::gemm(g);
      EXPECT_EQ(c, (std::vector<float>{120, 232, 156, 256}));
    }
}

TEST(Formula, RmsNormOfAKnownRow) {
  const std::vector<float> x{3, 4}, w{1, 2};
  std::vector<float> y(2), rstd(1);
  Norm n;
  n.x = f32(x, 1), n.y = f32(y, 1), n.w = w.data(), n.rstd = rstd.data(), n.eps = 0;
  reference::norm(n);
  expect_near(y, {3 / std::sqrt(12.5), 8 / std::sqrt(12.5)}, 1e-6);
  expect_near(rstd, {1 / std::sqrt(12.5)}, 1e-7);
}

TEST(Formula, LayerNormOfAKnownRow) {
  const std::vector<float> x{1, 3}, r{1, 1}, b{10, 20};
  std::vector<float> h(2), y(2), mean(1);
  Norm n;
  n.layer_norm = true, n.x = f32(x, 1), n.r = f32(r, 1), n.h = f32(h, 1), n.y = f32(y, 1);
  n.b = b.data(), n.mean = mean.data(), n.eps = 0;
  reference::norm(n);
  expect_near(h, {2, 4}, 0);
  expect_near(y, {9, 21}, 1e-6);
  expect_near(mean, {3}, 0);
}

TEST(Formula, TheNormReadsTheRoundedSum) {
  const uint16_t x = float_to_bf16(256.0f), r = float_to_bf16(1.0f);  // 257 rounds to 256 in bf16
  uint16_t h = 0, y = 0;
  float rstd = 0;
  Norm n;
  n.x = {&x, 1, 1, 1, DType::kBF16}, n.r = {&r, 1, 1, 1, DType::kBF16};
  n.h = {&h, 1, 1, 1, DType::kBF16}, n.y = {&y, 1, 1, 1, DType::kBF16};
  n.rstd = &rstd, n.eps = 0;
  reference::norm(n);
  EXPECT_EQ(bf16_to_float(h), 256.0f);
  EXPECT_FLOAT_EQ(rstd, 1.0f / 256.0f);
}

TEST(Formula, RopeTurnsPairsAcrossTheTwoHalves) {
  const std::vector<float> cos{1, 1, 0, -1}, sin{0, 0, 1, 0};  // position 1: a quarter turn, a half turn
  const std::vector<int32_t> positions{1};
  std::vector<float> x{1, 2, 3, 4, 9, /*k*/ 5, 6, 7, 8, 9, /*v*/ 1, 2, 3, 4, 5};
  QkNormRope r;
  r.qkv = f32(std::as_const(x), 1), r.out = f32(x, 1);
  r.heads = r.kv_heads = 1, r.head_dim = 5, r.rotary = 4;
  r.positions = positions.data(), r.cos = cos.data(), r.sin = sin.data();
  reference::qk_norm_rope(r);
  EXPECT_EQ(x, (std::vector<float>{-3, -2, 1, -4, 9, -7, -6, 5, -8, 9, 1, 2, 3, 4, 5}));
}

TEST(Formula, AttentionOfOneTokenIsItsValue) {
  const std::vector<float> q{1, 2}, k{3, 4}, v{5, 6};
  const std::vector<int32_t> cu{0, 1};
  std::vector<float> out(2), lse(1);
  Attention a;
  a.q = f32(q, 1), a.k = f32(k, 1), a.v = f32(v, 1), a.out = f32(out, 1), a.lse = lse.data();
  a.cu_seqlens = cu.data(), a.documents = a.heads = a.kv_heads = 1, a.head_dim = 2, a.scale = 0.5f;
  reference::attention(a);
  EXPECT_EQ(out, v);
  EXPECT_FLOAT_EQ(lse[0], 5.5f);
}

TEST(Formula, AttentionOfEqualScoresAveragesWhatItSees) {
  const std::vector<float> zero(5, 0.0f), v{1, 2, 4, 8, 16};
  const std::vector<int32_t> cu{0, 3, 5};
  std::vector<float> out(5), lse(5);
  Attention a;
  a.q = f32(zero, 5), a.k = f32(zero, 5), a.v = f32(v, 5), a.out = f32(out, 5), a.lse = lse.data();
  a.cu_seqlens = cu.data(), a.documents = 2, a.heads = a.kv_heads = a.head_dim = 1, a.scale = 1;
  reference::attention(a);
  expect_near(out, {1, 1.5, 7.0 / 3, 8, 12}, 1e-6);
  expect_near(lse, {0, std::log(2.0), std::log(3.0), 0, std::log(2.0)}, 1e-6);
  a.window = 2;
  reference::attention(a);
  expect_near(out, {1, 1.5, 3, 8, 12}, 1e-6);
}

// A prompt in one piece, in two pieces, and token by token through the cache all equal plain attention.
TEST(Formula, CachedAttentionEqualsAttentionHoweverThePromptIsCut) {
  constexpr int64_t kTokens = 11, kHeads = 4, kKv = 2, kDim = 3, kPage = 4;
  Trial inputs(reference_backend(), 0);
  const ConstMat q = inputs.input(kTokens, kHeads * kDim, DType::kF32, 1);
  const ConstMat k = inputs.input(kTokens, kKv * kDim, DType::kF32, 2),
                 v = inputs.input(kTokens, kKv * kDim, DType::kF32, 3);
  const std::vector<int32_t> cu{0, kTokens}, tables{2, 0, 1};
  for (int64_t window : {0, 3}) {
    std::vector<float> expected(kTokens * kHeads * kDim);
    Attention a;
    a.q = q, a.k = k, a.v = v, a.out = f32(expected, kTokens);
    a.cu_seqlens = cu.data(), a.documents = 1, a.heads = kHeads, a.kv_heads = kKv, a.head_dim = kDim;
    a.window = window, a.scale = 0.5f;
    reference::attention(a);
    for (const std::vector<int32_t>& cut : {std::vector<int32_t>{11}, {4, 7}, std::vector<int32_t>(11, 1)}) {
      std::vector<float> k_cache(3 * kKv * kPage * kDim, NAN), v_cache = k_cache, got(expected.size(), NAN);
      int32_t done = 0;
      for (int32_t n : cut) {
        auto rows = [&](const ConstMat& m) {
          return ConstMat(static_cast<const float*>(m.p) + done * m.ld, n, m.cols, m.ld, m.type);
        };
        std::vector<int32_t> slots;
        for (int32_t t = done; t < done + n; ++t)
          slots.push_back(tables[static_cast<size_t>(t / kPage)] * kPage + t % kPage);
        reference::store_cache({rows(k), rows(v), k_cache.data(), v_cache.data(), slots.data(), kPage, kKv, kDim});
        const std::vector<int32_t> cu_q{0, n}, context{done + n};
        CachedAttention c;
        c.q = rows(q);
        c.out = {got.data() + done * kHeads * kDim, n, kHeads * kDim, kHeads * kDim, DType::kF32};
        c.k_cache = k_cache.data(), c.v_cache = v_cache.data();
        c.cu_q = cu_q.data(), c.context = context.data(), c.tables = tables.data();
        c.requests = 1, c.max_pages = 3, c.page = kPage, c.heads = kHeads, c.kv_heads = kKv, c.head_dim = kDim;
        c.window = window, c.scale = 0.5f;
        reference::cached_attention(c);
        done += n;
      }
      EXPECT_EQ(got, expected);
    }
  }
}

TEST(Formula, CrossEntropyOfUniformLogitsIsLogVocab) {
  std::vector<float> logits(8, 3.0f), nll(2);
  const std::vector<int32_t> labels{1, -100};
  CrossEntropy c;
  c.logits = f32(logits, 2), c.labels = labels.data(), c.nll = nll.data(), c.gradient = true;
  reference::cross_entropy(c);
  expect_near(nll, {std::log(4.0), 0}, 1e-6);
  expect_near(logits, {0.25, -0.75, 0.25, 0.25, 0, 0, 0, 0}, 1e-7);
}

TEST(Formula, DropoutKeepsTheRightShareAndItsMean) {
  std::vector<float> x(100000, 1.0f), y(x.size());
  reference::dropout({f32(std::as_const(x), 100), f32(y, 100), 0.25f, 7, 3});
  double kept = 0;
  for (float v : y) {
    EXPECT_TRUE(v == 0.0f || v == 1.0f / 0.75f);
    kept += v != 0.0f;
  }
  EXPECT_NEAR(kept / 1e5, 0.75, 0.005);
  EXPECT_EQ(y[41] != 0.0f, philox4x32(7, 3, 10)[1] >= 0x40000000u);
}

TEST(Formula, FirstAdamWStepMovesByTheLearningRate) {
  std::vector<float> p{1, 1, 1}, m(3), v(3);
  const std::vector<float> g{4, -1e-3f, 0};
  std::vector<uint16_t> copy(3);
  AdamW a;
  a.tensors.push_back({p.data(), g.data(), m.data(), v.data(), copy.data(), 3, 0.1f, 0.5f});
  reference::adamw(a);
  expect_near(p, {0.95 - 0.1, 0.95 + 0.1, 0.95}, 2e-6);
  EXPECT_EQ(copy[0], float_to_bf16(p[0]));
}

// torch.optim.AdamW(lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1), five steps, gradient (i + step − 3)/2.
TEST(Formula, AdamWFollowsPyTorch) {
  std::vector<float> p{0.5f, -1.5f, 2.0f, 0.0f}, m(4), v(4), g(4);
  AdamW a;
  a.beta2 = 0.999;
  a.tensors.push_back({p.data(), g.data(), m.data(), v.data(), nullptr, 4, 0.01f, 0.1f});
  for (a.step = 1; a.step <= 5; ++a.step) {
    for (size_t i = 0; i < 4; ++i) g[i] = 0.5f * (static_cast<float>(i) + static_cast<float>(a.step) - 3.0f);
    reference::adamw(a);
  }
  expect_near(p, {0.525476158, -1.48885822, 1.95661056, -0.0484106876}, 1e-6);
  expect_near(m, {0.0429400057, 0.247694999, 0.452450007, 0.657204986}, 1e-6);
  expect_near(v, {0.00249500689, 0.00374750188, 0.00749500189, 0.0137375072}, 1e-8);
}

TEST(Formula, Activations) {
  std::vector<float> x{-2, -0.5f, 0, 1, 3}, y(5);
  reference::act({Activation::kGelu, f32(std::as_const(x), 1), f32(y, 1)});
  expect_near(y, {-0.0455002785, -0.154268771, 0, 0.841344714, 2.99594975}, 1e-6);
  reference::act({Activation::kGeluTanh, f32(std::as_const(x), 1), f32(y, 1)});
  expect_near(y, {-0.0454022884, -0.154285997, 0, 0.841192007, 2.99636269}, 1e-6);
  reference::act({Activation::kRelu2, f32(std::as_const(x), 1), f32(y, 1)});
  expect_near(y, {0, 0, 0, 1, 9}, 0);
  const std::vector<float> gate_up{2, -1, 10, 100};
  std::vector<float> glu(2);
  reference::act({Activation::kSwiGlu, f32(gate_up, 1), f32(glu, 1)});
  expect_near(glu, {20 / (1 + std::exp(-2.0)), -100 / (1 + std::exp(1.0))}, 1e-5);
}

}  // namespace
}  // namespace mxt::kernels::test
