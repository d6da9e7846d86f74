#include <vector>

#include "base/error.h"
#include "graph/passes.h"

namespace mxt::graph {
namespace {

// By parameter: whether products read it (DoRA's lengths are made of such), and nothing else does.
std::vector<bool> of_products(const Graph& g) {
  std::vector<bool> product(g.params.size(), false), other(g.params.size(), false);
  std::vector<bool> chooses(g.values.size(), false);  // a router's: its few numbers decide, and stay as they are
  for (const Op& op : g.ops)
    if (std::holds_alternative<RouteOp>(op.attrs)) chooses[static_cast<size_t>(g.root(op.in[0]))] = true;
  for (const Op& op : g.ops) {
    const bool experts =
        std::holds_alternative<ExpertLinearOp>(op.attrs) || std::holds_alternative<ExpertLinearDxOp>(op.attrs);
    const bool linear =
        experts || (std::holds_alternative<LinearOp>(op.attrs) && !chooses[static_cast<size_t>(g.root(op.out[0]))]) ||
        std::holds_alternative<LinearDxOp>(op.attrs);
    const bool lengths = std::holds_alternative<DoraGainOp>(op.attrs);
    for (size_t i = 0; i < op.in.size(); ++i)
      if (const ParamId p = g.value(op.in[i]).param; p != kNone)
        ((linear && i == 1) || (lengths && i == 0) ? product : other)[static_cast<size_t>(p)] = true;
  }
  for (size_t i = 0; i < product.size(); ++i) product[i] = product[i] && !other[i];
  return product;
}

void code(Param& p, SegmentCoding (*of)(const void* ctx, const std::string& weight), const void* ctx) {
  int64_t row = 0;
  for (Segment& s : p.segments) {
    MXT_ASSERT(s.row == row);
    row += s.rows;
    const SegmentCoding how = of(ctx, s.name);
    if ((how.coding == Coding::kNone) != (of(ctx, p.segments[0].name).coding == Coding::kNone))
      fail_missing(
          "{} and {} are multiplied together, and one of them alone is held in codes: not built in: take method lora, "
          "which decodes it",
          p.segments[0].name, s.name);
    if (how.coding == Coding::kMxfp4 && p.cols % kMxBlock != 0)
      fail_missing("{} has {} columns, and MXFP4 holds multiples of {}: use nf4", s.name, p.cols, kMxBlock);
    s.coding = how.coding;
    s.through = how.through;
  }
  MXT_ASSERT(row == p.rows);
  if (p.segments[0].coding != Coding::kNone) p.held = Storage::kCoded;
}

}  // namespace

void code_base(Graph& g, SegmentCoding (*of)(const void* ctx, const std::string& weight), const void* ctx) {
  const std::vector<bool> products = of_products(g);
  for (size_t i = 0; i < g.params.size(); ++i) {
    Param& p = g.params[i];
    if (products[i] && p.kind == ParamKind::kMatrix && !p.trainable && !p.adapter && !p.segments.empty())
      code(p, of, ctx);
  }
}

}  // namespace mxt::graph
