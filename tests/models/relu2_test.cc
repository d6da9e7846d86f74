// Products that end in ReLU² or its gradient (graph::join_relu2), by the reference: the same step as with the
// activation apart, in fewer operations and less memory.
#include "models/tiny.h"

namespace mxt {
namespace {

models::BuildOptions options(DType type, bool joined, graph::Recompute recompute = graph::Recompute::kNone) {
  models::BuildOptions o;
  o.type = type;
  o.train_base = true;
  o.positions = 64;
  o.recompute = recompute;
  o.relu2_products = joined;
  return o;
}

template <typename T>
int count(const graph::Graph& g) {
  int n = 0;
  for (const graph::Op& op : g.ops) n += std::holds_alternative<T>(op.attrs);
  return n;
}

// ‖gradients of a − those of b‖ / ‖those of b‖ over all parameters.
double distance(const tiny::Model& a, const tiny::Model& b) {
  double d = 0, s = 0;
  for (size_t p = 0; p < b.graph.params.size(); ++p) {
    const auto id = static_cast<graph::ParamId>(p);
    if (b.params[id].grad == nullptr) continue;  // zeros that never train
    const auto n = static_cast<size_t>(b.graph.params[p].rows * b.graph.params[p].cols);
    for (size_t i = 0; i < n; ++i) {
      d += std::pow(static_cast<double>(a.params[id].grad[i]) - static_cast<double>(b.params[id].grad[i]), 2);
      s += std::pow(static_cast<double>(b.params[id].grad[i]), 2);
    }
  }
  return std::sqrt(d / s);
}

TEST(Relu2, JoinedToItsProductsIsTheSameStep) {
  kernels::Ops& ops = kernels::reference_ops();
  for (const char* name : {"nanochat", "nanochat_v2"}) {
    SCOPED_TRACE(name);
    const std::string folder = tiny::golden(name);
    const tiny::Packed rows = tiny::read_rows(folder, 0, 3);
    tiny::Model exact(folder, options(DType::kF32, true), ops), apart(folder, options(DType::kBF16, false), ops),
        joined(folder, options(DType::kBF16, true), ops);
    const int layers = count<graph::ActOp>(apart.graph);
    EXPECT_GT(layers, 1);
    EXPECT_EQ(count<graph::ActOp>(exact.graph), layers);  // bf16 alone
    EXPECT_EQ(count<graph::ActOp>(joined.graph), 0);
    EXPECT_EQ(count<graph::ActGradOp>(joined.graph), 0);
    EXPECT_EQ(joined.graph.ops.size(), apart.graph.ops.size() - 2 * static_cast<size_t>(layers));
    EXPECT_LT(joined.program.bytes().activations, apart.program.bytes().activations);
    joined.program.set_poison(true);
    const double want = exact.loss(rows);
    EXPECT_NEAR(joined.loss(rows), want, 0.01 * want);
    apart.loss(rows);
    EXPECT_LT(distance(joined, exact), 1.25 * distance(apart, exact));
    EXPECT_GT(distance(joined, apart), 0);
  }
}

TEST(Relu2, StaysApartWhereItIsMadeAgain) {
  const std::string folder = tiny::golden("nanochat");
  const auto source = formats::WeightSource::open(folder);
  const graph::Graph g = models::build(source->config(), options(DType::kBF16, true, graph::Recompute::kCheap));
  EXPECT_GT(count<graph::ActGradOp>(g), 1);
}

}  // namespace
}  // namespace mxt
