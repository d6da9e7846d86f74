#include <algorithm>
#include <cstring>

#include "base/threads.h"
#include "kernels/adapters.h"
#include "kernels/checks.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/delta.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/decode.h"
#include "kernels/gpt_oss.h"
#include "kernels/memory.h"
#include "kernels/reference/reference.h"
#include "kernels/small_types.h"

namespace mxt::kernels {
namespace {

class CpuOps final : public Ops, public OwnMemory, public Decoder, public Variants, public GptOss {
 public:
  std::string_view name() const override { return "cpu"; }
  std::vector<std::string> gemm_algorithms() const override { return cpu::gemm_algorithms(); }
  std::vector<std::string> attention_algorithms() const override { return cpu::attention_algorithms(); }
  int same_gemm(const Gemm& c, int algo) const override { return cpu::same_gemm(c, algo); }
  int same_attention(const Attention& c, int algo) const override { return cpu::same_attention(c, algo); }

  // No graph made for the CPU has products of E4M3 operands: it multiplies the values that they hold.
  void rowwise_fp8_linear(const RowwiseFp8Linear& c) override { check(c), reference::rowwise_fp8_linear(c); }
  void rowwise_fp8_linear_dw(const RowwiseFp8LinearDw& c) override { check(c), reference::rowwise_fp8_linear_dw(c); }
  void rowwise_fp8_transpose(const RowwiseFp8Transpose& c) override { check(c), reference::rowwise_fp8_transpose(c); }
  void fp8_linear_dw(const Fp8LinearDw& c) override { check(c), reference::fp8_linear_dw(c); }
  void gemm(const Gemm& c) override {
    check(c);
    if (c.ends_in_relu2()) lacks("products that end in ReLU²");
    if (c.a.type == DType::kF8E4M3)
      reference::gemm(c);
    else
      cpu::gemm(c, scratch_);
  }
  size_t packed_b_bytes(const Gemm& c) const override { return cpu::packed_b_bytes(c); }
  void pack_b(const Gemm& c, void* to) override { cpu::pack_b(c, to); }
  void quantize(const Quantize& c) override { check(c), quantize_rows(c); }
  void decode(const Decode& c) override { check(c), cpu::decode(c); }
  void embedding(const Embedding& c) override { check(c), cpu::embedding(c); }
  void embedding_grad(const EmbeddingGrad& c) override { check(c), cpu::embedding_grad(c); }
  void norm(const Norm& c) override { check(c), cpu::norm(c), hold(c.y, c.held); }
  void norm_grad(const NormGrad& c) override { check(c), cpu::norm_grad(c), hold(c.dx, c.held); }
  void qk_norm_rope(const QkNormRope& c) override { check(c), cpu::qk_norm_rope(c); }
  void qk_norm_rope_grad(const QkNormRopeGrad& c) override {
    check(c), cpu::qk_norm_rope_grad(c), hold(c.dqkv, c.held);
  }
  void attention(const Attention& c) override { check(c), cpu::attention(c, scratch_); }
  void attention_grad(const AttentionGrad& c) override { check(c), cpu::attention_grad(c, scratch_); }
  void cached_attention(const CachedAttention& c) override { check(c), cpu::cached_attention(c, scratch_); }
  void store_cache(const StoreCache& c) override { check(c), cpu::store_cache(c); }
  void act(const Act& c) override { check(c), cpu::act(c), hold(c.y, c.held); }
  void act_grad(const ActGrad& c) override { check(c), cpu::act_grad(c), hold(c.dx, c.held); }
  void add(const Add& c) override { check(c), cpu::add(c); }
  void mix(const Mix& c) override { check(c), cpu::mix(c); }
  void mix_grad(const MixGrad& c) override { check(c), cpu::mix_grad(c); }
  void gate(const Gate& c) override { check(c), cpu::gate(c); }
  void gate_grad(const GateGrad& c) override { check(c), cpu::gate_grad(c); }
  void bias_grad(const BiasGrad& c) override { check(c), cpu::bias_grad(c); }
  void dropout(const Dropout& c) override { check(c), cpu::dropout(c); }
  void cross_entropy(const CrossEntropy& c) override { check(c), cpu::cross_entropy(c); }
  void label_grad(const LabelGrad& c) override { check(c), cpu::label_grad(c); }
  void copy(const Copy& c) override { check(c), cpu::copy(c); }
  void gather_rows(const GatherRows& c) override { check(c), cpu::gather_rows(c); }
  void scatter_rows(const ScatterRows& c) override { check(c), cpu::scatter_rows(c); }
  void mean_pool(const MeanPool& c) override { check(c), cpu::mean_pool(c); }
  void route(const Route& c) override { check(c), cpu::route(c); }
  void route_grad(const RouteGrad& c) override { check(c), cpu::route_grad(c); }
  void expert_gather(const ExpertGather& c) override { check(c), cpu::expert_gather(c); }
  void expert_sum(const ExpertSum& c) override { check(c), cpu::expert_sum(c); }
  void expert_dots(const ExpertDots& c) override { check(c), cpu::expert_dots(c); }
  void grouped_gemm(const GroupedGemm& c) override { check(c), cpu::grouped_gemm(c); }
  void route_load(const RouteLoad& c) override { check(c), cpu::route_load(c); }
  void balance_loss(const BalanceLoss& c) override { check(c), cpu::balance_loss(c); }
  void causal_conv(const CausalConv& c) override { check(c), cpu::causal_conv(c); }
  void causal_conv_grad(const CausalConvGrad& c) override { check(c), cpu::causal_conv_grad(c); }
  void gated_delta(const GatedDelta& c) override { check(c), cpu::gated_delta(c); }
  void gated_delta_grad(const GatedDeltaGrad& c) override { check(c), cpu::gated_delta_grad(c); }
  void gated_norm(const GatedNorm& c) override { check(c), cpu::gated_norm(c); }
  void gated_norm_grad(const GatedNormGrad& c) override { check(c), cpu::gated_norm_grad(c); }
  void sigmoid_gate(const SigmoidGate& c) override { check(c), cpu::sigmoid_gate(c); }
  void sigmoid_gate_grad(const SigmoidGateGrad& c) override { check(c), cpu::sigmoid_gate_grad(c); }
  void split_gates(const SplitGates& c) override { check(c), cpu::split_gates(c); }
  void dora_gain(const DoraGain& c) override { check(c), cpu::dora_gain(c); }
  void dora_scale(const DoraScale& c) override { check(c), cpu::dora_scale(c); }
  void dora_scale_grad(const DoraScaleGrad& c) override { check(c), cpu::dora_scale_grad(c); }
  void embedding_noise(const EmbeddingNoise& c) override { check(c), cpu::embedding_noise(c); }
  void attention_sinks(const AttentionSinks& c) override { check(c), cpu::attention_sinks(c); }
  void attention_sinks_grad(const AttentionSinksGrad& c) override { check(c), cpu::attention_sinks_grad(c); }
  void cached_sinks(const CachedSinks& c) override { check(c), cpu::cached_sinks(c); }
  void clamped_glu(const ClampedGlu& c) override { check(c), cpu::clamped_glu(c); }
  void clamped_glu_grad(const ClampedGluGrad& c) override { check(c), cpu::clamped_glu_grad(c); }
  void expert_bias(const ExpertBias& c) override { check(c), cpu::expert_bias(c); }
  void expert_bias_grad(const ExpertBiasGrad& c) override { check(c), cpu::expert_bias_grad(c); }
  void adamw(const AdamW& c) override { check(c), cpu::adamw(c); }
  void adamw_8bit(const AdamW8bit& c) override { check(c), cpu::adamw_8bit(c); }
  void lion(const Lion& c) override { check(c), cpu::lion(c); }
  void adafactor(const Adafactor& c) override { check(c), cpu::adafactor(c); }
  void muon_direction(const MuonDirection& c) override { check(c), cpu::muon_direction(c); }
  void muon_update(const MuonUpdate& c) override { check(c), cpu::muon_update(c); }
  double squared_norm(const SquaredNorm& c) override { return check(c), cpu::squared_norm(c); }

  size_t gemm_scratch(const Gemm& c) const override { return cpu::gemm_scratch(c); }
  size_t attention_scratch(const Attention& c) const override { return cpu::attention_scratch(c); }
  size_t attention_grad_scratch(const AttentionGrad& c) const override { return cpu::attention_grad_scratch(c); }
  size_t own_memory(const Gemm& c) const override { return cpu::gemm_memory(c); }
  size_t own_memory(const Attention& c) const override { return cpu::attention_memory(c); }
  size_t own_memory(const AttentionGrad& c) const override { return cpu::attention_grad_memory(c); }
  size_t own_memory(const GroupedGemm& c) const override { return cpu::grouped_gemm_memory(c); }
  size_t own_memory(const GatedDelta&) const override { return 0; }
  size_t own_memory(const GatedDeltaGrad& c) const override { return cpu::gated_delta_grad_memory(c); }
  void set_scratch(void* memory, size_t bytes) override { scratch_ = {memory, bytes}; }

 private:
  void hold(const ConstMat& y, const RowwiseFp8Copy& h) {
    if (h.q.p != nullptr) quantize({y, h.channel, h.q, h.scale});
  }
  cpu::Scratch scratch_;
};

}  // namespace

Ops& cpu_ops() {
  static CpuOps ops;
  return ops;
}

}  // namespace mxt::kernels
