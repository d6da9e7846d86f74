#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "graph/op_info.h"

namespace mxt::graph {

ValueId Graph::add_value(Extent rows, int64_t cols, DType type, std::string name) {
  Value v;
  v.rows = rows;
  v.cols = cols;
  v.type = type;
  v.name = std::move(name);
  values.push_back(std::move(v));
  return static_cast<ValueId>(values.size() - 1);
}

ParamId Graph::add_param(Param p, DType type) {
  const ParamId id = static_cast<ParamId>(params.size());
  p.value = add_value(p.rows, p.cols, type, p.name);
  values.back().param = id;
  params.push_back(std::move(p));
  return id;
}

int64_t Graph::add_rope(const std::vector<float>& cos, const std::vector<float>& sin) {
  MXT_ASSERT(cos.size() == sin.size());
  const auto at = static_cast<int64_t>(rope_cos.size());
  rope_cos.insert(rope_cos.end(), cos.begin(), cos.end());
  rope_sin.insert(rope_sin.end(), sin.begin(), sin.end());
  return at;
}

Op& Graph::add_op(Attrs attrs, std::vector<ValueId> in, std::vector<ValueId> out) {
  ops.push_back({std::move(attrs), std::move(in), std::move(out)});
  return ops.back();
}

ValueId Graph::root(ValueId v) const {
  for (;;) {
    const Value& x = value(v);
    if (x.adjacent_to != kNone)
      v = x.adjacent_to;
    else if (x.alias_of != kNone)
      v = x.alias_of;
    else
      return v;
  }
}

int64_t Graph::ld(ValueId v) const {
  if (value(v).adjacent_to != kNone) return ld(value(v).adjacent_to);
  return value(v).cols + value(root(v)).pad;
}

const OpInfo ExternalOp::info{.name = "external"};

const OpInfo& info(const Op& op) {
  if (const auto* external = std::get_if<ExternalOp>(&op.attrs)) return *external->of;
  return std::visit([](const auto& a) -> const OpInfo& { return a.info; }, op.attrs);
}

std::string_view op_name(const Op& op) { return info(op).name; }

std::string_view parts_documents(const Op& op) {
  constexpr std::string_view kBefore = "a layer reads the token before", kDrawn = "dropout is drawn for each answer";
  const auto& a = op.attrs;
  if (std::holds_alternative<CausalConvOp>(a) || std::holds_alternative<GatedDeltaOp>(a))
    return "its gated delta layers carry a state from token to token";
  if (const auto* gate = std::get_if<GateOp>(&a); gate && gate->inside) return kBefore;
  if (const auto* table = std::get_if<EmbeddingOp>(&a); table && table->row == RowOf::kPrevious) return kBefore;
  if (std::holds_alternative<DropoutOp>(a)) return kDrawn;
  if (const auto* attention = std::get_if<AttentionOp>(&a); attention && attention->dropout > 0) return kDrawn;
  if (std::holds_alternative<EmbeddingNoiseOp>(a)) return "noise is drawn for each answer";
  if (const auto* balance = std::get_if<BalanceLossOp>(&a); balance && balance->coefficient > 0)
    return "the load-balancing loss counts every answer's prompt";
  if (std::holds_alternative<PictureInputOp>(a)) return "the model sees pictures";
  return {};
}

double products_of(const Graph& g, const PassSize& size) {
  double total = 0;
  for (size_t i = 0; i < g.ops.size(); ++i) {
    const OpInfo& of = info(g.ops[i]);
    const bool made_again = of.repeat != Repeat::kNo && g.forward_ops > 0 && static_cast<int32_t>(i) >= g.forward_ops;
    // What pictures cost a batch decides.
    const auto pictured = [&](ValueId v) { return g.value(v).rows.dim == Dim::kPictureTokens; };
    if (std::any_of(g.ops[i].in.begin(), g.ops[i].in.end(), pictured)) continue;
    if (of.products && !made_again) total += of.products(g, g.ops[i], size);
  }
  return total;
}

std::string_view name_of(Dim d) {
  static constexpr std::string_view kNames[] = {
      "", "tokens", "routed", "sequences", "batch_rows", "picture_tokens", "targets", "logit_rows", "chunk"};
  static_assert(std::size(kNames) == kDims);
  return kNames[static_cast<size_t>(d)];
}

namespace {

std::string show_rows(Extent e) {
  if (e.constant()) return std::to_string(e.factor);
  return e.factor == 1 ? std::string(name_of(e.dim)) : fmt::format("{}·{}", e.factor, name_of(e.dim));
}

}  // namespace

std::string Graph::print() const {
  std::string s;
  auto show = [&](ValueId v) {
    const Value& x = value(v);
    if (x.param != kNone) return x.name;
    return fmt::format("%{}", v);
  };
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    if (static_cast<int32_t>(i) == forward_ops) s += "-- backward\n";
    std::string outs, ins;
    for (ValueId v : op.out) {
      const Value& x = value(v);
      outs += fmt::format("{}%{}:{}[{},{}]{}", outs.empty() ? "" : ", ", v, name_of(x.type), show_rows(x.rows), x.cols,
                          x.alias_of == kNone ? "" : fmt::format("=%{}", x.alias_of));
    }
    for (ValueId v : op.in) ins += (ins.empty() ? "" : ", ") + show(v);
    s += fmt::format("{} = {}({})", outs, op_name(op), ins);
    if (op.param != kNone)
      s += fmt::format(" d[{}]{}", params[static_cast<size_t>(op.param)].name, op.first_grad ? " first" : "");
    s += '\n';
  }
  return s;
}

}  // namespace mxt::graph
