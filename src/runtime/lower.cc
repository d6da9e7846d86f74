#include "runtime/lower.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/blocks.h"
#include "kernels/memory.h"
#include "kernels/small_types.h"

namespace mxt::runtime {

using namespace graph;
using kernels::ConstMat;
using kernels::Gemm;
using kernels::Mat;

Lowering::Lowering(Program& program, const kernels::KernelPlan& plan)
    : p_(program),
      g_(program.graph_),
      ops_(program.ops_),
      plan_(plan),
      taken_(g_.ops.size(), false),
      uses_(g_),
      gemm_names_(ops_.gemm_algorithms()),
      attention_names_(ops_.attention_algorithms()) {
  find_act_lora_grad();
  find_act_lora();
}

void Lowering::run() {
  for (size_t i = 0; i < g_.ops.size(); ++i) {
    if (taken_[i]) continue;
    op_ = &g_.ops[i];
    std::visit([&](const auto& a) { lower(a); }, op_->attrs);
  }
  p_.bytes_.kernels = static_cast<int64_t>(gemm_memory_ + attention_memory_ + grad_memory_);
}

void* Lowering::at(ValueId v) const {
  const Value& x = g_.value(v);
  if (x.param != kNone) return (*p_.params_)[x.param].weight;
  if (p_.memory_.offset[static_cast<size_t>(v)] < 0) return nullptr;  // lies within one kernel alone
  const auto column = x.beside == kNone ? size_t{0} : static_cast<size_t>(g_.value(x.beside).cols) * size_of(x.type);
  return p_.arena_.bytes_at(static_cast<size_t>(p_.memory_.offset[static_cast<size_t>(v)]) + column);
}

Mat Lowering::mat(ValueId v, const Frame& f) const {
  const Value& x = g_.value(v);
  const int64_t ld = x.param != kNone ? stride(g_.param_of(v)) : g_.ld(v);
  if (x.param != kNone && g_.param_of(v).held == Held::kFp8)
    return {p_.params_ ? at(v) : nullptr, x.rows.factor, x.cols, x.cols, DType::kF8E4M3};
  return {p_.params_ ? at(v) : nullptr, Bounds(f.tokens).rows(x.rows), x.cols, ld, x.type};
}

Mat Lowering::grad_mat(ParamId p) const {
  const Param& x = g_.params[static_cast<size_t>(p)];
  return {p_.params_ ? grad(p) : nullptr, x.rows, x.cols, x.cols, DType::kF32};
}

Mat Lowering::columns(Mat m, int64_t first, int64_t count) const {
  if (m.p) m.p = static_cast<std::byte*>(m.p) + static_cast<size_t>(first) * size_of(m.type);
  m.cols = count;
  return m;
}

const void* Lowering::weight(ValueId v) const { return at(v); }
const void* Lowering::packed_weight(ValueId v, bool dx) const {
  const ParamId p = g_.value(v).param;
  if (p == kNone || !p_.settings_.packed_weights) return nullptr;
  if (p_.params_) return dx ? (*p_.params_)[p].packed_dx : (*p_.params_)[p].packed;
  // Any address: to the shape only its presence matters.
  return g_.params[static_cast<size_t>(p)].trainable ? nullptr : this;
}
float* Lowering::grad(ParamId p) const { return (*p_.params_)[p].grad; }

void Lowering::emit(std::function<void(const Frame&)> fn) {
  p_.launches_.push_back({static_cast<size_t>(op_ - g_.ops.data()), std::move(fn)});
}

int Lowering::choose(const Gemm& g) { return choose(kernels::gemm_key(g), g, gemm_names_, gemm_memory_); }

const kernels::BlockMatrix* Lowering::blocks_of(ValueId v) const {
  const ParamId p = g_.value(v).param;
  return p == kNone ? nullptr : (*p_.params_)[p].blocks;
}

// `b`: the weight, where the product may be with one.
void Lowering::emit_gemm(std::function<Gemm(const Frame&)> make, ValueId b) {
  const Frame widest{nullptr, p_.settings_.max_tokens};
  const Gemm shape = make(widest);
  const int algo = choose(shape);
  Gemm with = shape;
  with.algo = algo;
  p_.bytes_.workspace = std::max(p_.bytes_.workspace, static_cast<int64_t>(ops_.gemm_scratch(with)));
  emit([this, this_make = std::move(make), algo, b, &ops = ops_](const Frame& f) {
    Gemm g = this_make(f);
    g.algo = algo;
    if (const auto* blocks = b == kNone ? nullptr : blocks_of(b))
      return kernels::cpu::block_gemm({g.a, blocks, g.c, g.bias, g.bias_type});
    ops.gemm(g);
  });
}

const int32_t* Lowering::rows_of(RowOf row, const Frame& f) const {
  return row == RowOf::kId ? f.batch->ids : row == RowOf::kPosition ? f.batch->positions : first_rows_.data();
}

void Lowering::lower(const EmbeddingOp& a) {
  if (a.row == RowOf::kFirst) first_rows_.resize(static_cast<size_t>(p_.settings_.max_tokens));
  emit([this, op = op_, a](const Frame& f) {
    const int32_t* rows = rows_of(a.row, f);
    if (const auto* blocks = blocks_of(op->in[0])) return kernels::cpu::block_rows(*blocks, rows, mat(op->out[0], f));
    ops_.embedding({rows, mat(op->in[0], f), mat(op->out[0], f)});
  });
}

void Lowering::lower(const EmbeddingGradOp& a) {
  emit([this, op = op_, a](const Frame& f) {
    ops_.embedding_grad({rows_of(a.row, f), mat(op->in[0], f), grad_mat(op->param), adds(*op, f.batch)});
  });
}

void Lowering::lower(const LinearOp& a) {
  if (a.fp8) return lower_fp8(a);
  emit_gemm(
      [this, op = op_, r = a.joined](const Frame& f) {
        Gemm g;
        g.a = mat(op->in[0], f);
        g.b = mat(op->in[1], f);
        g.c = mat(op->out[0], f);
        g.trans_b = true;
        g.b_packed = packed_weight(op->in[1], false);
        g.b_constant =
            p_.settings_.cached && r == 0;  // generation writes no weights, except that it joins adapters to them
        g.a.cols += r;                      // z, and the adapter's B
        g.b.cols += r;
        if (op->in.size() > (r > 0 ? 3u : 2u)) {
          g.bias = p_.params_ ? weight(op->in[2]) : this;  // any address: only its presence matters to the shape
          g.bias_type = g_.value(op->in[2]).type;
        }
        return g;
      },
      op_->in[1]);
}

void Lowering::lower(const LinearDxOp& a) {
  if (a.fp8) return lower_fp8(a);
  emit_gemm([this, op = op_, r = a.joined](const Frame& f) {
    Gemm g;
    g.a = mat(op->in[0], f);
    g.b = mat(op->in[1], f);
    g.c = mat(op->out[0], f);
    g.a.cols += r;  // dz, and the adapter's A
    g.b.rows += r;
    g.accumulate = op->in.size() > (r > 0 ? 3u : 2u);
    g.b_packed = packed_weight(op->in[1], true);
    return g;
  });
}

void Lowering::lower(const LinearDwOp&) {
  emit_gemm([this, op = op_](const Frame& f) {
    Gemm g;
    g.a = mat(op->in[0], f);
    g.b = mat(op->in[1], f);
    g.c = grad_mat(op->param);
    g.trans_a = true;
    g.accumulate = adds(*op, f.batch);
    return g;
  });
}

void Lowering::lower(const BiasGradOp&) {
  emit([this, op = op_](const Frame& f) { ops_.bias_grad({mat(op->in[0], f), grad(op->param), adds(*op, f.batch)}); });
}

void Lowering::lower(const NormOp& a) {
  const bool read = !a.held || !uses_.readers(op_->out[0]).empty();
  emit([this, op = op_, a, read](const Frame& f) {
    kernels::Norm n;
    n.layer_norm = a.layer_norm;
    n.eps = a.eps;
    n.x = mat(op->in[0], f);
    size_t i = 1;
    if (a.residual) n.r = mat(op->in[i++], f);
    n.wtype = g_.act_type;
    if (a.has_w) n.w = weight(op->in[i++]);
    if (a.has_b) n.b = weight(op->in[i++]);
    n.y = mat(op->out[0], f);
    n.rstd = static_cast<float*>(at(op->out[1]));
    if (a.layer_norm) n.mean = static_cast<float*>(at(op->out[2]));
    if (a.residual) n.h = mat(op->out[op->out.size() - (a.held ? 3 : 1)], f);
    if (a.held) n.held = held_copy(*op, kNone, f);
    n.keep_y = read;
    ops_.norm(n);
  });
}

void Lowering::lower(const NormGradOp& a) {
  emit([this, op = op_, a](const Frame& f) {
    kernels::NormGrad n;
    n.layer_norm = a.of.layer_norm;
    size_t i = 0;
    n.x = mat(op->in[i++], f);
    n.dy = mat(op->in[i++], f);
    n.rstd = static_cast<const float*>(at(op->in[i++]));
    if (a.of.layer_norm) n.mean = static_cast<const float*>(at(op->in[i++]));
    n.wtype = g_.act_type;
    if (a.of.has_w) n.w = weight(op->in[i++]);
    if (a.has_dres) n.dres = mat(op->in[i++], f);
    n.dx = mat(op->out[0], f);
    if (op->param != kNone) n.dw = grad(op->param);
    if (a.b != kNone) n.db = grad(a.b);
    n.accumulate = adds(*op, f.batch);
    if (a.held) n.held = held_copy(*op, op->in.back(), f);
    ops_.norm_grad(n);
  });
}

void Lowering::lower(const QkRopeOp& a) {
  emit([this, op = op_, a](const Frame& f) {
    kernels::QkRope r;
    r.qkv = mat(op->in[0], f);
    r.out = mat(op->out[0], f);
    r.heads = a.heads;
    r.kv_heads = a.kv_heads;
    r.head_dim = a.head_dim;
    r.rotary = a.rotary;
    r.positions = f.batch->positions;
    r.cos = p_.cos_;
    r.sin = p_.sin_;
    r.eps = a.eps;
    r.wtype = g_.act_type;
    if (a.norm) {
      r.q_w = weight(op->in[1]);
      r.k_w = weight(op->in[2]);
      r.rstd = static_cast<float*>(at(op->out[1]));
    }
    ops_.qk_rope(r);
  });
}

void Lowering::lower(const QkRopeGradOp& a) {
  emit([this, op = op_, a](const Frame& f) {
    kernels::QkRopeGrad r;
    r.dout = mat(op->in[0], f);
    r.dqkv = mat(op->out[0], f);
    r.heads = a.of.heads;
    r.kv_heads = a.of.kv_heads;
    r.head_dim = a.of.head_dim;
    r.rotary = a.of.rotary;
    r.positions = f.batch->positions;
    r.cos = p_.cos_;
    r.sin = p_.sin_;
    r.wtype = g_.act_type;
    if (a.of.norm) {
      r.qkv = mat(op->in[1], f);
      r.rstd = static_cast<const float*>(at(op->in[2]));
      r.q_w = weight(op->in[3]);
      r.k_w = weight(op->in[4]);
      if (a.q_w != kNone) {
        r.dq_w = grad(a.q_w);
        r.dk_w = grad(a.k_w);
      }
      r.accumulate = !f.batch->first_micro;  // these weights have this one use
    }
    if (a.held) r.held = held_copy(*op, op->in.back(), f);
    ops_.qk_rope_grad(r);
  });
}

void Lowering::lower(const ActOp& a) {
  for (const ActLora& k : act_lora_)
    if (k.act == op_) {
      emit([this, k](const Frame& f) { ops_.act_lora(act_lora(k, f)); });
      return;
    }
  emit([this, op = op_, a](const Frame& f) {
    ops_.act({static_cast<kernels::Activation>(a.kind), mat(op->in[0], f), mat(op->out[0], f),
              a.held ? held_copy(*op, kNone, f) : kernels::HeldCopy{}});
  });
}

void Lowering::lower(const ActGradOp& a) {
  for (const ActLoraGrad& k : act_lora_grad_)
    if (k.act == op_) {
      emit([this, k](const Frame& f) { ops_.act_lora_grad(act_lora_grad(k, f)); });
      return;
    }
  emit([this, op = op_, a](const Frame& f) {
    const Mat dx = mat(op->out[0], f);
    ops_.act_grad({static_cast<kernels::Activation>(a.kind), mat(op->in[0], f), mat(op->in[1], f), dx});
    if (!a.held) return;
    const kernels::HeldCopy held = held_copy(*op, op->in.back(), f);
    ops_.quantize({dx, held.channel, held.q, held.scale});
  });
}

void Lowering::lower(const AddOp&) {
  emit([this, op = op_](const Frame& f) { ops_.add({mat(op->in[0], f), mat(op->in[1], f), mat(op->out[0], f)}); });
}

void Lowering::lower(const RoundOp& a) {
  if (ops_.device() != nullptr)
    fail_missing("{} does not run models whose layout rounds activations: use the CPU", ops_.name());
  const auto type = a.kind == Rounding::kMxfp4 ? kernels::SmallType::kMxfp4 : kernels::SmallType::kFp8;
  const int64_t group = a.kind == Rounding::kMxfp4 ? 32 : a.kind == Rounding::kFp8Group128 ? 128 : 0;
  emit([this, op = op_, type, group](const Frame& f) {
    kernels::round_rows(type, group, mat(op->in[0], f), mat(op->out[0], f));
  });
}

void Lowering::lower(const DropoutOp& a) {
  emit([this, op = op_, a](const Frame& f) {
    const Batch& b = *f.batch;
    ops_.dropout({mat(op->in[0], f), mat(op->out[0], f), a.p, b.seed, dropout_stream(b, static_cast<uint64_t>(a.id)),
                  b.first_row});
  });
}

// On a device the logits of a few rows at a time are made there and fetched; the end of the pass is the one place where
// generation waits for it.
void Lowering::lower(const LogitsOp& a) {
  const Value& h = g_.value(op_->in[0]);
  const int64_t width = h.cols, vocab = g_.value(op_->in[1]).rows.factor;
  device::Accelerator* device = ops_.device();
  const int64_t at_once = device ? std::min<int64_t>(p_.settings_.max_tokens, 64) : p_.settings_.max_tokens;
  const int64_t rows_bytes =
      (p_.settings_.max_tokens * width * static_cast<int64_t>(size_of(h.type)) + 255) / 256 * 256;
  p_.bytes_.logits = rows_bytes + (device ? at_once * vocab * 4 : 0);
  auto make = [this, op = op_, width, vocab, t = h.type](int64_t n, float* out) {
    Gemm g;
    g.a = Mat{p_.params_ ? p_.head_.data() : nullptr, n, width, width, t};
    g.b = mat(op->in[1], Frame{nullptr, 0});
    g.c = Mat{out, n, vocab, vocab, DType::kF32};
    g.trans_b = g.b_constant = true;
    g.b_packed = packed_weight(op->in[1], false);
    return g;
  };
  const int algo = choose(make(at_once, nullptr));
  for (const int64_t n : {int64_t{1}, at_once}) {
    Gemm g = make(n, nullptr);
    g.algo = algo;
    p_.bytes_.workspace = std::max(p_.bytes_.workspace, static_cast<int64_t>(ops_.gemm_scratch(g)));
  }
  emit([this, op = op_, make, algo, device, at_once, rows_bytes, vocab](const Frame& f) {
    const Batch& b = *f.batch;
    for (int64_t first = 0; first < b.logit_count; first += at_once) {
      const int64_t n = std::min(at_once, b.logit_count - first);
      float* there = device ? reinterpret_cast<float*>(p_.head_.bytes_at(static_cast<size_t>(rows_bytes))) : b.logits;
      Gemm g = make(n, there);
      g.algo = algo;
      ops_.gather_rows(
          {mat(op->in[0], f), b.logit_rows + first, Mat{p_.head_.data(), n, g.a.cols, g.a.cols, g.a.type}});
      if (b.hidden) {
        const auto count = static_cast<size_t>(n * g.a.cols);
        const void* rows = p_.head_.data();
        std::vector<std::byte> fetched;
        if (device) {
          fetched.resize(count * size_of(g.a.type));
          device->download(fetched.data(), rows, fetched.size());
          device->synchronize();
          rows = fetched.data();
        }
        convert(rows, g.a.type, b.hidden + first * g.a.cols, DType::kF32, count);
      }
      if (!b.logits) continue;
      if (const auto* blocks = blocks_of(op->in[1]))
        kernels::cpu::block_gemm({g.a, blocks, g.c, nullptr, DType::kF32});
      else
        ops_.gemm(g);
      if (device) device->download(b.logits + first * vocab, there, static_cast<size_t>(n * vocab) * sizeof(float));
    }
  });
  p_.finish_ = [a, device, vocab](const Batch& b) {
    if (!b.logits) return;
    if (device && b.logit_count > 0) device->synchronize();
    if (a.softcap > 0)
      for (int64_t i = 0; i < b.logit_count * vocab; ++i) b.logits[i] = a.softcap * std::tanh(b.logits[i] / a.softcap);
  };
}

void Lowering::lower(const MeanPoolOp&) {
  if (ops_.device()) fail_missing("embeddings are made on the CPU only");
  emit([this, op = op_](const Frame& f) {
    const Mat h = mat(op->in[0], f);
    ops_.mean_pool({h, f.batch->cu_seqlens, Mat{f.batch->pooled, f.batch->documents, h.cols, h.cols, DType::kF32}});
  });
}

}  // namespace mxt::runtime
