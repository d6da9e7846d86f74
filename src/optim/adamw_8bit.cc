// AdamW with moments in 8 bits, as bitsandbytes' AdamW8bit under transformers' Trainer: kernels::AdamW8bit for tensors
// of at least 4,096 elements, AdamW with moments in fp32 for smaller ones and for embeddings. Blocks are counted within
// a tensor of the checkpoint, so tensors that one parameter stacks stay apart.
#include "optim/kinds.h"

namespace mxt::optim {
namespace {

constexpr int64_t kLeast8bit = 4096;

class AdamW8bit final : public Optimizer {
 public:
  AdamW8bit(const config::Train& train, const graph::Graph& g) : Optimizer(train, g) {
    for (size_t i = 0; i < g.params.size(); ++i) {
      const graph::Param& p = g.params[i];
      if (!p.trainable) continue;
      int64_t codes = 0, blocks = 0, plain = 0;
      for (const Tensor& t : tensors_of(p)) {
        if (!in_8_bits(p, t)) {
          plain += t.size();
          continue;
        }
        codes += t.size();
        blocks += kernels::state_blocks(t.size());
      }
      if (codes > 0)
        states_[i] = {{"m8", DType::kU8, codes},
                      {"v8", DType::kU8, codes},
                      {"m_largest", DType::kF32, blocks},
                      {"v_largest", DType::kF32, blocks}};
      if (plain > 0) {
        states_[i].push_back({"m", DType::kF32, plain});
        states_[i].push_back({"v", DType::kF32, plain});
      }
    }
  }

 private:
  static bool in_8_bits(const graph::Param& p, const Tensor& t) {
    return p.kind != graph::ParamKind::kEmbedding && t.size() >= kLeast8bit;
  }

  void attach() override {
    for (const Trained& t : trained_) {
      const size_t plain_states = t.slot.states.size() > 2 ? 4 : 0;
      int64_t codes = 0, blocks = 0, plain = 0;
      for (const Tensor& of : tensors_of(t.param)) {
        uint16_t* copy = t.copy ? t.copy + of.first : nullptr;
        const auto decay = static_cast<float>(weight_decay(t));
        if (in_8_bits(t.param, of)) {
          held_.tensors.push_back(
              {t.slot.master + of.first, t.slot.grad + of.first, static_cast<uint8_t*>(t.slot.states[0]) + codes,
               static_cast<uint8_t*>(t.slot.states[1]) + codes, static_cast<float*>(t.slot.states[2]) + blocks,
               static_cast<float*>(t.slot.states[3]) + blocks, copy, of.size(), 0, decay});
          held_of_.push_back(&t);
          codes += of.size();
          blocks += kernels::state_blocks(of.size());
        } else {
          plain_.tensors.push_back({t.slot.master + of.first, t.slot.grad + of.first,
                                    static_cast<float*>(t.slot.states[plain_states]) + plain,
                                    static_cast<float*>(t.slot.states[plain_states + 1]) + plain, copy, of.size(), 0,
                                    decay});
          plain_of_.push_back(&t);
          plain += of.size();
        }
      }
    }
    held_.beta1 = plain_.beta1 = settings_.betas[0];
    held_.beta2 = plain_.beta2 = settings_.betas[1];
    held_.eps = plain_.eps = static_cast<float>(settings_.eps);
  }
  void apply(const Step& step, const float* grad_scale) override {
    for (size_t i = 0; i < held_of_.size(); ++i) held_.tensors[i].lr = rate_of(*held_of_[i], step);
    for (size_t i = 0; i < plain_of_.size(); ++i) plain_.tensors[i].lr = rate_of(*plain_of_[i], step);
    held_.device_grad_scale = plain_.device_grad_scale = grad_scale;
    held_.step = plain_.step = step.step;
    ops_->adamw_8bit(held_);
    ops_->adamw(plain_);
  }

  kernels::AdamW8bit held_;
  kernels::AdamW plain_;
  std::vector<const Trained*> held_of_, plain_of_;  // of each tensor
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw_8bit(const config::Train& train, const graph::Graph& g) {
  return std::make_unique<AdamW8bit>(train, g);
}

}  // namespace mxt::optim
