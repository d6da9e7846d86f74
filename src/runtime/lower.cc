#include "runtime/lower.h"

#include <algorithm>

#include "base/error.h"

namespace mxt::runtime {

using namespace graph;
using kernels::Gemm;
using kernels::Mat;

Lowering::Lowering(const Graph& g, const kernels::KernelPlan& plan, const kernels::Ops& ops,
                   const ProgramSettings& settings)
    : g_(g),
      plan_(plan),
      ops_(ops),
      most_(settings.max_tokens),
      taken_(g.ops.size(), false),
      uses_(g),
      roots_(roots(g)),
      gemm_names_(ops.gemm_algorithms()),
      attention_names_(ops.attention_algorithms()) {
  spec_.settings = settings;
  if (spec_.settings.max_documents == 0) spec_.settings.max_documents = settings.max_tokens;
  most_[Dim::kSequences] = spec_.settings.max_documents;
  most_[Dim::kBatchRows] = spec_.settings.max_documents;
  most_[Dim::kTargets] = most_[Dim::kLogitRows] = settings.max_tokens;
}

ProgramSpec Lowering::run() {
  find_act_lora_grad();
  find_act_lora();
  std::vector<ValueId> keep;
  for (const Op& op : g_.ops) {
    if (std::holds_alternative<FusedLinearCrossEntropyOp>(op.attrs)) keep.push_back(op.out[0]);
    if (std::holds_alternative<BalanceLossOp>(op.attrs)) keep.insert(keep.end(), {op.out[0], op.out[2]});
  }
  for (const Root& r : g_.roots) keep.push_back(r.value);
  keep.insert(keep.end(), g_.features.begin(), g_.features.end());
  const std::vector<Step> all = steps();
  spec_.memory = plan_memory(g_, all, most_, keep);
  find_dead(all, keep);
  ProgramBytes& bytes = spec_.bytes;
  bytes.activations = spec_.memory.bytes;
  bytes.lower_bound = spec_.memory.lower_bound;
  spec_.buffers.clear();  // what was asked about before memory was planned lies elsewhere now
  buffers_.clear();
  buffer(Source::kArena, -1, bytes.activations);
  for (size_t i = 0; i < g_.ops.size(); ++i) {
    if (taken_[i]) continue;
    op_ = &g_.ops[i];
    std::visit([&](const auto& a) { lower(a); }, op_->attrs);
  }
  find_of_pictures();
  bytes.batch = batch_bytes(spec_.settings, reads_previous(spec_)) +
                picture_bytes(spec_.settings, g_.pictures, g_.rotary, g_.act_type);
  if (ops_.device()) bytes.batch += static_cast<int64_t>((g_.rope_cos.size() + g_.rope_sin.size()) * sizeof(float));
  bytes.kernels =
      static_cast<int64_t>(gemm_memory_ + attention_memory_ + grad_memory_ + grouped_memory_ + delta_memory_);
  return std::move(spec_);
}

// For poisoned replay: which buffers die where.
void Lowering::find_dead(const std::vector<Step>& steps, const std::vector<ValueId>& keep) {
  std::vector<int32_t> last(g_.values.size(), -1);
  const auto of = [&](ValueId v) -> int32_t& { return last[static_cast<size_t>(roots_[static_cast<size_t>(v)])]; };
  for (size_t i = 0; i < steps.size(); ++i) {
    for (ValueId v : steps[i].reads) of(v) = static_cast<int32_t>(i);
    for (ValueId v : steps[i].writes) of(v) = static_cast<int32_t>(i);
  }
  for (ValueId v : keep) of(v) = -1;
  spec_.dead_after.assign(steps.size(), {});
  for (size_t v = 0; v < last.size(); ++v)
    if (last[v] >= 0 && g_.values[v].param == kNone)
      spec_.dead_after[static_cast<size_t>(last[v])].push_back(static_cast<ValueId>(v));
}

BufferId Lowering::buffer(Source source, int32_t index, int64_t bytes) {
  const auto [at, fresh] = buffers_.try_emplace({source, index}, static_cast<BufferId>(spec_.buffers.size()));
  if (!fresh) return at->second;
  std::string name(name_of(source));
  if (source >= Source::kWeight && source <= Source::kPackedDx)
    name += "[" + g_.params[static_cast<size_t>(index)].name + "]";
  else if (index >= 0)
    name += "[" + std::to_string(index) + "]";
  spec_.buffers.push_back({source, index, bytes, std::move(name)});
  return at->second;
}

void* Lowering::at(ValueId v) {
  const Value& x = g_.value(v);
  if (x.param != kNone) return in(Source::kWeight, x.param);
  // Before memory is planned every buffer has an address that no other has.
  const int64_t offset = spec_.memory.offset.empty() ? 64 * int64_t{roots_[static_cast<size_t>(v)]}
                                                     : spec_.memory.offset[static_cast<size_t>(v)];
  if (offset < 0) return nullptr;  // lies within one kernel alone
  const auto column =
      x.adjacent_to == kNone ? int64_t{0} : g_.value(x.adjacent_to).cols * static_cast<int64_t>(size_of(x.type));
  return in(Source::kArena, -1, offset + column);
}

// A number of rows that a batch decides is below zero: its dim and factor.
int64_t Lowering::rows_of(Extent e) {
  return e.constant() ? e.factor : -((static_cast<int64_t>(e.dim) << 32) + e.factor);
}
Extent Lowering::extent_of(int64_t rows) {
  return rows >= 0 ? Extent(rows) : Extent(static_cast<Dim>(-rows >> 32), -rows & 0xffffffff);
}

Mat Lowering::mat(ValueId v) {
  const Value& x = g_.value(v);
  const bool param = x.param != kNone;
  if (param && g_.param_of(v).held == Storage::kFp8) return {at(v), x.rows.factor, x.cols, x.cols, DType::kF8E4M3};
  const int64_t ld = param ? stride(g_.param_of(v)) : g_.ld(v);
  return {at(v), rows_of(x.rows), x.cols, ld, x.type};
}

Mat Lowering::grad_mat(ParamId p) {
  const Param& x = g_.params[static_cast<size_t>(p)];
  return {grad(p), x.rows, x.cols, x.cols, DType::kF32};
}

Mat Lowering::columns(Mat m, int64_t first, int64_t count) {
  if (m.p) m.p = static_cast<std::byte*>(m.p) + static_cast<size_t>(first) * size_of(m.type);
  m.cols = count;
  return m;
}

Mat Lowering::inside(Mat m, int64_t row, int64_t col, int64_t rows, int64_t cols) {
  m.p = static_cast<std::byte*>(m.p) + static_cast<size_t>(row * m.ld + col) * size_of(m.type);
  m.rows = rows;
  m.cols = cols;
  return m;
}

const void* Lowering::packed_weight(ValueId v, bool dx) {
  const ParamId p = g_.value(v).param;
  if (p == kNone || !spec_.settings.packed_weights || g_.params[static_cast<size_t>(p)].trainable) return nullptr;
  return in(dx ? Source::kPackedDx : Source::kPacked, p);
}

const int32_t* Lowering::ids_of(RowOf row) {
  if (row == RowOf::kFirst)
    return static_cast<const int32_t*>(place({buffer(Source::kZeros, -1, 4 * most_[Dim::kTokens]), 0}));
  return in<int32_t>(row == RowOf::kId || row == RowOf::kText ? Source::kIds
                     : row == RowOf::kPrevious                ? Source::kPrevious
                                                              : Source::kPositions);
}

int Lowering::choose(const Gemm& g) { return choose(kernels::gemm_key(g), g, gemm_names_, gemm_memory_); }

StepCall& Lowering::emit_gemm(Gemm g, uint8_t first, uint16_t when) {
  Gemm wide = widest(g);
  wide.algo = g.algo = choose(wide);
  scratch(ops_.gemm_scratch(wide));
  return emit(std::move(g), first, when);
}

void Lowering::lower(const EmbeddingOp& a) {
  emit(kernels::Embedding{ids_of(a.row), mat(op_->in[0]), mat(op_->out[0])});
}

void Lowering::lower(const EmbeddingGradOp& a) {
  const int32_t* ids = a.row == RowOf::kText ? in<int32_t>(Source::kTextIds) : ids_of(a.row);
  kernels::EmbeddingGrad call{ids, mat(op_->in[0]), grad_mat(op_->param), adds(*op_)};
  call.padding = static_cast<int32_t>(a.padding);
  emit(call, first(*op_));
}

void Lowering::lower(const ExternalOp& a) {
  kernels::External call{a.kernel, {}, {}, {}, op_->param != kNone && adds(*op_)};
  for (ValueId v : op_->in) call.in.push_back(mat(v));
  for (ValueId v : op_->out) call.out.push_back(mat(v));
  if (op_->param != kNone) call.gradient = grad_mat(op_->param);
  emit(std::move(call), first(*op_));
}

void Lowering::lower(const LinearOp& a) {
  if (a.fp8) return lower_fp8(a);
  if (coded(op_->in[1])) return lower_coded(a);
  const int64_t r = a.joined;
  Gemm g;
  g.a = mat(op_->in[0]);
  g.b = mat(op_->in[1]);
  g.c = mat(op_->out[0]);
  g.trans_b = true;
  g.b_packed = packed_weight(op_->in[1], false);
  // Generation writes no weights, except that it joins adapters to them.
  g.b_constant = spec_.settings.cached && r == 0;
  g.relu2 = a.relu2;
  g.a.cols += r;  // z, and the adapter's B
  g.b.cols += r;
  if (op_->in.size() > (r > 0 ? 3u : 2u)) {
    g.bias = at(op_->in[2]);
    g.bias_type = g_.value(op_->in[2]).type;
  }
  emit_gemm(g);
}

void Lowering::lower(const LinearDxOp& a) {
  if (a.fp8) return lower_fp8(a);
  if (coded(op_->in[1])) return lower_coded(a);
  const int64_t r = a.joined;
  Gemm g;
  g.a = mat(op_->in[0]);
  g.b = mat(op_->in[1]);
  g.c = mat(op_->out[0]);
  g.a.cols += r;  // dz, and the adapter's A
  g.b.rows += r;
  if (a.relu2) g.relu2_of = mat(op_->in.back());
  g.accumulate = !a.relu2 && op_->in.size() > (r > 0 ? 3u : 2u);
  g.b_packed = packed_weight(op_->in[1], true);
  emit_gemm(g);
}

void Lowering::lower(const LinearDwOp&) {
  Gemm g;
  g.a = mat(op_->in[0]);
  g.b = mat(op_->in[1]);
  g.c = grad_mat(op_->param);
  g.trans_a = true;
  g.accumulate = adds(*op_);
  emit_gemm(g, first(*op_));
}

void Lowering::lower(const BiasGradOp&) {
  const auto& segments = g_.params[static_cast<size_t>(op_->param)].segments;
  const auto frozen = [](const Segment& s) { return s.frozen; };
  if (std::none_of(segments.begin(), segments.end(), frozen)) {
    emit(kernels::BiasGrad{mat(op_->in[0]), grad(op_->param), adds(*op_)}, first(*op_));
    return;
  }
  for (const Segment& s : segments)  // the rest of the gradient stays zero
    if (!s.frozen)
      emit(kernels::BiasGrad{columns(mat(op_->in[0]), s.row, s.rows),
                             in<float>(Source::kGrad, op_->param, s.row * static_cast<int64_t>(sizeof(float))),
                             adds(*op_)},
           first(*op_));
}

void Lowering::lower(const NormOp& a) {
  kernels::Norm n;
  n.layer_norm = a.layer_norm;
  n.eps = a.eps;
  n.x = mat(op_->in[0]);
  size_t i = 1;
  if (a.residual) n.r = mat(op_->in[i++]);
  n.wtype = a.has_w ? g_.value(op_->in[i]).type : g_.act_type;
  if (a.has_w) n.w = at(op_->in[i++]);
  if (a.has_b) n.b = at(op_->in[i++]);
  n.y = mat(op_->out[0]);
  n.rstd = at<float>(op_->out[1]);
  if (a.layer_norm) n.mean = at<float>(op_->out[2]);
  if (a.residual) n.h = mat(op_->out[op_->out.size() - (a.held ? 3 : 1)]);
  if (a.held) n.held = rowwise_fp8_copy(*op_, kNone);
  n.keep_y = !a.held || !uses_.readers(op_->out[0]).empty();
  emit(n);
}

void Lowering::lower(const NormGradOp& a) {
  kernels::NormGrad n;
  n.layer_norm = a.of.layer_norm;
  size_t i = 0;
  n.x = mat(op_->in[i++]);
  n.dy = mat(op_->in[i++]);
  n.rstd = at<float>(op_->in[i++]);
  if (a.of.layer_norm) n.mean = at<float>(op_->in[i++]);
  n.wtype = a.of.has_w ? g_.value(op_->in[i]).type : g_.act_type;
  if (a.of.has_w) n.w = at(op_->in[i++]);
  if (a.has_dres) n.dres = mat(op_->in[i++]);
  n.dx = mat(op_->out[0]);
  if (op_->param != kNone) n.dw = grad(op_->param);
  if (a.b != kNone) n.db = grad(a.b);
  n.accumulate = adds(*op_);
  if (a.held) n.held = rowwise_fp8_copy(*op_, op_->in.back());
  emit(n, first(*op_));
}

// Two norms over column ranges; values are copied.
void Lowering::lower(const QkvNormOp& a) {
  const Mat qkv = mat(op_->in[0]), out = mat(op_->out[0]);
  const auto part = [&](int64_t begin, int64_t count, ValueId w, ValueId rstd) {
    kernels::Norm n;
    n.eps = a.eps;
    n.x = columns(qkv, begin, count);
    n.y = columns(out, begin, count);
    n.wtype = g_.act_type;
    n.w = at(w);
    n.rstd = at<float>(rstd);
    emit(n);
  };
  part(0, a.query, op_->in[1], op_->out[1]);
  part(a.query, a.key, op_->in[2], op_->out[2]);
  const int64_t rest = a.query + a.key;
  if (rest < qkv.cols) emit(kernels::Copy{columns(qkv, rest, qkv.cols - rest), columns(out, rest, qkv.cols - rest)});
}

void Lowering::lower(const QkvNormGradOp& a) {
  const Mat dout = mat(op_->in[0]), qkv = mat(op_->in[1]), dqkv = mat(op_->out[0]);
  const auto part = [&](int64_t begin, int64_t count, ValueId w, ValueId rstd, ParamId dw) {
    kernels::NormGrad n;
    n.x = columns(qkv, begin, count);
    n.dy = columns(dout, begin, count);
    n.dx = columns(dqkv, begin, count);
    n.wtype = g_.act_type;
    n.w = at(w);
    n.rstd = at<float>(rstd);
    if (dw != kNone) n.dw = grad(dw);
    emit(n, dw != kNone ? 1 : 0);  // the weight has this one use
  };
  part(0, a.of.query, op_->in[4], op_->in[2], a.q_w);
  part(a.of.query, a.of.key, op_->in[5], op_->in[3], a.k_w);
  const int64_t rest = a.of.query + a.of.key;
  if (rest < qkv.cols) emit(kernels::Copy{columns(dout, rest, qkv.cols - rest), columns(dqkv, rest, qkv.cols - rest)});
}

const float* Lowering::rope(Source source, int64_t table) {
  return in<float>(source, -1, table * static_cast<int64_t>(sizeof(float)));
}

Lowering::AnglesAt Lowering::angles_of(const QkNormRopeOp& a) {
  switch (a.angles) {
    case Angles::kPositions:
      break;
    case Angles::kTokens:
      return {in<int32_t>(Source::kCount), in<float>(Source::kTokenCos), in<float>(Source::kTokenSin)};
    case Angles::kPatches:
      return {in<int32_t>(Source::kCount), in<float>(Source::kPatchCos), in<float>(Source::kPatchSin)};
  }
  return {in<int32_t>(Source::kPositions), rope(Source::kCos, a.table), rope(Source::kSin, a.table)};
}

void Lowering::lower(const QkNormRopeOp& a) {
  kernels::QkNormRope r;
  r.qkv = mat(op_->in[0]);
  r.out = mat(op_->out[0]);
  r.heads = a.heads;
  r.kv_heads = a.kv_heads;
  r.head_dim = a.head_dim;
  r.rotary = a.rotary;
  const AnglesAt angles = angles_of(a);
  r.positions = angles.positions, r.cos = angles.cos, r.sin = angles.sin;
  r.eps = a.eps;
  r.wtype = a.norm ? g_.value(op_->in[1]).type : g_.act_type;
  if (a.norm) {
    r.q_w = at(op_->in[1]);
    r.k_w = at(op_->in[2]);
    r.rstd = at<float>(op_->out[1]);
  }
  emit(r);
}

void Lowering::lower(const QkNormRopeGradOp& a) {
  kernels::QkNormRopeGrad r;
  r.dout = mat(op_->in[0]);
  r.dqkv = mat(op_->out[0]);
  r.heads = a.of.heads;
  r.kv_heads = a.of.kv_heads;
  r.head_dim = a.of.head_dim;
  r.rotary = a.of.rotary;
  const AnglesAt angles = angles_of(a.of);
  r.positions = angles.positions, r.cos = angles.cos, r.sin = angles.sin;
  r.wtype = a.of.norm ? g_.value(op_->in[3]).type : g_.act_type;
  if (a.of.norm) {
    r.qkv = mat(op_->in[1]);
    r.rstd = at<float>(op_->in[2]);
    r.q_w = at(op_->in[3]);
    r.k_w = at(op_->in[4]);
    if (a.q_w != kNone) {
      r.dq_w = grad(a.q_w);
      r.dk_w = grad(a.k_w);
    }
  }
  if (a.held) r.held = rowwise_fp8_copy(*op_, op_->in.back());
  r.keep_dqkv = !a.held || !uses_.readers(op_->out[0]).empty();
  emit(r, a.of.norm ? 1 : 0);  // the two weights have this one use
}

void Lowering::lower(const ActOp& a) {
  for (const ActLora& k : act_lora_)
    if (k.act == op_) {
      emit(act_lora(k));
      return;
    }
  emit(kernels::Act{static_cast<kernels::Activation>(a.kind), mat(op_->in[0]), mat(op_->out[0]),
                    a.held ? rowwise_fp8_copy(*op_, kNone) : kernels::RowwiseFp8Copy{},
                    !a.held || !uses_.readers(op_->out[0]).empty()});
}

void Lowering::lower(const ActGradOp& a) {
  for (const ActLoraGrad& k : act_lora_grad_)
    if (k.act == op_) {
      emit(act_lora_grad(k), static_cast<uint8_t>(first(*k.dz) | (k.da ? first(*k.da, 1) : 0)));
      return;
    }
  emit(kernels::ActGrad{static_cast<kernels::Activation>(a.kind), mat(op_->in[0]), mat(op_->in[1]), mat(op_->out[0]),
                        a.held ? rowwise_fp8_copy(*op_, op_->in.back()) : kernels::RowwiseFp8Copy{},
                        !a.held || !uses_.readers(op_->out[0]).empty()});
}

void Lowering::lower(const ClampedGluOp& a) {
  emit(kernels::ClampedGlu{mat(op_->in[0]), mat(op_->out[0]), a.alpha, a.limit});
}

void Lowering::lower(const ClampedGluGradOp& a) {
  emit(kernels::ClampedGluGrad{mat(op_->in[0]), mat(op_->in[1]), mat(op_->out[0]), a.of.alpha, a.of.limit});
}

void Lowering::lower(const AddOp&) { emit(kernels::Add{mat(op_->in[0]), mat(op_->in[1]), mat(op_->out[0])}); }

void Lowering::lower(const ScaleOp& a) { emit(kernels::Copy{mat(op_->in[0]), mat(op_->out[0]), a.by}); }

void Lowering::lower(const MixOp& a) {
  kernels::Mix m;
  m.x = mat(op_->in[0]);
  m.z = mat(op_->in[1]);
  m.y = mat(op_->out[0]);
  m.b = element(op_->in[2], a.b);
  if (op_->in.size() > 3) m.a = element(op_->in[3], a.a);
  m.wtype = g_.value(op_->in[2]).type;
  m.sign = a.sign;
  emit(m);
}

void Lowering::lower(const MixGradOp& a) {
  kernels::MixGrad m;
  m.dy = mat(op_->in[0]);
  m.x = mat(op_->in[1]);
  m.z = mat(op_->in[2]);
  m.dz = mat(op_->out[0]);
  m.b = element(op_->in[3], a.of.b);
  const size_t scalars = a.of.a < 0 ? 1 : 2;
  if (op_->in.size() > 3 + scalars) m.sum = mat(op_->in.back());
  if (scalars > 1) {
    m.a = element(op_->in[4], a.of.a);
    m.dx = mat(op_->out[1]);
  }
  m.wtype = g_.value(op_->in[3]).type;
  m.sign = a.of.sign;
  if (op_->param != kNone) m.db = in<float>(Source::kGrad, op_->param, 4 * a.of.b);
  if (a.a != kNone) m.da = in<float>(Source::kGrad, a.a, 4 * a.of.a);
  emit(m, 1);  // an element has this one use
}

const void* Lowering::element(ValueId vector, int64_t i) {
  const Value& v = g_.value(vector);
  return in(Source::kWeight, v.param, i * static_cast<int64_t>(size_of(v.type)));
}

void Lowering::lower(const GateOp& a) {
  kernels::Gate c;
  c.x = mat(op_->in[0]);
  c.s = mat(op_->in[1]);
  c.w = mat(op_->in[2]);
  c.u = mat(op_->in[3]);
  c.y = mat(op_->out[0]);
  if (op_->in.size() > 4) {
    c.lambda = at(op_->in[4]);
    c.wtype = g_.value(op_->in[4]).type;
  }
  c.col = a.col;
  c.by = a.by;
  if (a.inside) c.positions = in<int32_t>(Source::kPositions);
  emit(c);
}

void Lowering::lower(const GateGradOp& a) {
  kernels::GateGrad c;
  c.dy = mat(op_->in[0]);
  c.s = mat(op_->in[1]);
  c.w = mat(op_->in[2]);
  c.u = mat(op_->in[3]);
  c.ds = mat(op_->out[0]);
  c.du = mat(op_->out[1]);
  if (op_->in.size() > 4) {
    c.lambda = at(op_->in[4]);
    c.wtype = g_.value(op_->in[4]).type;
  }
  c.col = a.of.col;
  c.by = a.of.by;
  if (a.of.inside) c.positions = in<int32_t>(Source::kPositions);
  if (op_->param != kNone) c.dw = grad(op_->param);
  if (a.lambda != kNone) c.dlambda = grad(a.lambda);
  emit(c, 1);  // the gate's weights have this one use
}

void Lowering::lower(const RoundOp& a) {
  if (ops_.device() != nullptr)
    fail_missing("{} does not run models whose layout rounds activations: use the CPU", ops_.name());
  const auto type = a.kind == Rounding::kMxfp4 ? kernels::SmallType::kMxfp4 : kernels::SmallType::kFp8;
  const int64_t group = a.kind == Rounding::kMxfp4 ? 32 : a.kind == Rounding::kFp8Group128 ? 128 : 0;
  emit(kernels::RoundRows{type, group, mat(op_->in[0]), mat(op_->out[0])});
}

void Lowering::lower(const DropoutOp& a) {
  emit(kernels::Dropout{mat(op_->in[0]), mat(op_->out[0]), a.p}).stream = a.id;
}

void Lowering::lower(const MeanPoolOp&) {
  if (ops_.device()) fail_missing("embeddings are made on the CPU only");
  const Mat h = mat(op_->in[0]);
  emit(kernels::MeanPool{h, in<int32_t>(Source::kDocuments),
                         Mat{in(Source::kPooled), rows_of({Dim::kSequences, 1}), h.cols, h.cols, DType::kF32}});
}

ProgramSpec lower(const Graph& g, const kernels::KernelPlan& plan, const kernels::Ops& ops,
                  const ProgramSettings& settings) {
  return Lowering(g, plan, ops, settings).run();
}

}  // namespace mxt::runtime
