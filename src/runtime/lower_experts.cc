// Mixture of experts.
#include "base/error.h"
#include "runtime/lower.h"

namespace mxt::runtime {

using namespace graph;
using kernels::Grouped;
using kernels::GroupedGemm;
using kernels::Mat;

void Lowering::lower(const RouteOp& a) {
  kernels::Route r;
  r.logits = mat(op_->in[0]);
  r.renormalize = a.renormalize;
  r.weights = mat(op_->out[0]);
  r.probabilities = mat(op_->out[1]);
  r.expert = at<int32_t>(op_->out[2]);
  r.row = at<int32_t>(op_->out[3]);
  r.slot = at<int32_t>(op_->out[4]);
  r.first = at<int32_t>(op_->out[5]);
  emit(r);
}

void Lowering::lower(const RouteGradOp& a) {
  kernels::RouteGrad r;
  r.probabilities = mat(op_->in[0]);
  r.expert = at<int32_t>(op_->in[1]);
  r.renormalize = a.of.renormalize;
  size_t i = 2;
  if (a.weights) r.dweights = mat(op_->in[i++]);
  if (a.balance) {
    r.balance = mat(op_->in[i]);
    r.runs = in<int32_t>(Source::kRowOffsets);
  }
  r.dlogits = mat(op_->out[0]);
  emit(r);
}

void Lowering::lower(const ExpertGatherOp& a) {
  kernels::ExpertGather g;
  g.x = mat(op_->in[0]);
  g.slot = at<int32_t>(op_->in[1]);
  g.y = mat(op_->out[0]);
  g.k = g_.value(op_->out[0]).rows.factor;
  if (a.weighted) g.weights = mat(op_->in[3]);
  emit(g);
}

void Lowering::lower(const ExpertSumOp& a) {
  kernels::ExpertSum s;
  s.x = mat(op_->in[0]);
  s.row = at<int32_t>(op_->in[1]);
  s.k = g_.value(op_->in[0]).rows.factor;
  size_t i = 3;
  if (a.weighted) s.weights = mat(op_->in[i++]);
  if (a.add) s.add = mat(op_->in[i]);
  s.y = mat(op_->out[0]);
  emit(s);
}

void Lowering::lower(const ExpertDotsOp&) {
  emit(kernels::ExpertDots{mat(op_->in[0]), mat(op_->in[1]), at<int32_t>(op_->in[2]), mat(op_->out[0])});
}

// The plan chooses by the product of one expert with its share of the rows.
void Lowering::emit_grouped(Grouped kind, Mat a, Mat b, Mat c, const Experts& experts, float alpha, bool accumulate,
                            uint8_t overwrites) {
  GroupedGemm g{kind, a, b, c, at<int32_t>(experts.first) + experts.from, experts.count, alpha, accumulate};
  g.b_constant = experts.constant;
  const GroupedGemm wide = widest(g);
  const int64_t rows = (wide.a.rows + experts.all - 1) / experts.all;
  kernels::Gemm one;
  one.a = wide.a, one.b = wide.b, one.c = wide.c;
  one.alpha = alpha;
  one.accumulate = accumulate;
  one.a.rows = rows;
  if (kind == Grouped::kWeight) {
    one.b.rows = rows;
    one.c.rows = wide.a.cols;
    one.trans_a = true;
  } else {
    one.b.rows = wide.b.rows / experts.count;
    one.c.rows = rows;
    one.trans_b = kind == Grouped::kForward;
  }
  one.algo = g.algo = choose(one);
  scratch(ops_.gemm_scratch(one));
  grouped_memory_ = std::max(grouped_memory_, kernels::own_memory(ops_, wide));
  emit(std::move(g), overwrites);
}

void Lowering::lower(const ExpertLinearOp& a) {
  if (coded(op_->in[1])) return lower_coded(*op_, Grouped::kForward, a.experts);
  emit_grouped(Grouped::kForward, mat(op_->in[0]), mat(op_->in[1]), mat(op_->out[0]),
               {op_->in[2], 0, a.experts, a.experts, spec_.settings.cached}, 1, false);
}

void Lowering::lower(const ExpertLinearDxOp& a) {
  if (coded(op_->in[1])) return lower_coded(*op_, Grouped::kInput, a.experts);
  emit_grouped(Grouped::kInput, mat(op_->in[0]), mat(op_->in[1]), mat(op_->out[0]),
               {op_->in[2], 0, a.experts, a.experts}, 1, false);
}

void Lowering::lower(const ExpertLinearDwOp& a) {
  emit_grouped(Grouped::kWeight, mat(op_->in[0]), mat(op_->in[1]), grad_mat(op_->param),
               {op_->in[2], 0, a.experts, a.experts}, 1, adds(*op_), first(*op_));
}

void Lowering::lower(const ExpertLoraAddOp& a) {
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    const LoraBlock& b = a.blocks[i];
    emit_grouped(Grouped::kForward, columns(mat(op_->in[1]), b.z_col, b.rank), mat(op_->in[3 + i]),
                 columns(mat(op_->out[0]), b.col, b.cols), {op_->in[2], 0, a.experts, a.experts}, b.scale, true);
  }
}

void Lowering::lower(const ExpertLoraDzOp& a) {
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    const LoraBlock& b = a.blocks[i];
    emit_grouped(Grouped::kInput, columns(mat(op_->in[0]), b.col, b.cols), mat(op_->in[2 + i]),
                 columns(mat(op_->out[0]), b.z_col, b.rank), {op_->in[1], 0, a.experts, a.experts}, b.scale, false);
  }
}

void Lowering::lower(const ExpertLoraDbOp& a) {
  const LoraBlock& b = a.block;
  emit_grouped(Grouped::kWeight, columns(mat(op_->in[0]), b.col, b.cols), columns(mat(op_->in[1]), b.z_col, b.rank),
               grad_mat(op_->param), {op_->in[2], 0, a.experts, a.experts}, b.scale, adds(*op_), first(*op_));
}

void Lowering::lower(const ExpertBiasOp& a) {
  emit(kernels::ExpertBias{mat(op_->out[0]), mat(op_->in[2]), at<int32_t>(op_->in[1]), a.experts});
}

void Lowering::lower(const ExpertBiasGradOp& a) {
  emit(kernels::ExpertBiasGrad{mat(op_->in[0]), at<int32_t>(op_->in[1]), a.experts, grad(op_->param), adds(*op_)},
       first(*op_));
}

void Lowering::lower(const BalanceLossOp& a) {
  const Mat loss = mat(op_->out[0]), balance = mat(op_->out[1]), count = mat(op_->out[2]), mass = mat(op_->out[3]);
  const auto* runs = in<int32_t>(Source::kRowOffsets);
  for (size_t i = 0; i < op_->in.size(); i += 2)
    emit(kernels::RouteLoad{at<int32_t>(op_->in[i + 1]), a.k, mat(op_->in[i]), runs, count, mass, i > 0});
  emit(kernels::BalanceLoss{count, mass, runs, a.layers, a.coefficient, in<float>(Source::kBalanceScale), loss,
                            balance});
  spec_.balance = ref_of(loss.p);
  spec_.load = ref_of(count.p);
  spec_.experts = count.cols;
}

}  // namespace mxt::runtime
