// Every gradient of the reference against central differences of its forward, in double: matrices are F64 here; only
// statistics (rstd, lse) are floats, which bounds the agreement to about 1e-6.
#include <cmath>

#include "base/philox.h"
#include "kernels/harness.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::test {
namespace {

std::vector<double> normals(int64_t n, uint64_t seed, double scale = 1, double center = 0) {
  Philox g(seed, 0);
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(center + scale * static_cast<double>(g.normal()));
  return out;
}
Mat mat(std::vector<double>& v, int64_t rows) {
  const auto cols = static_cast<int64_t>(v.size()) / rows;
  return {v.data(), rows, cols, cols, DType::kF64};
}
double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
std::vector<double> doubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

TEST(Derivative, Norms) {
  constexpr int64_t kRows = 4, kCols = 7;
  for (bool layer : {false, true}) {
    std::vector<double> x = normals(kRows * kCols, 1, 2, 0.5), w = normals(kCols, 2), b = normals(kCols, 3);
    std::vector<double> dy = normals(kRows * kCols, 4), dres = normals(kRows * kCols, 5), y(x.size()), dx(x.size());
    std::vector<float> mean(kRows), rstd(kRows), dw(kCols), db(kCols);
    Norm n;
    n.layer_norm = layer;
    n.x = mat(x, kRows), n.y = mat(y, kRows);
    n.w = w.data(), n.b = layer ? b.data() : nullptr, n.wtype = DType::kF64;
    n.mean = mean.data(), n.rstd = rstd.data();
    auto loss = [&] {  // the norm's path and the residual's
      reference::norm(n);
      return dot(y, dy) + dot(x, dres);
    };
    loss();
    NormGrad g;
    g.layer_norm = layer;
    g.x = mat(x, kRows), g.dy = mat(dy, kRows), g.dres = mat(dres, kRows), g.dx = mat(dx, kRows);
    g.w = w.data(), g.wtype = DType::kF64;
    g.mean = mean.data(), g.rstd = rstd.data(), g.dw = dw.data(), g.db = db.data(), g.accumulate = false;
    reference::norm_grad(g);
    expect_gradient("dx", x, dx, loss);
    expect_gradient("dw", w, doubles(dw), loss);
    if (layer) expect_gradient("db", b, doubles(db), loss);
  }
}

TEST(Derivative, RopeWithAndWithoutNorm) {
  constexpr int64_t kTokens = 3, kDim = 6, kHeads = 2, kKv = 1, kRotary = 4, kWidth = (kHeads + 2 * kKv) * kDim;
  std::vector<float> cos, sin;
  for (int i = 0; i < 8; ++i) {
    cos.push_back(std::cos(0.7f * static_cast<float>(i)));
    sin.push_back(std::sin(0.7f * static_cast<float>(i)));
  }
  const std::vector<int32_t> positions{3, 0, 2};
  for (bool norm : {false, true}) {
    std::vector<double> x = normals(kTokens * kWidth, 1), dout = normals(kTokens * kWidth, 2), out(x.size()),
                        dx(x.size());
    std::vector<double> q_w = normals(kDim, 3), k_w = normals(kDim, 4);
    std::vector<float> rstd(kTokens * 3), dq_w(kDim), dk_w(kDim);
    auto common = [&](auto& r) {
      r.heads = kHeads, r.kv_heads = kKv, r.head_dim = kDim, r.rotary = kRotary;
      r.positions = positions.data(), r.cos = cos.data(), r.sin = sin.data();
      r.wtype = DType::kF64, r.rstd = rstd.data();
      if (norm) r.q_w = q_w.data(), r.k_w = k_w.data();
      r.qkv = mat(x, kTokens);
    };
    QkNormRope r;
    common(r);
    r.out = mat(out, kTokens);
    auto loss = [&] {
      reference::qk_norm_rope(r);
      return dot(out, dout);
    };
    loss();
    QkNormRopeGrad g;
    common(g);
    g.dout = mat(dout, kTokens), g.dqkv = mat(dx, kTokens), g.accumulate = false;
    if (norm) g.dq_w = dq_w.data(), g.dk_w = dk_w.data();
    reference::qk_norm_rope_grad(g);
    expect_gradient("dqkv", x, dx, loss);
    if (norm) expect_gradient("dq_w", q_w, doubles(dq_w), loss);
    if (norm) expect_gradient("dk_w", k_w, doubles(dk_w), loss);
  }
}

TEST(Derivative, AttentionWithDocumentsGroupsAndWindow) {
  constexpr int64_t kTokens = 9, kHeads = 4, kKv = 2, kDim = 3;
  const std::vector<int32_t> cu{0, 1, 6, 9};
  for (int64_t window : {0, 2}) {
    std::vector<double> q = normals(kTokens * kHeads * kDim, 1), k = normals(kTokens * kKv * kDim, 2);
    std::vector<double> v = normals(kTokens * kKv * kDim, 3), out(q.size()), dout = normals(kTokens * kHeads * kDim, 4);
    std::vector<double> dq(q.size()), dk(k.size()), dv(v.size());
    std::vector<float> lse(kHeads * kTokens);
    auto common = [&](auto& a) {
      a.q = mat(q, kTokens), a.k = mat(k, kTokens), a.v = mat(v, kTokens), a.out = mat(out, kTokens);
      a.lse = lse.data(), a.cu_seqlens = cu.data(), a.documents = 3;
      a.heads = kHeads, a.kv_heads = kKv, a.head_dim = kDim, a.window = window, a.scale = 0.6f;
    };
    Attention a;
    common(a);
    auto loss = [&] {
      reference::attention(a);
      return dot(out, dout);
    };
    loss();
    AttentionGrad g;
    common(g);
    g.dout = mat(dout, kTokens), g.dq = mat(dq, kTokens), g.dk = mat(dk, kTokens), g.dv = mat(dv, kTokens);
    reference::attention_grad(g);
    expect_gradient("dq", q, dq, loss);
    expect_gradient("dk", k, dk, loss);
    expect_gradient("dv", v, dv, loss);
  }
}

TEST(Derivative, Activations) {
  for (Activation kind :
       {Activation::kSwiGlu, Activation::kGeluTanh, Activation::kGelu, Activation::kRelu2, Activation::kGeGlu}) {
    const int64_t out_cols = gated(kind) ? 4 : 8;
    std::vector<double> x = normals(3 * 8, 1, 2), dy = normals(3 * out_cols, 2), y(dy.size()), dx(x.size());
    auto loss = [&] {
      reference::act({kind, mat(x, 3), mat(y, 3)});
      return dot(y, dy);
    };
    reference::act_grad({kind, mat(x, 3), mat(dy, 3), mat(dx, 3)});
    expect_gradient("dx", x, dx, loss);
  }
}

TEST(Derivative, MixedStreamsAndTheirScalars) {
  std::vector<double> x = normals(3 * 4, 1), z = normals(3 * 4, 2), dy = normals(3 * 4, 3), y(x.size());
  std::vector<double> dx(x.size()), dz(z.size()), a{1.2}, b{0.3};
  auto common = [&](auto& m) {
    m.x = mat(x, 3), m.z = mat(z, 3), m.a = a.data(), m.b = b.data(), m.wtype = DType::kF64, m.sign = -1;
  };
  auto loss = [&] {
    Mix m;
    common(m);
    m.y = mat(y, 3);
    reference::mix(m);
    return dot(y, dy);
  };
  std::vector<float> da(1), db(1);
  MixGrad g;
  common(g);
  g.dy = mat(dy, 3), g.dx = mat(dx, 3), g.dz = mat(dz, 3), g.da = da.data(), g.db = db.data(), g.accumulate = false;
  reference::mix_grad(g);
  expect_gradient("dx", x, dx, loss);
  expect_gradient("dz", z, dz, loss);
  expect_gradient("da", a, {static_cast<double>(da[0])}, loss);
  expect_gradient("db", b, {static_cast<double>(db[0])}, loss);
}

TEST(Derivative, GatesAndWhatTheyLetThrough) {
  const std::vector<int32_t> positions{0, 1, 2};
  std::vector<double> x = normals(3 * 8, 1), s = normals(3 * 5, 2), w = normals(2 * 3, 3), u = normals(3 * 4, 4),
                      l{0.7};
  std::vector<double> dy = normals(3 * 8, 5), y(x.size()), ds(s.size()), du(u.size());
  auto common = [&](auto& c) {
    c.s = mat(s, 3), c.w = mat(w, 2), c.u = mat(u, 3), c.lambda = l.data(), c.wtype = DType::kF64;
    c.col = 3, c.by = 3, c.positions = positions.data();
  };
  auto loss = [&] {
    Gate c;
    common(c);
    c.x = mat(x, 3), c.y = mat(y, 3);
    reference::gate(c);
    return dot(y, dy);
  };
  std::vector<float> dw(w.size()), dl(1);
  GateGrad g;
  common(g);
  g.dy = mat(dy, 3), g.ds = mat(ds, 3), g.du = mat(du, 3), g.dw = dw.data(), g.dlambda = dl.data(),
  g.accumulate = false;
  reference::gate_grad(g);
  expect_gradient("ds", s, ds, loss);
  expect_gradient("du", u, du, loss);
  expect_gradient("dw", w, std::vector<double>(dw.begin(), dw.end()), loss);
  expect_gradient("dlambda", l, {static_cast<double>(dl[0])}, loss);
}

TEST(Derivative, CrossEntropyWithWeightsAndSoftcap) {
  const std::vector<int32_t> labels{2, -100, 0};
  const std::vector<float> weights{0.5f, 3.0f, 2.0f};
  for (float cap : {0.0f, 3.0f}) {
    std::vector<double> x = normals(3 * 6, 1, 2), dx = x;
    std::vector<float> nll(3);
    CrossEntropy c;
    c.labels = labels.data(), c.weights = weights.data(), c.nll = nll.data(), c.softcap = cap;
    c.logits = mat(dx, 3), c.gradient = true;
    reference::cross_entropy(c);
    // The op's nll is float, too coarse for differences: the loss is written out here in double.
    auto loss = [&] {
      double total = 0;
      for (size_t r : {0u, 2u}) {
        double sum = 0;
        auto z = [&](size_t i) {
          const double v = x[r * 6 + i];
          return cap > 0 ? static_cast<double>(cap) * std::tanh(v / static_cast<double>(cap)) : v;
        };
        for (size_t i = 0; i < 6; ++i) sum += std::exp(z(i));
        total += static_cast<double>(weights[r]) * (std::log(sum) - z(static_cast<size_t>(labels[r])));
      }
      return total;
    };
    expect_gradient("logits", x, dx, loss);
    EXPECT_NEAR(loss(), 0.5 * static_cast<double>(nll[0]) + 2.0 * static_cast<double>(nll[2]), 1e-5);
    EXPECT_EQ(nll[1], 0.0f);
  }
}

TEST(Derivative, GemmGradientsAreTheTwoTransposedForms) {
  constexpr int64_t kM = 3, kN = 4, kK = 5;
  std::vector<double> x = normals(kM * kK, 1), w = normals(kN * kK, 2), dy = normals(kM * kN, 3), y(dy.size());
  std::vector<double> dx(x.size()), dw(w.size());
  auto product = [](std::vector<double>& a, int64_t ra, bool ta, std::vector<double>& b, int64_t rb, bool tb,
                    std::vector<double>& c, int64_t rc) {
    Gemm g;
    g.a = mat(a, ra), g.b = mat(b, rb), g.c = mat(c, rc), g.trans_a = ta, g.trans_b = tb;
    reference::gemm(g);
  };
  auto loss = [&] {
    product(x, kM, false, w, kN, true, y, kM);
    return dot(y, dy);
  };
  product(dy, kM, false, w, kN, false, dx, kM);
  product(dy, kM, true, x, kM, false, dw, kN);
  expect_gradient("dx", x, dx, loss);
  expect_gradient("dw", w, dw, loss);
}

TEST(Derivative, EmbeddingAndBiasAreSums) {
  const std::vector<int32_t> ids{2, 0, 2, 3};
  std::vector<double> table = normals(4 * 3, 1), dy = normals(4 * 3, 2), y(dy.size());
  std::vector<float> dtable(12, NAN), db(3, NAN);
  auto loss = [&] {
    reference::embedding({ids.data(), mat(table, 4), mat(y, 4)});
    return dot(y, dy);
  };
  reference::embedding_grad({ids.data(), mat(dy, 4), {dtable.data(), 4, 3, 3, DType::kF32}, false});
  expect_gradient("table", table, doubles(dtable), loss);
  reference::bias_grad({mat(dy, 4), db.data(), false});
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(static_cast<double>(db[i]), dy[i] + dy[3 + i] + dy[6 + i] + dy[9 + i], 1e-6);
}

}  // namespace
}  // namespace mxt::kernels::test
