// Adafactor (Shazeer & Stern 2018) as transformers' Trainer sets it up (relative_step and scale_parameter off):
// kernels::Adafactor. States: of a matrix the means of its squared gradient by row and by column, of a vector the
// squares themselves. The update is clipped tensor by tensor, so tensors that one parameter stacks stay apart.
#include <cmath>

#include "optim/kinds.h"

namespace mxt::optim {
namespace {

class Adafactor final : public Optimizer {
 public:
  Adafactor(const config::Train& train, const graph::Graph& g) : Optimizer(train, g) {
    size_t at = 0;
    for (size_t i = 0; i < g.params.size(); ++i) {
      const graph::Param& p = g.params[i];
      if (!p.trainable) continue;
      if (trained_[at++].matrix())
        states_[i] = {{"row", DType::kF32, p.rows},
                      {"col", DType::kF32, static_cast<int64_t>(tensors_of(p).size()) * p.cols}};
      else
        states_[i] = {{"v", DType::kF32, p.rows * p.cols}};
    }
  }

 private:
  void attach() override {
    for (const Trained& t : trained_) {
      const std::vector<Tensor> tensors = tensors_of(t.param);
      for (size_t k = 0; k < tensors.size(); ++k) {
        const Tensor& of = tensors[k];
        kernels::AdafactorTensor x;
        x.master = t.slot.master + of.first;
        x.grad = t.slot.grad + of.first;
        if (t.copy) x.copy = t.copy + of.first;
        if (t.matrix()) {
          x.row = static_cast<float*>(t.slot.states[0]) + of.row;
          x.col = static_cast<float*>(t.slot.states[1]) + static_cast<int64_t>(k) * of.cols;
        } else {
          x.v = static_cast<float*>(t.slot.states[0]) + of.first;
        }
        x.rows = of.rows, x.cols = of.cols;
        x.weight_decay = static_cast<float>(weight_decay(t));
        call_.tensors.push_back(x);
        of_.push_back(&t);
      }
    }
  }
  void apply(const Step& step, const float* grad_scale) override {
    for (size_t i = 0; i < of_.size(); ++i) call_.tensors[i].lr = rate_of(*of_[i], step);
    call_.device_grad_scale = grad_scale;
    call_.decay = 1.0 - std::pow(static_cast<double>(step.step), -0.8);
    ops_->adafactor(call_);
  }

  kernels::Adafactor call_;
  std::vector<const Trained*> of_;  // of each tensor
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const config::Train& train, const graph::Graph& g) {
  return std::make_unique<Adafactor>(train, g);
}

}  // namespace mxt::optim
