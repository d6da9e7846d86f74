#include "base/error.h"
#include "graph/op_info.h"
#include "graph/ops.h"

namespace mxt::graph {

ValueId embedding(Graph& g, ValueId table, RowOf row, int64_t padding) {
  const ValueId y = g.add_value(kTokens, g.value(table).cols, g.act_type);
  g.add_op(EmbeddingOp{row, padding}, {table}, {y});
  return y;
}

static void derive_embedding(Backward& b, const Op& op) {
  const auto& a = std::get<EmbeddingOp>(op.attrs);

  if (!b.needs(op.in[0])) return;
  MXT_ASSERT(a.row != RowOf::kFirst);  // encoders are not trained
  b.contributes(b.g.add_op(EmbeddingGradOp{a.row, a.padding}, {b.grad(op.out[0])}, {}), op.in[0]);
}

const OpInfo EmbeddingOp::info{.name = "embedding", .derive = derive_embedding};
const OpInfo EmbeddingGradOp::info{.name = "embedding_grad"};

}  // namespace mxt::graph
