#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "graph/passes.h"

namespace mxt::graph {
namespace {

// Of an operation that multiplies with the output matrix and whose gradient may be of rounded operands.
const float* head_softcap(const Op& op) {
  if (const auto* head = std::get_if<FusedLinearCrossEntropyOp>(&op.attrs)) return &head->softcap;
  if (const auto* logp = std::get_if<TokenLogProbOp>(&op.attrs)) return &logp->softcap;
  return nullptr;
}

class Quantizer {
 public:
  Quantizer(Graph& g, Storage as, bool trained) : g_(g), as_(as), trained_(trained) {}

  void run() {
    std::vector<bool> chooses(g_.values.size(), false);  // a router's
    for (const Op& op : g_.ops)
      if (std::holds_alternative<RouteOp>(op.attrs)) chooses[static_cast<size_t>(g_.root(op.in[0]))] = true;
    for (const Op& op : g_.ops)
      if (std::holds_alternative<LinearOp>(op.attrs)) {
        if (!chooses[static_cast<size_t>(g_.root(op.out[0]))]) choose(g_.value(op.in[1]).param);
      } else if (trained_) {
        if (std::holds_alternative<FusedLinearCrossEntropyOp>(op.attrs)) choose(g_.value(op.in[1]).param);
      } else if (const float* softcap = head_softcap(op); softcap && *softcap == 0.0f) {
        Param& p = g_.params[static_cast<size_t>(g_.value(op.in[1]).param)];
        if (!p.trainable && p.rows % 16 == 0 && p.cols % 16 == 0) p.back = as_;
      }
    for (const Param& p : g_.params) MXT_ASSERT(as_ == Storage::kFp8 || p.joined == 0);  // rounded x has no z beside it
    std::vector<Op> old = std::move(g_.ops);
    g_.ops.clear();
    const int32_t forward = g_.forward_ops;
    for (size_t i = 0; i < old.size(); ++i) {
      if (forward > 0 && static_cast<int32_t>(i) == forward) g_.forward_ops = static_cast<int32_t>(g_.ops.size());
      Op& op = old[i];
      if (auto* linear = std::get_if<LinearOp>(&op.attrs)) {
        if (trains(g_.value(op.in[1]).param))
          round_trained(op, *linear);
        else if (held(op.in[1]))
          round(op, *linear, kNone);
        else if (g_.param_of(op.in[1]).adapter)
          read_adapted(op);
      } else if (std::holds_alternative<LinearDwOp>(op.attrs)) {
        if (trains(op.param))
          round_trained_dw(op);
        else if (reads_rounded(g_.params[static_cast<size_t>(op.param)], op.in[1]))
          read_held(op, 1);
      } else if (auto* dx = std::get_if<LinearDxOp>(&op.attrs)) {
        if (trains(g_.value(op.in[1]).param)) {
          round_trained_dx(op, *dx);
        } else if (held(op.in[1])) {
          if (as_ == Storage::kFp8 && dx->joined > 0) op.in.push_back(adapter(op.in[1]));
          round(op, *dx, op.in[1]);
        }
      } else if (const auto* head = std::get_if<FusedLinearCrossEntropyOp>(&op.attrs)) {
        if (head->gradient && trains(g_.value(op.in[1]).param)) round_trained_head(op);
      }
      append(std::move(op));
    }
  }

 private:
  // Notes what the passes over what was appended would otherwise search for.
  void append(Op op) {
    const size_t i = g_.ops.size();
    if (!op.out.empty()) maker_[op.out[0]] = i;
    if (std::holds_alternative<ActOp>(op.attrs)) acts_.emplace(op.in[0], i);
    if (std::holds_alternative<LoraJoinOp>(op.attrs)) adapter_[op.in[0]] = op.in[1];
    g_.ops.push_back(std::move(op));
  }
  // The operation among those appended whose first result is v.
  Op* maker(ValueId v) {
    const auto at = maker_.find(v);
    return at == maker_.end() ? nullptr : &g_.ops[at->second];
  }

  void choose(ParamId id) {
    Param& p = g_.params[static_cast<size_t>(id)];
    if (trained_)
      of_trained_[id] = p.trainable && !p.adapter && p.rows >= kLeastTrained && p.cols >= kLeastTrained &&
                        p.rows % 16 == 0 && p.cols % 16 == 0;
    else
      hold(p);
  }
  bool trains(ParamId id) const {
    const auto at = of_trained_.find(id);
    return at != of_trained_.end() && at->second;
  }

  void hold(Param& p) {
    // A router's few numbers decide, and a gate's row costs nothing: they stay as they are.
    if (p.trainable || p.adapter || p.kind != ParamKind::kMatrix || p.rows == 1) return;
    if (p.rows % 16 != 0 || p.cols % 16 != 0)
      fail_missing("{} is {} x {}: FP8 products need multiples of 16; train with train.base_precision: bfloat16",
                   p.name, p.rows, p.cols);
    p.held = as_;
  }
  bool held(ValueId w) const { return g_.param_of(w).held != Storage::kPlain; }

  // Puts the rounding of the first operand before the product; `channels`: the weight whose scales multiply its
  // columns.
  template <typename A>
  void round(Op& op, A& attrs, ValueId channels) {
    const std::vector<ValueId> held = rounded(op.in[0], channels);
    op.in[0] = held[0];
    if (as_ != Storage::kFp8) return;
    op.in.push_back(held[1]);
    attrs.fp8 = true;
  }

  // ---- of a matrix that trains ----

  // W's numbers and their scales, rounded where the pass first reads it.
  const std::vector<ValueId>& weight(ValueId w) {
    const auto [at, fresh] = weights_.try_emplace(w);
    if (!fresh) return at->second;
    const Param& p = g_.param_of(w);
    at->second = {g_.add_value(p.rows, p.cols, DType::kF8E4M3), g_.add_value(p.rows, 1, DType::kF32)};
    append({QuantizeOp{}, {w}, at->second});
    return at->second;
  }
  // dy for both gradients: q and its scales.
  const std::vector<ValueId>& gradient(ValueId dy, ValueId w) {
    const ValueId scales = weight(w)[1];
    const auto [at, fresh] = gradients_.try_emplace({dy, w});
    if (fresh) at->second = rounded(dy, scales);
    return at->second;
  }
  void round_trained(Op& op, LinearOp& attrs) {
    const std::vector<ValueId> w = weight(op.in[1]), x = rounded(op.in[0], kNone);
    op.in[0] = x[0], op.in[1] = w[0];
    op.in.insert(op.in.end(), {w[1], x[1]});
    attrs.fp8 = true;
  }
  // As it is, or with its scales, of which one is left for all.
  std::vector<ValueId> turned(ValueId q, ValueId scale = kNone) {
    std::vector<ValueId> in{q}, out{g_.add_value(g_.value(q).cols, g_.value(q).rows.factor, DType::kF8E4M3)};
    if (scale != kNone) in.push_back(scale), out.push_back(g_.add_value(g_.value(q).cols, 1, DType::kF32));
    append({RowwiseFp8TransposeOp{}, std::move(in), out});
    return out;
  }
  void round_trained_dx(Op& op, LinearDxOp& attrs) {
    const std::vector<ValueId> w = weight(op.in[1]), dy = gradient(op.in[0], op.in[1]);
    op.in[0] = dy[0];
    op.in[1] = turned(w[0])[0];
    op.in.push_back(dy[1]);
    attrs.fp8 = true;
  }
  // What else its products read, its chunks make. Rows of frequent tokens are far larger than others: their scales do
  // not go into the gradient of logits, where the others' columns would vanish beside theirs.
  void round_trained_head(Op& op) {
    const std::vector<ValueId> w = weight(op.in[1]), back = turned(w[0], w[1]);
    op.in.insert(op.in.end(), {w[0], w[1], back[0], back[1]});
  }
  void round_trained_dw(Op& op) {
    const ValueId w = g_.params[static_cast<size_t>(op.param)].value;
    const std::vector<ValueId> dy = gradient(op.in[0], w), x = rounded(op.in[1], kNone);
    op.attrs = Fp8LinearDwOp{};
    op.in = {dy[0], dy[1], x[0], x[1], weight(w)[1]};
  }

  // q and, held in E4M3, its scales. Without channels x is rounded once for all that read it.
  std::vector<ValueId> rounded(ValueId x, ValueId channels) {
    if (const auto it = rounded_.find(x); it != rounded_.end() && channels == kNone) return it->second;
    std::vector<ValueId> in{x};
    if (channels != kNone) in.push_back(channels);
    std::vector<ValueId> out{
        g_.add_value(g_.value(x).rows, g_.value(x).cols, as_ == Storage::kFp8 ? DType::kF8E4M3 : g_.act_type)};
    if (as_ == Storage::kFp8) out.push_back(g_.add_value(g_.value(x).rows, 1, DType::kF32));
    if (channels == kNone) rounded_[x] = out;
    if (as_ != Storage::kFp8 || !joins_producer(x, channels, out)) append({QuantizeOp{}, std::move(in), out});
    return out;
  }

  // Whether an adapter reads x as its base's product does. Not behind activations: there one kernel makes z with x
  // itself at hand, and another makes x again for the gradient (kernels::ActLora, ActLoraGrad); rounding it there costs
  // time. Whole sixteens of ranks are what matrix units take; others are left to products of x as it is.
  bool reads_rounded(const Param& a, ValueId x) {
    const Op* op = a.adapter && a.rows % 16 == 0 ? maker(x) : nullptr;
    return op && (std::holds_alternative<NormOp>(op->attrs) || std::holds_alternative<AttentionOp>(op->attrs));
  }

  // z = x Aᵀ. Joined, z lay beside x, and would keep x's rows for as long as z is read: E4M3 products take it from
  // anywhere, where it is whole sixteens wide.
  void read_adapted(Op& op) {
    const Param& a = g_.param_of(op.in[1]);
    Value& z = g_.values[static_cast<size_t>(op.out[0])];
    if (z.adjacent_to != kNone && a.rows % 16 == 0) {
      g_.values[static_cast<size_t>(g_.root(op.out[0]))].pad = 0;
      z.adjacent_to = kNone;
    }
    if (reads_rounded(a, op.in[0])) read_held(op, 0);
  }

  // An adapter's product, or its gradient, whose operand `at` is x.
  void read_held(Op& op, size_t at) {
    const std::vector<ValueId> held = rounded(op.in[at], kNone);
    op.in[at] = held[0];
    if (as_ != Storage::kFp8) return;
    op.in.insert(op.in.begin() + static_cast<ptrdiff_t>(at) + 1, held[1]);
    if (at == 0)
      op.attrs = RowwiseFp8LinearOp{};
    else
      op.attrs = RowwiseFp8LinearDwOp{};
  }

  // What makes rows of x whole writes q beside x: one read of x less.
  bool joins_producer(ValueId x, ValueId channels, const std::vector<ValueId>& out) {
    Op* op = maker(x);
    if (op == nullptr) return false;
    bool* flag = nullptr;
    if (auto* grad = std::get_if<ActGradOp>(&op->attrs)) return channels != kNone && joins(*op, *grad, channels, out);
    if (auto* n = std::get_if<NormOp>(&op->attrs))
      flag = channels == kNone ? &n->held : nullptr;
    else if (auto* a = std::get_if<ActOp>(&op->attrs))
      flag = channels == kNone ? &a->held : nullptr;
    else if (auto* d = std::get_if<NormGradOp>(&op->attrs))
      flag = channels != kNone ? &d->held : nullptr;
    else if (auto* r = std::get_if<QkNormRopeGradOp>(&op->attrs))
      flag = channels != kNone ? &r->held : nullptr;
    if (flag == nullptr || *flag) return false;
    *flag = true;
    if (channels != kNone) op->in.push_back(channels);
    op->out.insert(op->out.end(), out.begin(), out.end());
    return true;
  }

  // SwiGLU's gradient: a bound of its rows is known before, from the products that make its operands.
  bool joins(Op& op, ActGradOp& grad, ValueId channels, const std::vector<ValueId>& out) {
    const ValueId x = op.in[0], dy = op.in[1];
    if (grad.held) return false;
    if (trained_) {  // the whole row is seen
      grad.held = true;
      op.in.push_back(channels);
      op.out.insert(op.out.end(), out.begin(), out.end());
      return true;
    }
    if (grad.kind != ActKind::kSwiGlu) return false;
    Op *wide = maker(x), *act = nullptr, *back = maker(dy);
    if (wide && !(std::holds_alternative<LinearOp>(wide->attrs) && std::get<LinearOp>(wide->attrs).fp8)) wide = nullptr;
    if (back && !(std::holds_alternative<LinearDxOp>(back->attrs) && std::get<LinearDxOp>(back->attrs).fp8))
      back = nullptr;
    for (auto [i, end] = acts_.equal_range(x); i != end; ++i)
      if (std::get<ActOp>(g_.ops[i->second].attrs).held) act = &g_.ops[i->second];
    if (wide == nullptr || act == nullptr || back == nullptr) return false;
    std::get<LinearOp>(wide->attrs).row_absmax = std::get<LinearDxOp>(back->attrs).row_absmax = grad.held = true;
    const Extent rows = g_.value(x).rows;
    const ValueId halves = g_.add_value(rows, 2, DType::kF32), largest = g_.add_value(rows, 1, DType::kF32);
    wide->out.push_back(halves), act->in.push_back(halves), back->out.push_back(largest);
    op.in.insert(op.in.end(), {halves, largest, channels});
    op.out.insert(op.out.end(), out.begin(), out.end());
    return true;
  }

  // The adapters are joined before anything else.
  ValueId adapter(ValueId w) const {
    const auto at = adapter_.find(w);
    MXT_ASSERT(at != adapter_.end());
    return at->second;
  }

  static constexpr int64_t kLeastTrained = 128;  // of rows and columns: smaller products cost their rounding

  Graph& g_;
  Storage as_;
  bool trained_;  // of what trains, or of the frozen base
  std::map<ParamId, bool> of_trained_;
  std::map<ValueId, std::vector<ValueId>> weights_;
  std::map<std::pair<ValueId, ValueId>, std::vector<ValueId>> gradients_;
  std::map<ValueId, std::vector<ValueId>> rounded_;
  std::unordered_map<ValueId, size_t> maker_;     // of a first result
  std::multimap<ValueId, size_t> acts_;           // by what they read
  std::unordered_map<ValueId, ValueId> adapter_;  // A beside a weight
};

}  // namespace

void quantize_base(Graph& g, Storage as) {
  if (as != Storage::kPlain) Quantizer(g, as, false).run();
}

void quantize_trained(Graph& g) { Quantizer(g, Storage::kFp8, true).run(); }

}  // namespace mxt::graph
