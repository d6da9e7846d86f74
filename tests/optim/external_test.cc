// An operation that the source tree does not know: defined here, put into a graph, differentiated, lowered, trained.
// docs/extending.md walks through it.
#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "checkpoint/weights.h"
#include "graph/op_info.h"
#include "graph/ops.h"
#include "kernels/external.h"
#include "models/tiny.h"
#include "optim/optimizer.h"

namespace mxt {
namespace {

// ---- the operation: y = x + sin²(a∘x) / a, with a learned vector a (the "snake" activation of arXiv 2006.08195) ----

class Snake : public kernels::ExternalKernel {
 public:
  std::string_view name() const override { return "snake"; }
  bool runs_on(const kernels::Ops& ops) const override { return ops.device() == nullptr && ops.name() != "reference"; }
  void run(kernels::Ops&, const kernels::External& c) const override {
    const auto &x = c.in[0], &a = c.in[1];
    parallel_for(0, x.rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t i = 0; i < x.cols; ++i) {
          const float v = at(x, t, i), rate = at(a, 0, i), s = std::sin(rate * v);
          static_cast<float*>(c.out[0].p)[t * c.out[0].ld + i] = v + s * s / rate;
        }
    });
  }
  static float at(const kernels::ConstMat& m, int64_t row, int64_t col) {
    return static_cast<const float*>(m.p)[row * m.ld + col];
  }
};

// dx = dy·(1 + sin 2ax), da = Σ dy·(x·sin(2ax)/a − sin²(ax)/a²).
class SnakeGrad : public kernels::ExternalKernel {
 public:
  std::string_view name() const override { return "snake_grad"; }
  bool runs_on(const kernels::Ops& ops) const override { return ops.device() == nullptr; }
  void run(kernels::Ops&, const kernels::External& c) const override {
    const auto &dy = c.in[0], &x = c.in[1], &a = c.in[2];
    // A column is one thread's, in the order of its rows: the same bytes for any number of threads.
    parallel_for(0, x.cols, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float rate = Snake::at(a, 0, i);
        double sum = 0;
        for (int64_t t = 0; t < x.rows; ++t) {
          const float v = Snake::at(x, t, i), d = Snake::at(dy, t, i), s = std::sin(rate * v),
                      twice = std::sin(2 * rate * v);
          static_cast<float*>(c.out[0].p)[t * c.out[0].ld + i] = d * (1 + twice);
          sum += static_cast<double>(d) * static_cast<double>(v * twice / rate - s * s / (rate * rate));
        }
        float& to = static_cast<float*>(c.gradient.p)[i];
        to = static_cast<float>(c.accumulate ? static_cast<double>(to) + sum : sum);
      }
    });
  }
};

const graph::OpInfo kSnakeGrad{.name = "snake_grad"};
void derive_snake(graph::Backward& b, const graph::Op& op) {
  if (!b.needs(op.out[0])) return;
  const graph::ValueId dy = b.grad(op.out[0]), x = op.in[0], a = op.in[1], dx = b.like(x);
  graph::Op& grad = b.g.add_op(graph::ExternalOp{&kSnakeGrad, std::make_shared<const SnakeGrad>()}, {dy, x, a}, {dx});
  b.contributes(grad, a);
  b.accumulate(x, dx);
}
const graph::OpInfo kSnake{.name = "snake", .derive = derive_snake, .repeat = graph::Repeat::kCheap};

graph::ValueId snake(graph::Graph& g, graph::ValueId x, graph::ValueId a) {
  const graph::ValueId y = g.add_value(g.value(x).rows, g.value(x).cols, g.act_type);
  g.add_op(graph::ExternalOp{&kSnake, std::make_shared<const Snake>()}, {x, a}, {y});
  return y;
}

// ---- a model with it: of each token the next, through one hidden layer ----

constexpr int64_t kVocab = 23, kWidth = 12, kHidden = 20;

graph::ValueId weight(graph::Graph& g, const std::string& name, graph::ParamKind kind, int64_t rows, int64_t cols) {
  graph::Param p;
  p.name = name;
  p.kind = kind;
  p.rows = rows;
  p.cols = cols;
  p.segments = {{name, 0, rows}};
  p.init_std = 0.3f;
  p.trainable = true;
  if (kind == graph::ParamKind::kNormWeight) p.init_values.assign(static_cast<size_t>(cols), 0.7f);
  return g.params[static_cast<size_t>(g.add_param(p, DType::kF32))].value;
}

graph::Graph model() {
  graph::Graph g;
  g.vocab = kVocab;
  const auto x = embedding(g, weight(g, "table", graph::ParamKind::kEmbedding, kVocab, kWidth));
  const auto up = linear(g, x, weight(g, "up", graph::ParamKind::kMatrix, kHidden, kWidth));
  const auto y = snake(g, up, weight(g, "rates", graph::ParamKind::kNormWeight, 1, kHidden));
  head(g, y, weight(g, "head", graph::ParamKind::kMatrix, kVocab, kHidden), 16, 0, true);
  g.forward_ops = static_cast<int32_t>(g.ops.size());
  differentiate(g);
  return g;
}

tiny::Packed rows() {
  tiny::Packed p;
  for (int32_t first = 0; first < 5; ++first) {
    std::vector<int32_t> ids{first};
    for (int32_t t = 1; t < 9; ++t) ids.push_back((ids.back() * 5 + 3) % kVocab);
    p.add(ids, ids);
  }
  return p;
}

struct Toy {
  explicit Toy(kernels::Ops& ops, const runtime::States& states = {})
      : params(graph, true, nullptr, runtime::Offload::kNone, states), program(graph, plan, ops, {64, 0, false}) {
    checkpoint::init_random(graph, params, 3);
    program.allocate(params);
  }
  double loss() {
    const tiny::Packed p = rows();
    program.run(p.batch());
    double sum = 0;
    for (size_t t = 0; t < p.ids.size(); ++t) sum += static_cast<double>(program.nll()[t]);
    return sum / static_cast<double>(p.count);
  }
  graph::Graph graph = model();
  kernels::KernelPlan plan;
  runtime::ParamStore params;
  runtime::Program program;
};

TEST(ExternalOperation, HasTheGradientOfItsNumbers) {
  Toy toy(kernels::cpu_ops());
  toy.program.set_poison(true);
  toy.loss();
  for (const graph::Param& p : toy.graph.params) {
    const runtime::ParamSlot& slot = toy.params[toy.graph.value(p.value).param];
    const std::vector<float> grad(slot.grad, slot.grad + p.rows * p.cols);
    for (size_t i = 0; i < grad.size(); i += 7) {
      float& w = slot.master[i];
      const float kept = w, step = 1e-2f;
      w = kept + step;
      const double above = toy.loss();
      w = kept - step;
      const double below = toy.loss();
      w = kept;
      EXPECT_NEAR(static_cast<double>(grad[i]), (above - below) / (2 * static_cast<double>(step)), 2e-3)
          << p.name << " " << i;
    }
  }
}

std::vector<float> train(int steps, double* first, double* last) {
  config::Train settings;
  settings.optimizer.lr = 0.03;
  settings.optimizer.weight_decay = 0;
  Toy toy(kernels::cpu_ops(), optim::make_optimizer(settings, model())->states());
  const auto optimizer = optim::make_optimizer(settings, toy.graph);
  optimizer->bind(toy.params, kernels::cpu_ops());
  for (int s = 0; s < steps; ++s) {
    *last = toy.loss();
    if (s == 0) *first = *last;
    optimizer->update({s + 1, steps});
  }
  std::vector<float> all;
  for (size_t i = 0; i < toy.graph.params.size(); ++i) {
    const graph::Param& p = toy.graph.params[i];
    const float* w = toy.params[static_cast<graph::ParamId>(i)].master;
    all.insert(all.end(), w, w + p.rows * p.cols);
  }
  return all;
}

TEST(ExternalOperation, IsTrainedThroughToTheSameBytesByAnyNumberOfThreads) {
  double first = 0, last = 0;
  set_num_threads(1);
  const std::vector<float> one = train(60, &first, &last);
  EXPECT_GT(first, 2.5);
  EXPECT_LT(last, 0.1);
  set_num_threads(2);
  EXPECT_EQ(train(60, &first, &last), one);
}

TEST(ExternalOperation, StandsInTheProgramAndIsNamedWhereABackendHasItNot) {
  Toy toy(kernels::cpu_ops());
  const std::string text =
      runtime::print(runtime::lower(toy.graph, {}, kernels::cpu_ops(), {64, 0, false}), kernels::cpu_ops());
  EXPECT_NE(text.find(" snake "), std::string::npos) << text;
  EXPECT_NE(text.find(" snake_grad "), std::string::npos) << text;
  Toy elsewhere(kernels::reference_ops());
  try {
    elsewhere.loss();
    FAIL() << "the reference backend has no snake";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kMissing);
    EXPECT_NE(std::string(e.what()).find("reference backend has no call snake"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace mxt
