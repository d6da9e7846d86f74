#include <fmt/format.h>

#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(TrainingOps);

struct Shape {
  int64_t rows, vocab;
};

TEST_P(TrainingOps, CrossEntropyAndItsGradient) {
  const Shape shapes[] = {{1, 1}, {7, 3}, {9, 577}, {5, 4096}, {3, 49152}};
  for (DType type : kTypes)
    for (const Shape s : shapes)
      for (int mode = 0; mode < 10; ++mode) {
        const bool softmax = mode >= 8, gradient = mode & 1 || softmax, weights = mode & 2, cap = mode & 4;
        SCOPED_TRACE(fmt::format("{} {}x{} gradient {} weights {} cap {} softmax {}", label(type), s.rows, s.vocab,
                                 gradient, weights, cap, softmax));
        check_op(GetParam(),
                 [&](Trial& r) {
                   std::vector<int32_t> labels;
                   for (int64_t i = 0; i < s.rows; ++i)
                     labels.push_back(i % 4 == 2 ? -100 : static_cast<int32_t>(i * 7919 % s.vocab));
                   labels.back() = static_cast<int32_t>(s.vocab - 1);
                   std::vector<float> w;
                   for (int64_t i = 0; i < s.rows; ++i) w.push_back(0.25f * static_cast<float>(i));
                   CrossEntropy c;
                   c.logits = r.inout("logits", s.rows, s.vocab, type, 1, 5);
                   c.labels = r.ints(labels);
                   c.weights = weights ? r.floats(w) : nullptr;
                   c.nll = r.output_floats("nll", s.rows);
                   if (mode % 3 == 0) c.entropy = r.output_floats("entropy", s.rows);
                   c.gradient = gradient;
                   c.softcap = cap ? 8.0f : 0.0f;
                   c.softmax = softmax;
                   r.ops().cross_entropy(c);
                 },
                 {3e-5, 1e-6});
      }
}

// What remains of the gradient where the softmax went through a product by itself.
TEST_P(TrainingOps, LabelsPartOfTheGradient) {
  for (DType type : kTypes)
    for (const int64_t width : {1, 7, 576, 1000})
      for (const int mode : {0, 1, 2}) {
        const bool weights = mode == 1, given = mode == 2;  // the label's derivative
        SCOPED_TRACE(fmt::format("{} width {} weights {} given {}", label(type), width, weights, given));
        check_op(GetParam(), [&](Trial& r) {
          LabelGrad g;
          g.dh = r.inout("dh", 5, width, type, 1, 3);
          g.w = {r.param(11 * width, type, 2), 11, width, width, type};
          g.labels = r.ints({3, -100, 10, 0, 3});
          g.nll = r.floats({0.7f, 0, 1e-5f, 9, 0});
          g.weights = weights ? r.floats({0.5f, 1, 0, 2, 0.25f}) : nullptr;
          g.at_label = given ? r.floats({-0.5f, 0, -1e-5f, -2, 0}) : nullptr;
          r.ops().label_grad(g);
        });
      }
}

TEST_P(TrainingOps, CrossEntropyOfExtremeLogits) {
  std::vector<float> x(100, -300.0f);
  x[17] = 300.0f, x[18] = 299.0f, x[99] = -1e30f;
  for (int32_t target : {17, 18, 0})
    check_op(GetParam(), [&](Trial& r) {
      CrossEntropy c;
      c.logits = r.inout("logits", 1, 100, DType::kF32, 1);
      r.ops().gather_rows({{r.floats(x), 1, 100, 100, DType::kF32}, r.ints({0}), c.logits});
      c.labels = r.ints({target});
      c.nll = r.output_floats("nll", 1);
      c.gradient = true;
      r.ops().cross_entropy(c);
    });
}

TEST_P(TrainingOps, AdamWOverManyTensors) {
  check_op(GetParam(),
           [&](Trial& r) {
             AdamW a;
             a.grad_scale = 0.5f;
             a.step = 3;
             uint64_t seed = 1;
             for (int64_t n : {1, 7, 0, 577, 40000, 3}) {
               OptTensor t;
               t.n = n;
               t.master = r.inout_floats(fmt::format("master{}", n), n, seed++);
               t.grad = static_cast<const float*>(r.param(n, DType::kF32, seed++));
               t.m = r.inout_floats(fmt::format("m{}", n), n, seed++, 0.1);
               t.v = r.inout_floats(fmt::format("v{}", n), n, seed++, 0.05, 0.5);
               if (n != 7) t.copy = static_cast<uint16_t*>(r.output(fmt::format("copy{}", n), 1, n, DType::kBF16).p);
               t.lr = n == 3 ? 0.0f : 1e-2f;
               t.weight_decay = n == 577 ? 0.0f : 0.1f;
               a.tensors.push_back(t);
             }
             r.ops().adamw(a);
           },
           {1e-6, 1e-7});
}

TEST_P(TrainingOps, SquaredNormInDouble) {
  check_op(GetParam(),
           [&](Trial& r) {
             SquaredNorm s;
             uint64_t seed = 1;
             for (int64_t n : {1, 7, 0, 577, 100000}) {
               s.grads.push_back(static_cast<const float*>(r.param(n, DType::kF32, seed++, 1e3)));
               s.sizes.push_back(n);
             }
             r.record("norm", r.ops().squared_norm(s));
           },
           {1e-13, 0});
}

}  // namespace
}  // namespace mxt::kernels::test
