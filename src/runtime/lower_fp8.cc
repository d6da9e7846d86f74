// Products with a frozen weight held in E4M3. The adapter's product stays in the graph's type and is the wide one's
// tail.
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

float* Lowering::maxima(ValueId v) const {
  static float any;  // only its presence matters to the shape
  return p_.params_ ? static_cast<float*>(at(v)) : &any;
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

void Lowering::lower(const HeldLinearOp&) {
  emit([this, op = op_](const Frame& f) {
    ops_.held_linear(
        {mat(op->in[0], f), static_cast<const float*>(at(op->in[1])), mat(op->in[2], f), mat(op->out[0], f)});
  });
}

void Lowering::lower(const HeldLinearDwOp&) {
  emit([this, op = op_](const Frame& f) {
    ops_.held_linear_dw({mat(op->in[0], f), mat(op->in[1], f), static_cast<const float*>(at(op->in[2])),
                         grad(op->param), adds(*op, f.batch)});
  });
}

void Lowering::lower_fp8(const LinearOp& a) {
  const int64_t r = a.joined;
  const size_t n = op_->in.size();
  const bool has_bias = n > (r > 0 ? 4u : 3u);
  emit_gemm([this, op = op_, n, r, has_bias, wants_max = a.row_max](const Frame& f) {
    Gemm g;
    g.a = mat(op->in[0], f);
    g.b = mat(op->in[1], f);
    g.c = mat(op->out[0], f);
    g.trans_b = true;
    if (has_bias) {
      g.bias = p_.params_ ? weight(op->in[2]) : this;  // any address: only its presence matters to the shape
      g.bias_type = g_.value(op->in[2]).type;
    }
    if (r > 0) {
      g.tail_a = mat(op->in[n - 2], f);
      g.tail_b = joined(op->in[1], r, f);
      g.tail_trans_b = true;
    }
    if (wants_max) g.row_parts = 2, g.row_max = maxima(op->out[1]);
    if (!p_.params_) return g;
    g.a_scale = static_cast<const float*>(at(op->in.back()));
    g.b_scale = (*p_.params_)[g_.value(op->in[1]).param].scale;
    return g;
  });
}

// dx = (dy∘scale)·Q: the scales of w are in dy already, so the second operand is Q transposed, with no scale of its
// own.
void Lowering::lower_fp8(const LinearDxOp& a) {
  const int64_t r = a.joined;
  const size_t n = op_->in.size();
  const bool sum = n > (r > 0 ? 5u : 3u);
  emit_gemm([this, op = op_, n, r, sum, wants_max = a.row_max](const Frame& f) {
    Gemm g;
    g.a = mat(op->in[0], f);
    const Param& w = g_.param_of(op->in[1]);
    g.b = {p_.params_ ? (*p_.params_)[g_.value(op->in[1]).param].transposed : nullptr, w.cols, w.rows, w.rows,
           DType::kF8E4M3};
    g.c = mat(op->out[0], f);
    g.trans_b = true;
    g.accumulate = sum;
    if (r > 0) {
      g.tail_a = mat(op->in[n - 3], f);
      g.tail_b = mat(op->in[n - 2], f);
    }
    if (wants_max) g.row_max = maxima(op->out[1]);
    if (p_.params_) g.a_scale = static_cast<const float*>(at(op->in.back()));
    return g;
  });
}

}  // namespace mxt::runtime
