// E4M3 on the GPU against the reference: rows rounded bit for bit, products of held operands.
#include <algorithm>

#include "pair.h"

namespace mxt::test {
namespace {

using namespace kernels;

// Powers of two, as a weight's scales are.
Matrix& channels(Matrix& m, int64_t cols) {
  for (int64_t c = 0; c < cols; ++c) m.set(0, c, std::ldexp(1.0f, static_cast<int>(c * 7 % 9) - 12));
  m.upload();
  return m;
}

TEST_F(Gpu, RowsRoundToE4m3BitForBit) {
  struct Shape {
    int64_t rows, cols, gap;
  };
  for (DType t : kTypes)
    for (const Shape& s : {Shape{5, 64, 0},
                           {33, 128, 16},
                           {7, 37, 3},
                           {1, 1, 0},
                           {40, 4096, 64},
                           {9, 12288, 0},
                           {3, 24576, 64},
                           {2, 40000, 0}})
      for (const bool by_channel : {false, true})
        for (const bool held : {true, false}) {
          SCOPED_TRACE(
              fmt::format("{} {}x{}+{} channel {} held {}", name_of(t), s.rows, s.cols, s.gap, by_channel, held));
          Matrix x(s.rows, s.cols, t, s.cols + s.gap), q(s.rows, s.cols, held ? DType::kF8E4M3 : t, s.cols + s.gap),
              scale(1, s.rows, DType::kF32), c(1, s.cols, DType::kF32);
          x.fill(1, 2);
          for (int64_t i = 0; i < s.cols; ++i)
            x.set(0, i, 0), x.set(s.rows - 1, i, 1e-30f * static_cast<float>(i % 5));  // nothing, and very little
          if (s.cols > 8) x.set(s.rows / 2, 3, 448.0f), x.set(s.rows / 2, 7, -3000.0f);
          x.upload();
          channels(c, s.cols);
          q.poison(), scale.poison();
          both([&](Ops& ops, Side on) {
            ops.quantize({x.on(on), by_channel ? c.f(on) : nullptr, q.on(on), scale.f(on)});
          });
          EXPECT_EQ(q.error(), 0.0);
          EXPECT_EQ(scale.error(), 0.0);
        }
}

// What norms, their gradients and activations write beside their results is what rounding the results gives.
TEST_F(Gpu, RowsHeldBesideTheirKernelsResults) {
  Ops& ops = *gpu(nullptr)->ops;
  for (const DType t : kTypes)
    for (const int64_t cols : {int64_t{64}, int64_t{37}, int64_t{4096}, int64_t{12288}, int64_t{20000}}) {
      SCOPED_TRACE(fmt::format("{} {} columns", name_of(t), cols));
      const int64_t rows = 9, ld = cols + (cols % 16 == 0 ? 64 : 3);
      Matrix x(rows, 2 * cols, t), r(rows, cols, t, ld), h(rows, cols, t, ld), y(rows, cols, t, ld),
          dx(rows, cols, t, ld), other(rows, cols, t, ld), w(1, cols, t), rstd(1, rows, DType::kF32),
          c(1, cols, DType::kF32);
      Matrix q(rows, cols, DType::kF8E4M3), scale(1, rows, DType::kF32), want(rows, cols, DType::kF8E4M3),
          want_scale(1, rows, DType::kF32);
      x.fill(1, 2), r.fill(2), w.fill(3, 0.2f, 1), channels(c, cols);
      const Side on = Side::kDevice;
      Mat left = x.on(on);
      left.cols = cols;
      auto same = [&](Matrix& result, const float* channel) {
        ops.quantize({result.on(on), channel, want.on(on), want_scale.f(on)});
        gpu(nullptr)->device->synchronize();
        want.download(), want_scale.download();
        EXPECT_EQ(q.error_against(want), 0.0);
        EXPECT_EQ(scale.error_against(want_scale), 0.0);
        q.poison(), scale.poison();
      };
      q.poison(), scale.poison();
      Norm n;
      n.x = left, n.r = r.on(on), n.h = h.on(on), n.y = y.on(on), n.w = w.p(on), n.wtype = t, n.rstd = rstd.f(on),
      n.held = {nullptr, q.on(on), scale.f(on)};
      ops.norm(n);
      same(y, nullptr);
      n.keep_y = false, n.y = other.on(on);  // alone: the same
      ops.norm(n);
      same(y, nullptr);
      NormGrad g;
      g.x = h.on(on), g.dy = y.on(on), g.dres = r.on(on), g.dx = dx.on(on), g.w = w.p(on), g.wtype = t,
      g.rstd = rstd.f(on), g.held = {c.f(on), q.on(on), scale.f(on)};
      ops.norm_grad(g);
      same(dx, c.f(on));
      ops.act({Activation::kSwiGlu, x.on(on), y.on(on), {nullptr, q.on(on), scale.f(on)}});
      same(y, nullptr);
      if (cols % 512 == 0) {  // heads of 128, four of queries to two of keys
        QkNormRopeGrad rope;
        rope.kv_heads = cols / 1024, rope.heads = cols / 128 - 2 * rope.kv_heads, rope.head_dim = 128;
        rope.dout = y.on(on), rope.dqkv = y.on(on), rope.held = {c.f(on), q.on(on), scale.f(on)};
        if (rope.kv_heads > 0) {
          ops.qk_norm_rope_grad(rope), same(y, c.f(on));
          rope.dout = r.on(on);  // and not in place
          ops.qk_norm_rope_grad(rope), same(y, c.f(on));
        }
      }
      ops.act({Activation::kGeluTanh, left, y.on(on), {nullptr, q.on(on), scale.f(on)}});
      same(y, nullptr);
    }
}

// A head's softmax left as E4M3, the logits as they were; and the labels' part of the gradient.
TEST_F(Gpu, SoftmaxHeldInE4m3) {
  for (const DType t : kTypes)
    for (const int64_t vocab : {int64_t{16}, int64_t{37}, int64_t{4096}, int64_t{151936}}) {
      SCOPED_TRACE(fmt::format("{} {} columns", name_of(t), vocab));
      const int64_t rows = 5, ld = vocab % 16 == 0 ? vocab + 16 : vocab;
      Matrix x(rows, vocab, t, ld), p(rows, vocab, DType::kF8E4M3, ld), scale(1, rows, DType::kF32),
          nll(1, rows, DType::kF32), dh(rows, 64, t, 72), w(vocab, 64, t), weights(1, rows, DType::kF32);
      Array<int32_t> labels({3, -100, 1, static_cast<int32_t>(vocab - 1), 0});
      x.fill(1, 3), dh.fill(2), w.fill(3), weights.fill(4), p.poison(), scale.poison(), nll.poison();
      both([&](Ops& ops, Side on) {
        CrossEntropy c;
        c.logits = x.on(on), c.labels = labels.on(on), c.weights = weights.f(on), c.nll = nll.f(on);
        c.gradient = c.softmax = true;
        c.held = {nullptr, p.on(on), scale.f(on)};
        ops.cross_entropy(c);
        ops.label_grad({dh.on(on), w.on(on), labels.on(on), nll.f(on), weights.f(on)});
      });
      EXPECT_EQ(x.error(), 0.0);
      EXPECT_LT(nll.error(), 1e-5);
      EXPECT_EQ(scale.error(), 0.0);
      EXPECT_LT(p.error(), 5e-3);  // exponentials that differ in their last bits, at the border of two numbers
      EXPECT_NEAR_HOST(dh);
    }
}

// The gradient of logits left as E4M3, rows that a block keeps and longer ones, and the labels' part of the weight's.
TEST_F(Gpu, GradientOfLogitsHeldInE4m3) {
  for (const DType t : kTypes)
    for (const int64_t vocab : {int64_t{16}, int64_t{37}, int64_t{4096}, int64_t{32768}, int64_t{50304}})
      for (const auto& [cap, apart] : {std::pair{0.0f, false}, {15.0f, false}, {0.0f, true}, {15.0f, true}}) {
        SCOPED_TRACE(fmt::format("{} {} columns, cap {}, labels apart {}", name_of(t), vocab, cap, apart));
        const int64_t rows = 5, ld = vocab % 16 == 0 ? vocab + 16 : vocab;
        Matrix x(rows, vocab, t, ld), q(rows, vocab, DType::kF8E4M3, ld), scale(1, rows, DType::kF32),
            nll(1, rows, DType::kF32), weights(1, rows, DType::kF32), at_label(1, rows, DType::kF32),
            table(vocab, 64, DType::kF32), h(rows, 64, t, 72);
        Array<int32_t> labels({3, -100, 1, static_cast<int32_t>(vocab - 1), 3});
        x.fill(1, 3), weights.fill(4), q.poison(), scale.poison(), nll.poison();
        at_label.fill(5), table.fill(6), h.fill(7);
        both([&](Ops& ops, Side on) {
          CrossEntropy loss;
          loss.logits = x.on(on), loss.labels = labels.on(on), loss.weights = weights.f(on), loss.nll = nll.f(on);
          loss.gradient = true, loss.softcap = cap;
          loss.held = {nullptr, q.on(on), scale.f(on)};
          loss.at_label = apart ? at_label.f(on) : nullptr;
          ops.cross_entropy(loss);
          EmbeddingGrad of_labels{labels.on(on), h.on(on), table.on(on)};
          of_labels.by = at_label.f(on);
          ops.embedding_grad(of_labels);
        });
        EXPECT_EQ(x.error(), 0.0);
        EXPECT_LT(nll.error(), 1e-5);
        EXPECT_EQ(scale.error(), 0.0);
        EXPECT_LT(q.error(), 5e-3);
        EXPECT_LT(at_label.error(), 1e-5);
        EXPECT_LT(table.error(), 1e-5);
      }
}

struct E4m3Product {
  int64_t m, n, k, ranks;  // of the tail, which lies across (as a weight does) or down
  bool across;
  DType out;
  bool accumulate, scaled, bias;
  int algo;
};

// Beside the reference; C's gaps are not touched, and the largest of each row's parts is that of what is stored there.
void check_product(const E4m3Product& p) {
  const int64_t parts = p.n % 512 == 0 && p.ranks != 16 ? 2 : 1;
  SCOPED_TRACE(fmt::format("m{} n{} k{} {} acc {} scaled {} bias {} tail {}{} algorithm {}", p.m, p.n, p.k,
                           name_of(p.out), p.accumulate, p.scaled, p.bias, p.ranks, p.across ? 't' : 'n', p.algo));
  Matrix a(p.m, p.k, DType::kF8E4M3), b(p.n, p.k, DType::kF8E4M3), c(p.m, p.n, p.out, p.n + 16),
      sa(1, p.m, DType::kF32), sb(1, p.n, DType::kF32), v(1, p.n, p.out), top(p.m, parts, DType::kF32);
  Matrix z(p.m, p.ranks, p.out, p.ranks + 64), up(p.across ? p.n : p.ranks, p.across ? p.ranks : p.n, p.out);
  const auto wide = static_cast<float>(p.k);
  a.fill(1, 100), b.fill(2, 60), c.fill(3, wide), v.fill(4, wide), z.fill(6, 2), up.fill(7, wide);
  sa.fill(5, 0.01f, 0.05f), channels(sb, p.n);
  both([&](Ops& ops, Side on) {
    Gemm g;
    g.a = a.on(on), g.b = b.on(on), g.c = c.on(on), g.trans_b = true, g.accumulate = p.accumulate, g.algo = p.algo;
    if (p.scaled) g.a_scale = sa.f(on), g.b_scale = sb.f(on);
    if (p.bias) g.bias = v.p(on), g.bias_type = p.out;
    if (p.ranks > 0) g.tail_a = z.on(on), g.tail_b = up.on(on), g.tail_trans_b = p.across;
    g.row_absmax = top.f(on), g.row_parts = static_cast<int>(parts);
    ops.gemm(g);
  });
  // The tensor cores cut their sums about 13 bits below the largest term (measured: 2.7e-3 at 12,288 terms of both
  // signs).
  EXPECT_LT(c.error(), p.out == DType::kBF16 ? 5e-3 : 4e-3);
  c.download();
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t part = 0; part < parts; ++part) {
      float largest = 0;
      for (int64_t j = 0; j < p.n / parts; ++j) largest = std::max(largest, std::abs(c.get(i, part * p.n / parts + j)));
      top.set(i, part, largest);
    }
  EXPECT_EQ(top.error(), 0.0);
}

int algorithm(const char* name) {
  const auto names = gpu(nullptr)->ops->gemm_algorithms();
  return static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin());
}

TEST_F(Gpu, ProductsOfE4m3OperandsByTheLibrary) {
  struct Shape {
    int64_t m, n, k;
  };
  for (const Shape& s :
       {Shape{64, 64, 64}, {96, 128, 96}, {77, 96, 64}, {1, 48, 32}, {70, 64, 512}, {16, 32, 12288}, {33, 512, 48}})
    for (const DType out : kTypes)
      for (const bool scaled : {true, false})
        for (const char* algo : {"lt0", "lt1", "lt2"})
          for (const int64_t ranks : {0, 48}) {
            if (algo[2] != '0' && (s.k < 512 || ranks > 0)) continue;
            check_product({s.m, s.n, s.k, ranks, scaled, out, false, scaled, false, algorithm(algo)});
            check_product({s.m, s.n, s.k, ranks, scaled, out, true, scaled, false, algorithm(algo)});
            if (algo[2] == '0')
              check_product({s.m, s.n, s.k, ranks, scaled, out, false, scaled, true, algorithm(algo)});
          }
}

// An adapter on rows that are held: the fast kernels' ranks and others, rows around a block's 64 and the ranges of the
// gradient's blocks; ld beyond the columns.
TEST_F(Gpu, AdaptersOfHeldRows) {
  struct Shape {
    int64_t rows, cols, ranks;
  };
  for (const DType t : kTypes)
    for (const Shape& s : {Shape{1, 64, 16},
                           {63, 128, 32},
                           {65, 576, 48},
                           {200, 4096, 16},
                           {77, 1088, 32},
                           {600, 320, 48},
                           {33, 48, 8},
                           {40, 96, 24},
                           {129, 264, 16},
                           {70, 128, 64},
                           {50, 192, 96},
                           {32771, 48, 16}}) {
      SCOPED_TRACE(fmt::format("{} {} x {} ranks {}", name_of(t), s.rows, s.cols, s.ranks));
      Matrix x(s.rows, s.cols, t), q(s.rows, s.cols, DType::kF8E4M3, s.cols + 64), scale(1, s.rows, DType::kF32),
          w(s.ranks, s.cols, t, s.cols + 8), z(s.rows, s.ranks, t, s.ranks + 8), dz(s.rows, s.ranks, t, s.ranks + 16),
          dw(s.ranks, s.cols, DType::kF32);
      x.fill(1, 2), w.fill(2, 0.5f), dz.fill(3), dw.fill(4);
      for (int64_t c = 0; c < s.cols; ++c)  // a row much smaller than the others, and small numbers in a large one
        x.set(0, c, c % 3 ? 1e-3f : 2e-6f), x.set(s.rows / 2, c, c == 5 ? 900.0f : 0.001f * static_cast<float>(c % 7));
      x.upload();
      z.poison();
      both([&](Ops& ops, Side on) {
        ops.quantize({x.on(on), nullptr, q.on(on), scale.f(on)});
        ops.rowwise_fp8_linear({q.on(on), scale.f(on), w.on(on), z.on(on)});
        for (const bool accumulate : {false, true})
          ops.rowwise_fp8_linear_dw({dz.on(on), q.on(on), scale.f(on), dw.f(on), accumulate});
      });
      EXPECT_LT(z.error(), t == DType::kF32 ? 1e-5 : 5e-3);
      EXPECT_LT(dw.error(), s.rows < 1000 ? 1e-5 : 1e-4);  // sums of so many terms in F32
    }
}

// The gradient of a matrix that trains: tokens that are no sixteens, rows far smaller than others, ld beyond the
// columns; tiles that fill less than a round, and more.
TEST_F(Gpu, GradientsOfRowsHeldInE4m3) {
  struct Shape {
    int64_t tokens, n, k;
  };
  for (const Shape& s :
       {Shape{1, 16, 32}, {15, 128, 160}, {129, 272, 144}, {1000, 256, 128}, {300, 48, 400}, {700, 2064, 1552}}) {
    SCOPED_TRACE(fmt::format("{} tokens {} x {}", s.tokens, s.n, s.k));
    Matrix dy(s.tokens, s.n, DType::kBF16), x(s.tokens, s.k, DType::kBF16), w(s.n, s.k, DType::kBF16);
    Matrix qy(s.tokens, s.n, DType::kF8E4M3, s.n + 16), qx(s.tokens, s.k, DType::kF8E4M3, s.k + 32),
        qw(s.n, s.k, DType::kF8E4M3), turned(s.k, s.n, DType::kF8E4M3), of_y(1, s.tokens, DType::kF32),
        of_x(1, s.tokens, DType::kF32), of_w(1, s.n, DType::kF32), dw(s.n, s.k, DType::kF32);
    dy.fill(1, 1e-3f), x.fill(2, 2), w.fill(3, 0.05f), dw.fill(4, 1e-2f);
    for (int64_t c = 0; c < s.n; ++c) dy.set(s.tokens / 2, c, c % 3 ? 1e-8f : 2e-6f), dy.set(s.tokens / 3, c, 0);
    for (int64_t c = 0; c < s.k; ++c) x.set(0, c, c == 5 ? 300.0f : 0.001f * static_cast<float>(c % 7));
    dy.upload(), x.upload();
    both([&](Ops& ops, Side on) {
      ops.quantize({w.on(on), nullptr, qw.on(on), of_w.f(on)});
      ops.rowwise_fp8_transpose({qw.on(on), turned.on(on)});
      ops.quantize({dy.on(on), of_w.f(on), qy.on(on), of_y.f(on)});
      ops.quantize({x.on(on), nullptr, qx.on(on), of_x.f(on)});
      for (const bool accumulate : {false, true})
        ops.fp8_linear_dw({qy.on(on), qx.on(on), of_y.f(on), of_x.f(on), of_w.f(on), dw.f(on), accumulate});
    });
    EXPECT_EQ(turned.error(), 0);
    EXPECT_LT(dw.error(), 1e-3);  // the tensor cores' sums
  }
}

// Ours: odd numbers of rows, columns, terms and ranks, around a tile's edges, and more tiles than there are blocks.
TEST_F(Gpu, ProductsOfE4m3OperandsByTiles) {
  MXT_WANTS_HOPPER();
  Ops& ops = *gpu(nullptr)->ops;
  Gemm g;
  alignas(16) static std::byte any[16];
  g.a = {any, 128, 128, 128, DType::kF8E4M3}, g.b = g.a, g.c = Mat{any, 128, 128, 128, DType::kBF16}, g.trans_b = true;
  EXPECT_EQ(ops.same_gemm(g, algorithm("tiles")), 0);  // they are the default
  EXPECT_EQ(ops.same_gemm(g, algorithm("lt0")), algorithm("lt0"));
  g.accumulate = true;  // the library's
  EXPECT_EQ(ops.same_gemm(g, algorithm("lt0")), 0);
  struct Shape {
    int64_t m, n, k;
  };
  for (const Shape& s :
       {Shape{64, 64, 64}, {1, 48, 32}, {16, 32, 12288}, {300, 272, 144}, {130, 512, 400}, {129, 16, 16}})
    for (const int64_t ranks : {0, 16, 48, 96}) {
      const bool across = ranks % 32 == 0, scaled = ranks < 48;
      for (const bool bias : {false, true})
        check_product({s.m, s.n, s.k, ranks, across, DType::kBF16, false, scaled, bias, algorithm("tiles")});
    }
  for (const bool across : {true, false})
    check_product({2500, 2560, 32, 16, across, DType::kBF16, false, true, !across, algorithm("tiles")});
  check_product({2500, 2560, 64, 0, false, DType::kBF16, false, true, false, algorithm("tiles")});  // one step a tile
}

}  // namespace
}  // namespace mxt::test
