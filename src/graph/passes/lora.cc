#include <fmt/format.h>

#include "base/error.h"
#include "graph/ops.h"
#include "graph/passes.h"

namespace mxt::graph {
namespace {

struct Targeted {
  const Segment* segment;
  std::string module;
  LoraSettings::Target t;
};

std::string module_of(const std::string& weight_name) {
  constexpr std::string_view kSuffix = ".weight";
  return weight_name.ends_with(kSuffix) ? weight_name.substr(0, weight_name.size() - kSuffix.size()) : weight_name;
}

}  // namespace

void add_lora(Graph& g, const LoraSettings& s) {
  MXT_ASSERT(g.forward_ops == 0);
  std::vector<Op> old = std::move(g.ops);
  g.ops.clear();
  std::vector<ValueId> now(g.values.size());  // what an old value is called after the rewrite
  for (size_t i = 0; i < now.size(); ++i) now[i] = static_cast<ValueId>(i);

  for (Op& op : old) {
    for (ValueId& v : op.in) v = now[static_cast<size_t>(v)];
    for (ValueId v : op.out) {
      ValueId& alias = g.values[static_cast<size_t>(v)].same_as;
      if (alias != kNone) alias = now[static_cast<size_t>(alias)];
    }
    const bool is_linear = std::holds_alternative<LinearOp>(op.attrs);
    const std::vector<ValueId> in = op.in, out = op.out;
    g.ops.push_back(std::move(op));
    if (!is_linear) continue;

    const Param base = g.param_of(in[1]);
    std::vector<Targeted> targeted;
    int64_t ranks = 0;
    for (const Segment& seg : base.segments) {
      Targeted t{&seg, module_of(seg.name), {}};
      if (!s.target(s.ctx, t.module, &t.t)) continue;
      ranks += t.t.rank;
      targeted.push_back(std::move(t));
    }
    if (targeted.empty()) continue;

    Param a;
    a.name = base.name + ".lora_A";
    a.rows = ranks;
    a.cols = base.cols;
    a.trainable = a.adapter = true;
    std::vector<LoraBlock> blocks;
    int64_t z_col = 0;
    for (const Targeted& t : targeted) {
      a.segments.push_back({t.module + ".lora_A.weight", z_col, t.t.rank});
      blocks.push_back({t.segment->row, t.segment->rows, z_col, t.t.rank, t.t.scale});
      z_col += t.t.rank;
    }
    const ParamId a_id = g.add_param(std::move(a), g.act_type);
    std::vector<ValueId> bs;
    for (size_t i = 0; i < targeted.size(); ++i) {
      Param b;
      b.name = fmt::format("{}.lora_B.{}", base.name, i);
      b.rows = targeted[i].segment->rows;
      b.cols = targeted[i].t.rank;
      b.trainable = b.adapter = true;
      b.segments.push_back({targeted[i].module + ".lora_B.weight", 0, b.rows});
      bs.push_back(g.params[static_cast<size_t>(g.add_param(std::move(b), g.act_type))].value);
    }
    const ValueId x = dropout(g, in[0], s.dropout);
    const ValueId z = linear(g, x, g.params[static_cast<size_t>(a_id)].value);
    now[static_cast<size_t>(out[0])] = lora_add(g, out[0], z, bs, blocks);
  }
}

}  // namespace mxt::graph
