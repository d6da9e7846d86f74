#include "base/error.h"
#include "graph/passes.h"

namespace mxt::graph {

void train_parts(Graph& g, bool (*trains)(const void* ctx, const std::string& tensor), const void* ctx) {
  MXT_ASSERT(g.forward_ops == 0);
  for (Param& p : g.params) {
    if (p.adapter || p.segments.empty()) continue;
    size_t trained = 0;
    for (const Segment& s : p.segments) trained += trains(ctx, s.name);
    if (trained == 0) continue;
    const bool vector = p.kind == ParamKind::kNormWeight || p.kind == ParamKind::kBias || p.kind == ParamKind::kDecay;
    if (trained < p.segments.size() && p.kind != ParamKind::kBias)
      for (const Segment& s : p.segments)
        if (!trains(ctx, s.name))
          fail_missing("{} does not train whole, and stands in one matrix with what does: name it too, or neither",
                       s.name);
    p.trainable = true;
    if (vector)
      for (Segment& s : p.segments) s.frozen = !trains(ctx, s.name);
  }
  // A LayerNorm's gradient makes both or none.
  for (const Op& op : g.ops) {
    const auto* norm = std::get_if<NormOp>(&op.attrs);
    if (!norm || !norm->has_b || !norm->has_w) continue;
    const size_t w = norm->residual ? 2 : 1;
    if (g.param_of(op.in[w + 1]).trainable && !g.param_of(op.in[w]).trainable)
      fail_missing("bias: all would train {} of a LayerNorm without its weight, which is not built in: write lora_only",
                   g.param_of(op.in[w + 1]).segments[0].name);
  }
}

}  // namespace mxt::graph
