// The output head: with its loss, and plain logits for generation.
#include <algorithm>

#include "base/error.h"
#include "runtime/lower.h"

namespace mxt::runtime {

using namespace graph;
using kernels::Gemm;
using kernels::Mat;

namespace {

int64_t align(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// Where the head's buffer holds what, in bytes: a chunk's rows of the hidden states and of their gradient and its
// logits; then lists of one number a row with a target: its loss and, where log-probabilities are wanted, its entropy
// and its weight; the rounded softmax, or gradient of logits, with its scales; rounded hidden states with theirs, and
// the gradient at the labels; an adapter's z and dz.
struct HeadMemory {
  int64_t rows, logits, losses, entropy, weights, rounded, scales, hidden, hidden_scales, at_label, z, dz, end;
};

HeadMemory head_memory(int64_t chunk, int64_t tokens, const Mat& hidden, int64_t vocab, int64_t rank, bool apart,
                       bool rounds, bool trained) {
  const auto element = static_cast<int64_t>(size_of(hidden.type));
  HeadMemory m{};
  m.rows = align(chunk * hidden.cols * element, 64);  // of each of the two
  m.logits = 2 * m.rows;
  m.losses = m.logits + align(chunk * vocab * element, 64);
  m.entropy = m.losses + tokens * 4;
  m.weights = m.entropy + tokens * 4;
  const int64_t lists_end = m.losses + (apart ? 3 : 1) * tokens * 4;
  m.rounded = align(lists_end, 1024);
  m.scales = m.rounded + align(chunk * vocab, 64);
  m.hidden = align(m.scales + chunk * 4, 1024);
  m.hidden_scales = m.hidden + align(chunk * hidden.cols, 64);
  m.at_label = m.hidden_scales + chunk * 4;
  const int64_t end = trained  ? m.at_label + chunk * 4
                      : rounds ? m.scales + chunk * 4
                               : lists_end,
                z_bytes = align(chunk * rank * element, 64);
  m.z = align(end, 64);
  m.dz = m.z + z_bytes;
  m.end = rank > 0 ? m.dz + z_bytes : end;
  return m;
}

}  // namespace

// One lowering of the head: its operands, what moves with the chunk and its products.
struct Lowering::Head {
  const HeadCall& call;
  ValueId weight;
  Storage back;   // how the weight is held for dh
  bool adapted;   // z stands beside the hidden states: logits += adapter·z Bᵀ, dz = adapter·dlogits B
  bool trained;   // products of hidden states, weight and the gradient of logits in E4M3
  Mat hidden, w;  // of the whole pass
  Mat z, b, dh, dz_all;
  HeadMemory memory;
  BufferId buffer;
  int64_t some, targets;  // rows of a chunk, and of all that have a target
  Loop loop;
  const int32_t *rows, *labels;
  const float* weights;
  float *losses, *entropy;
  Mat h, logits, z_rows;            // of the chunk
  kernels::RowwiseFp8Copy rounded;  // the softmax, or the gradient of logits
  kernels::Quantize rounded_h;
  float* at_label;
  Gemm forward, plus, dx, dz, dw;
};

// What stands at `of` moves with the chunk; rows that do not lie side by side go through `apart`.
void* Lowering::head_window(Head& s, const void* of, const void* apart, int64_t row_bytes, bool by_place) {
  const BufferId id = buffer(Source::kWindow, windows_++);
  s.loop.windows.push_back({id, ref_of(of), ref_of(apart), row_bytes, by_place});
  return place({id, 0});
}

Mat Lowering::head_rows(Head& s, const Mat& of, int64_t apart_at) {
  const int64_t bytes = of.cols * static_cast<int64_t>(size_of(of.type));
  return {head_window(s, of.p, place({s.buffer, apart_at}), bytes, false), s.some, of.cols, of.cols, of.type};
}

void Lowering::head_operands(Head& s) {
  const HeadCall& a = s.call;
  const auto numbers = [&](Source source) { return head_window(s, in(source), nullptr, 4, true); };
  const auto list = [&](int64_t at) {
    return static_cast<float*>(head_window(s, place({s.buffer, at}), nullptr, 4, true));
  };
  s.rows = static_cast<const int32_t*>(numbers(Source::kTargetRows));
  s.labels = static_cast<const int32_t*>(numbers(Source::kTargetLabels));
  s.weights = a.seed != kNone ? list(s.memory.weights) : static_cast<const float*>(numbers(Source::kTargetWeights));
  s.losses = list(s.memory.losses);
  s.entropy = a.entropy != kNone ? list(s.memory.entropy) : nullptr;
  s.h = head_rows(s, s.hidden, 0);
  s.logits = Mat{place({s.buffer, s.memory.logits}), s.some, s.w.rows, s.w.rows, s.hidden.type};
  s.rounded = {nullptr,
               {place({s.buffer, s.memory.rounded}), s.some, s.w.rows, s.w.rows, DType::kF8E4M3},
               static_cast<float*>(place({s.buffer, s.memory.scales}))};
  s.rounded_h = {s.h,
                 nullptr,
                 {place({s.buffer, s.memory.hidden}), s.some, s.h.cols, s.h.cols, DType::kF8E4M3},
                 static_cast<float*>(place({s.buffer, s.memory.hidden_scales}))};
  s.at_label = s.trained ? static_cast<float*>(place({s.buffer, s.memory.at_label})) : nullptr;
}

void Lowering::head_products(Head& s) {
  const HeadCall& a = s.call;
  s.forward.a = s.h;
  s.forward.b = s.w;
  s.forward.c = s.logits;
  s.forward.trans_b = true;
  s.forward.alpha = a.scale;
  if (s.trained) {
    s.forward.a = s.rounded_h.q, s.forward.a_scale = s.rounded_h.scale;
    s.forward.b = mat(a.q), s.forward.b_scale = at<float>(a.scale_of_q);
  } else {
    s.forward.b_packed = packed_weight(s.weight, false);
  }
  if (s.adapted) {
    s.z_rows = head_rows(s, s.z, s.memory.z);
    s.plus.a = s.z_rows;
    s.plus.b = s.b;
    s.plus.c = s.logits;
    s.plus.trans_b = s.plus.accumulate = true;
    s.plus.alpha = a.adapter;
  }
  if (s.adapted && a.gradient) {
    s.dz_all = mat(a.dz);
    MXT_ASSERT(s.dz_all.ld == s.z.cols);
    s.dz.a = s.logits;
    s.dz.b = s.b;
    s.dz.c = head_rows(s, s.dz_all, s.memory.dz);
    s.dz.alpha = a.adapter;
  }
  if (a.gradient) {
    s.dh = mat(a.dh);
    MXT_ASSERT(s.dh.ld == s.hidden.cols);
    s.dx.a = s.trained || s.back == Storage::kFp8 ? s.rounded.q : s.logits;
    s.dx.b = s.w;
    s.dx.c = head_rows(s, s.dh, s.memory.rows);
    if (s.trained) {
      s.dx.b = mat(a.turned);
      s.dx.trans_b = true;
      s.dx.a_scale = s.rounded.scale, s.dx.b_scale = at<float>(a.scale_of_turned);
    } else if (s.back == Storage::kPlain) {
      s.dx.b_packed = packed_weight(s.weight, true);
    }
    const ParamId param = g_.value(s.weight).param;
    if (s.back == Storage::kFakeQuant) s.dx.b.p = in(Source::kTransposed, param);
    if (s.back == Storage::kFp8) {
      s.dx.b = {in(Source::kTransposed, param), s.w.cols, s.w.rows, s.w.rows, DType::kF8E4M3};
      s.dx.trans_b = true;
      s.dx.a_scale = s.rounded.scale;
      s.dx.b_scale = scale(s.weight);
    }
  }
  if (op_->param != kNone && !s.trained) {
    s.dw.a = s.logits;
    s.dw.b = s.adapted ? s.z_rows : s.h;
    s.dw.c = grad_mat(op_->param);
    s.dw.trans_a = s.dw.accumulate = true;
    if (s.adapted) s.dw.alpha = a.adapter;
  }
  const auto chosen = [&](Gemm& g) {
    Gemm wide = widest(g);
    wide.algo = g.algo = choose(wide);
    scratch(ops_.gemm_scratch(wide));
  };
  chosen(s.forward);
  if (a.gradient) chosen(s.dx);
  if (s.adapted) chosen(s.plus);
  if (s.adapted && a.gradient) chosen(s.dz);
  if (op_->param != kNone && !s.trained) chosen(s.dw);
}

// The weight's gradient: of the logits' and the hidden states, both in E4M3, and of the labels' rows by themselves.
void Lowering::emit_trained_dw(Head& s) {
  kernels::Fp8LinearDw dw;
  dw.dy = s.rounded.q, dw.dy_scale = s.rounded.scale;
  dw.x = s.rounded_h.q, dw.x_scale = s.rounded_h.scale;
  dw.dw = grad(op_->param);
  dw.accumulate = true;
  scratch(ops_.fp8_linear_dw_scratch(widest(dw)));
  emit(dw, first(*op_));
  kernels::EmbeddingGrad of_labels{s.labels, s.h, grad_mat(op_->param)};
  of_labels.by = s.at_label;
  emit(of_labels);
}

void Lowering::emit_head(Head& s) {
  const HeadCall& a = s.call;
  const auto* target_rows = in<int32_t>(Source::kTargetRows);
  const auto column = [&](int64_t at) { return Mat{place({s.buffer, at}), s.targets, 1, 1, DType::kF32}; };
  const auto clear = [&](const Mat& m) {
    emit(kernels::ScatterRows{inside(m, 0, 0, 0, m.cols), target_rows, m}, 0, kSomeLeftOut);
  };
  if (a.gradient) clear(s.dh);
  if (s.adapted && a.gradient) clear(s.dz_all);
  if (a.seed != kNone) {  // dloss/dlogits = scale · (−dlogp) · (softmax − onehot)
    emit(kernels::GatherRows{mat(a.seed), target_rows, column(s.memory.losses)});
    emit(kernels::Copy{column(s.memory.losses), column(s.memory.weights), -a.scale});
  }
  s.loop.first = spec_.calls.size();
  emit(kernels::GatherRows{s.hidden, s.rows, s.h}, 0, kApart);
  if (s.adapted) emit(kernels::GatherRows{s.z, s.rows, s.z_rows}, 0, kApart);
  if (s.trained) emit(s.rounded_h);
  emit(s.forward);
  if (s.adapted) emit(s.plus);
  kernels::CrossEntropy loss{s.logits, s.labels, s.weights, s.losses, a.gradient, a.softcap};
  loss.softmax = s.back != Storage::kPlain;
  if (s.trained || s.back == Storage::kFp8) loss.held = s.rounded;
  loss.at_label = s.at_label;
  loss.entropy = s.entropy;
  emit(loss);
  if (s.back == Storage::kFakeQuant) emit(kernels::Quantize{s.logits, nullptr, s.logits, nullptr});
  if (s.trained)
    emit_trained_dw(s);
  else if (op_->param != kNone)
    emit(s.dw, first(*op_));
  if (a.gradient) {
    emit(s.dx);
    if (s.trained || s.back != Storage::kPlain)
      emit(kernels::LabelGrad{s.dx.c, s.w, s.labels, s.losses, s.weights, s.at_label});
    emit(kernels::ScatterRows{s.dx.c, s.rows, s.dh, false}, 0, kApart);
  }
  if (s.adapted && a.gradient) {
    emit(s.dz);
    emit(kernels::ScatterRows{s.dz.c, s.rows, s.dz_all, false}, 0, kApart);
  }
  s.loop.last = spec_.calls.size();
  spec_.loops.push_back(std::move(s.loop));
  if (op_->first_grad && op_->param != kNone) {
    const Mat g = grad_mat(op_->param);
    emit(kernels::ScatterRows{inside(g, 0, 0, 0, g.cols), nullptr, g}, 0, kNoTarget | kFirstPass);
  }
  const auto scatter = [&](int64_t at, ValueId to) { emit(kernels::ScatterRows{column(at), target_rows, mat(to)}); };
  if (a.entropy != kNone) scatter(s.memory.entropy, a.entropy);
  if (a.nll != kNone) scatter(s.memory.losses, a.nll);
  if (a.logp != kNone) {
    emit(kernels::Copy{column(s.memory.losses), column(s.memory.losses), -1});
    scatter(s.memory.losses, a.logp);
  }
}

// The head works on the rows that have a target, `chunk` of them at a time: gather → logits → losses and their gradient
// in place → dh of those rows → scatter; the weight's gradient adds up over the chunks in order. Rows that lie side by
// side are used where they are. Over a base in E4M3 (Param::back) dh = weight·(P·W + (softmax[label] − 1)·W[label]): P
// is the softmax of all but the label as E4M3, W's columns are rounded likewise there. The rounding shows in that part
// of the gradient alone and not in the loss. Where the weight trains in E4M3, hidden states, weight and the gradient of
// the logits are rounded by rows, as those of a layer's products are (passes/quantize.cc), the last without the
// labels', whose part in both gradients is added as it is.
void Lowering::lower_head(const HeadCall& a) {
  Head s{.call = a, .weight = op_->in[1]};
  const Storage held = g_.param_of(s.weight).back;
  s.back = a.gradient ? held : Storage::kPlain;
  s.adapted = a.z != kNone;
  s.trained = a.q != kNone;
  s.hidden = mat(op_->in[0]), s.w = mat(s.weight);
  MXT_ASSERT(s.hidden.ld == s.hidden.cols);  // nothing lies beside the last hidden states, nor beside their gradient
  if (s.adapted) s.z = mat(a.z), s.b = mat(a.b);
  MXT_ASSERT(!s.adapted || (s.z.ld == s.z.cols && s.back == Storage::kPlain));
  MXT_ASSERT(!s.trained || (a.gradient && a.scale == 1 && !s.adapted && s.back == Storage::kPlain));
  const bool apart = a.nll == kNone;                                                // log-probabilities are wanted
  const bool rounds = s.back == Storage::kFp8 || (apart && held == Storage::kFp8);  // one size for both
  s.loop.over = Dim::kTargets;
  s.loop.chunk = std::min(a.chunk, spec_.settings.max_tokens);
  s.memory =
      head_memory(s.loop.chunk, spec_.settings.max_tokens, s.hidden, s.w.rows, s.z.cols, apart, rounds, s.trained);
  spec_.bytes.logits = s.memory.end;
  s.buffer = buffer(Source::kHead, -1, spec_.bytes.logits);
  most_[Dim::kChunk] = s.loop.chunk;
  s.some = rows_of({Dim::kChunk, 1}), s.targets = rows_of({Dim::kTargets, 1});
  head_operands(s);
  head_products(s);
  emit_head(s);
}

void Lowering::lower(const FusedLinearCrossEntropyOp& a) {
  HeadCall c{a.chunk, a.softcap, 1, a.gradient};
  c.nll = op_->out[0];
  if (a.gradient) c.dh = op_->out[1];
  if (a.adapter != 0) {
    c.adapter = a.adapter;
    c.z = op_->in[2], c.b = op_->in[3];
    if (a.gradient) c.dz = op_->out[2];
  } else if (op_->in.size() > 2) {
    c.q = op_->in[2], c.scale_of_q = op_->in[3], c.turned = op_->in[4], c.scale_of_turned = op_->in[5];
  }
  lower_head(c);
  spec_.nll = ref_of(at(op_->out[0]));
}

// The temperature divides logits that are bounded already, as where they are drawn from: s·c·tanh(x/c) is the product's
// s·x bounded by s·c.
void Lowering::lower(const TokenLogProbOp& a) {
  HeadCall c{a.chunk, a.scale * a.softcap, a.scale, false};
  c.logp = op_->out[0];
  if (a.entropy) c.entropy = op_->out[1];
  lower_head(c);
}

void Lowering::lower(const TokenLogProbGradOp& a) {
  HeadCall c{a.of.chunk, a.of.scale * a.of.softcap, a.of.scale, true};
  c.seed = op_->in[2];
  c.dh = op_->out[0];
  lower_head(c);
}

// On a device the logits of a few rows at a time are made there and fetched; the end of the pass is the one place where
// generation waits for it.
void Lowering::lower(const LogitsOp& a) {
  const Mat hidden = mat(op_->in[0]), w = mat(op_->in[1]);
  const int64_t tokens = spec_.settings.max_tokens, width = hidden.cols, vocab = w.rows,
                element = static_cast<int64_t>(size_of(hidden.type)),
                chunk = ops_.device() ? std::min<int64_t>(tokens, 256) : tokens,
                rows_bytes = align(tokens * width * element, 256);
  const bool draws = ops_.device() && dynamic_cast<const kernels::Drawer*>(&ops_) != nullptr;
  const int64_t logits_bytes = ops_.device() ? align(chunk * vocab * 4, 256) : 0;
  spec_.bytes.logits = rows_bytes + logits_bytes + (draws ? chunk * 8 : 0);
  spec_.softcap = a.softcap;
  const BufferId head = buffer(Source::kHead, -1, spec_.bytes.logits);
  most_[Dim::kChunk] = chunk;
  const int64_t some = rows_of({Dim::kChunk, 1});

  Loop loop;
  loop.over = Dim::kLogitRows;
  loop.chunk = chunk;
  const auto window = [&](Source s, int64_t row_bytes) {
    const BufferId id = buffer(Source::kWindow, windows_++);
    loop.windows.push_back({id, {buffer(s), 0}, {}, row_bytes, true});
    return place({id, 0});
  };
  const auto* rows = static_cast<const int32_t*>(window(Source::kLogitRows, 4));
  const Mat logits{window(Source::kLogits, vocab * 4), some, vocab, vocab, DType::kF32};
  const Mat wanted{window(Source::kHidden, width * 4), some, width, width, DType::kF32};
  Gemm g;
  g.a = Mat{place({head, 0}), some, width, width, hidden.type};
  g.b = w;
  g.c = ops_.device() ? Mat{place({head, rows_bytes}), some, vocab, vocab, DType::kF32} : logits;
  g.trans_b = g.b_constant = true;
  g.b_packed = packed_weight(op_->in[1], false);
  Gemm wide = widest(g);
  wide.algo = g.algo = choose(wide);
  scratch(ops_.gemm_scratch(wide));
  most_[Dim::kChunk] = 1;
  Gemm one = widest(g);
  scratch(ops_.gemm_scratch(one));
  most_[Dim::kChunk] = chunk;

  loop.first = spec_.calls.size();
  emit(kernels::GatherRows{hidden, rows, Mat{place({head, 0}), some, width, width, hidden.type}});
  emit(kernels::ToHost{g.a, wanted}, 0, kHiddenWanted);
  emit(g, 0, kLogitsWanted);
  if (ops_.device()) emit(kernels::ToHost{g.c, logits}, 0, kLogitsFetched);
  if (draws) {
    kernels::DrawTokens d;
    d.logits = g.c;
    d.softcap = a.softcap;
    d.temperature = static_cast<const float*>(window(Source::kDrawTemperature, 4));
    d.bits = static_cast<const int32_t*>(window(Source::kDrawBits, 8));
    d.drawn = Mat{place({head, rows_bytes + logits_bytes}), some, 2, 2, DType::kF32};
    const Mat drawn{window(Source::kDrawn, 8), some, 2, 2, DType::kF32};
    emit(d, 0, kDrawsWanted);
    emit(kernels::ToHost{d.drawn, drawn}, 0, kDrawsWanted);
  }
  loop.last = spec_.calls.size();
  spec_.loops.push_back(std::move(loop));
}

}  // namespace mxt::runtime
