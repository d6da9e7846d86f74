// Products with a frozen weight held in E4M3. The adapter's product stays in the graph's type: it is written first and
// the wide one adds to it, which costs one write and one read of the output; the other way round where the library
// cannot add.
#include "base/error.h"
#include "runtime/lower.h"

namespace mxt::runtime {

using namespace graph;
using kernels::Gemm;
using kernels::Mat;

kernels::HeldCopy Lowering::held_copy(const Op& op, ValueId channels, const Frame& f) const {
  kernels::HeldCopy h;
  if (channels != kNone) h.channel = (*p_.params_)[g_.value(channels).param].scale;
  h.q = mat(op.out[op.out.size() - 2], f);
  h.scale = static_cast<float*>(at(op.out.back()));
  return h;
}

void Lowering::lower(const QuantizeOp&) {
  emit([this, op = op_](const Frame& f) {
    kernels::Quantize q;
    q.x = mat(op->in[0], f);
    if (op->in.size() > 1) q.channel = (*p_.params_)[g_.value(op->in[1]).param].scale;
    q.q = mat(op->out[0], f);
    if (op->out.size() > 1) q.scale = static_cast<float*>(at(op->out[1]));
    ops_.quantize(q);
  });
}

void Lowering::lower_fp8(const LinearOp& a) {
  const int64_t r = a.joined;
  const size_t n = op_->in.size();
  const bool has_bias = n > (r > 0 ? 4u : 3u), first = ops_.adds_quantized();
  auto bias = [this, op = op_](Gemm& g) {
    g.bias = p_.params_ ? weight(op->in[2]) : this;  // any address: only its presence matters to the shape
    g.bias_type = g_.value(op->in[2]).type;
  };
  auto thin = [this, op = op_, n, r, has_bias, first, bias](const Frame& f) {
    Gemm g;
    g.a = mat(op->in[n - 2], f);
    g.b = joined(op->in[1], r, f);
    g.c = mat(op->out[0], f);
    g.trans_b = true;
    g.accumulate = !first;
    if (has_bias && first) bias(g);
    return g;
  };
  auto wide = [this, op = op_, r, has_bias, first, bias](const Frame& f) {
    Gemm g;
    g.a = mat(op->in[0], f);
    g.b = mat(op->in[1], f);
    g.c = mat(op->out[0], f);
    g.trans_b = true;
    g.accumulate = r > 0 && first;
    if (has_bias && !g.accumulate) bias(g);
    if (!p_.params_) return g;
    g.a_scale = static_cast<const float*>(at(op->in.back()));
    g.b_scale = (*p_.params_)[g_.value(op->in[1]).param].scale;
    return g;
  };
  if (r > 0 && first) emit_gemm(thin);
  emit_gemm(wide);
  if (r > 0 && !first) emit_gemm(thin);
}

// dx = (dy∘scale)·Q: the scales of w are in dy already, so the second operand is Q transposed, with no scale of its
// own.
void Lowering::lower_fp8(const LinearDxOp& a) {
  const int64_t r = a.joined;
  const size_t n = op_->in.size();
  const bool sum = n > (r > 0 ? 5u : 3u), first = ops_.adds_quantized();
  if (sum && !first)
    fail_missing("{}: FP8 products that add into their result are needed here, and this library has none", ops_.name());
  auto thin = [this, op = op_, n, sum, first](const Frame& f) {
    Gemm g;
    g.a = mat(op->in[n - 3], f);
    g.b = mat(op->in[n - 2], f);
    g.c = mat(op->out[0], f);
    g.accumulate = sum || !first;
    return g;
  };
  auto wide = [this, op = op_, r, sum, first](const Frame& f) {
    Gemm g;
    g.a = mat(op->in[0], f);
    const Param& w = g_.param_of(op->in[1]);
    g.b = {p_.params_ ? (*p_.params_)[g_.value(op->in[1]).param].transposed : nullptr, w.cols, w.rows, w.rows,
           DType::kF8E4M3};
    g.c = mat(op->out[0], f);
    g.trans_b = true;
    g.accumulate = first && (r > 0 || sum);
    if (p_.params_) g.a_scale = static_cast<const float*>(at(op->in.back()));
    return g;
  };
  if (r > 0 && first) emit_gemm(thin);
  emit_gemm(wide);
  if (r > 0 && !first) emit_gemm(thin);
}

}  // namespace mxt::runtime
