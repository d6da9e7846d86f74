// Adapters: their products, their gradients, and what one kernel makes together with the operations beside them.
#include <algorithm>
#include <utility>

#include "runtime/lower.h"

namespace mxt::runtime {

using namespace graph;
using kernels::Gemm;
using kernels::Mat;

void Lowering::lower(const LoraAddOp& a) {
  for (size_t i = 0; i < a.blocks.size(); ++i)
    emit_gemm([this, op = op_, k = a.blocks[i], i](const Frame& f) {
      Gemm g;
      g.a = columns(mat(op->in[1], f), k.z_col, k.rank);
      g.b = mat(op->in[2 + i], f);
      g.c = columns(mat(op->out[0], f), k.col, k.cols);
      g.trans_b = g.accumulate = true;
      g.alpha = k.scale;
      return g;
    });
}

Mat Lowering::joined(ValueId w, int64_t ranks, const Frame& f) const {
  const Param& p = g_.param_of(w);
  if (p.held == Held::kFp8)
    return {p_.params_ ? (*p_.params_)[g_.value(w).param].joined : nullptr, p.rows, ranks, joined_stride(p),
            g_.act_type};
  Mat m = mat(w, f);
  const int64_t cols = m.cols;
  m.cols += ranks;
  return columns(m, cols, ranks);
}

kernels::LoraGrad Lowering::lora_grad(const Op& op, const Frame& f) const {
  const auto& a = std::get<LoraDzOp>(op.attrs);
  kernels::LoraGrad g;
  g.dy = mat(op.in[0], f);
  g.dz = mat(op.out[0], f);
  g.z = mat(op.in[2], f);
  g.b = joined(op.in[1], g.dz.cols, f);
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    const LoraBlock& k = a.blocks[i];
    g.blocks.push_back({k.col, k.cols, k.z_col, k.rank, k.scale, p_.params_ ? grad(a.b[i]) : nullptr});
  }
  g.accumulate = adds(op, f.batch);
  return g;
}

kernels::ActLoraGrad Lowering::act_lora_grad(const ActLoraGrad& a, const Frame& f) const {
  kernels::ActLoraGrad g;
  g.act = {static_cast<kernels::Activation>(std::get<ActGradOp>(a.act->attrs).kind), mat(a.act->in[0], f),
           mat(a.act->in[1], f), mat(a.act->out[0], f)};
  g.lora = lora_grad(*a.dz, f);
  if (std::get<ActGradOp>(a.act->attrs).held) {
    const size_t n = a.act->in.size();
    g.held = {nullptr, mat(a.act->out[1], f), nullptr};
    if (p_.params_) {
      g.held = held_copy(*a.act, a.act->in.back(), f);
      g.row_max = static_cast<const float*>(at(a.act->in[n - 3])),
      g.largest = static_cast<const float*>(at(a.act->in[n - 2]));
    }
  }
  if (a.da == nullptr) return g;
  g.dz = mat(a.da->in[0], f);
  g.da = p_.params_ ? grad(a.da->param) : nullptr;
  g.accumulate_da = adds(*a.da, f.batch);
  return g;
}

kernels::ActLora Lowering::act_lora(const ActLora& a, const Frame& f) const {
  kernels::ActLora k;
  k.act = {static_cast<kernels::Activation>(std::get<ActOp>(a.act->attrs).kind),
           mat(a.act->in[0], f),
           mat(a.act->out[0], f),
           {nullptr, mat(a.act->out[1], f), nullptr}};
  k.a = mat(a.z->in[1], f);
  k.z = mat(a.z->out[0], f);
  if (!p_.params_) return k;
  k.act.held = held_copy(*a.act, kNone, f);
  k.row_max = static_cast<const float*>(at(a.act->in[1]));
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
  const Frame widest{nullptr, p_.settings_.max_tokens};
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
    if (!last || !ops_.has_act_lora(act_lora(found, widest))) continue;
    act_lora_.push_back(found);
    taken_[i + 1] = true;
  }
}

// Looks for act_grad, then lora_dz of its result; and before them the product dzᵀ·y of the same activation's result y,
// where nothing is written to that dz's buffer in between.
void Lowering::find_act_lora_grad() {
  const Frame widest{nullptr, p_.settings_.max_tokens};
  const size_t n = g_.ops.size();
  for (size_t i = 0; i + 1 < n; ++i) {
    const Op &act = g_.ops[i], &next = g_.ops[i + 1];
    const auto* dz = std::get_if<LoraDzOp>(&next.attrs);
    if (!std::holds_alternative<ActGradOp>(act.attrs) || dz == nullptr || !dz->joined || dz->b.empty() ||
        next.in[0] != act.out[0])
      continue;
    ActLoraGrad found{&act, &next, nullptr};
    if (!ops_.has_act_lora_grad(act_lora_grad(found, widest))) continue;
    for (size_t j = i; j-- > 0 && i - j < 8 && found.da == nullptr;) {
      const Op& dw = g_.ops[j];
      if (!std::holds_alternative<LinearDwOp>(dw.attrs)) continue;
      const int32_t made = uses_.maker(dw.in[1]);
      const Op* y = made < 0 ? nullptr : &g_.ops[static_cast<size_t>(made)];
      const bool same = y && std::holds_alternative<ActOp>(y->attrs) && y->out[0] == dw.in[1] && y->in[0] == act.in[0];
      bool kept = true;
      for (size_t o = j; o < i; ++o)
        for (ValueId v : g_.ops[o].out) kept = kept && g_.root(v) != g_.root(dw.in[0]);
      ActLoraGrad with = found;
      with.da = &dw;
      if (same && kept && ops_.has_act_lora_grad(act_lora_grad(with, widest))) found = with;
    }
    act_lora_grad_.push_back(found);
    for (const Op* op : {found.dz, found.da})
      if (op) taken_[static_cast<size_t>(op - g_.ops.data())] = true;
  }
}

void Lowering::lower(const LoraDzOp& a) {
  if (!a.b.empty()) {
    if (ops_.has_lora_grad(lora_grad(*op_, Frame{nullptr, p_.settings_.max_tokens}))) {
      emit([this, op = op_](const Frame& f) { ops_.lora_grad(lora_grad(*op, f)); });
      return;
    }
    for (size_t i = 0; i < a.blocks.size(); ++i)
      emit_gemm([this, op = op_, k = a.blocks[i], param = a.b[i]](const Frame& f) {
        Gemm g;
        g.a = columns(mat(op->in[0], f), k.col, k.cols);
        g.b = columns(mat(op->in[2], f), k.z_col, k.rank);
        g.c = grad_mat(param);
        g.trans_a = true;
        g.alpha = k.scale;
        g.accumulate = adds(*op, f.batch);
        return g;
      });
  }
  if (a.joined) {
    emit_gemm([this, op = op_](const Frame& f) {
      Gemm g;
      g.a = mat(op->in[0], f);
      g.c = mat(op->out[0], f);
      g.b = joined(op->in[1], g.c.cols, f);
      return g;
    });
    return;
  }
  for (size_t i = 0; i < a.blocks.size(); ++i)
    emit_gemm([this, op = op_, k = a.blocks[i], i](const Frame& f) {
      Gemm g;
      g.a = columns(mat(op->in[0], f), k.col, k.cols);
      g.b = mat(op->in[1 + i], f);
      g.c = columns(mat(op->out[0], f), k.z_col, k.rank);
      g.alpha = k.scale;
      return g;
    });
}

void Lowering::lower(const LoraDbOp& a) {
  emit_gemm([this, op = op_, k = a.block](const Frame& f) {
    Gemm g;
    g.a = columns(mat(op->in[0], f), k.col, k.cols);
    g.b = columns(mat(op->in[1], f), k.z_col, k.rank);
    g.c = grad_mat(op->param);
    g.trans_a = true;
    g.alpha = k.scale;
    g.accumulate = adds(*op, f.batch);
    return g;
  });
}

// The adapter changes between steps alone.
void Lowering::lower(const LoraJoinOp& a) {
  emit([this, op = op_, blocks = a.blocks](const Frame& f) {
    if (!f.batch->first_micro) return;
    const Mat w = mat(op->in[0], f), down = mat(op->in[1], f);
    if (g_.param_of(op->in[0]).held == Held::kFp8) {
      const Mat all = joined(op->in[0], down.rows, f);
      for (size_t i = 0; i < blocks.size(); ++i) {
        const Mat up = mat(op->in[2 + i], f);
        Mat to = columns(all, blocks[i].z_col, up.cols);
        to.p = static_cast<std::byte*>(to.p) + static_cast<size_t>(blocks[i].col * to.ld) * size_of(to.type);
        to.rows = up.rows;
        ops_.copy({up, to, blocks[i].scale});
      }
      return;
    }
    auto inside = [&](int64_t row, int64_t col, int64_t rows, int64_t cols) {
      return Mat{static_cast<std::byte*>(w.p) + static_cast<size_t>(row * w.ld + col) * size_of(w.type), rows, cols,
                 w.ld, w.type};
    };
    ops_.copy({down, inside(w.rows, 0, down.rows, down.cols)});
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Mat up = mat(op->in[2 + i], f);
      ops_.copy({up, inside(blocks[i].col, w.cols + blocks[i].z_col, up.rows, up.cols), blocks[i].scale});
    }
  });
}

}  // namespace mxt::runtime
