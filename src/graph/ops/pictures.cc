// Pictures: what the batch brings of them, places of patches, patches gathered into tokens, and tokens' places among
// the text's.
#include "base/error.h"
#include "graph/op_info.h"
#include "graph/ops.h"

namespace mxt::graph {

namespace {

Extent patches_of(const Graph& g) {
  MXT_ASSERT(g.pictures.merge > 0);
  return {Dim::kPictureTokens, g.pictures.merge * g.pictures.merge};
}

}  // namespace

ValueId picture_input(Graph& g, int64_t cols, const PictureInputOp& attrs) {
  const ValueId y = g.add_value(attrs.features ? Extent(Dim::kPictureTokens, 1) : patches_of(g), cols, g.act_type);
  g.add_op(attrs, {}, {y});
  return y;
}

ValueId interpolate(Graph& g, ValueId table) {
  const int64_t cols = g.value(table).cols;
  MXT_ASSERT(g.value(table).rows == Extent(g.pictures.side * g.pictures.side));
  Extent corners = patches_of(g);
  corners.factor *= 4;
  const ValueId y = g.add_value(patches_of(g), cols, g.act_type), rows = g.add_value(corners, cols, g.act_type);
  g.add_op(InterpolateOp{}, {table}, {y, rows});
  return y;
}

static void derive_interpolate(Backward& b, const Op& op) {
  if (!b.needs(op.in[0])) return;
  b.contributes(b.g.add_op(InterpolateGradOp{}, {b.grad(op.out[0])}, {b.like(op.out[1])}), op.in[0]);
}

ValueId regroup(Graph& g, ValueId x, Extent rows, int64_t cols) {
  const Value v = g.value(x);
  MXT_ASSERT(rows.dim == v.rows.dim && rows.factor * cols == v.rows.factor * v.cols && v.pad == 0);
  const ValueId y = g.add_value(rows, cols, v.type);
  g.add_op(RegroupOp{}, {x}, {y});
  return y;
}

static void derive_regroup(Backward& b, const Op& op) {
  if (!b.needs(op.in[0])) return;
  const ValueId dx = b.like(op.in[0]);
  b.g.add_op(RegroupOp{}, {b.grad(op.out[0])}, {dx});
  b.accumulate(op.in[0], dx);
}

ValueId place(Graph& g, ValueId base, ValueId x, bool add) {
  const Value v = g.value(base);
  MXT_ASSERT(v.rows == kTokens && g.value(x).rows == Extent(Dim::kPictureTokens, 1) && g.value(x).cols == v.cols);
  const ValueId y = g.add_value(kTokens, v.cols, v.type);
  g.values[static_cast<size_t>(y)].alias_of = base;
  std::vector<ValueId> out{y};
  if (add) out.push_back(g.add_value({Dim::kPictureTokens, 1}, v.cols, v.type));
  g.add_op(PlaceOp{add}, {base, x}, std::move(out));
  return y;
}

static void derive_place(Backward& b, const Op& op) {
  const ValueId dy = b.grad(op.out[0]);
  b.accumulate(op.in[0], dy);
  if (!b.needs(op.in[1])) return;
  const ValueId dx = b.like(op.in[1]);
  b.g.add_op(PlaceGradOp{}, {dy}, {dx});
  b.accumulate(op.in[1], dx);
}

const OpInfo PictureInputOp::info{.name = "picture_input"};
const OpInfo InterpolateOp::info{.name = "interpolate", .derive = derive_interpolate};
const OpInfo InterpolateGradOp::info{.name = "interpolate_grad"};
const OpInfo RegroupOp::info{.name = "regroup", .derive = derive_regroup};
const OpInfo PlaceOp::info{.name = "place", .derive = derive_place};
const OpInfo PlaceGradOp::info{.name = "place_grad"};

}  // namespace mxt::graph
