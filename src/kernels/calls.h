// Calls as data: one type for every call of api.h (and the few that have no backend of their own), what each reads and
// writes, and how it is made. A program is a list of these; whoever prints, counts, binds or times it asks here and
// knows no call by name.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "kernels/adapters.h"
#include "kernels/api.h"
#include "kernels/decode.h"
#include "kernels/draw.h"
#include "kernels/external.h"
#include "kernels/gpt_oss.h"
#include "kernels/small_types.h"

namespace mxt::kernels {

// Rows held in a small type and decoded again (round_rows); the host's backends alone.
struct RoundRows {
  SmallType type = SmallType::kFp8;
  int64_t group = 0;
  ConstMat x;
  Mat y;
};
// Rows into the host's memory, as F32. What is F32 already is queued; of another type the host converts it, and waits.
struct ToHost {
  ConstMat x;
  Mat y;  // host memory, rows side by side
};

using AnyCall =
    std::variant<Gemm, Quantize, Decode, RowwiseFp8Linear, RowwiseFp8LinearDw, RowwiseFp8Transpose, Fp8LinearDw,
                 LoraGrad, Embedding, EmbeddingGrad, Norm, NormGrad, QkNormRope, QkNormRopeGrad, Attention,
                 AttentionGrad, CachedAttention, StoreCache, Act, ActGrad, ActLora, ActLoraGrad, Add, Mix, MixGrad,
                 Gate, GateGrad, BiasGrad, Dropout, CrossEntropy, LabelGrad, Copy, GatherRows, ScatterRows, MeanPool,
                 RoundRows, ToHost, Route, RouteGrad, ExpertGather, ExpertSum, ExpertDots, GroupedGemm, RouteLoad,
                 BalanceLoss, CausalConv, CausalConvGrad, GatedDelta, GatedDeltaGrad, GatedNorm, GatedNormGrad,
                 SigmoidGate, SigmoidGateGrad, SplitGates, DrawTokens, DoraGain, DoraScale, DoraScaleGrad,
                 EmbeddingNoise, AttentionSinks, AttentionSinksGrad, CachedSinks, ClampedGlu, ClampedGluGrad,
                 ExpertBias, ExpertBiasGrad, External>;

std::string_view name_of(const AnyCall& call);

// Makes the call. kMissing, naming the call and the backend, where the backend has no such operation.
void run(Ops& ops, const AnyCall& call);

// Floating-point operations of the call's products (a multiplication and an addition are two); 0 for what only moves
// memory. Attention counts what its mask lets it see of documents as long as `longest`.
double operations(const AnyCall& call);

// Whether an operand is read, written, or both.
enum class Use : uint8_t { kRead, kWritten, kBoth };

// Shows every operand and every number of a call that changes from step to step, in one fixed order, to `v`:
//   v.mat(name, ConstMat& or Mat&, use)
//   v.array(name, const T*& or T*&, type, elements, use)     elements 0: its size is not seen from the call
//   v.adds(bool&)                                             whether it adds to its result
//   v.draws(float p, uint64_t& seed, uint64_t& stream, int64_t& first_row)
//   v.documents(int64_t& documents, int64_t& longest)
//   v.cache(int64_t& requests, int64_t& max_pages), v.page(int64_t& page)
// Operands that a call does without have a null pointer and are shown all the same.
template <class V>
void rowwise_fp8_copy(V& v, RowwiseFp8Copy& h) {
  v.array("held.channel", h.channel, DType::kF32, h.q.cols, Use::kRead);
  v.mat("held.q", h.q, Use::kWritten);
  v.array("held.scale", h.scale, DType::kF32, h.q.rows, Use::kWritten);
}

template <class V>
void operands(Gemm& g, V& v) {
  v.mat("a", g.a, Use::kRead);
  v.mat("b", g.b, Use::kRead);
  v.mat("c", g.c, g.accumulate ? Use::kBoth : Use::kWritten);
  v.array("bias", g.bias, g.bias_type, g.c.cols, Use::kRead);
  v.array("a_scale", g.a_scale, DType::kF32, g.c.rows, Use::kRead);
  v.array("b_scale", g.b_scale, DType::kF32, g.c.cols, Use::kRead);
  v.mat("tail_a", g.tail_a, Use::kRead);
  v.mat("tail_b", g.tail_b, Use::kRead);
  v.array("row_absmax", g.row_absmax, DType::kF32, g.c.rows * g.row_parts, Use::kWritten);
  v.array("b_packed", g.b_packed, g.b.type, 0, Use::kRead);  // instead of b
  v.mat("relu2_of", g.relu2_of, Use::kRead);
  v.adds(g.accumulate);
}

template <class V>
void operands(Quantize& q, V& v) {
  v.mat("x", q.x, Use::kRead);
  v.array("channel", q.channel, DType::kF32, q.x.cols, Use::kRead);
  v.mat("q", q.q, Use::kWritten);
  v.array("scale", q.scale, DType::kF32, q.x.rows, Use::kWritten);
}

// Sizes are those of the rectangle.
template <class V>
void operands(Decode& d, V& v) {
  const CodedBytes bytes = coded_bytes(d.matrix.coding, d.out.rows, d.out.cols);
  v.array("codes", d.matrix.codes, DType::kU8, bytes.codes, Use::kRead);
  v.array("scales", d.matrix.scales, DType::kU8, bytes.scales, Use::kRead);
  v.array("nested", d.matrix.nested, DType::kF32, bytes.nested / 4, Use::kRead);
  v.mat("out", d.out, Use::kWritten);
}

template <class V>
void operands(RowwiseFp8Linear& c, V& v) {
  v.mat("q", c.q, Use::kRead);
  v.array("scale", c.scale, DType::kF32, c.q.rows, Use::kRead);
  v.mat("w", c.w, Use::kRead);
  v.mat("z", c.z, Use::kWritten);
}

template <class V>
void operands(RowwiseFp8LinearDw& c, V& v) {
  v.mat("dz", c.dz, Use::kRead);
  v.mat("q", c.q, Use::kRead);
  v.array("scale", c.scale, DType::kF32, c.q.rows, Use::kRead);
  v.array("dw", c.dw, DType::kF32, c.dz.cols * c.q.cols, c.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(c.accumulate);
}

template <class V>
void operands(RowwiseFp8Transpose& c, V& v) {
  v.mat("q", c.q, Use::kRead);
  v.array("scale", c.scale, DType::kF32, c.q.rows, Use::kRead);
  v.mat("out", c.out, Use::kWritten);
  v.array("out_scale", c.out_scale, DType::kF32, c.out.rows, Use::kWritten);
}

template <class V>
void operands(Fp8LinearDw& c, V& v) {
  v.mat("dy", c.dy, Use::kRead);
  v.array("dy_scale", c.dy_scale, DType::kF32, c.dy.rows, Use::kRead);
  v.mat("x", c.x, Use::kRead);
  v.array("x_scale", c.x_scale, DType::kF32, c.x.rows, Use::kRead);
  v.array("channel", c.channel, DType::kF32, c.dy.cols, Use::kRead);
  v.array("dw", c.dw, DType::kF32, c.dy.cols * c.x.cols, c.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(c.accumulate);
}

template <class V>
void operands(LoraGrad& g, V& v) {
  v.mat("dy", g.dy, Use::kRead);
  v.mat("b", g.b, Use::kRead);
  v.mat("z", g.z, Use::kRead);
  v.mat("dz", g.dz, Use::kWritten);
  for (LoraGrad::Block& k : g.blocks)
    v.array("db", k.db, DType::kF32, k.cols * k.rank, g.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(g.accumulate);
}

template <class V>
void operands(Embedding& e, V& v) {
  v.array("ids", e.ids, DType::kI32, e.y.rows, Use::kRead);
  v.mat("table", e.table, Use::kRead);
  v.mat("y", e.y, Use::kWritten);
}

template <class V>
void operands(EmbeddingGrad& e, V& v) {
  v.array("ids", e.ids, DType::kI32, e.dy.rows, Use::kRead);
  v.mat("dy", e.dy, Use::kRead);
  v.mat("dtable", e.dtable, e.accumulate ? Use::kBoth : Use::kWritten);
  v.array("by", e.by, DType::kF32, e.dy.rows, Use::kRead);
  v.adds(e.accumulate);
}

template <class V>
void operands(Norm& n, V& v) {
  v.mat("x", n.x, Use::kRead);
  v.mat("r", n.r, Use::kRead);
  v.mat("h", n.h, Use::kWritten);
  v.mat("y", n.y, Use::kWritten);
  v.array("w", n.w, n.wtype, n.x.cols, Use::kRead);
  v.array("b", n.b, n.wtype, n.x.cols, Use::kRead);
  v.array("mean", n.mean, DType::kF32, n.x.rows, Use::kWritten);
  v.array("rstd", n.rstd, DType::kF32, n.x.rows, Use::kWritten);
  rowwise_fp8_copy(v, n.held);
}

template <class V>
void operands(NormGrad& n, V& v) {
  v.mat("x", n.x, Use::kRead);
  v.mat("dy", n.dy, Use::kRead);
  v.mat("dres", n.dres, Use::kRead);
  v.mat("dx", n.dx, Use::kWritten);
  v.array("w", n.w, n.wtype, n.x.cols, Use::kRead);
  v.array("mean", n.mean, DType::kF32, n.x.rows, Use::kRead);
  v.array("rstd", n.rstd, DType::kF32, n.x.rows, Use::kRead);
  v.array("dw", n.dw, DType::kF32, n.x.cols, n.accumulate ? Use::kBoth : Use::kWritten);
  v.array("db", n.db, DType::kF32, n.x.cols, n.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(n.accumulate);
  rowwise_fp8_copy(v, n.held);
}

template <class V>
void operands(QkNormRope& r, V& v) {
  v.mat("qkv", r.qkv, Use::kRead);
  v.mat("out", r.out, Use::kWritten);
  v.array("positions", r.positions, DType::kI32, r.qkv.rows, Use::kRead);
  v.array("cos", r.cos, DType::kF32, r.qkv.rows * r.rotary / 2, Use::kRead);
  v.array("sin", r.sin, DType::kF32, r.qkv.rows * r.rotary / 2, Use::kRead);
  v.array("q_w", r.q_w, r.wtype, r.head_dim, Use::kRead);
  v.array("k_w", r.k_w, r.wtype, r.head_dim, Use::kRead);
  v.array("rstd", r.rstd, DType::kF32, r.qkv.rows * (r.heads + r.kv_heads), Use::kWritten);
}

template <class V>
void operands(QkNormRopeGrad& r, V& v) {
  v.mat("qkv", r.qkv, Use::kRead);
  v.mat("dout", r.dout, Use::kRead);
  v.mat("dqkv", r.dqkv, Use::kWritten);
  v.array("positions", r.positions, DType::kI32, r.dout.rows, Use::kRead);
  v.array("cos", r.cos, DType::kF32, r.dout.rows * r.rotary / 2, Use::kRead);
  v.array("sin", r.sin, DType::kF32, r.dout.rows * r.rotary / 2, Use::kRead);
  v.array("q_w", r.q_w, r.wtype, r.head_dim, Use::kRead);
  v.array("k_w", r.k_w, r.wtype, r.head_dim, Use::kRead);
  v.array("rstd", r.rstd, DType::kF32, r.dout.rows * (r.heads + r.kv_heads), Use::kRead);
  v.array("dq_w", r.dq_w, DType::kF32, r.head_dim, r.accumulate ? Use::kBoth : Use::kWritten);
  v.array("dk_w", r.dk_w, DType::kF32, r.head_dim, r.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(r.accumulate);
  rowwise_fp8_copy(v, r.held);
}

template <class V>
void operands(Attention& a, V& v) {
  v.mat("q", a.q, Use::kRead);
  v.mat("k", a.k, Use::kRead);
  v.mat("v", a.v, Use::kRead);
  v.mat("out", a.out, Use::kWritten);
  v.array("lse", a.lse, DType::kF32, a.q.rows * a.heads, Use::kWritten);
  v.array("cu_seqlens", a.cu_seqlens, DType::kI32, a.documents + 1, Use::kRead);
  v.array("prefix", a.prefix, DType::kI32, a.documents, Use::kRead);
  v.documents(a.documents, a.longest);
  v.draws(a.dropout, a.seed, a.stream, a.first_row);
}

template <class V>
void operands(AttentionGrad& a, V& v) {
  v.mat("q", a.q, Use::kRead);
  v.mat("k", a.k, Use::kRead);
  v.mat("v", a.v, Use::kRead);
  v.mat("out", a.out, Use::kRead);
  v.mat("dout", a.dout, Use::kRead);
  v.array("lse", a.lse, DType::kF32, a.q.rows * a.heads, Use::kRead);
  v.mat("dq", a.dq, Use::kWritten);
  v.mat("dk", a.dk, Use::kWritten);
  v.mat("dv", a.dv, Use::kWritten);
  v.array("cu_seqlens", a.cu_seqlens, DType::kI32, a.documents + 1, Use::kRead);
  v.array("host_cu_seqlens", a.host_cu_seqlens, DType::kI32, 0, Use::kRead);
  v.array("prefix", a.prefix, DType::kI32, a.documents, Use::kRead);
  v.documents(a.documents, a.longest);
  v.draws(a.dropout, a.seed, a.stream, a.first_row);
}

template <class V>
void operands(CachedAttention& a, V& v) {
  v.mat("q", a.q, Use::kRead);
  v.mat("out", a.out, Use::kWritten);
  v.array("k_cache", a.k_cache, a.q.type, 0, Use::kRead);
  v.array("v_cache", a.v_cache, a.q.type, 0, Use::kRead);
  v.array("cu_q", a.cu_q, DType::kI32, a.requests + 1, Use::kRead);
  v.array("context", a.context, DType::kI32, a.requests, Use::kRead);
  v.array("tables", a.tables, DType::kI32, a.requests * a.max_pages, Use::kRead);
  v.cache(a.requests, a.max_pages);
  v.page(a.page);
}

template <class V>
void operands(AttentionSinks& a, V& v) {
  v.mat("out", a.out, Use::kBoth);
  v.array("lse", a.lse, DType::kF32, a.out.rows * a.heads, Use::kBoth);
  v.array("sinks", a.sinks, DType::kF32, a.heads, Use::kRead);
}

template <class V>
void operands(AttentionSinksGrad& a, V& v) {
  v.mat("out", a.out, Use::kRead);
  v.mat("dout", a.dout, Use::kRead);
  v.array("lse", a.lse, DType::kF32, a.out.rows * a.heads, Use::kRead);
  v.array("sinks", a.sinks, DType::kF32, a.heads, Use::kRead);
  v.array("dsinks", a.dsinks, DType::kF32, a.heads, a.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(a.accumulate);
}

template <class V>
void operands(CachedSinks& c, V& v) {
  operands(c.of, v);
  v.array("sinks", c.sinks, DType::kF32, c.of.heads, Use::kRead);
}

template <class V>
void operands(ClampedGlu& g, V& v) {
  v.mat("x", g.x, Use::kRead);
  v.mat("y", g.y, Use::kWritten);
}

template <class V>
void operands(ClampedGluGrad& g, V& v) {
  v.mat("x", g.x, Use::kRead);
  v.mat("dy", g.dy, Use::kRead);
  v.mat("dx", g.dx, Use::kWritten);
}

template <class V>
void operands(ExpertBias& b, V& v) {
  v.mat("y", b.y, Use::kBoth);
  v.mat("bias", b.bias, Use::kRead);
  v.array("first", b.first, DType::kI32, b.experts + 1, Use::kRead);
}

template <class V>
void operands(ExpertBiasGrad& b, V& v) {
  v.mat("dy", b.dy, Use::kRead);
  v.array("first", b.first, DType::kI32, b.experts + 1, Use::kRead);
  v.array("dbias", b.dbias, DType::kF32, b.experts * b.dy.cols, b.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(b.accumulate);
}

template <class V>
void operands(StoreCache& s, V& v) {
  v.mat("k", s.k, Use::kRead);
  v.mat("v", s.v, Use::kRead);
  v.array("k_cache", s.k_cache, s.k.type, s.k.rows * s.k.cols, Use::kWritten);
  v.array("v_cache", s.v_cache, s.v.type, s.v.rows * s.v.cols, Use::kWritten);
  v.array("slots", s.slots, DType::kI32, s.k.rows, Use::kRead);
  v.page(s.page);
}

template <class V>
void operands(Act& a, V& v) {
  v.mat("x", a.x, Use::kRead);
  v.mat("y", a.y, Use::kWritten);
  rowwise_fp8_copy(v, a.held);
}

template <class V>
void operands(ActGrad& a, V& v) {
  v.mat("x", a.x, Use::kRead);
  v.mat("dy", a.dy, Use::kRead);
  v.mat("dx", a.dx, Use::kWritten);
  rowwise_fp8_copy(v, a.held);
}

template <class V>
void operands(ActLora& a, V& v) {
  operands(a.act, v);
  v.mat("a", a.a, Use::kRead);
  v.mat("z", a.z, Use::kWritten);
  v.array("row_absmax", a.row_absmax, DType::kF32, 2 * a.act.x.rows, Use::kRead);
}

template <class V>
void operands(ActLoraGrad& a, V& v) {
  operands(a.act, v);
  operands(a.lora, v);
  v.mat("dz_of_y", a.dz, Use::kRead);
  v.array("da", a.da, DType::kF32, a.dz.cols * a.act.dy.cols, a.accumulate_da ? Use::kBoth : Use::kWritten);
  v.adds(a.accumulate_da);
  rowwise_fp8_copy(v, a.held);
  v.array("row_absmax", a.row_absmax, DType::kF32, 2 * a.act.x.rows, Use::kRead);
  v.array("largest", a.largest, DType::kF32, a.act.x.rows, Use::kRead);
}

template <class V>
void operands(Add& a, V& v) {
  v.mat("a", a.a, Use::kRead);
  v.mat("b", a.b, Use::kRead);
  v.mat("y", a.y, Use::kWritten);
}

template <class V>
void operands(Mix& m, V& v) {
  v.mat("x", m.x, Use::kRead);
  v.mat("z", m.z, Use::kRead);
  v.mat("y", m.y, Use::kWritten);
  v.array("a", m.a, m.wtype, 1, Use::kRead);
  v.array("b", m.b, m.wtype, 1, Use::kRead);
}

template <class V>
void operands(MixGrad& m, V& v) {
  v.mat("dy", m.dy, Use::kRead);
  v.mat("x", m.x, Use::kRead);
  v.mat("z", m.z, Use::kRead);
  v.mat("sum", m.sum, Use::kRead);
  v.mat("dx", m.dx, Use::kWritten);
  v.mat("dz", m.dz, Use::kWritten);
  v.array("a", m.a, m.wtype, 1, Use::kRead);
  v.array("b", m.b, m.wtype, 1, Use::kRead);
  v.array("da", m.da, DType::kF32, 1, m.accumulate ? Use::kBoth : Use::kWritten);
  v.array("db", m.db, DType::kF32, 1, m.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(m.accumulate);
}

template <class V>
void operands(Gate& g, V& v) {
  v.mat("x", g.x, Use::kRead);
  v.mat("s", g.s, Use::kRead);
  v.mat("w", g.w, Use::kRead);
  v.mat("u", g.u, Use::kRead);
  v.mat("y", g.y, Use::kWritten);
  v.array("lambda", g.lambda, g.wtype, 1, Use::kRead);
  v.array("positions", g.positions, DType::kI32, g.x.rows, Use::kRead);
}

template <class V>
void operands(GateGrad& g, V& v) {
  v.mat("dy", g.dy, Use::kRead);
  v.mat("s", g.s, Use::kRead);
  v.mat("w", g.w, Use::kRead);
  v.mat("u", g.u, Use::kRead);
  v.mat("ds", g.ds, Use::kWritten);
  v.mat("du", g.du, Use::kWritten);
  v.array("lambda", g.lambda, g.wtype, 1, Use::kRead);
  v.array("positions", g.positions, DType::kI32, g.dy.rows, Use::kRead);
  v.array("dw", g.dw, DType::kF32, g.w.rows * g.w.cols, g.accumulate ? Use::kBoth : Use::kWritten);
  v.array("dlambda", g.dlambda, DType::kF32, 1, g.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(g.accumulate);
}

template <class V>
void operands(BiasGrad& b, V& v) {
  v.mat("dy", b.dy, Use::kRead);
  v.array("db", b.db, DType::kF32, b.dy.cols, b.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(b.accumulate);
}

template <class V>
void operands(Dropout& d, V& v) {
  v.mat("x", d.x, Use::kRead);
  v.mat("y", d.y, Use::kWritten);
  v.draws(d.p, d.seed, d.stream, d.first_row);
}

template <class V>
void operands(DoraGain& d, V& v) {
  v.mat("w", d.w, Use::kRead);
  v.mat("p", d.p, Use::kRead);
  v.mat("q", d.q, Use::kRead);
  v.mat("b", d.b, Use::kRead);
  v.array("m", d.m, DType::kF32, d.rows, Use::kRead);
  v.array("gain", d.gain, DType::kF32, d.rows, Use::kWritten);
  v.array("norm", d.norm, DType::kF32, d.rows, Use::kWritten);
}

template <class V>
void operands(DoraScale& d, V& v) {
  v.mat("u", d.u, Use::kRead);
  v.array("gain", d.gain, DType::kF32, d.u.cols, Use::kRead);
  v.array("bias", d.bias, d.bias_type, d.u.cols, Use::kRead);
  v.mat("y", d.y, Use::kWritten);
}

template <class V>
void operands(DoraScaleGrad& d, V& v) {
  v.mat("dy", d.dy, Use::kRead);
  v.mat("u", d.u, Use::kRead);
  v.array("gain", d.gain, DType::kF32, d.u.cols, Use::kRead);
  v.array("norm", d.norm, DType::kF32, d.u.cols, Use::kRead);
  v.mat("du", d.du, Use::kWritten);
  v.array("dm", d.dm, DType::kF32, d.u.cols, d.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(d.accumulate);
}

template <class V>
void operands(EmbeddingNoise& e, V& v) {
  v.mat("x", e.x, Use::kRead);
  v.mat("y", e.y, Use::kWritten);
  v.array("cu_seqlens", e.cu_seqlens, DType::kI32, e.documents + 1, Use::kRead);
  v.documents(e.documents, e.longest_document);
  v.draws(e.alpha, e.seed, e.stream, e.first_row);
}

template <class V>
void operands(CrossEntropy& c, V& v) {
  v.mat("logits", c.logits, c.gradient && !c.held.q.p ? Use::kBoth : Use::kRead);
  v.array("labels", c.labels, DType::kI32, c.logits.rows, Use::kRead);
  v.array("weights", c.weights, DType::kF32, c.logits.rows, Use::kRead);
  v.array("nll", c.nll, DType::kF32, c.logits.rows, Use::kWritten);
  v.array("entropy", c.entropy, DType::kF32, c.logits.rows, Use::kWritten);
  rowwise_fp8_copy(v, c.held);
  v.array("at_label", c.at_label, DType::kF32, c.logits.rows, Use::kWritten);
}

template <class V>
void operands(LabelGrad& g, V& v) {
  v.mat("dh", g.dh, Use::kBoth);
  v.mat("w", g.w, Use::kRead);
  v.array("labels", g.labels, DType::kI32, g.dh.rows, Use::kRead);
  v.array("nll", g.nll, DType::kF32, g.dh.rows, Use::kRead);
  v.array("weights", g.weights, DType::kF32, g.dh.rows, Use::kRead);
  v.array("at_label", g.at_label, DType::kF32, g.dh.rows, Use::kRead);
}

template <class V>
void operands(Copy& c, V& v) {
  v.mat("x", c.x, Use::kRead);
  v.mat("y", c.y, Use::kWritten);
}

template <class V>
void operands(GatherRows& g, V& v) {
  v.mat("x", g.x, Use::kRead);
  v.array("rows", g.rows, DType::kI32, g.y.rows, Use::kRead);
  v.mat("y", g.y, Use::kWritten);
}

template <class V>
void operands(ScatterRows& s, V& v) {
  v.mat("x", s.x, Use::kRead);
  v.array("rows", s.rows, DType::kI32, s.x.rows, Use::kRead);
  v.mat("y", s.y, Use::kWritten);
}

template <class V>
void operands(MeanPool& m, V& v) {
  v.mat("x", m.x, Use::kRead);
  v.array("cu_seqlens", m.cu_seqlens, DType::kI32, m.y.rows + 1, Use::kRead);
  v.mat("y", m.y, Use::kWritten);
}

template <class V>
void operands(DrawTokens& d, V& v) {
  v.mat("logits", d.logits, Use::kRead);
  v.array("temperature", d.temperature, DType::kF32, d.logits.rows, Use::kRead);
  v.array("bits", d.bits, DType::kI32, 2 * d.logits.rows, Use::kRead);
  v.mat("drawn", d.drawn, Use::kWritten);
}

template <class V>
void operands(External& e, V& v) {
  for (ConstMat& m : e.in) v.mat("in", m, Use::kRead);
  for (Mat& m : e.out) v.mat("out", m, Use::kWritten);
  v.mat("gradient", e.gradient, e.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(e.accumulate);
}

template <class V>
void operands(RoundRows& r, V& v) {
  v.mat("x", r.x, Use::kRead);
  v.mat("y", r.y, Use::kWritten);
}

template <class V>
void operands(ToHost& t, V& v) {
  v.mat("x", t.x, Use::kRead);
  v.mat("y", t.y, Use::kWritten);
}

template <class V>
void operands(Route& r, V& v) {
  v.mat("logits", r.logits, Use::kRead);
  v.mat("weights", r.weights, Use::kWritten);
  v.mat("probabilities", r.probabilities, Use::kWritten);
  const int64_t slots = r.weights.rows * r.weights.cols;
  v.array("expert", r.expert, DType::kI32, slots, Use::kWritten);
  v.array("row", r.row, DType::kI32, slots, Use::kWritten);
  v.array("slot", r.slot, DType::kI32, slots, Use::kWritten);
  v.array("first", r.first, DType::kI32, r.logits.cols + 1, Use::kWritten);
}

template <class V>
void operands(RouteGrad& r, V& v) {
  v.mat("probabilities", r.probabilities, Use::kRead);
  v.mat("dweights", r.dweights, Use::kRead);
  v.array("expert", r.expert, DType::kI32, r.dweights.rows * r.dweights.cols, Use::kRead);
  v.mat("dlogits", r.dlogits, Use::kWritten);
  v.mat("balance", r.balance, Use::kRead);
  v.array("runs", r.runs, DType::kI32, r.balance.rows + 1, Use::kRead);
}

template <class V>
void operands(ExpertGather& g, V& v) {
  v.mat("x", g.x, Use::kRead);
  v.array("slot", g.slot, DType::kI32, g.y.rows, Use::kRead);
  v.mat("weights", g.weights, Use::kRead);
  v.mat("y", g.y, Use::kWritten);
}

template <class V>
void operands(ExpertSum& s, V& v) {
  v.mat("x", s.x, Use::kRead);
  v.array("row", s.row, DType::kI32, s.x.rows, Use::kRead);
  v.mat("weights", s.weights, Use::kRead);
  v.mat("add", s.add, Use::kRead);
  v.mat("y", s.y, Use::kWritten);
}

template <class V>
void operands(ExpertDots& d, V& v) {
  v.mat("dy", d.dy, Use::kRead);
  v.mat("x", d.x, Use::kRead);
  v.array("row", d.row, DType::kI32, d.x.rows, Use::kRead);
  v.mat("dweights", d.dweights, Use::kWritten);
}

template <class V>
void operands(GroupedGemm& g, V& v) {
  v.mat("a", g.a, Use::kRead);
  v.mat("b", g.b, Use::kRead);
  v.mat("c", g.c, g.accumulate ? Use::kBoth : Use::kWritten);
  v.array("first", g.first, DType::kI32, g.experts + 1, Use::kRead);
  v.adds(g.accumulate);
}

template <class V>
void operands(RouteLoad& l, V& v) {
  v.array("expert", l.expert, DType::kI32, l.probabilities.rows * l.k, Use::kRead);
  v.mat("probabilities", l.probabilities, Use::kRead);
  v.array("runs", l.runs, DType::kI32, l.count.rows + 1, Use::kRead);
  v.mat("count", l.count, l.accumulate ? Use::kBoth : Use::kWritten);
  v.mat("mass", l.mass, l.accumulate ? Use::kBoth : Use::kWritten);
}

template <class V>
void operands(BalanceLoss& b, V& v) {
  v.mat("count", b.count, Use::kRead);
  v.mat("mass", b.mass, Use::kRead);
  v.array("runs", b.runs, DType::kI32, b.count.rows + 1, Use::kRead);
  v.array("scale", b.scale, DType::kF32, 1, Use::kRead);
  v.mat("loss", b.loss, Use::kWritten);
  v.mat("balance", b.balance, Use::kWritten);
}

// Documents are the batch's, or the requests of a pass over a cache.
template <class C, class V>
void carried(C& c, DType type, V& v) {
  v.array("cu_seqlens", c.cu_seqlens, DType::kI32, 0, Use::kRead);
  v.array("states", c.carried.states, type, 0, Use::kBoth);
  v.array("slot", c.carried.slot, DType::kI32, 0, Use::kRead);
  v.array("context", c.carried.context, DType::kI32, 0, Use::kRead);
  if (c.carried.on)
    v.cache(c.documents, c.carried.pages);
  else
    v.documents(c.documents, c.longest_document);
}

template <class V>
void operands(CausalConv& c, V& v) {
  v.mat("x", c.x, Use::kRead);
  v.mat("w", c.w, Use::kRead);
  v.mat("y", c.y, Use::kWritten);
  carried(c, c.x.type, v);
}

template <class V>
void operands(CausalConvGrad& c, V& v) {
  v.mat("x", c.x, Use::kRead);
  v.mat("w", c.w, Use::kRead);
  v.mat("dy", c.dy, Use::kRead);
  v.mat("dx", c.dx, Use::kWritten);
  v.array("dw", c.dw, DType::kF32, c.w.rows * c.w.cols, c.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(c.accumulate);
  v.array("cu_seqlens", c.cu_seqlens, DType::kI32, 0, Use::kRead);
  v.documents(c.documents, c.longest_document);
}

template <class V>
void operands(GatedDelta& g, V& v) {
  v.mat("qkv", g.qkv, Use::kRead);
  v.mat("ba", g.ba, Use::kRead);
  v.mat("a_log", g.a_log, Use::kRead);
  v.mat("dt_bias", g.dt_bias, Use::kRead);
  v.mat("out", g.out, Use::kWritten);
  carried(g, DType::kF32, v);
}

template <class V>
void operands(GatedDeltaGrad& g, V& v) {
  v.mat("qkv", g.qkv, Use::kRead);
  v.mat("ba", g.ba, Use::kRead);
  v.mat("a_log", g.a_log, Use::kRead);
  v.mat("dt_bias", g.dt_bias, Use::kRead);
  v.mat("dout", g.dout, Use::kRead);
  v.mat("dqkv", g.dqkv, Use::kWritten);
  v.mat("dba", g.dba, Use::kWritten);
  v.array("da_log", g.da_log, DType::kF32, g.of.value_heads, g.accumulate ? Use::kBoth : Use::kWritten);
  v.array("ddt_bias", g.ddt_bias, DType::kF32, g.of.value_heads, g.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(g.accumulate);
  v.array("cu_seqlens", g.cu_seqlens, DType::kI32, 0, Use::kRead);
  v.documents(g.documents, g.longest_document);
}

template <class V>
void operands(GatedNorm& g, V& v) {
  v.mat("x", g.x, Use::kRead);
  v.mat("gate", g.gate, Use::kRead);
  v.mat("w", g.w, Use::kRead);
  v.mat("y", g.y, Use::kWritten);
  v.array("rstd", g.rstd, DType::kF32, g.x.rows * (g.x.cols / g.w.cols), Use::kWritten);
}

template <class V>
void operands(GatedNormGrad& g, V& v) {
  v.mat("x", g.x, Use::kRead);
  v.mat("gate", g.gate, Use::kRead);
  v.mat("w", g.w, Use::kRead);
  v.mat("dy", g.dy, Use::kRead);
  v.array("rstd", g.rstd, DType::kF32, g.x.rows * (g.x.cols / g.w.cols), Use::kRead);
  v.mat("dx", g.dx, Use::kWritten);
  v.mat("dgate", g.dgate, Use::kWritten);
  v.array("dw", g.dw, DType::kF32, g.w.cols, g.accumulate ? Use::kBoth : Use::kWritten);
  v.adds(g.accumulate);
}

template <class V>
void operands(SigmoidGate& g, V& v) {
  v.mat("x", g.x, Use::kRead);
  v.mat("gate", g.gate, Use::kRead);
  v.mat("y", g.y, Use::kWritten);
}

template <class V>
void operands(SigmoidGateGrad& g, V& v) {
  v.mat("x", g.x, Use::kRead);
  v.mat("gate", g.gate, Use::kRead);
  v.mat("dy", g.dy, Use::kRead);
  v.mat("dx", g.dx, Use::kWritten);
  v.mat("dgate", g.dgate, Use::kWritten);
}

template <class V>
void operands(SplitGates& s, V& v) {
  v.mat("all", s.all, s.merge ? Use::kWritten : Use::kRead);
  v.mat("plain", s.plain, s.merge ? Use::kRead : Use::kWritten);
  v.mat("gate", s.gate, s.merge ? Use::kRead : Use::kWritten);
}

}  // namespace mxt::kernels
