// Every operation on the GPU against the reference: both types, even and odd shapes, strided operands.
#include "pair.h"

namespace mxt::test {
namespace {

using namespace kernels;

struct Shape {
  int64_t rows, cols, gap;
};
const Shape kShapes[] = {{5, 64, 0}, {33, 128, 8}, {7, 37, 3}, {1, 1, 0}, {130, 4096, 0}, {3, 20000, 16}};

TEST_F(Gpu, Norms) {
  for (DType t : kTypes)
    for (DType wt : kTypes)
      for (bool layer : {false, true})
        for (bool residual : {false, true})
          for (const Shape& s : kShapes) {
            SCOPED_TRACE(fmt::format("{} w {} layer {} residual {} {}x{}+{}", name_of(t), name_of(wt), layer, residual,
                                     s.rows, s.cols, s.gap));
            const int64_t ld = s.cols + s.gap;
            Matrix x(s.rows, s.cols, t, ld), r(s.rows, s.cols, t, ld), h(s.rows, s.cols, t, ld),
                y(s.rows, s.cols, t, ld), w(1, s.cols, wt), b(1, s.cols, wt);
            Matrix mean(1, s.rows, DType::kF32), rstd(1, s.rows, DType::kF32), dy(s.rows, s.cols, t, ld),
                dres(s.rows, s.cols, t, ld), dw(1, s.cols, DType::kF32), db(1, s.cols, DType::kF32);
            x.fill(1, 2, 0.5f), r.fill(2), w.fill(3, 0.2f, 1), b.fill(4), dy.fill(5), dres.fill(6), dw.fill(7),
                db.fill(8);
            h.poison(), y.poison(), rstd.poison();
            if (layer)
              mean.poison();
            else
              mean.fill(9);
            both([&](Ops& ops, Side on) {
              Norm n;
              n.layer_norm = layer;
              n.x = x.on(on);
              if (residual) n.r = r.on(on), n.h = h.on(on);
              n.y = y.on(on), n.w = w.p(on), n.b = b.p(on), n.wtype = wt, n.mean = mean.f(on), n.rstd = rstd.f(on);
              ops.norm(n);
            });
            EXPECT_NEAR_HOST(y);
            EXPECT_NEAR_HOST(rstd);
            if (layer) {
              EXPECT_NEAR_HOST(mean);
            }
            if (residual) {
              EXPECT_NEAR_HOST(h);
            }
            both([&](Ops& ops, Side on) {
              NormGrad n;
              n.layer_norm = layer;
              n.x = residual ? h.on(on) : x.on(on);
              n.dy = dy.on(on), n.w = w.p(on), n.wtype = wt, n.mean = mean.f(on), n.rstd = rstd.f(on), n.dw = dw.f(on);
              if (layer) n.db = db.f(on);
              if (residual) n.dres = dres.on(on);
              n.dx = residual ? dres.on(on) : y.on(on);  // in place of dres
              ops.norm_grad(n);
            });
            if (s.cols > 1) {  // one column: the gradient of a constant is rounding alone
              if (residual)
                EXPECT_NEAR_HOST(dres);
              else
                EXPECT_NEAR_HOST(y);
            }
            EXPECT_NEAR_HOST(dw);
            EXPECT_NEAR_HOST(db);
          }
}

TEST_F(Gpu, NormsGradientOverManyRowsIsTheSameTwice) {
  Matrix x(3000, 96, DType::kBF16), dy(3000, 96, DType::kBF16), dx(3000, 96, DType::kBF16), rstd(1, 3000, DType::kF32),
      w(1, 96, DType::kBF16), a(1, 96, DType::kF32), b(1, 96, DType::kF32);
  x.fill(1), dy.fill(2), rstd.fill(3, 0.1f, 1), w.fill(4);
  for (Matrix* out : {&a, &b})
    both([&](Ops& ops, Side on) {
      NormGrad n;
      n.x = x.on(on), n.dy = dy.on(on), n.dx = dx.on(on), n.w = w.p(on), n.wtype = DType::kBF16, n.rstd = rstd.f(on),
      n.dw = out->f(on), n.accumulate = false;
      ops.norm_grad(n);
    });
  EXPECT_NEAR_HOST(a);
  EXPECT_NEAR_HOST(dx);
  Array<float> none({});
  std::vector<float> first(96), second(96);
  gpu(nullptr)->device->download(first.data(), a.p(Side::kDevice), 96 * 4);
  gpu(nullptr)->device->download(second.data(), b.p(Side::kDevice), 96 * 4);
  gpu(nullptr)->device->synchronize();
  EXPECT_EQ(first, second);
}

TEST_F(Gpu, RotaryEmbeddingWithAndWithoutNorm) {
  struct S {
    int64_t tokens, heads, kv, d, rotary;
  };
  for (DType t : kTypes)
    for (bool norm : {false, true})
      for (const S& s : {S{5, 4, 2, 64, 64}, S{67, 32, 8, 128, 128}, S{9, 3, 1, 16, 16}, S{11, 3, 3, 20, 8},
                         S{6, 2, 1, 256, 64}, S{4, 2, 2, 6, 6}, S{300, 9, 3, 64, 64}, S{13, 4, 2, 64, 0}}) {
        SCOPED_TRACE(fmt::format("{} norm {} {} tokens {}/{} heads of {}, {} rotated", name_of(t), norm, s.tokens,
                                 s.heads, s.kv, s.d, s.rotary));
        const int64_t cols = (s.heads + 2 * s.kv) * s.d, positions = 50;
        Matrix qkv(s.tokens, cols, t, cols + 8), out(s.tokens, cols, t, cols), qw(1, s.d, t), kw(1, s.d, t),
            rstd(s.tokens, s.heads + s.kv, DType::kF32), dout(s.tokens, cols, t), dqkv(s.tokens, cols, t);
        Matrix dqw(1, s.d, DType::kF32), dkw(1, s.d, DType::kF32),
            c(positions, std::max<int64_t>(s.rotary / 2, 1), DType::kF32),
            sn(positions, std::max<int64_t>(s.rotary / 2, 1), DType::kF32);
        qkv.fill(1), qw.fill(2, 0.3f, 1), kw.fill(3, 0.3f, 1), dout.fill(4), dqw.fill(5), dkw.fill(6), c.fill(7),
            sn.fill(8), out.poison(), dqkv.poison();
        std::vector<int32_t> p;
        for (int64_t i = 0; i < s.tokens; ++i) p.push_back(static_cast<int32_t>((i * 7) % positions));
        Array<int32_t> pos(p);
        auto common = [&](auto& r, Side on) {
          r.heads = s.heads, r.kv_heads = s.kv, r.head_dim = s.d, r.rotary = s.rotary, r.positions = pos.on(on),
          r.cos = c.f(on), r.sin = sn.f(on), r.wtype = t;
          if (norm) r.q_w = qw.p(on), r.k_w = kw.p(on), r.rstd = rstd.f(on);
        };
        both([&](Ops& ops, Side on) {
          QkNormRope r;
          common(r, on);
          r.qkv = qkv.on(on), r.out = out.on(on);
          ops.qk_norm_rope(r);
        });
        EXPECT_NEAR_HOST(out);
        if (norm) {
          EXPECT_NEAR_HOST(rstd);
        }
        both([&](Ops& ops, Side on) {
          QkNormRopeGrad r;
          common(r, on);
          r.qkv = qkv.on(on), r.dout = dout.on(on), r.dqkv = dqkv.on(on);
          if (norm) r.dq_w = dqw.f(on), r.dk_w = dkw.f(on);
          ops.qk_norm_rope_grad(r);
        });
        EXPECT_NEAR_HOST(dqkv);
        EXPECT_NEAR_HOST(dqw);
        EXPECT_NEAR_HOST(dkw);
        both([&](Ops& ops, Side on) {  // in place
          QkNormRopeGrad r;
          common(r, on);
          r.qkv = qkv.on(on), r.dout = dout.on(on), r.dqkv = dout.on(on);
          ops.qk_norm_rope_grad(r);
        });
        EXPECT_NEAR_HOST(dout);
        if (norm) continue;
        both([&](Ops& ops, Side on) {
          QkNormRope r;
          common(r, on);
          r.qkv = qkv.on(on), r.out = qkv.on(on);
          ops.qk_norm_rope(r);
        });
        EXPECT_NEAR_HOST(qkv);
      }
}

TEST_F(Gpu, ActivationsAndTheirGradients) {
  for (DType t : kTypes)
    for (Activation kind :
         {Activation::kSwiGlu, Activation::kGeluTanh, Activation::kGelu, Activation::kRelu2, Activation::kGeGlu})
      for (const Shape& s : kShapes) {
        SCOPED_TRACE(fmt::format("{} kind {} {}x{}+{}", name_of(t), static_cast<int>(kind), s.rows, s.cols, s.gap));
        const int64_t in = gated(kind) ? 2 * s.cols : s.cols;
        Matrix x(s.rows, in, t, in + s.gap), y(s.rows, s.cols, t, s.cols + s.gap),
            dy(s.rows, s.cols, t, s.cols + s.gap);
        x.fill(1, 2), dy.fill(2), y.poison();
        both([&](Ops& ops, Side on) { ops.act({kind, x.on(on), y.on(on)}); });
        EXPECT_NEAR_HOST(y);
        both([&](Ops& ops, Side on) { ops.act_grad({kind, x.on(on), dy.on(on), x.on(on)}); });
        EXPECT_NEAR_HOST(x);
      }
}

TEST_F(Gpu, AdditionBiasGradientAndDropout) {
  for (DType t : kTypes)
    for (const Shape& s : kShapes) {
      SCOPED_TRACE(fmt::format("{} {}x{}+{}", name_of(t), s.rows, s.cols, s.gap));
      const int64_t ld = s.cols + s.gap;
      Matrix a(s.rows, s.cols, t, ld), b(s.rows, s.cols, t, ld), y(s.rows, s.cols, t, ld), db(1, s.cols, DType::kF32),
          z(s.rows, s.cols, t, ld);
      a.fill(1), b.fill(2), db.fill(3), y.poison(), z.poison();
      both([&](Ops& ops, Side on) {
        ops.add({a.on(on), b.on(on), y.on(on)});
        ops.bias_grad({a.on(on), db.f(on), true});
        ops.dropout({a.on(on), z.on(on), 0.3f, 12345, 99, s.gap + 1});
      });
      EXPECT_NEAR_HOST(y);
      EXPECT_NEAR_HOST(db);
      EXPECT_NEAR_HOST(z);
      both([&](Ops& ops, Side on) {
        ops.bias_grad({a.on(on), db.f(on), false}), ops.add({a.on(on), b.on(on), a.on(on)});
      });
      EXPECT_NEAR_HOST(db);
      EXPECT_NEAR_HOST(a);
    }
}

TEST_F(Gpu, RowsByIndex) {
  for (DType t : kTypes)
    for (DType tt : kTypes)
      for (int64_t width : {1, 37, 64, 600}) {
        SCOPED_TRACE(fmt::format("{} table {} width {}", name_of(t), name_of(tt), width));
        const int64_t tokens = 77, vocab = 19;
        Matrix table(vocab, width, tt), y(tokens, width, t, width + 8), grad(vocab, width, DType::kF32),
            back(tokens, width, t);
        table.fill(1), y.poison(), grad.fill(2), back.poison();
        std::vector<int32_t> ids, rows;
        for (int32_t i = 0; i < tokens; ++i)
          ids.push_back(i % 5 == 0 ? 3 : (i * 11) % static_cast<int32_t>(vocab)),
              rows.push_back((i * 30 + 4) % static_cast<int32_t>(tokens));
        Array<int32_t> id(ids), row(rows);
        both([&](Ops& ops, Side on) { ops.embedding({id.on(on), table.on(on), y.on(on)}); });
        EXPECT_EQ(y.error(), 0);
        both([&](Ops& ops, Side on) { ops.embedding_grad({id.on(on), y.on(on), grad.on(on), true}); });
        EXPECT_EQ(grad.error(), 0);
        both([&](Ops& ops, Side on) { ops.embedding_grad({id.on(on), y.on(on), grad.on(on), false}); });
        EXPECT_EQ(grad.error(), 0);
        both([&](Ops& ops, Side on) { ops.gather_rows({y.on(on), row.on(on), back.on(on)}); });
        EXPECT_EQ(back.error(), 0);
        Matrix some(40, width, t), spread(tokens, width, t);
        some.fill(5), spread.poison();
        both([&](Ops& ops, Side on) { ops.scatter_rows({some.on(on), row.on(on), spread.on(on)}); });
        EXPECT_EQ(spread.error(), 0);
      }
}

TEST_F(Gpu, EmbeddingGradientOverManyTokens) {
  const int64_t tokens = 9000, width = 24, vocab = 501;
  Matrix dy(tokens, width, DType::kBF16), grad(vocab, width, DType::kF32);
  dy.fill(1), grad.fill(2);
  std::vector<int32_t> ids;
  Philox rng(3, 3);
  for (int64_t i = 0; i < tokens; ++i)
    ids.push_back(static_cast<int32_t>(rng.below(10) < 3 ? 7 : rng.below(static_cast<uint64_t>(vocab))));
  Array<int32_t> id(ids);
  both([&](Ops& ops, Side on) { ops.embedding_grad({id.on(on), dy.on(on), grad.on(on), true}); });
  EXPECT_EQ(grad.error(), 0);
}

TEST_F(Gpu, CrossEntropyAndItsGradient) {
  for (DType t : kTypes)
    for (float cap : {0.0f, 15.0f})
      for (int64_t vocab : {5, 1000, 1024, 50257, 151936}) {
        SCOPED_TRACE(fmt::format("{} cap {} vocab {}", name_of(t), cap, vocab));
        const int64_t rows = 6;
        Matrix logits(rows, vocab, t), nll(1, rows, DType::kF32), weights(1, rows, DType::kF32);
        logits.fill(1, 4), weights.fill(2), nll.poison();
        Array<int32_t> labels({0, 3, -100, 4, 1, -100});
        both([&](Ops& ops, Side on) {
          ops.cross_entropy({logits.on(on), labels.on(on), weights.f(on), nll.f(on), false, cap});
        });
        EXPECT_NEAR_HOST(nll);
        both([&](Ops& ops, Side on) {
          ops.cross_entropy({logits.on(on), labels.on(on), weights.f(on), nll.f(on), true, cap});
        });
        EXPECT_NEAR_HOST(nll);
        EXPECT_LT(logits.error(), t == DType::kBF16 ? 4e-3 : 5e-5);
      }
}

TEST_F(Gpu, AdamWNormAndClipping) {
  const std::vector<int64_t> sizes{1, 37, 16384, 16385, 100000};
  std::vector<std::unique_ptr<Matrix>> master, grad, m, v, copy;
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (auto* list : {&master, &grad, &m, &v}) list->push_back(std::make_unique<Matrix>(1, sizes[i], DType::kF32));
    copy.push_back(std::make_unique<Matrix>(1, sizes[i], DType::kBF16));
    master[i]->fill(i), grad[i]->fill(i + 10), m[i]->fill(i + 20, 0.1f), v[i]->fill(i + 30, 0.001f, 0.01f),
        copy[i]->poison();
  }
  std::vector<double> squared;
  Matrix factor(1, 1, DType::kF32), norm2(1, 2, DType::kF32);
  for (int64_t step = 1; step <= 3; ++step)
    both([&](Ops& ops, Side on) {
      SquaredNorm s;
      AdamW a;
      for (size_t i = 0; i < sizes.size(); ++i) {
        s.grads.push_back(grad[i]->f(on));
        s.sizes.push_back(sizes[i]);
        a.tensors.push_back({master[i]->f(on), grad[i]->f(on), m[i]->f(on), v[i]->f(on),
                             i % 2 ? static_cast<uint16_t*>(copy[i]->p(on)) : nullptr, sizes[i],
                             1e-2f / static_cast<float>(step), i == 1 ? 0.1f : 0.0f});
      }
      squared.push_back(ops.squared_norm(s));
      ops.squared_norm_to(s, reinterpret_cast<double*>(norm2.p(on)));
      ops.clip_scale(reinterpret_cast<const double*>(norm2.p(on)), 1.0f, factor.f(on));
      a.step = step;
      a.device_grad_scale = factor.f(on);
      if (on == Side::kHost) a.grad_scale *= *factor.f(on), a.device_grad_scale = nullptr;
      ops.adamw(a);
    });
  EXPECT_LT(std::abs(squared[1] / squared[0] - 1), 1e-12);
  EXPECT_NEAR_HOST(factor);
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_NEAR_HOST(*master[i]);
    EXPECT_NEAR_HOST(*m[i]);
    EXPECT_NEAR_HOST(*v[i]);
    if (i % 2) {
      EXPECT_NEAR_HOST(*copy[i]);
    }
  }
}

TEST_F(Gpu, ProductsOfEveryKind) {
  struct S {
    int64_t m, n, k, gap;
  };
  for (DType t : kTypes)
    for (DType ct : kTypes)
      for (const S& s : t == DType::kF32 && ct == DType::kBF16
                            ? std::vector<S>{}
                            : std::vector<S>{S{64, 96, 128, 0}, S{1, 1, 1, 0}, S{33, 17, 65, 0}, S{130, 16, 512, 16},
                                             S{128, 640, 16, 16}, S{37, 48, 24, 5}, S{256, 48, 640, 0}})
        for (int flags = 0; flags < 16; ++flags) {
          const bool ta = flags & 1, tb = flags & 2, acc = flags & 4, bias = (flags & 8) && !acc;
          if ((flags & 8) && acc) continue;
          SCOPED_TRACE(fmt::format("{} to {} m {} n {} k {} gap {} flags {}", name_of(t), name_of(ct), s.m, s.n, s.k,
                                   s.gap, flags));
          const int64_t ac = ta ? s.m : s.k, bc = tb ? s.k : s.n;
          Matrix a(ta ? s.k : s.m, ac, t, ac + s.gap), b(tb ? s.n : s.k, bc, t, bc + s.gap),
              c(s.m, s.n, ct, s.n + s.gap), bs(1, s.n, DType::kF32);
          a.fill(1), b.fill(2), bs.fill(4);
          if (acc)
            c.fill(3);
          else
            c.poison();
          for (int algo : {0, 1}) {
            if (algo && acc) break;
            both([&](Ops& ops, Side on) {
              Gemm g;
              g.a = a.on(on), g.b = b.on(on), g.c = c.on(on), g.trans_a = ta, g.trans_b = tb, g.accumulate = acc,
              g.alpha = 0.75f, g.algo = algo;
              if (bias) g.bias = bs.p(on);
              ops.gemm(g);
            });
            EXPECT_NEAR_HOST(c);
          }
        }
}

// Rows of x against W: beside the reference, and bit for bit the same whatever stands beside a row.
TEST_F(Gpu, ThinProductsWhateverTheNumberOfRows) {
  MXT_WANTS_HOPPER();
  struct S {
    int64_t n, k, gap;
  };
  const auto names = gpu(nullptr)->ops->gemm_algorithms();
  const auto thin = static_cast<int>(std::find(names.begin(), names.end(), "thin") - names.begin());
  ASSERT_LT(thin, static_cast<int>(names.size()));
  for (DType ct : {DType::kBF16, DType::kF32})
    for (const S& s : {S{17, 8, 0}, S{96, 4096, 16}, S{48, 12288, 0}, S{72, 4112, 0}, S{33, 136, 8}, S{500, 1000, 0},
                       S{4096, 1024, 0}, S{6144, 1536, 0}}) {
      std::vector<float> alone;  // the first row
      for (int64_t m : {1, 8, 9, 16, 17, 32, 33, 64})
        for (bool acc : {false, true}) {
          SCOPED_TRACE(fmt::format("to {} m {} n {} k {} accumulate {}", name_of(ct), m, s.n, s.k, acc));
          Matrix a(m, s.k, DType::kBF16, s.k + s.gap), b(s.n, s.k, DType::kBF16, s.k + s.gap),
              c(m, s.n, ct, s.n + s.gap), bias(1, s.n, DType::kF32);
          a.fill(1), b.fill(2), bias.fill(4);
          acc ? c.fill(3) : c.poison();
          both([&](Ops& ops, Side on) {
            Gemm g;
            g.a = a.on(on), g.b = b.on(on), g.c = c.on(on), g.trans_b = true, g.accumulate = acc, g.alpha = 0.75f;
            if (!acc) g.bias = bias.p(on);
            if (on == Side::kDevice) {
              g.algo = thin, g.b_constant = m % 2 == 1;
              EXPECT_EQ(ops.same_gemm(g, thin), thin);
              g.a.rows = g.c.rows = 65;  // the library's
              EXPECT_EQ(ops.same_gemm(g, thin), 0);
              g.a.rows = g.c.rows = m;
            }
            ops.gemm(g);
          });
          EXPECT_NEAR_HOST(c);
          if (acc) continue;
          c.download();
          std::vector<float> first;
          for (int64_t i = 0; i < s.n; ++i) first.push_back(Matrix::read(c.p(Side::kHost), ct, static_cast<size_t>(i)));
          if (alone.empty()) alone = first;
          EXPECT_EQ(first, alone);
        }
    }
}

// A layer of experts over few rows, its products told that their matrices do not change, beside the same products that
// wait for all before them: many layers one after the other, each routed otherwise over the same memory, so that one
// that reads the runs of the routing before would be seen.
TEST_F(Gpu, ProductsOfExpertsBeginBeforeTheirRowsAreThere) {
  MXT_WANTS_HOPPER();
  constexpr int64_t kExperts = 64, kTop = 8, kWidth = 512, kInner = 256, kLayers = 40;
  Matrix up(kExperts * kInner, kWidth, DType::kBF16), down(kExperts * kWidth, kInner, DType::kBF16);
  up.fill(1, 0.05f), down.fill(2, 0.05f);
  Ops& ops = *gpu(nullptr)->ops;
  for (const int64_t tokens : {1, 3, 8, 64}) {
    const int64_t slots = tokens * kTop;
    Matrix logits(kLayers * tokens, kExperts, DType::kBF16), x(kLayers * tokens, kWidth, DType::kBF16),
        weights(tokens, kTop, DType::kBF16), probabilities(tokens, kExperts, DType::kF32),
        rows(slots, kWidth, DType::kBF16), inner(slots, kInner, DType::kBF16),
        early(kLayers * slots, kWidth, DType::kBF16), late(kLayers * slots, kWidth, DType::kBF16);
    logits.fill(3), x.fill(4), early.poison(), late.poison();
    Array<int32_t> expert(std::vector<int32_t>(static_cast<size_t>(slots))),
        row(std::vector<int32_t>(static_cast<size_t>(slots))), slot(std::vector<int32_t>(static_cast<size_t>(slots))),
        first(std::vector<int32_t>(kExperts + 1));
    const auto of = [](Matrix& m, int64_t from, int64_t count) {
      Mat part = m.on(Side::kDevice);
      part.p = static_cast<std::byte*>(part.p) + static_cast<size_t>(from * part.ld) * size_of(part.type);
      part.rows = count;
      return part;
    };
    for (Matrix* out : {&early, &late})
      for (int64_t l = 0; l < kLayers; ++l) {
        Route r;
        r.logits = of(logits, l * tokens, tokens), r.weights = weights.on(Side::kDevice);
        r.probabilities = probabilities.on(Side::kDevice);
        r.expert = expert.on(Side::kDevice), r.row = row.on(Side::kDevice), r.slot = slot.on(Side::kDevice);
        r.first = first.on(Side::kDevice);
        ops.route(r);
        ExpertGather g;
        g.x = of(x, l * tokens, tokens), g.slot = r.slot, g.k = kTop, g.y = rows.on(Side::kDevice);
        ops.expert_gather(g);
        GroupedGemm product;
        product.first = r.first, product.experts = kExperts, product.b_constant = out == &early;
        product.a = g.y, product.b = up.on(Side::kDevice), product.c = inner.on(Side::kDevice);
        ops.grouped_gemm(product);
        product.a = product.c, product.b = down.on(Side::kDevice), product.c = of(*out, l * slots, slots);
        ops.grouped_gemm(product);
      }
    late.download();
    EXPECT_EQ(early.error_against(late), 0.0) << tokens << " tokens";
  }
}

TEST_F(Gpu, AdapterGradientsInOnePass) {
  MXT_WANTS_HOPPER();
  struct S {
    int64_t tokens;
    std::vector<int64_t> cols;
  };
  for (const S& s : {S{8192, {1024}}, S{200, {128, 64, 64}}, S{77, {4096, 1024, 1024}}, S{640, {2560, 2560}},
                     S{16, {1000}}, S{3, {8}}})
    for (const int64_t rank : {8, 16}) {
      const bool add = (s.tokens + rank / 8) % 2 == 0 || s.tokens == 200;
      SCOPED_TRACE(fmt::format("{} tokens, columns {}, rank {}, {}", s.tokens, fmt::join(s.cols, " "), rank,
                               add ? "added" : "overwritten"));
      int64_t n = 0;
      for (int64_t c : s.cols) n += c;
      const auto blocks = static_cast<int64_t>(s.cols.size()), ranks = blocks * rank;
      Matrix dy(s.tokens, n, DType::kBF16, n + 64), b(n, ranks, DType::kBF16, ranks + 8),
          z(s.tokens, ranks, DType::kBF16, ranks + 16), dz(s.tokens, ranks, DType::kBF16, ranks + 64),
          db(n, rank, DType::kF32);
      dy.fill(1), b.fill(2, 0.1f), z.fill(3), dz.poison();
      if (add)
        db.fill(4);
      else
        db.poison();
      for (int64_t i = 0, col = 0; i < blocks; col += s.cols[static_cast<size_t>(i++)])  // zeros outside the blocks
        for (int64_t r = 0; r < n; ++r)
          if (r < col || r >= col + s.cols[static_cast<size_t>(i)])
            for (int64_t k = 0; k < rank; ++k) b.set(r, i * rank + k, 0);
      b.upload();
      auto part = [](Mat m, int64_t first, int64_t count) {
        m.p = static_cast<std::byte*>(m.p) + static_cast<size_t>(first) * size_of(m.type);
        m.cols = count;
        return m;
      };
      both([&](Ops& ops, Side on) {
        LoraGrad g;
        g.dy = dy.on(on), g.b = b.on(on), g.z = z.on(on), g.dz = dz.on(on), g.accumulate = add;
        if (on == Side::kHost) {
          Gemm down;
          down.a = g.dy, down.b = g.b, down.c = g.dz;
          ops.gemm(down);
        }
        for (int64_t i = 0, col = 0; i < blocks; col += s.cols[static_cast<size_t>(i++)]) {
          const int64_t cols = s.cols[static_cast<size_t>(i)];
          float* to = db.f(on) + col * rank;
          g.blocks.push_back({col, cols, i * rank, rank, 0.5f, to});
          if (on == Side::kDevice) continue;
          Gemm up;
          up.a = part(dy.on(on), col, cols), up.b = part(z.on(on), i * rank, rank),
          up.c = Mat{to, cols, rank, rank, DType::kF32}, up.trans_a = true, up.alpha = 0.5f, up.accumulate = add;
          ops.gemm(up);
        }
        if (on == Side::kHost) return;
        EXPECT_TRUE(ops.has_lora_grad(g));
        ops.lora_grad(g);
      });
      EXPECT_NEAR_HOST(dz);
      EXPECT_NEAR_HOST(db);
    }
}

// SwiGLU held in E4M3 with the z of the adapter that reads it; y itself is not written.
TEST_F(Gpu, ActLoraInOnePass) {
  MXT_WANTS_HOPPER();
  struct S {
    int64_t tokens, cols;
  };
  for (const S& s : {S{8192, 1024}, S{200, 96}, S{77, 3072}, S{16, 528}, S{3, 16}})
    for (const int64_t rank : {8, 16, 32}) {
      SCOPED_TRACE(fmt::format("{} tokens, {} columns, rank {}", s.tokens, s.cols, rank));
      Matrix x(s.tokens, 2 * s.cols, DType::kBF16, 2 * s.cols + 64), y(s.tokens, s.cols, DType::kBF16, s.cols + 64),
          a(rank, s.cols, DType::kBF16, s.cols + 8), z(s.tokens, rank, DType::kBF16, 80),
          q(s.tokens, s.cols, DType::kF8E4M3, s.cols + 16), scale(1, s.tokens, DType::kF32),
          halves(s.tokens, 2, DType::kF32);
      x.fill(1, 2), a.fill(2), z.poison(), q.poison(), scale.poison();
      for (int64_t t = 0; t < s.tokens; ++t) {
        float half[2] = {0, 0};
        for (int64_t i = 0; i < 2 * s.cols; ++i) half[i / s.cols] = std::max(half[i / s.cols], std::abs(x.get(t, i)));
        halves.set(t, 0, half[0]), halves.set(t, 1, half[1]);
      }
      halves.upload();
      both([&](Ops& ops, Side on) {
        if (on == Side::kDevice) {
          const ActLora k{{Activation::kSwiGlu, x.on(on), y.on(on), {nullptr, q.on(on), scale.f(on)}},
                          a.on(on),
                          z.on(on),
                          halves.f(on)};
          ASSERT_TRUE(ops.has_act_lora(k));
          ops.act_lora(k);
          return;
        }
        ops.act({Activation::kSwiGlu, x.on(on), y.on(on)});
        Gemm g;
        g.a = y.on(on), g.b = a.on(on), g.c = z.on(on), g.trans_b = true;
        ops.gemm(g);
      });
      EXPECT_NEAR_HOST(z);
      for (int64_t t = 0; t < s.tokens; ++t) {
        scale.set(0, t, f8e4m3_row_scale(halves.get(t, 0) * halves.get(t, 1)));
        for (int64_t i = 0; i < s.cols; ++i) q.set(t, i, y.get(t, i) / scale.get(0, t));
      }
      EXPECT_EQ(scale.error(), 0.0);
      EXPECT_LT(q.error(), 5e-3);  // where the two exponentials round to different bf16 neighbours
    }
}

// SwiGLU's backward with the gradients of three adapters, in place of gate and up; the reference does it one operation
// at a time.
TEST_F(Gpu, ActLoraGradInOnePass) {
  MXT_WANTS_HOPPER();
  struct S {
    int64_t tokens, cols;
  };
  for (const S& s : {S{8192, 1024}, S{200, 96}, S{77, 3072}, S{16, 520}, S{3, 8}})
    for (const int64_t rank : {8, 16, 32})
      for (const bool add : {false, true})
        for (const bool down : {true, false}) {
          const bool held = add == down && s.cols % 16 == 0;
          if (rank == 32 && !held) continue;  // products are as fast
          SCOPED_TRACE(fmt::format("{} tokens, {} columns, rank {}, {}, {}{}", s.tokens, s.cols, rank,
                                   add ? "added" : "overwritten", down ? "with da" : "without", held ? ", held" : ""));
          Matrix q(s.tokens, 2 * s.cols, DType::kF8E4M3, 2 * s.cols + 16), scale(1, s.tokens, DType::kF32),
              halves(s.tokens, 2, DType::kF32), largest(1, s.tokens, DType::kF32), channel(1, 2 * s.cols, DType::kF32);
          Matrix x(s.tokens, 2 * s.cols, DType::kBF16, 2 * s.cols + 64), dy(s.tokens, s.cols, DType::kBF16, s.cols + 8),
              y(s.tokens, s.cols, DType::kBF16);
          Matrix b(2 * s.cols, 2 * rank, DType::kBF16, 2 * rank + 8),
              z(s.tokens, 2 * rank, DType::kBF16, 2 * rank + 16), dz(s.tokens, 2 * rank, DType::kBF16, 96),
              down_dz(s.tokens, rank, DType::kBF16, 80);
          Matrix db(2 * s.cols, rank, DType::kF32), da(rank, s.cols, DType::kF32);
          x.fill(1), dy.fill(2), b.fill(3, 0.1f), z.fill(4), down_dz.fill(5), dz.poison();
          float most[2] = {0, 0};
          for (int64_t i = 0; i < 2 * s.cols; ++i) {
            channel.set(0, i, std::ldexp(1.0f, static_cast<int>(i * 7 % 5) - (i < s.cols ? 12 : 10)));
            most[i / s.cols] = std::max(most[i / s.cols], channel.get(0, i));
          }
          for (int64_t t = 0; t < s.tokens; ++t) {
            float top = 0, half[2] = {0, 0};
            for (int64_t i = 0; i < s.cols; ++i) top = std::max(top, std::abs(dy.get(t, i)));
            for (int64_t i = 0; i < 2 * s.cols; ++i)
              half[i / s.cols] = std::max(half[i / s.cols], std::abs(x.get(t, i)));
            largest.set(0, t, top), halves.set(t, 0, half[0]), halves.set(t, 1, half[1]);
          }
          channel.upload(), largest.upload(), halves.upload(), q.poison(), scale.poison();
          if (add)
            db.fill(6), da.fill(7);
          else
            db.poison(), da.poison();
          for (int64_t r = 0; r < 2 * s.cols; ++r)  // zeros outside the blocks
            for (int64_t k = 0; k < rank; ++k) b.set(r, (r < s.cols ? rank : 0) + k, 0);
          b.upload();
          both([&](Ops& ops, Side on) {
            ActLoraGrad g;
            g.act = {Activation::kSwiGlu, x.on(on), dy.on(on), x.on(on)};
            g.lora.dy = x.on(on), g.lora.b = b.on(on), g.lora.z = z.on(on), g.lora.dz = dz.on(on),
            g.lora.accumulate = add;
            for (int64_t i = 0; i < 2; ++i)
              g.lora.blocks.push_back({i * s.cols, s.cols, i * rank, rank, 0.5f, db.f(on) + i * s.cols * rank});
            if (down) g.dz = down_dz.on(on), g.da = da.f(on), g.accumulate_da = add;
            if (held) {
              g.held = {channel.f(on), q.on(on), scale.f(on)};
              g.row_absmax = halves.f(on), g.largest = largest.f(on);
            }
            if (on == Side::kDevice) {
              ASSERT_TRUE(ops.has_act_lora_grad(g));
              ops.act_lora_grad(g);
              return;
            }
            auto product = [&](ConstMat l, ConstMat r, Mat to, bool left, float alpha, bool sum) {
              Gemm call;
              call.a = l, call.b = r, call.c = to, call.trans_a = left, call.alpha = alpha, call.accumulate = sum;
              ops.gemm(call);
            };
            if (down) {
              ops.act({Activation::kSwiGlu, x.on(on), y.on(on)});
              product(down_dz.on(on), y.on(on), da.on(on), true, 1, add);
            }
            ops.act_grad(g.act);
            product(g.lora.dy, g.lora.b, g.lora.dz, false, 1, false);
            for (const auto& k : g.lora.blocks) {
              ConstMat part = g.lora.dy, ranks = g.lora.z;
              part.p = static_cast<const std::byte*>(part.p) + k.col * 2, part.cols = k.cols;
              ranks.p = static_cast<const std::byte*>(ranks.p) + k.z_col * 2, ranks.cols = rank;
              product(part, ranks, Mat{k.db, k.cols, rank, rank, DType::kF32}, true, 0.5f, add);
            }
          });
          if (held) {
            for (int64_t t = 0; t < s.tokens; ++t)
              scale.set(0, t,
                        f8e4m3_row_scale(largest.get(0, t) *
                                         std::max(1.1f * halves.get(t, 1) * most[0], halves.get(t, 0) * most[1])));
            EXPECT_EQ(scale.error(), 0.0);
            for (int64_t t = 0; t < s.tokens; ++t)
              for (int64_t i = 0; i < 2 * s.cols; ++i) {
                const float v = x.get(t, i) * channel.get(0, i) / scale.get(0, t);
                EXPECT_LE(std::abs(v), 448.0f);
                q.set(t, i, v);
              }
            EXPECT_LT(q.error(), 5e-3);  // where the two exponentials round to different bf16 neighbours
          } else {
            EXPECT_NEAR_HOST(x);
          }
          EXPECT_NEAR_HOST(dz);
          // Where the two exponentials round to different bf16 neighbours, these sums in fp32 show it.
          EXPECT_LT(db.error(), 2e-4);
          if (down) {
            EXPECT_LT(da.error(), 2e-4);
          }
        }
}

}  // namespace
}  // namespace mxt::test
