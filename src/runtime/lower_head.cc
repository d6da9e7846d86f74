// The output head with its loss.
#include <algorithm>

#include "base/error.h"
#include "kernels/blocks.h"
#include "runtime/lower.h"

namespace mxt::runtime {

using namespace graph;
using kernels::Gemm;
using kernels::Mat;

// The head works on the rows that have a target, `chunk` of them at a time: gather → logits → losses and their gradient
// in place → dh of those rows → scatter; the weight's gradient adds up over the chunks in order. Over a base in E4M3
// (Param::back) dh = weight·(P·W + (softmax[label] − 1)·W[label]): P is the softmax of all but the label as E4M3, W's
// columns are rounded likewise there. The rounding shows in that part of the gradient alone and not in the loss.
void Lowering::lower(const HeadOp& a) {
  const Value& h = g_.value(op_->in[0]);
  const int64_t vocab = g_.value(op_->in[1]).rows.factor, width = h.cols;
  const int64_t chunk = std::min(a.chunk, p_.settings_.max_tokens);
  const int64_t elt = static_cast<int64_t>(size_of(h.type));
  const int64_t rows_bytes = (chunk * width * elt + 63) / 64 * 64;
  p_.head_chunk_ = chunk;
  const int64_t logits_bytes = (chunk * vocab * elt + 63) / 64 * 64;
  const Held back = a.gradient ? g_.param_of(op_->in[1]).back : Held::kPlain;
  const int64_t losses_at = 2 * rows_bytes + logits_bytes,
                softmax_at = (losses_at + p_.settings_.max_tokens * 4 + 1023) / 1024 * 1024,
                scale_at = softmax_at + (chunk * vocab + 63) / 64 * 64;
  p_.bytes_.logits = back == Held::kFp8 ? scale_at + chunk * 4 : losses_at + p_.settings_.max_tokens * 4;
  p_.nll_ = op_->out[0];

  auto head_at = [this](int64_t at) { return p_.params_ ? p_.head_.bytes_at(static_cast<size_t>(at)) : nullptr; };
  // The softmax as E4M3: [rows, vocab], and a scale a row.
  auto held = [head_at, vocab, softmax_at, scale_at](int64_t n) {
    return kernels::HeldCopy{
        nullptr, {head_at(softmax_at), n, vocab, vocab, DType::kF8E4M3}, reinterpret_cast<float*>(head_at(scale_at))};
  };
  auto rows_mat = [head_at, width, t = h.type](int64_t n, int64_t offset) {
    return Mat{head_at(offset), n, width, width, t};
  };
  auto logits_mat = [head_at, vocab, rows_bytes, t = h.type](int64_t n) {
    return Mat{head_at(2 * rows_bytes), n, vocab, vocab, t};
  };
  auto forward = [this, op = op_, rows_mat, logits_mat](int64_t n) {
    Gemm g;
    g.a = rows_mat(n, 0);
    g.b = mat(op->in[1], Frame{nullptr, 0});
    g.c = logits_mat(n);
    g.trans_b = true;
    g.b_packed = packed_weight(op->in[1], false);
    return g;
  };
  auto dx = [this, op = op_, rows_mat, logits_mat, rows_bytes, held, back](int64_t n) {
    Gemm g;
    g.a = logits_mat(n);
    g.b = mat(op->in[1], Frame{nullptr, 0});
    g.c = rows_mat(n, rows_bytes);
    if (back == Held::kPlain) {
      g.b_packed = packed_weight(op->in[1], true);
      return g;
    }
    const ParamSlot* w = p_.params_ ? &(*p_.params_)[g_.value(op->in[1]).param] : nullptr;
    if (back == Held::kFp8) {
      g.a = held(n).q;
      g.b = {nullptr, g.b.cols, g.b.rows, g.b.rows, DType::kF8E4M3};
      g.trans_b = true;
      if (w) g.a_scale = held(n).scale, g.b_scale = w->scale;
    }
    if (w) g.b.p = w->transposed;
    return g;
  };
  auto dw = [this, op = op_, rows_mat, logits_mat](int64_t n, bool accumulate) {
    Gemm g;
    g.a = logits_mat(n);
    g.b = rows_mat(n, 0);
    g.c = grad_mat(op->param);
    g.trans_a = true;
    g.accumulate = accumulate;
    return g;
  };
  const int forward_algo = choose(forward(chunk));
  const int dx_algo = a.gradient ? choose(dx(chunk)) : 0;
  const int dw_algo = op_->param != kNone ? choose(dw(chunk, true)) : 0;
  auto scratch = [&](Gemm g, int algo) {
    g.algo = algo;
    p_.bytes_.workspace = std::max(p_.bytes_.workspace, static_cast<int64_t>(ops_.gemm_scratch(g)));
  };
  scratch(forward(chunk), forward_algo);
  if (a.gradient) scratch(dx(chunk), dx_algo);
  if (op_->param != kNone) scratch(dw(chunk, true), dw_algo);

  emit([this, op = op_, a, chunk, head_at, losses_at, rows_mat, forward, dx, dw, held, back, forward_algo, dx_algo,
        dw_algo](const Frame& f) {
    const auto& b = *f.batch;
    const int64_t n = b.head_count;
    const Mat hidden = mat(op->in[0], f);
    Mat dh;
    auto rows_of = [](Mat m, int64_t first, int64_t count) {
      m.p = static_cast<std::byte*>(m.p) + static_cast<size_t>(first * m.ld) * size_of(m.type);
      m.rows = count;
      return m;
    };
    if (a.gradient) {
      dh = mat(op->out[1], f);
      if (n < f.tokens) ops_.scatter_rows({rows_of(dh, 0, 0), b.head_rows, dh});
    }
    Mat nll = mat(op->out[0], f);
    auto* losses = reinterpret_cast<float*>(head_at(losses_at));
    bool accumulate = op->param != kNone && adds(*op, &b);
    for (int64_t i = 0; i < n; i += chunk) {
      const int64_t m = std::min(chunk, n - i), first = b.host_rows[i];
      const bool together =
          b.host_rows[i + m - 1] - first == m - 1;  // rows that lie side by side are used where they are
      const Mat hc = together ? rows_of(hidden, first, m) : rows_mat(m, 0);
      if (!together) ops_.gather_rows({hidden, b.head_rows + i, hc});
      Gemm g = forward(m);
      g.a = hc;
      g.algo = forward_algo;
      if (const auto* blocks = blocks_of(op->in[1]))
        kernels::cpu::block_gemm({g.a, blocks, g.c, nullptr, DType::kF32});
      else
        ops_.gemm(g);
      kernels::CrossEntropy loss{g.c, b.head_labels + i, b.head_weights + i, losses + i, a.gradient, a.softcap};
      loss.softmax = back != Held::kPlain;
      if (back == Held::kFp8) loss.held = held(m);
      ops_.cross_entropy(loss);
      if (back == Held::kRounded) ops_.quantize({g.c, nullptr, g.c, nullptr});
      if (!a.gradient) continue;
      if (op->param != kNone) {
        Gemm w = dw(m, accumulate);
        w.b = hc;
        w.algo = dw_algo;
        ops_.gemm(w);
        accumulate = true;
      }
      Gemm d = dx(m);
      if (together) d.c = rows_of(dh, first, m);
      d.algo = dx_algo;
      ops_.gemm(d);
      if (back != Held::kPlain)
        ops_.label_grad({d.c, mat(op->in[1], f), b.head_labels + i, losses + i, b.head_weights + i});
      if (!together) ops_.scatter_rows({d.c, b.head_rows + i, dh, false});
    }
    if (n == 0 && op->param != kNone && !accumulate) {
      const Mat g = grad_mat(op->param);
      ops_.scatter_rows({rows_of(g, 0, 0), nullptr, g});
    }
    ops_.scatter_rows({Mat{losses, n, 1, 1, DType::kF32}, b.head_rows, nll});
  });
}

}  // namespace mxt::runtime
