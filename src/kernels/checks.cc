#include "kernels/checks.h"

#include "base/error.h"

namespace mxt::kernels {
namespace {

// The reference also takes F64, for numerical derivatives; other backends refuse it when they choose their kernel.
bool is_real(DType t) { return t == DType::kF32 || t == DType::kBF16 || t == DType::kF64; }

void matrix(const ConstMat& m) {
  MXT_ASSERT(m.rows >= 0 && m.cols >= 0 && m.ld >= m.cols);
  MXT_ASSERT(m.p != nullptr || m.rows == 0 || m.cols == 0);
  MXT_ASSERT(is_real(m.type));
}
void shape(const ConstMat& m, int64_t rows, int64_t cols) {
  matrix(m);
  MXT_ASSERT(m.rows == rows && m.cols == cols);
}
void like(const ConstMat& m, const ConstMat& as) {
  shape(m, as.rows, as.cols);
  MXT_ASSERT(m.type == as.type);
}

template <typename R>
void rope(const R& r, const ConstMat& x) {
  MXT_ASSERT(r.heads > 0 && r.kv_heads > 0 && r.head_dim > 0);
  MXT_ASSERT(x.cols == (r.heads + 2 * r.kv_heads) * r.head_dim);
  MXT_ASSERT(r.rotary >= 0 && r.rotary % 2 == 0 && r.rotary <= r.head_dim);
  MXT_ASSERT(r.rotary == 0 || x.rows == 0 || (r.positions && r.cos && r.sin));
  MXT_ASSERT(is_real(r.wtype));
}

template <typename A>
void heads(const A& a) {
  MXT_ASSERT(a.heads > 0 && a.kv_heads > 0 && a.head_dim > 0 && a.heads % a.kv_heads == 0 && a.window >= -1);
}

template <typename A>
void attention(const A& a) {
  heads(a);
  const int64_t t = a.q.rows;
  shape(a.q, t, a.heads * a.head_dim);
  shape(a.k, t, a.kv_heads * a.head_dim);
  like(a.v, a.k);
  MXT_ASSERT(a.k.type == a.q.type);
  like(a.out, a.q);
  MXT_ASSERT(a.dropout >= 0 && a.dropout < 1);
  MXT_ASSERT(a.documents >= 0 && (a.documents > 0 || t == 0) && (a.cu_seqlens || t == 0));
}

}  // namespace

void Ops::lacks(std::string_view call) const {
  fail_missing("{} has no kernel for {}: use the CPU (hardware: {{name: cpu}})", name(), call);
}

void check(const Gemm& g) {
  if (g.a.type == DType::kF8E4M3) {
    MXT_ASSERT(g.trans_b && !g.trans_a && g.alpha == 1.0f && g.a.cols % 16 == 0 && g.c.cols % 16 == 0);
    MXT_ASSERT((g.a.p && g.b.p) || g.c.rows == 0);
    MXT_ASSERT(g.row_parts > 0 && g.c.cols % g.row_parts == 0);
    if (g.tail_a.cols > 0) {
      shape(g.tail_a, g.c.rows, g.tail_a.cols);
      g.tail_trans_b ? shape(g.tail_b, g.c.cols, g.tail_a.cols) : shape(g.tail_b, g.tail_a.cols, g.c.cols);
      MXT_ASSERT(g.tail_a.type == g.c.type && g.tail_b.type == g.c.type);
    }
  } else {
    matrix(g.a), matrix(g.b);
    MXT_ASSERT(!g.a_scale && !g.b_scale && g.tail_a.cols == 0 && g.row_absmax == nullptr);
  }
  matrix(g.c);
  MXT_ASSERT(g.a.type == g.b.type);
  MXT_ASSERT((g.trans_a ? g.a.cols : g.a.rows) == g.c.rows);
  MXT_ASSERT((g.trans_b ? g.b.rows : g.b.cols) == g.c.cols);
  MXT_ASSERT((g.trans_a ? g.a.rows : g.a.cols) == (g.trans_b ? g.b.cols : g.b.rows));
  MXT_ASSERT(!(g.bias && g.accumulate));
  if (!g.ends_in_relu2()) return;
  MXT_ASSERT(g.a.type == DType::kBF16 && g.c.type == DType::kBF16 && !g.trans_a && !g.accumulate && !g.bias &&
             g.alpha == 1.0f && g.relu2 == g.trans_b && g.relu2 == (g.relu2_of.cols == 0));
  if (!g.relu2) shape(g.relu2_of, g.c.rows, g.c.cols);
}

void check(const Quantize& q) {
  matrix(q.x);
  MXT_ASSERT(q.q.rows == q.x.rows && q.q.cols == q.x.cols && q.q.ld >= q.q.cols);
  MXT_ASSERT(q.q.type == q.x.type || (q.q.type == DType::kF8E4M3 && (q.scale || q.x.rows == 0)));
}

void check(const RowwiseFp8Linear& c) {
  matrix(c.w);
  shape(c.z, c.q.rows, c.w.rows);
  MXT_ASSERT(c.q.type == DType::kF8E4M3 && c.q.cols == c.w.cols && c.q.ld >= c.q.cols && c.z.type == c.w.type);
  MXT_ASSERT((c.q.p && c.scale) || c.q.rows == 0);
}

void check(const RowwiseFp8LinearDw& c) {
  matrix(c.dz);
  MXT_ASSERT(c.q.type == DType::kF8E4M3 && c.q.rows == c.dz.rows && c.q.ld >= c.q.cols && c.dw);
  MXT_ASSERT((c.q.p && c.scale) || c.q.rows == 0);
}

void check(const RowwiseFp8Transpose& c) {
  MXT_ASSERT(c.q.type == DType::kF8E4M3 && c.out.type == DType::kF8E4M3 && c.q.ld >= c.q.cols && c.out.ld >= c.q.rows);
  MXT_ASSERT(c.out.rows == c.q.cols && c.out.cols == c.q.rows && c.q.p && c.out.p);
  MXT_ASSERT(c.q.rows % 16 == 0 && c.q.cols % 16 == 0);
  MXT_ASSERT((c.scale == nullptr) == (c.out_scale == nullptr));
}

void check(const Fp8LinearDw& c) {
  for (const ConstMat& m : {c.dy, c.x})
    MXT_ASSERT(m.type == DType::kF8E4M3 && m.cols % 16 == 0 && m.ld >= m.cols && (m.p || m.rows == 0));
  MXT_ASSERT(c.dy.rows == c.x.rows && c.dw && ((c.dy_scale && c.x_scale) || c.x.rows == 0));
}

void check(const Embedding& e) {
  matrix(e.table);
  shape(e.y, e.y.rows, e.table.cols);
  MXT_ASSERT(e.ids || e.y.rows == 0);
}
void check(const EmbeddingGrad& e) {
  matrix(e.dtable);
  MXT_ASSERT(e.dtable.type == DType::kF32);
  shape(e.dy, e.dy.rows, e.dtable.cols);
  MXT_ASSERT(e.ids || e.dy.rows == 0);
}

void check(const Norm& n) {
  matrix(n.x);
  like(n.y, n.x);
  if (n.r.p) {
    like(n.r, n.x);
    like(n.h, n.x);
  }
  MXT_ASSERT(is_real(n.wtype));
  MXT_ASSERT(n.keep_y || n.held.q.p);
}
void check(const NormGrad& n) {
  matrix(n.x);
  like(n.dy, n.x);
  like(n.dx, n.x);
  if (n.dres.p) like(n.dres, n.x);
  MXT_ASSERT(is_real(n.wtype));
  MXT_ASSERT(n.x.rows == 0 || (n.rstd && (n.mean || !n.layer_norm)));
}

void check(const QkNormRope& r) {
  matrix(r.qkv);
  like(r.out, r.qkv);
  rope(r, r.qkv);
  MXT_ASSERT(r.out.p != r.qkv.p || !(r.q_w || r.k_w) || r.qkv.rows == 0);
  MXT_ASSERT(r.out.p != r.qkv.p || r.out.ld == r.qkv.ld);
}
void check(const QkNormRopeGrad& r) {
  MXT_ASSERT(r.keep_dqkv || r.held.q.p);
  matrix(r.dout);
  like(r.dqkv, r.dout);
  rope(r, r.dout);
  if (r.q_w || r.k_w) {
    like(r.qkv, r.dout);
    MXT_ASSERT(r.rstd || r.dout.rows == 0);
  }
  MXT_ASSERT(r.dqkv.p != r.dout.p || r.dqkv.ld == r.dout.ld);
  MXT_ASSERT((!r.dq_w || r.q_w) && (!r.dk_w || r.k_w));
}

void check(const Attention& a) {
  attention(a);
  MXT_ASSERT(a.window >= 0 && (a.causal || (a.window == 0 && a.dropout == 0)));
  MXT_ASSERT(a.prefix == nullptr || (a.causal && a.dropout == 0));
}
void check(const AttentionGrad& a) {
  attention(a);
  like(a.dout, a.q);
  like(a.dq, a.q);
  like(a.dk, a.k);
  like(a.dv, a.v);
  MXT_ASSERT(a.window >= 0 && (a.causal || (a.window == 0 && a.dropout == 0)) && (a.lse || a.q.rows == 0));
  MXT_ASSERT(a.prefix == nullptr || (a.causal && a.dropout == 0));
}
void check(const CachedAttention& a) {
  heads(a);
  MXT_ASSERT(a.window >= 0);
  shape(a.q, a.q.rows, a.heads * a.head_dim);
  like(a.out, a.q);
  MXT_ASSERT(a.requests >= 0 && a.max_pages >= 0 && a.page > 0);
  MXT_ASSERT(a.q.rows == 0 || (a.k_cache && a.v_cache && a.cu_q && a.context && a.tables));
}
void check(const StoreCache& s) {
  MXT_ASSERT(s.page > 0 && s.kv_heads > 0 && s.head_dim > 0);
  shape(s.k, s.k.rows, s.kv_heads * s.head_dim);
  like(s.v, s.k);
  MXT_ASSERT(s.k.rows == 0 || (s.k_cache && s.v_cache && s.slots));
}

void check(const Act& a) {
  matrix(a.x);
  MXT_ASSERT(!gated(a.kind) || a.x.cols % 2 == 0);
  shape(a.y, a.x.rows, gated(a.kind) ? a.x.cols / 2 : a.x.cols);
  MXT_ASSERT(a.y.type == a.x.type && (a.keep_y || a.held.q.p));
}
void check(const ActGrad& a) {
  matrix(a.x);
  MXT_ASSERT(!gated(a.kind) || a.x.cols % 2 == 0);
  shape(a.dy, a.x.rows, gated(a.kind) ? a.x.cols / 2 : a.x.cols);
  MXT_ASSERT(a.dy.type == a.x.type);
  like(a.dx, a.x);
  MXT_ASSERT((a.dx.p != a.x.p || a.dx.ld == a.x.ld) && (a.keep_dx || a.held.q.p));
}

void check(const Add& a) {
  matrix(a.a);
  like(a.b, a.a);
  like(a.y, a.a);
}
void check(const Mix& m) {
  matrix(m.x);
  like(m.z, m.x);
  like(m.y, m.x);
  MXT_ASSERT(m.b);
}
void check(const MixGrad& m) {
  matrix(m.dy);
  like(m.x, m.dy);
  like(m.z, m.dy);
  like(m.dz, m.dy);
  if (m.sum.p) like(m.sum, m.dy);
  if (m.dx.p) like(m.dx, m.dy);
  MXT_ASSERT(m.b && (m.a != nullptr) == (m.dx.p != nullptr));
}
void check(const Gate& g) {
  matrix(g.x);
  like(g.y, g.x);
  shape(g.s, g.x.rows, g.s.cols);
  shape(g.u, g.x.rows, g.u.cols);
  MXT_ASSERT(g.w.rows > 0 && g.w.cols <= g.s.cols && g.u.cols % g.w.rows == 0 && g.col + g.u.cols <= g.x.cols);
}
void check(const GateGrad& g) {
  matrix(g.dy);
  like(g.ds, g.s);
  like(g.du, g.u);
  shape(g.s, g.dy.rows, g.s.cols);
  shape(g.u, g.dy.rows, g.u.cols);
  MXT_ASSERT(g.w.rows > 0 && g.w.cols <= g.s.cols && g.u.cols % g.w.rows == 0 && g.col + g.u.cols <= g.dy.cols);
}
void check(const BiasGrad& b) {
  matrix(b.dy);
  MXT_ASSERT(b.db || b.dy.cols == 0);
}
void check(const Dropout& d) {
  matrix(d.x);
  like(d.y, d.x);
  MXT_ASSERT(d.p >= 0.0f && d.p <= 1.0f);
}

void check(const CrossEntropy& c) {
  matrix(c.logits);
  MXT_ASSERT(c.logits.rows == 0 || (c.labels && c.nll && c.logits.cols > 0));
  MXT_ASSERT(c.softcap >= 0.0f);
  MXT_ASSERT(!c.softmax || (c.gradient && c.softcap == 0.0f));
  MXT_ASSERT(c.held.q.p == nullptr || (c.gradient && c.held.scale && c.held.q.rows == c.logits.rows &&
                                       c.held.q.cols == c.logits.cols && c.held.q.type == DType::kF8E4M3));
  MXT_ASSERT(c.held.channel == nullptr);
  MXT_ASSERT(c.at_label == nullptr || (c.held.q.p != nullptr && !c.softmax));
}
void check(const LabelGrad& g) {
  matrix(g.dh);
  MXT_ASSERT(g.w.cols == g.dh.cols && g.w.type == g.dh.type);
  MXT_ASSERT((g.labels && (g.nll || g.at_label)) || g.dh.rows == 0);
}
void check(const GatherRows& g) {
  matrix(g.x);
  shape(g.y, g.y.rows, g.x.cols);
  MXT_ASSERT(g.y.type == g.x.type && (g.rows || g.y.rows == 0));
}
void check(const Copy& c) {
  matrix(c.y);
  like(c.x, c.y);
}
void check(const ScatterRows& s) {
  matrix(s.y);
  shape(s.x, s.x.rows, s.y.cols);
  MXT_ASSERT(s.y.type == s.x.type && (s.rows || s.x.rows == 0));
}

void check(const MeanPool& m) {
  matrix(m.x), matrix(m.y);
  MXT_ASSERT(m.y.cols == m.x.cols && m.y.type == DType::kF32 && (m.cu_seqlens || m.y.rows == 0));
}

void check(const Route& r) {
  matrix(r.logits), matrix(r.weights);
  const int64_t tokens = r.logits.rows;
  shape(r.probabilities, tokens, r.logits.cols);
  MXT_ASSERT(r.weights.rows == tokens && r.weights.cols > 0 && r.weights.cols <= r.logits.cols);
  MXT_ASSERT(r.first && (tokens == 0 || (r.expert && r.row && r.slot)));
}
void check(const RouteGrad& r) {
  matrix(r.probabilities);
  shape(r.dlogits, r.probabilities.rows, r.probabilities.cols);
  if (r.dweights.p) MXT_ASSERT(r.dweights.rows == r.dlogits.rows && r.expert);
  MXT_ASSERT(r.balance.p || r.balance.rows == 0);
  if (r.balance.p) {
    shape(r.balance, r.balance.rows, r.dlogits.cols);
    MXT_ASSERT(r.runs || r.balance.rows == 0);
  }
}
void check(const ExpertGather& g) {
  matrix(g.x);
  shape(g.y, g.x.rows * g.k, g.x.cols);
  MXT_ASSERT(g.k > 0 && g.y.type == g.x.type && (g.slot || g.x.rows == 0));
  if (g.weights.p) shape(g.weights, g.x.rows, g.k);
}
void check(const ExpertSum& s) {
  matrix(s.y);
  shape(s.x, s.y.rows * s.k, s.y.cols);
  MXT_ASSERT(s.k > 0 && s.x.type == s.y.type && (s.row || s.y.rows == 0));
  if (s.weights.p) shape(s.weights, s.y.rows, s.k);
  if (s.add.p) like(s.add, s.y);
}
void check(const ExpertDots& d) {
  matrix(d.dy), matrix(d.dweights);
  shape(d.x, d.dy.rows * d.dweights.cols, d.dy.cols);
  MXT_ASSERT(d.dweights.rows == d.dy.rows && d.x.type == d.dy.type && (d.row || d.dy.rows == 0));
}
void check(const GroupedGemm& g) {
  MXT_ASSERT(g.experts > 0 && g.first);
  matrix(g.a), matrix(g.b), matrix(g.c);
  MXT_ASSERT(g.a.type == g.b.type);
  switch (g.kind) {
    case Grouped::kForward:
      MXT_ASSERT(g.a.rows == g.c.rows && g.b.cols == g.a.cols && g.b.rows == g.experts * g.c.cols);
      break;
    case Grouped::kInput:
      MXT_ASSERT(g.a.rows == g.c.rows && g.b.cols == g.c.cols && g.b.rows == g.experts * g.a.cols);
      break;
    case Grouped::kWeight:
      MXT_ASSERT(g.a.rows == g.b.rows && g.c.cols == g.b.cols && g.c.rows == g.experts * g.a.cols);
  }
}
void check(const RouteLoad& l) {
  matrix(l.probabilities);
  shape(l.count, l.count.rows, l.probabilities.cols);
  shape(l.mass, l.count.rows, l.probabilities.cols);
  MXT_ASSERT(l.k > 0 && ((l.expert && l.runs) || l.count.rows == 0));
}
void check(const BalanceLoss& b) {
  matrix(b.count);
  like(b.mass, b.count);
  shape(b.balance, b.count.rows, b.count.cols), shape(b.loss, b.count.rows, 1);
  MXT_ASSERT(b.layers > 0 && (b.count.rows == 0 || (b.runs && b.scale)));
}

void check(const CausalConv& c) {
  matrix(c.x), like(c.y, c.x), matrix(c.w);
  MXT_ASSERT(c.w.rows == c.x.cols && c.w.cols > 0 && c.w.cols <= 64 && (c.cu_seqlens || c.x.rows == 0));
  MXT_ASSERT(!c.carried.on || (c.carried.slot && c.carried.context));
}
void check(const CausalConvGrad& c) {
  matrix(c.x), like(c.dy, c.x), matrix(c.w);
  if (c.dx.p) like(c.dx, c.x);
  MXT_ASSERT(c.w.rows == c.x.cols && c.w.cols > 0 && c.w.cols <= 64 && (c.cu_seqlens || c.x.rows == 0));
}
namespace {
template <typename G>
void delta(const G& g, const ConstMat& out) {
  const DeltaShape& s = g.of;
  MXT_ASSERT(s.key_heads > 0 && s.value_heads > 0 && s.value_heads % s.key_heads == 0 && s.key_dim > 0);
  matrix(g.qkv);
  MXT_ASSERT(g.qkv.cols == s.width());
  shape(g.ba, g.qkv.rows, 2 * s.value_heads);
  shape(g.a_log, 1, s.value_heads), shape(g.dt_bias, 1, s.value_heads);
  shape(out, g.qkv.rows, s.value_heads * s.value_dim);
  MXT_ASSERT(g.cu_seqlens || g.qkv.rows == 0);
}
}  // namespace
void check(const GatedDelta& g) {
  delta(g, g.out);
  MXT_ASSERT(!g.carried.on || (g.carried.slot && g.carried.context));
}
void check(const GatedDeltaGrad& g) {
  delta(g, g.dout);
  like(g.dqkv, g.qkv), like(g.dba, g.ba);
}
void check(const GatedNorm& g) {
  matrix(g.x), like(g.gate, g.x), like(g.y, g.x), matrix(g.w);
  MXT_ASSERT(g.w.rows == 1 && g.w.cols > 0 && g.x.cols % g.w.cols == 0);
}
void check(const GatedNormGrad& g) {
  matrix(g.x), like(g.gate, g.x), like(g.dy, g.x), like(g.dx, g.x), like(g.dgate, g.x), matrix(g.w);
  MXT_ASSERT(g.w.rows == 1 && g.w.cols > 0 && g.x.cols % g.w.cols == 0 && (g.rstd || g.x.rows == 0));
}
void check(const SigmoidGate& g) {
  matrix(g.x), like(g.y, g.x), matrix(g.gate);
  MXT_ASSERT(g.gate.rows == g.x.rows && (g.gate.cols == 1 || g.gate.cols == g.x.cols));
}
void check(const SigmoidGateGrad& g) {
  matrix(g.x), like(g.dy, g.x), like(g.dx, g.x), matrix(g.gate), like(g.dgate, g.gate);
  MXT_ASSERT(g.gate.rows == g.x.rows && (g.gate.cols == 1 || g.gate.cols == g.x.cols));
}
void check(const SplitGates& s) {
  matrix(s.all), matrix(s.plain), matrix(s.gate);
  MXT_ASSERT(s.dim > 0 && s.gate.cols % s.dim == 0 && s.plain.cols >= s.gate.cols);
  MXT_ASSERT(s.all.cols == s.plain.cols + s.gate.cols && s.plain.rows == s.all.rows && s.gate.rows == s.all.rows);
}

void check(const AdamW& a) {
  MXT_ASSERT(a.step >= 1);
  for (const OptTensor& t : a.tensors) MXT_ASSERT(t.n == 0 || (t.n > 0 && t.master && t.grad && t.m && t.v));
}
void check(const AdamW8bit& a) {
  MXT_ASSERT(a.step >= 1);
  for (const Opt8Tensor& t : a.tensors)
    MXT_ASSERT(t.n == 0 || (t.n > 0 && t.master && t.grad && t.m && t.v && t.m_largest && t.v_largest));
}
void check(const Lion& l) {
  for (const OptTensor& t : l.tensors) MXT_ASSERT(t.n == 0 || (t.n > 0 && t.master && t.grad && t.m));
}
void check(const Adafactor& a) {
  for (const AdafactorTensor& t : a.tensors) {
    MXT_ASSERT(t.rows >= 0 && t.cols >= 0);
    MXT_ASSERT(t.rows * t.cols == 0 || (t.master && t.grad && (t.row ? t.col != nullptr : t.v != nullptr)));
  }
}
void check(const MuonDirection& m) {
  matrix(m.x);
  MXT_ASSERT(m.x.ld == m.x.cols && m.grad && m.momentum);
}
void check(const MuonUpdate& m) { MXT_ASSERT(m.x.p && m.x.ld == m.x.cols && m.x.rows > 0 && m.x.cols > 0 && m.master); }
void check(const SquaredNorm& s) {
  MXT_ASSERT(s.grads.size() == s.sizes.size());
  for (size_t i = 0; i < s.grads.size(); ++i) MXT_ASSERT(s.sizes[i] >= 0 && (s.grads[i] || s.sizes[i] == 0));
}

}  // namespace mxt::kernels
