// Products with a frozen weight held in E4M3. The adapter's product stays in the graph's type and is the wide one's
// tail.
#include "runtime/lower.h"

namespace mxt::runtime {

using namespace graph;
using kernels::Gemm;
using kernels::Mat;

// Of a weight that is held in E4M3, or the scales themselves, of one that trains.
const float* Lowering::scales_of(ValueId v) { return g_.value(v).param == kNone ? at<const float>(v) : scale(v); }

kernels::RowwiseFp8Copy Lowering::rowwise_fp8_copy(const Op& op, ValueId channels) {
  kernels::RowwiseFp8Copy h;
  if (channels != kNone) h.channel = scales_of(channels);
  h.q = mat(op.out[op.out.size() - 2]);
  h.scale = at<float>(op.out.back());
  return h;
}

void Lowering::lower(const QuantizeOp&) {
  kernels::Quantize q;
  q.x = mat(op_->in[0]);
  if (op_->in.size() > 1) q.channel = scales_of(op_->in[1]);
  q.q = mat(op_->out[0]);
  if (op_->out.size() > 1) q.scale = at<float>(op_->out[1]);
  emit(q);
}

void Lowering::lower(const RowwiseFp8LinearOp&) {
  emit(kernels::RowwiseFp8Linear{mat(op_->in[0]), at<float>(op_->in[1]), mat(op_->in[2]), mat(op_->out[0])});
}

void Lowering::lower(const RowwiseFp8LinearDwOp&) {
  emit(kernels::RowwiseFp8LinearDw{mat(op_->in[0]), mat(op_->in[1]), at<float>(op_->in[2]), grad(op_->param),
                                   adds(*op_)},
       first(*op_));
}

void Lowering::lower(const RowwiseFp8TransposeOp&) {
  kernels::RowwiseFp8Transpose t{mat(op_->in[0]), mat(op_->out[0])};
  if (op_->in.size() > 1) t.scale = at<float>(op_->in[1]), t.out_scale = at<float>(op_->out[1]);
  emit(t);
}

void Lowering::lower(const Fp8LinearDwOp&) {
  kernels::Fp8LinearDw call;
  call.dy = mat(op_->in[0]), call.dy_scale = at<float>(op_->in[1]);
  call.x = mat(op_->in[2]), call.x_scale = at<float>(op_->in[3]);
  call.channel = at<float>(op_->in[4]);
  call.dw = grad(op_->param);
  call.accumulate = adds(*op_);
  scratch(ops_.fp8_linear_dw_scratch(widest(call)));
  emit(call, first(*op_));
}

void Lowering::lower_fp8(const LinearOp& a) {
  const int64_t r = a.joined;
  const bool trains = g_.value(op_->in[1]).param == kNone;
  const size_t n = op_->in.size() - trains;
  Gemm g;
  g.a = mat(op_->in[0]);
  g.b = mat(op_->in[1]);
  g.c = mat(op_->out[0]);
  g.trans_b = true;
  if (n > (r > 0 ? 4u : 3u)) {
    g.bias = at(op_->in[2]);
    g.bias_type = g_.value(op_->in[2]).type;
  }
  if (r > 0) {
    g.tail_a = mat(op_->in[n - 2]);
    g.tail_b = joined(op_->in[1], r);
    g.tail_trans_b = true;
  }
  if (a.row_absmax) g.row_parts = 2, g.row_absmax = at<float>(op_->out[1]);
  g.a_scale = at<float>(op_->in.back());
  g.b_scale = trains ? at<float>(op_->in[n - 1]) : scale(op_->in[1]);
  emit_gemm(g);
}

// dx = (dy∘scale)·Q: the scales of w are in dy already, so the second operand is Q transposed, with no scale of its
// own.
void Lowering::lower_fp8(const LinearDxOp& a) {
  const int64_t r = a.joined;
  const size_t n = op_->in.size();
  Gemm g;
  g.a = mat(op_->in[0]);
  if (const ParamId id = g_.value(op_->in[1]).param; id != kNone) {
    const Param& w = g_.params[static_cast<size_t>(id)];
    g.b = {in(Source::kTransposed, id), w.cols, w.rows, w.rows, DType::kF8E4M3};
  } else {
    g.b = mat(op_->in[1]);  // a RowwiseFp8TransposeOp's
  }
  g.c = mat(op_->out[0]);
  g.trans_b = true;
  g.accumulate = n > (r > 0 ? 5u : 3u);
  if (r > 0) {
    g.tail_a = mat(op_->in[n - 3]);
    g.tail_b = mat(op_->in[n - 2]);
  }
  if (a.row_absmax) g.row_absmax = at<float>(op_->out[1]);
  g.a_scale = at<float>(op_->in.back());
  emit_gemm(g);
}

}  // namespace mxt::runtime
