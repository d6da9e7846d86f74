// Adapters: their products, their gradients, and what one kernel makes together with the operations beside them.
#include <algorithm>
#include <utility>

#include "runtime/lower.h"

namespace mxt::runtime {

using namespace graph;
using kernels::Gemm;
using kernels::Mat;

void Lowering::lower(const LoraAddOp& a) {
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    const LoraBlock& k = a.blocks[i];
    Gemm g;
    g.a = columns(mat(op_->in[1]), k.z_col, k.rank);
    g.b = mat(op_->in[2 + i]);
    g.c = columns(mat(op_->out[0]), k.col, k.cols);
    g.trans_b = g.accumulate = true;
    g.alpha = k.scale;
    emit_gemm(g);
  }
}

Mat Lowering::joined(ValueId w, int64_t ranks) {
  const Param& p = g_.param_of(w);
  if (p.held == Storage::kFp8)
    return {in(Source::kJoined, g_.value(w).param), p.rows, ranks, joined_stride(p), g_.act_type};
  Mat m = mat(w);
  const int64_t cols = m.cols;
  m.cols += ranks;
  return columns(m, cols, ranks);
}

kernels::LoraGrad Lowering::lora_grad(const Op& op) {
  const auto& a = std::get<LoraDzOp>(op.attrs);
  kernels::LoraGrad g;
  g.dy = mat(op.in[0]);
  g.dz = mat(op.out[0]);
  g.z = mat(op.in[2]);
  g.b = joined(op.in[1], g.dz.cols);
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    const LoraBlock& k = a.blocks[i];
    g.blocks.push_back({k.col, k.cols, k.z_col, k.rank, k.scale, grad(a.b[i])});
  }
  g.accumulate = adds(op);
  return g;
}

kernels::ActLoraGrad Lowering::act_lora_grad(const ActLoraGrad& a) {
  kernels::ActLoraGrad g;
  g.act = {static_cast<kernels::Activation>(std::get<ActGradOp>(a.act->attrs).kind), mat(a.act->in[0]),
           mat(a.act->in[1]), mat(a.act->out[0])};
  g.lora = lora_grad(*a.dz);
  if (std::get<ActGradOp>(a.act->attrs).held) {
    const size_t n = a.act->in.size();
    g.held = rowwise_fp8_copy(*a.act, a.act->in.back());
    g.row_absmax = at<float>(a.act->in[n - 3]);
    g.largest = at<float>(a.act->in[n - 2]);
  }
  if (a.da == nullptr) return g;
  g.dz = mat(a.da->in[0]);
  g.da = grad(a.da->param);
  g.accumulate_da = adds(*a.da);
  return g;
}

kernels::ActLora Lowering::act_lora(const ActLora& a) {
  kernels::ActLora k;
  k.act = {static_cast<kernels::Activation>(std::get<ActOp>(a.act->attrs).kind), mat(a.act->in[0]), mat(a.act->out[0]),
           rowwise_fp8_copy(*a.act, kNone)};
  k.a = mat(a.z->in[1]);
  k.z = mat(a.z->out[0]);
  k.row_absmax = at<float>(a.act->in[1]);
  return k;
}

std::vector<Step> Lowering::steps() const {
  std::vector<Step> steps = steps_of(g_);
  const auto of = [&](const Op* op) -> Step& { return steps[static_cast<size_t>(op - g_.ops.data())]; };
  const auto join = [&](const Op* first, const Op* second) {
    Step &to = of(first), from = std::exchange(of(second), {});
    to.reads.insert(to.reads.end(), from.reads.begin(), from.reads.end());
    to.writes.insert(to.writes.end(), from.writes.begin(), from.writes.end());
  };
  for (const ActLoraGrad& k : act_lora_grad_) {
    join(k.act, k.dz);
    if (k.da == nullptr) continue;
    std::erase(of(k.da).reads, k.da->in[1]);  // y is made again from what act reads
    join(k.act, k.da);
  }
  for (const ActLora& k : act_lora_) {
    join(k.act, k.z);
    std::erase(of(k.act).reads, k.act->out[0]);
    std::erase(of(k.act).writes, k.act->out[0]);
  }
  return steps;
}

void Lowering::find_act_lora() {
  for (size_t i = 0; i + 1 < g_.ops.size(); ++i) {
    const Op &act = g_.ops[i], &z = g_.ops[i + 1];
    const auto* linear = std::get_if<LinearOp>(&z.attrs);
    if (!std::holds_alternative<ActOp>(act.attrs) || act.in.size() < 2 || linear == nullptr || linear->fp8 ||
        z.in.size() != 2 || z.in[0] != act.out[0])
      continue;
    const auto readers = uses_.readers(act.out[0]);
    const bool last = std::all_of(readers.begin(), readers.end(), [&](int32_t reader) {
      return static_cast<size_t>(reader) == i + 1 || taken_[static_cast<size_t>(reader)];
    });
    const ActLora found{&act, &z};
    if (!last || !ops_.has_act_lora(widest(act_lora(found)))) continue;
    act_lora_.push_back(found);
    taken_[i + 1] = true;
  }
}

// Looks for act_grad, then lora_dz of its result; and before them the product dzᵀ·y of the same activation's result y,
// where nothing is written to that dz's buffer in between.
void Lowering::find_act_lora_grad() {
  const size_t n = g_.ops.size();
  for (size_t i = 0; i + 1 < n; ++i) {
    const Op &act = g_.ops[i], &next = g_.ops[i + 1];
    const auto* dz = std::get_if<LoraDzOp>(&next.attrs);
    if (!std::holds_alternative<ActGradOp>(act.attrs) || dz == nullptr || !dz->joined || dz->b.empty() ||
        next.in[0] != act.out[0])
      continue;
    ActLoraGrad found{&act, &next, nullptr};
    if (!ops_.has_act_lora_grad(widest(act_lora_grad(found)))) continue;
    for (size_t j = i; j-- > 0 && i - j < 8 && found.da == nullptr;) {
      const Op& dw = g_.ops[j];
      if (!std::holds_alternative<LinearDwOp>(dw.attrs)) continue;
      const int32_t made = uses_.maker(dw.in[1]);
      const Op* y = made < 0 ? nullptr : &g_.ops[static_cast<size_t>(made)];
      const bool same = y && std::holds_alternative<ActOp>(y->attrs) && y->out[0] == dw.in[1] && y->in[0] == act.in[0];
      bool kept = true;
      for (size_t o = j; o < i; ++o)
        for (ValueId v : g_.ops[o].out)
          kept = kept && roots_[static_cast<size_t>(v)] != roots_[static_cast<size_t>(dw.in[0])];
      ActLoraGrad with = found;
      with.da = &dw;
      if (same && kept && ops_.has_act_lora_grad(widest(act_lora_grad(with)))) found = with;
    }
    act_lora_grad_.push_back(found);
    for (const Op* op : {found.dz, found.da})
      if (op) taken_[static_cast<size_t>(op - g_.ops.data())] = true;
  }
}

void Lowering::lower(const LoraDzOp& a) {
  if (!a.b.empty()) {
    const kernels::LoraGrad all = lora_grad(*op_);
    if (ops_.has_lora_grad(widest(all))) {
      emit(all, first(*op_));
      return;
    }
    for (size_t i = 0; i < a.blocks.size(); ++i) {
      const LoraBlock& k = a.blocks[i];
      Gemm g;
      g.a = columns(mat(op_->in[0]), k.col, k.cols);
      g.b = columns(mat(op_->in[2]), k.z_col, k.rank);
      g.c = grad_mat(a.b[i]);
      g.trans_a = true;
      g.alpha = k.scale;
      g.accumulate = adds(*op_);
      emit_gemm(g, first(*op_));
    }
  }
  if (a.joined) {
    Gemm g;
    g.a = mat(op_->in[0]);
    g.c = mat(op_->out[0]);
    g.b = joined(op_->in[1], g.c.cols);
    emit_gemm(g);
    return;
  }
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    const LoraBlock& k = a.blocks[i];
    Gemm g;
    g.a = columns(mat(op_->in[0]), k.col, k.cols);
    g.b = mat(op_->in[1 + i]);
    g.c = columns(mat(op_->out[0]), k.z_col, k.rank);
    g.alpha = k.scale;
    emit_gemm(g);
  }
}

void Lowering::lower(const LoraDbOp& a) {
  const LoraBlock& k = a.block;
  Gemm g;
  g.a = columns(mat(op_->in[0]), k.col, k.cols);
  g.b = columns(mat(op_->in[1]), k.z_col, k.rank);
  g.c = grad_mat(op_->param);
  g.trans_a = true;
  g.alpha = k.scale;
  g.accumulate = adds(*op_);
  emit_gemm(g, first(*op_));
}

// The lengths of all rows, block by block; columns without an adapter pass as they are. An A that several blocks share
// the input of is one product. A weight held in codes is decoded piece by piece.
void Lowering::lower(const DoraGainOp& a) {
  const Mat down = mat(op_->in[1]), p = mat(op_->out[2]), q = mat(op_->out[3]);
  const Value& weight = g_.value(op_->in[0]);
  const bool in_codes = coded(op_->in[0]);
  const int64_t rows = weight.rows.factor, bytes = weight.cols * static_cast<int64_t>(size_of(weight.type)),
                most = in_codes ? piece(rows, bytes) : rows;
  const auto times_down = [&](const Mat& left, const Mat& to) {
    Gemm g;
    g.a = left;
    g.b = down;
    g.c = to;
    g.trans_b = true;
    emit_gemm(g);
  };
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first);
    const Mat w = in_codes ? decoded(op_->in[0], first, 0, count, weight.cols) : mat(op_->in[0]);
    times_down(w, inside(p, first, 0, count, p.cols));
    if (first == 0) times_down(down, q);
    dora_gains(a, w, first, p, q);
  }
}

// Of the rows from `first` on, which are `w`.
void Lowering::dora_gains(const DoraGainOp& a, const Mat& w, int64_t first, const Mat& p, const Mat& q) {
  float *gain = at<float>(op_->out[0]), *norm = at<float>(op_->out[1]);
  const auto after = [](float* first, int64_t n) {
    return reinterpret_cast<float*>(reinterpret_cast<std::byte*>(first) + static_cast<size_t>(n) * sizeof(float));
  };
  const int64_t last = first + w.rows;
  int64_t row = first, reached = 0;
  const auto plain = [&](int64_t to) {
    if (to > row) emit(kernels::DoraGain{{}, {}, {}, {}, nullptr, 1, to - row, after(gain, row), after(norm, row)});
  };
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    const LoraBlock& k = a.blocks[i];
    const int64_t begin = std::max(k.col, first), end = std::min(k.col + k.cols, last);
    if (begin < end) {
      plain(begin);
      kernels::DoraGain d;
      d.w = inside(w, begin - first, 0, end - begin, w.cols);
      d.p = inside(p, begin, k.z_col, end - begin, k.rank);
      d.q = inside(q, k.z_col, k.z_col, k.rank, k.rank);
      d.b = inside(mat(op_->in[3 + i]), begin - k.col, 0, end - begin, k.rank);
      d.m = static_cast<const float*>(element(op_->in[2], reached + begin - k.col));
      d.scale = k.scale;
      d.rows = end - begin;
      d.gain = after(gain, begin), d.norm = after(norm, begin);
      emit(d);
      row = end;
    }
    reached += k.cols;
  }
  plain(last);
}

void Lowering::lower(const DoraScaleOp&) {
  kernels::DoraScale d;
  d.u = mat(op_->in[0]);
  d.gain = at<float>(op_->in[1]);
  if (op_->in.size() > 4) d.bias = at(op_->in[4]), d.bias_type = g_.value(op_->in[4]).type;
  d.y = mat(op_->out[0]);
  emit(d);
}

// The magnitudes' gradients stand side by side; all columns are scaled, with or without an adapter.
void Lowering::lower(const DoraScaleGradOp& a) {
  const Mat dy = mat(op_->in[0]), u = mat(op_->in[1]), du = mat(op_->out[0]);
  const auto number = [&](ValueId v, int64_t n) {
    return reinterpret_cast<const float*>(static_cast<const std::byte*>(at(v)) + static_cast<size_t>(n) * 4);
  };
  const auto part = [&](int64_t col, int64_t count, float* dm) {
    kernels::DoraScaleGrad d;
    d.dy = columns(dy, col, count), d.u = columns(u, col, count), d.du = columns(du, col, count);
    d.gain = number(op_->in[2], col), d.norm = number(op_->in[3], col);
    d.dm = dm;
    d.accumulate = adds(*op_);
    emit(d, dm ? first(*op_) : 0);
  };
  int64_t col = 0, reached = 0;
  for (const LoraBlock& k : a.blocks) {
    if (k.col > col) part(col, k.col - col, nullptr);
    part(k.col, k.cols, in<float>(Source::kGrad, op_->param, reached * 4));
    col = k.col + k.cols;
    reached += k.cols;
  }
  if (col < u.cols) part(col, u.cols - col, nullptr);
}

void Lowering::lower(const EmbeddingNoiseOp& a) {
  const int64_t tokens = spec_.settings.max_tokens,
                full = spec_.settings.document > 0 ? spec_.settings.document : tokens;
  kernels::EmbeddingNoise e;
  e.x = mat(op_->in[0]);
  e.y = mat(op_->out[0]);
  e.cu_seqlens = in<int32_t>(Source::kDocuments);
  e.documents = (tokens + full - 1) / full;
  e.longest_document = full;
  e.alpha = a.alpha;
  emit(e).stream = a.id;
}

// The adapter changes between steps alone.
void Lowering::lower(const LoraJoinOp& a) {
  const Mat w = mat(op_->in[0]), down = mat(op_->in[1]);
  const bool apart = g_.param_of(op_->in[0]).held == Storage::kFp8;
  if (!apart) emit(kernels::Copy{down, inside(w, w.rows, 0, down.rows, down.cols)}, 0, kFirstPass);
  const Mat beside = joined(op_->in[0], down.rows);
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    const Mat up = mat(op_->in[2 + i]);
    emit(kernels::Copy{up, inside(beside, a.blocks[i].col, a.blocks[i].z_col, up.rows, up.cols), a.blocks[i].scale}, 0,
         kFirstPass);
  }
}

}  // namespace mxt::runtime
