#include <algorithm>

#include "base/error.h"
#include "graph/passes.h"

namespace mxt::graph {
namespace {

class Quantizer {
 public:
  Quantizer(Graph& g, Held as) : g_(g), as_(as) {}

  void run() {
    for (const Op& op : g_.ops)
      if (std::holds_alternative<LinearOp>(op.attrs)) hold(g_.value(op.in[1]).param);
    for (const Param& p : g_.params) MXT_ASSERT(as_ == Held::kFp8 || p.joined == 0);  // rounded x has no z beside it
    std::vector<Op> old = std::move(g_.ops);
    g_.ops.clear();
    const int32_t forward = g_.forward_ops;
    for (size_t i = 0; i < old.size(); ++i) {
      if (forward > 0 && static_cast<int32_t>(i) == forward) g_.forward_ops = static_cast<int32_t>(g_.ops.size());
      Op& op = old[i];
      if (auto* linear = std::get_if<LinearOp>(&op.attrs)) {
        if (held(op.in[1])) round(op, *linear, kNone);
      } else if (auto* dx = std::get_if<LinearDxOp>(&op.attrs)) {
        if (held(op.in[1])) {
          if (as_ == Held::kFp8 && dx->joined > 0) op.in.push_back(adapter(op.in[1]));
          round(op, *dx, op.in[1]);
        }
      }
      g_.ops.push_back(std::move(op));
    }
  }

 private:
  void hold(ParamId id) {
    Param& p = g_.params[static_cast<size_t>(id)];
    if (p.trainable || p.adapter || p.kind != ParamKind::kMatrix) return;
    if (p.rows % 16 != 0 || p.cols % 16 != 0)
      fail_missing("{} is {} x {}: FP8 products need multiples of 16; train with train.base_precision: bfloat16",
                   p.name, p.rows, p.cols);
    p.held = as_;
  }
  bool held(ValueId w) const { return g_.param_of(w).held != Held::kPlain; }

  // Puts the rounding of the first operand before the product; `channels`: the weight whose scales multiply its
  // columns.
  template <typename A>
  void round(Op& op, A& attrs, ValueId channels) {
    const ValueId x = op.in[0];
    std::vector<ValueId> in{x};
    if (channels != kNone) in.push_back(channels);
    const ValueId q =
        g_.add_value(g_.value(x).rows, g_.value(x).cols, as_ == Held::kFp8 ? DType::kF8E4M3 : g_.act_type);
    std::vector<ValueId> out{q};
    op.in[0] = q;
    if (as_ == Held::kFp8) {
      out.push_back(g_.add_value(g_.value(x).rows, 1, DType::kF32));
      op.in.push_back(out[1]);
      attrs.fp8 = true;
      if (joins_producer(x, channels, out)) return;
    }
    g_.add_op(QuantizeOp{}, std::move(in), std::move(out));
  }

  // What makes rows of x whole writes q beside x: one read of x less.
  bool joins_producer(ValueId x, ValueId channels, const std::vector<ValueId>& out) {
    for (size_t i = g_.ops.size(); i-- > 0;) {
      Op& op = g_.ops[i];
      if (op.out.empty() || op.out[0] != x) continue;
      bool* flag = nullptr;
      if (auto* n = std::get_if<NormOp>(&op.attrs))
        flag = channels == kNone ? &n->held : nullptr;
      else if (auto* a = std::get_if<ActOp>(&op.attrs))
        flag = channels == kNone ? &a->held : nullptr;
      else if (auto* d = std::get_if<NormGradOp>(&op.attrs))
        flag = channels != kNone ? &d->held : nullptr;
      if (flag == nullptr || *flag) return false;
      *flag = true;
      if (channels != kNone) op.in.push_back(channels);
      op.out.insert(op.out.end(), out.begin(), out.end());
      return true;
    }
    return false;
  }

  // The adapters are joined before anything else.
  ValueId adapter(ValueId w) const {
    for (const Op& op : g_.ops)
      if (std::holds_alternative<LoraJoinOp>(op.attrs) && op.in[0] == w) return op.in[1];
    assert_failed("a joined weight has its adapter", __FILE__, __LINE__);
  }

  Graph& g_;
  Held as_;
};

}  // namespace

void quantize_base(Graph& g, Held as) {
  if (as != Held::kPlain) Quantizer(g, as).run();
}

}  // namespace mxt::graph
