// Lion (Chen et al. 2023): kernels::Lion. State: one momentum, fp32.
#include "optim/kinds.h"

namespace mxt::optim {
namespace {

class Lion final : public Optimizer {
 public:
  Lion(const config::Train& train, const graph::Graph& g) : Optimizer(train, g) {
    for (size_t i = 0; i < g.params.size(); ++i)
      if (const graph::Param& p = g.params[i]; p.trainable) states_[i] = {{"m", DType::kF32, p.rows * p.cols}};
  }

 private:
  void attach() override {
    for (const Trained& t : trained_)
      call_.tensors.push_back({t.slot.master, t.slot.grad, static_cast<float*>(t.slot.states[0]), nullptr, t.copy,
                               t.slot.size, 0, static_cast<float>(weight_decay(t))});
    call_.beta1 = settings_.betas[0];
    call_.beta2 = settings_.betas[1];
  }
  void apply(const Step& step, const float* grad_scale) override {
    for (size_t i = 0; i < trained_.size(); ++i) call_.tensors[i].lr = rate_of(trained_[i], step);
    call_.device_grad_scale = grad_scale;
    ops_->lion(call_);
  }

  kernels::Lion call_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(const config::Train& train, const graph::Graph& g) {
  return std::make_unique<Lion>(train, g);
}

}  // namespace mxt::optim
