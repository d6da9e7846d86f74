// Gated DeltaNet and the gates around it.
#include "base/error.h"
#include "runtime/lower.h"

namespace mxt::runtime {

using namespace graph;

// The batch's documents; at the widest, full ones.
template <typename C>
void Lowering::set_documents(C& call) {
  const int64_t tokens = spec_.settings.max_tokens,
                full = spec_.settings.document > 0 ? spec_.settings.document : tokens;
  call.cu_seqlens = in<int32_t>(Source::kDocuments);
  call.documents = (tokens + full - 1) / full;
  call.longest_document = full;
}

// The documents of a pass over a cache are its requests, which carry on what stands in their slots.
template <typename C>
void Lowering::carry(C& call, Source states, int layer) {
  if (!spec_.settings.cached) return set_documents(call);
  call.cu_seqlens = in<int32_t>(Source::kQueries);
  call.carried.on = true;
  call.carried.states = in(states, layer);
  call.carried.slot = in<int32_t>(Source::kStateSlots);
  call.carried.context = in<int32_t>(Source::kContext);
}

void Lowering::lower(const CausalConvOp& a) {
  kernels::CausalConv c;
  c.x = mat(op_->in[0]), c.w = mat(op_->in[1]), c.y = mat(op_->out[0]);
  carry(c, Source::kConvolutions, a.layer);
  emit(c);
}

void Lowering::lower(const CausalConvGradOp&) {
  kernels::CausalConvGrad c;
  c.x = mat(op_->in[0]), c.w = mat(op_->in[1]), c.dy = mat(op_->in[2]);
  c.dx = mat(op_->out[0]);
  if (op_->param != kNone) c.dw = grad(op_->param);
  c.accumulate = adds(*op_);
  set_documents(c);
  emit(c, first(*op_));
}

namespace {

kernels::DeltaShape shape_of(const GatedDeltaOp& a) { return {a.key_heads, a.value_heads, a.key_dim, a.value_dim}; }

}  // namespace

void Lowering::lower(const GatedDeltaOp& a) {
  kernels::GatedDelta g;
  g.qkv = mat(op_->in[0]), g.ba = mat(op_->in[1]);
  g.a_log = mat(op_->in[2]), g.dt_bias = mat(op_->in[3]);
  g.out = mat(op_->out[0]);
  g.of = shape_of(a);
  carry(g, Source::kStates, a.layer);
  delta_memory_ = std::max(delta_memory_, kernels::own_memory(ops_, widest(g)));
  emit(g);
}

void Lowering::lower(const GatedDeltaGradOp& a) {
  kernels::GatedDeltaGrad g;
  g.qkv = mat(op_->in[0]), g.ba = mat(op_->in[1]);
  g.a_log = mat(op_->in[2]), g.dt_bias = mat(op_->in[3]);
  g.dout = mat(op_->in[4]);
  g.dqkv = mat(op_->out[0]), g.dba = mat(op_->out[1]);
  if (a.a_log != kNone) g.da_log = grad(a.a_log);
  if (a.dt_bias != kNone) g.ddt_bias = grad(a.dt_bias);
  g.of = shape_of(a.of);
  set_documents(g);
  delta_memory_ = std::max(delta_memory_, kernels::own_memory(ops_, widest(g)));
  emit(g, 1);  // these parameters have this one use
}

void Lowering::lower(const GatedNormOp& a) {
  emit(kernels::GatedNorm{mat(op_->in[0]), mat(op_->in[1]), mat(op_->in[2]), mat(op_->out[0]), at<float>(op_->out[1]),
                          a.eps});
}

void Lowering::lower(const GatedNormGradOp&) {
  kernels::GatedNormGrad g;
  g.x = mat(op_->in[0]), g.gate = mat(op_->in[1]), g.w = mat(op_->in[2]);
  g.rstd = at<float>(op_->in[3]);
  g.dy = mat(op_->in[4]);
  g.dx = mat(op_->out[0]), g.dgate = mat(op_->out[1]);
  if (op_->param != kNone) g.dw = grad(op_->param);
  g.accumulate = adds(*op_);
  emit(g, first(*op_));
}

void Lowering::lower(const SigmoidGateOp&) {
  emit(kernels::SigmoidGate{mat(op_->in[0]), mat(op_->in[1]), mat(op_->out[0])});
}

void Lowering::lower(const SigmoidGateGradOp&) {
  emit(kernels::SigmoidGateGrad{mat(op_->in[0]), mat(op_->in[1]), mat(op_->in[2]), mat(op_->out[0]), mat(op_->out[1])});
}

void Lowering::lower(const SplitGatesOp& a) {
  emit(kernels::SplitGates{mat(op_->in[0]), mat(op_->out[0]), mat(op_->out[1]), a.dim, false});
}

void Lowering::lower(const MergeGatesOp& a) {
  emit(kernels::SplitGates{mat(op_->out[0]), mat(op_->in[0]), mat(op_->in[1]), a.dim, true});
}

}  // namespace mxt::runtime
