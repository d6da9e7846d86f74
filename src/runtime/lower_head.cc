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

}  // namespace

// The head works on the rows that have a target, `chunk` of them at a time: gather → logits → losses and their gradient
// in place → dh of those rows → scatter; the weight's gradient adds up over the chunks in order. Rows that lie side by
// side are used where they are. Over a base in E4M3 (Param::back) dh = weight·(P·W + (softmax[label] − 1)·W[label]): P
// is the softmax of all but the label as E4M3, W's columns are rounded likewise there. The rounding shows in that part
// of the gradient alone and not in the loss.
void Lowering::lower_head(const HeadCall& a) {
  const ValueId weight = op_->in[1];
  const ParamId param = g_.value(weight).param;
  const Mat hidden = mat(op_->in[0]), w = mat(weight);
  const int64_t tokens = spec_.settings.max_tokens, vocab = w.rows, width = hidden.cols,
                chunk = std::min(a.chunk, tokens), element = static_cast<int64_t>(size_of(hidden.type));
  MXT_ASSERT(hidden.ld == width);  // nothing lies beside the last hidden states, nor beside their gradient
  const int64_t rows_bytes = align(chunk * width * element, 64), logits_bytes = align(chunk * vocab * element, 64);
  const Storage back = a.gradient ? g_.param_of(weight).back : Storage::kPlain;
  // Of each row with a target: its loss; where log-probabilities are wanted also its entropy and its weight.
  const bool apart = a.nll == kNone;
  const int64_t losses_at = 2 * rows_bytes + logits_bytes, entropy_at = losses_at + tokens * 4,
                weights_at = entropy_at + tokens * 4, lists_end = losses_at + (apart ? 3 : 1) * tokens * 4,
                softmax_at = align(lists_end, 1024), scale_at = softmax_at + align(chunk * vocab, 64);
  // With an adapter its z stands beside the hidden states: logits += adapter·z Bᵀ, dz = adapter·dlogits B.
  const bool adapted = a.z != kNone;
  const Mat z = adapted ? mat(a.z) : Mat{}, b = adapted ? mat(a.b) : Mat{};
  MXT_ASSERT(!adapted || (z.ld == z.cols && back == Storage::kPlain));
  const int64_t rank = z.cols, z_bytes = align(chunk * rank * element, 64);
  const bool rounds =
      back == Storage::kFp8 || (apart && g_.param_of(weight).back == Storage::kFp8);  // one size for both
  const int64_t end = rounds ? scale_at + chunk * 4 : lists_end, z_at = align(end, 64), dz_at = z_at + z_bytes;
  spec_.bytes.logits = adapted ? dz_at + z_bytes : end;
  const BufferId head = buffer(Source::kHead, -1, spec_.bytes.logits);
  const auto head_at = [&](int64_t offset) { return place({head, offset}); };
  most_[Dim::kChunk] = chunk;
  const int64_t some = rows_of({Dim::kChunk, 1}), targets = rows_of({Dim::kTargets, 1});

  // What moves with the chunk.
  Loop loop;
  loop.over = Dim::kTargets;
  loop.chunk = chunk;
  const auto window = [&](const void* of, const void* apart, int64_t row_bytes, bool by_place) {
    const BufferId id = buffer(Source::kWindow, windows_++);
    loop.windows.push_back({id, ref_of(of), ref_of(apart), row_bytes, by_place});
    return place({id, 0});
  };
  const auto numbers = [&](Source s) { return window(in(s), nullptr, 4, true); };
  const auto* rows = static_cast<const int32_t*>(numbers(Source::kTargetRows));
  const auto* labels = static_cast<const int32_t*>(numbers(Source::kTargetLabels));
  const auto list = [&](int64_t offset) { return static_cast<float*>(window(head_at(offset), nullptr, 4, true)); };
  const auto column = [&](int64_t offset) { return Mat{head_at(offset), targets, 1, 1, DType::kF32}; };
  const auto* weights = a.seed != kNone ? list(weights_at) : static_cast<const float*>(numbers(Source::kTargetWeights));
  float* losses = list(losses_at);
  float* entropy = a.entropy != kNone ? list(entropy_at) : nullptr;
  const Mat h{window(hidden.p, head_at(0), width * element, false), some, width, width, hidden.type};
  const Mat logits{head_at(2 * rows_bytes), some, vocab, vocab, hidden.type};

  Gemm forward;
  forward.a = h;
  forward.b = w;
  forward.c = logits;
  forward.trans_b = true;
  forward.alpha = a.scale;
  forward.b_packed = packed_weight(weight, false);
  Gemm dx, dw, plus, dz;
  Mat z_rows, dz_all;
  if (adapted) {
    z_rows = Mat{window(z.p, head_at(z_at), rank * element, false), some, rank, rank, hidden.type};
    plus.a = z_rows;
    plus.b = b;
    plus.c = logits;
    plus.trans_b = plus.accumulate = true;
    plus.alpha = a.adapter;
  }
  if (adapted && a.gradient) {
    dz_all = mat(a.dz);
    MXT_ASSERT(dz_all.ld == rank);
    dz.a = logits;
    dz.b = b;
    dz.c = Mat{window(dz_all.p, head_at(dz_at), rank * element, false), some, rank, rank, hidden.type};
    dz.alpha = a.adapter;
  }
  const kernels::RowwiseFp8Copy softmax{
      nullptr, {head_at(softmax_at), some, vocab, vocab, DType::kF8E4M3}, static_cast<float*>(head_at(scale_at))};
  Mat dh;
  if (a.gradient) {
    dh = mat(a.dh);
    MXT_ASSERT(dh.ld == width);
    dx.a = back == Storage::kFp8 ? softmax.q : logits;
    dx.b = w;
    dx.c = Mat{window(dh.p, head_at(rows_bytes), width * element, false), some, width, width, hidden.type};
    if (back == Storage::kPlain) dx.b_packed = packed_weight(weight, true);
    if (back == Storage::kFakeQuant) dx.b.p = in(Source::kTransposed, param);
    if (back == Storage::kFp8) {
      dx.b = {in(Source::kTransposed, param), w.cols, w.rows, w.rows, DType::kF8E4M3};
      dx.trans_b = true;
      dx.a_scale = softmax.scale;
      dx.b_scale = scale(weight);
    }
  }
  if (op_->param != kNone) {
    dw.a = logits;
    dw.b = adapted ? z_rows : h;
    dw.c = grad_mat(op_->param);
    dw.trans_a = dw.accumulate = true;
    if (adapted) dw.alpha = a.adapter;
  }
  const auto chosen = [&](Gemm& g) {
    Gemm wide = widest(g);
    wide.algo = g.algo = choose(wide);
    scratch(ops_.gemm_scratch(wide));
  };
  chosen(forward);
  if (a.gradient) chosen(dx);
  if (adapted) chosen(plus);
  if (adapted && a.gradient) chosen(dz);
  if (op_->param != kNone) chosen(dw);

  const auto clear = [&](const Mat& m) {
    emit(kernels::ScatterRows{inside(m, 0, 0, 0, m.cols), in<int32_t>(Source::kTargetRows), m}, 0, kSomeLeftOut);
  };
  if (a.gradient) clear(dh);
  if (adapted && a.gradient) clear(dz_all);
  if (a.seed != kNone) {  // dloss/dlogits = scale · (−dlogp) · (softmax − onehot)
    emit(kernels::GatherRows{mat(a.seed), in<int32_t>(Source::kTargetRows), column(losses_at)});
    emit(kernels::Copy{column(losses_at), column(weights_at), -a.scale});
  }
  loop.first = spec_.calls.size();
  emit(kernels::GatherRows{hidden, rows, h}, 0, kApart);
  if (adapted) emit(kernels::GatherRows{z, rows, z_rows}, 0, kApart);
  emit(forward);
  if (adapted) emit(plus);
  kernels::CrossEntropy loss{logits, labels, weights, losses, a.gradient, a.softcap};
  loss.softmax = back != Storage::kPlain;
  if (back == Storage::kFp8) loss.held = softmax;
  loss.entropy = entropy;
  emit(loss);
  if (back == Storage::kFakeQuant) emit(kernels::Quantize{logits, nullptr, logits, nullptr});
  if (op_->param != kNone) emit(dw, first(*op_));
  if (a.gradient) {
    emit(dx);
    if (back != Storage::kPlain) emit(kernels::LabelGrad{dx.c, w, labels, losses, weights});
    emit(kernels::ScatterRows{dx.c, rows, dh, false}, 0, kApart);
  }
  if (adapted && a.gradient) {
    emit(dz);
    emit(kernels::ScatterRows{dz.c, rows, dz_all, false}, 0, kApart);
  }
  loop.last = spec_.calls.size();
  spec_.loops.push_back(std::move(loop));
  if (op_->first_grad && op_->param != kNone) {
    const Mat g = grad_mat(op_->param);
    emit(kernels::ScatterRows{inside(g, 0, 0, 0, g.cols), nullptr, g}, 0, kNoTarget | kFirstPass);
  }
  const auto scatter = [&](int64_t offset, ValueId to) {
    emit(kernels::ScatterRows{column(offset), in<int32_t>(Source::kTargetRows), mat(to)});
  };
  if (a.entropy != kNone) scatter(entropy_at, a.entropy);
  if (a.nll != kNone) scatter(losses_at, a.nll);
  if (a.logp != kNone) {
    emit(kernels::Copy{column(losses_at), column(losses_at), -1});
    scatter(losses_at, a.logp);
  }
}

void Lowering::lower(const FusedLinearCrossEntropyOp& a) {
  HeadCall c{a.chunk, a.softcap, 1, a.gradient};
  c.nll = op_->out[0];
  if (a.gradient) c.dh = op_->out[1];
  if (a.adapter != 0) {
    c.adapter = a.adapter;
    c.z = op_->in[2], c.b = op_->in[3];
    if (a.gradient) c.dz = op_->out[2];
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
