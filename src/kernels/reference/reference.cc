#include "kernels/reference/reference.h"

#include "kernels/adapters.h"
#include "kernels/checks.h"
#include "kernels/decode.h"
#include "kernels/draw.h"
#include "kernels/gpt_oss.h"

namespace mxt::kernels {
namespace {

class ReferenceOps final : public Ops, public Decoder, public Drawer, public Variants, public GptOss {
 public:
  std::string_view name() const override { return "reference"; }
  std::vector<std::string> gemm_algorithms() const override { return {"reference"}; }
  std::vector<std::string> attention_algorithms() const override { return {"reference"}; }

  void gemm(const Gemm& c) override { check(c), reference::gemm(c); }
  void quantize(const Quantize& c) override { check(c), reference::quantize(c); }
  void draw_tokens(const DrawTokens& c) override { check(c), reference::draw_tokens(c); }
  void decode(const Decode& c) override { check(c), reference::decode(c); }
  void rowwise_fp8_linear(const RowwiseFp8Linear& c) override { check(c), reference::rowwise_fp8_linear(c); }
  void rowwise_fp8_linear_dw(const RowwiseFp8LinearDw& c) override { check(c), reference::rowwise_fp8_linear_dw(c); }
  void rowwise_fp8_transpose(const RowwiseFp8Transpose& c) override { check(c), reference::rowwise_fp8_transpose(c); }
  void fp8_linear_dw(const Fp8LinearDw& c) override { check(c), reference::fp8_linear_dw(c); }
  void embedding(const Embedding& c) override { check(c), reference::embedding(c); }
  void embedding_grad(const EmbeddingGrad& c) override { check(c), reference::embedding_grad(c); }
  void norm(const Norm& c) override { check(c), reference::norm(c), hold(c.y, c.held); }
  void norm_grad(const NormGrad& c) override { check(c), reference::norm_grad(c), hold(c.dx, c.held); }
  void qk_norm_rope(const QkNormRope& c) override { check(c), reference::qk_norm_rope(c); }
  void qk_norm_rope_grad(const QkNormRopeGrad& c) override {
    check(c), reference::qk_norm_rope_grad(c), hold(c.dqkv, c.held);
  }
  void attention(const Attention& c) override { check(c), reference::attention(c); }
  void attention_grad(const AttentionGrad& c) override { check(c), reference::attention_grad(c); }
  void cached_attention(const CachedAttention& c) override { check(c), reference::cached_attention(c); }
  void store_cache(const StoreCache& c) override { check(c), reference::store_cache(c); }
  void act(const Act& c) override { check(c), reference::act(c), hold(c.y, c.held); }
  void act_grad(const ActGrad& c) override { check(c), reference::act_grad(c), hold(c.dx, c.held); }
  void add(const Add& c) override { check(c), reference::add(c); }
  void mix(const Mix& c) override { check(c), reference::mix(c); }
  void mix_grad(const MixGrad& c) override { check(c), reference::mix_grad(c); }
  void gate(const Gate& c) override { check(c), reference::gate(c); }
  void gate_grad(const GateGrad& c) override { check(c), reference::gate_grad(c); }
  void bias_grad(const BiasGrad& c) override { check(c), reference::bias_grad(c); }
  void dropout(const Dropout& c) override { check(c), reference::dropout(c); }
  void cross_entropy(const CrossEntropy& c) override { check(c), reference::cross_entropy(c); }
  void label_grad(const LabelGrad& c) override { check(c), reference::label_grad(c); }
  void copy(const Copy& c) override { check(c), reference::copy(c); }
  void gather_rows(const GatherRows& c) override { check(c), reference::gather_rows(c); }
  void scatter_rows(const ScatterRows& c) override { check(c), reference::scatter_rows(c); }
  void mean_pool(const MeanPool& c) override { check(c), reference::mean_pool(c); }
  void route(const Route& c) override { check(c), reference::route(c); }
  void route_grad(const RouteGrad& c) override { check(c), reference::route_grad(c); }
  void expert_gather(const ExpertGather& c) override { check(c), reference::expert_gather(c); }
  void expert_sum(const ExpertSum& c) override { check(c), reference::expert_sum(c); }
  void expert_dots(const ExpertDots& c) override { check(c), reference::expert_dots(c); }
  void grouped_gemm(const GroupedGemm& c) override { check(c), reference::grouped_gemm(c); }
  void route_load(const RouteLoad& c) override { check(c), reference::route_load(c); }
  void balance_loss(const BalanceLoss& c) override { check(c), reference::balance_loss(c); }
  void causal_conv(const CausalConv& c) override { check(c), reference::causal_conv(c); }
  void causal_conv_grad(const CausalConvGrad& c) override { check(c), reference::causal_conv_grad(c); }
  void gated_delta(const GatedDelta& c) override { check(c), reference::gated_delta(c); }
  void gated_delta_grad(const GatedDeltaGrad& c) override { check(c), reference::gated_delta_grad(c); }
  void gated_norm(const GatedNorm& c) override { check(c), reference::gated_norm(c); }
  void gated_norm_grad(const GatedNormGrad& c) override { check(c), reference::gated_norm_grad(c); }
  void sigmoid_gate(const SigmoidGate& c) override { check(c), reference::sigmoid_gate(c); }
  void sigmoid_gate_grad(const SigmoidGateGrad& c) override { check(c), reference::sigmoid_gate_grad(c); }
  void split_gates(const SplitGates& c) override { check(c), reference::split_gates(c); }
  void dora_gain(const DoraGain& c) override { check(c), reference::dora_gain(c); }
  void dora_scale(const DoraScale& c) override { check(c), reference::dora_scale(c); }
  void dora_scale_grad(const DoraScaleGrad& c) override { check(c), reference::dora_scale_grad(c); }
  void embedding_noise(const EmbeddingNoise& c) override { check(c), reference::embedding_noise(c); }
  void attention_sinks(const AttentionSinks& c) override { check(c), reference::attention_sinks(c); }
  void attention_sinks_grad(const AttentionSinksGrad& c) override { check(c), reference::attention_sinks_grad(c); }
  void cached_sinks(const CachedSinks& c) override { check(c), reference::cached_sinks(c); }
  void clamped_glu(const ClampedGlu& c) override { check(c), reference::clamped_glu(c); }
  void clamped_glu_grad(const ClampedGluGrad& c) override { check(c), reference::clamped_glu_grad(c); }
  void expert_bias(const ExpertBias& c) override { check(c), reference::expert_bias(c); }
  void expert_bias_grad(const ExpertBiasGrad& c) override { check(c), reference::expert_bias_grad(c); }
  void adamw(const AdamW& c) override { check(c), reference::adamw(c); }
  void adamw_8bit(const AdamW8bit& c) override { check(c), reference::adamw_8bit(c); }
  void lion(const Lion& c) override { check(c), reference::lion(c); }
  void adafactor(const Adafactor& c) override { check(c), reference::adafactor(c); }
  void muon_direction(const MuonDirection& c) override { check(c), reference::muon_direction(c); }
  void muon_update(const MuonUpdate& c) override { check(c), reference::muon_update(c); }
  double squared_norm(const SquaredNorm& c) override { return check(c), reference::squared_norm(c); }

  size_t gemm_scratch(const Gemm&) const override { return 0; }
  size_t attention_scratch(const Attention&) const override { return 0; }
  size_t attention_grad_scratch(const AttentionGrad&) const override { return 0; }
  void set_scratch(void*, size_t) override {}

 private:
  void hold(const ConstMat& y, const RowwiseFp8Copy& h) {
    if (h.q.p != nullptr) quantize({y, h.channel, h.q, h.scale});
  }
};

}  // namespace

Ops& reference_ops() {
  static ReferenceOps ops;
  return ops;
}

}  // namespace mxt::kernels
