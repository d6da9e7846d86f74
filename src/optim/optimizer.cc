#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "optim/kinds.h"

namespace mxt::optim {
namespace {

// LoRA+ (Hayou et al. 2024) as PEFT groups it, in multiples of the rate: vectors go with B, and both matrices of an
// embedding have a rate of their own, whatever that of the others is.
double lora_plus_rate(const config::Train& train, const graph::Param& p) {
  constexpr double kEmbedding = 1e-6;
  const std::string_view name = p.segments.front().name;
  if (p.adapter && name.find(".lora_embedding_") != name.npos) return kEmbedding / train.optimizer.lr;
  const bool vector = p.kind == graph::ParamKind::kBias || (p.adapter && p.kind == graph::ParamKind::kDecay);
  return vector || (p.adapter && name.ends_with(".lora_B.weight")) ? train.method.lora->lora_plus : 1;
}

}  // namespace

Optimizer::Optimizer(const config::Train& train, const graph::Graph& g)
    : settings_(train.optimizer), schedule_(train.schedule) {
  states_.resize(g.params.size());
  for (const graph::Param& p : g.params) {
    if (!p.trainable) continue;
    Trained t;
    t.param = p;
    t.decays = p.kind != graph::ParamKind::kNormWeight && p.kind != graph::ParamKind::kBias;
    if (train.method.lora && train.method.lora->lora_plus != 1) t.rate = lora_plus_rate(train, p);
    trained_.push_back(t);
  }
}

void Optimizer::bind(const runtime::ParamStore& params, kernels::Ops& ops) {
  MXT_ASSERT(ops_ == nullptr && params.size() == states_.size());
  ops_ = &ops;
  work_ = device::Buffer::on(ops.device(), static_cast<size_t>(workspace()));
  squared_ = static_cast<double*>(work_.data());
  scale_ = reinterpret_cast<float*>(work_.bytes_at(64));
  size_t at = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    const runtime::ParamSlot& slot = params[static_cast<graph::ParamId>(i)];
    if (!slot.grad) continue;
    Trained& t = trained_[at++];
    t.slot = slot;
    if (static_cast<void*>(slot.master) != slot.weight) t.copy = static_cast<uint16_t*>(slot.weight);
    gradient_.grads.push_back(slot.grad);
    gradient_.sizes.push_back(slot.size);
  }
  MXT_ASSERT(at == trained_.size());
  attach();
}

void Optimizer::update(const Step& step) {
  ops_->squared_norm_to(gradient_, squared_);
  if (settings_.grad_clip > 0) ops_->clip_scale(squared_, settings_.grad_clip, scale_);
  apply(step, settings_.grad_clip > 0 ? scale_ : nullptr);
}

double Optimizer::grad_norm() const {
  device::Accelerator* d = ops_->device();
  if (!d) return std::sqrt(*squared_);
  double squared = 0;
  d->download(&squared, squared_, sizeof squared);
  d->synchronize();
  return std::sqrt(squared);
}

std::vector<Optimizer::Tensor> Optimizer::tensors_of(const graph::Param& p) {
  const bool matrix = p.kind == graph::ParamKind::kMatrix || p.kind == graph::ParamKind::kEmbedding;
  if (p.segments.empty()) return {{0, p.rows, p.cols, 0}};
  std::vector<Tensor> out;
  const int64_t expert = p.experts > 0 ? p.rows / p.experts : 0;  // rows of one, a matrix of its own
  for (const graph::Segment& s : p.segments) {
    const int64_t each = matrix && expert > 0 ? std::min(expert, s.rows) : s.rows;
    for (int64_t row = s.row; row < s.row + s.rows; row += each)
      out.push_back(matrix ? Tensor{row * p.cols, each, p.cols, row} : Tensor{s.row, 1, s.rows, 0});
  }
  return out;
}

std::unique_ptr<Optimizer> make_optimizer(const config::Train& train, const graph::Graph& g) {
  using config::OptimizerName;
  switch (train.optimizer.name) {
    case OptimizerName::kAdamwTorchFused:
    case OptimizerName::kAdamwTorch:
      return make_adamw(train, g);
    case OptimizerName::kAdamw8bit:
      return make_adamw_8bit(train, g);
    case OptimizerName::kLion:
      return make_lion(train, g);
    case OptimizerName::kAdafactor:
      return make_adafactor(train, g);
    case OptimizerName::kMuon:
      return make_muon(train, g);
  }
  MXT_ASSERT(false);
}

}  // namespace mxt::optim
