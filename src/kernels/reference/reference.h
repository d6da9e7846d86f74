// Every operation of api.h in plain loops: one thread, no SIMD, double inside. The oracle for all other backends.
#pragma once

#include "kernels/api.h"

namespace mxt::kernels::reference {

void gemm(const Gemm&);
void quantize(const Quantize&);
void rowwise_fp8_linear(const RowwiseFp8Linear&);
void rowwise_fp8_linear_dw(const RowwiseFp8LinearDw&);
void rowwise_fp8_transpose(const RowwiseFp8Transpose&);
void fp8_linear_dw(const Fp8LinearDw&);
void embedding(const Embedding&);
void embedding_grad(const EmbeddingGrad&);
void norm(const Norm&);
void norm_grad(const NormGrad&);
void qk_norm_rope(const QkNormRope&);
void qk_norm_rope_grad(const QkNormRopeGrad&);
void attention(const Attention&);
void attention_grad(const AttentionGrad&);
void cached_attention(const CachedAttention&);
void store_cache(const StoreCache&);
void act(const Act&);
void act_grad(const ActGrad&);
void add(const Add&);
void mix(const Mix&);
void mix_grad(const MixGrad&);
void gate(const Gate&);
void gate_grad(const GateGrad&);
void bias_grad(const BiasGrad&);
void dropout(const Dropout&);
void cross_entropy(const CrossEntropy&);
void label_grad(const LabelGrad&);
void copy(const Copy&);
void gather_rows(const GatherRows&);
void scatter_rows(const ScatterRows&);
void mean_pool(const MeanPool&);
void route(const Route&);
void route_grad(const RouteGrad&);
void expert_gather(const ExpertGather&);
void expert_sum(const ExpertSum&);
void expert_dots(const ExpertDots&);
void grouped_gemm(const GroupedGemm&);
void route_load(const RouteLoad&);
void balance_loss(const BalanceLoss&);
void causal_conv(const CausalConv&);
void causal_conv_grad(const CausalConvGrad&);
void gated_delta(const GatedDelta&);
void gated_delta_grad(const GatedDeltaGrad&);
void gated_norm(const GatedNorm&);
void gated_norm_grad(const GatedNormGrad&);
void sigmoid_gate(const SigmoidGate&);
void sigmoid_gate_grad(const SigmoidGateGrad&);
void split_gates(const SplitGates&);
void adamw(const AdamW&);
void adamw_8bit(const AdamW8bit&);
void lion(const Lion&);
void adafactor(const Adafactor&);
void muon_direction(const MuonDirection&);
void muon_update(const MuonUpdate&);
double squared_norm(const SquaredNorm&);

}  // namespace mxt::kernels::reference
