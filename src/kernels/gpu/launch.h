// Launchers of the kernels in this folder: each queues one operation of api.h on a stream. All pointers are device
// memory, except that sizes and the lists in AdamW and SquaredNorm are the host's. `scratch` is device memory of at
// least the stated bytes.
#pragma once

#include "kernels/adapters.h"
#include "kernels/decode.h"
#include "kernels/draw.h"
#include "kernels/gpt_oss.h"
#include "kernels/gpu/gpu.h"

namespace mxt::kernels::MXT_GPU_NS {

void norm(Stream, const Norm&);
size_t norm_grad_scratch(const NormGrad&);
void norm_grad(Stream, const NormGrad&, void* scratch);

void qk_norm_rope(Stream, const QkNormRope&);
size_t qk_norm_rope_grad_scratch(const QkNormRopeGrad&);
void qk_norm_rope_grad(Stream, const QkNormRopeGrad&, void* scratch);

void dora_gain(Stream, const DoraGain&);
void dora_scale(Stream, const DoraScale&);
size_t dora_scale_grad_scratch(const DoraScaleGrad&);
void dora_scale_grad(Stream, const DoraScaleGrad&, void* scratch);
void embedding_noise(Stream, const EmbeddingNoise&);
void decode(Stream, const Decode&);
size_t draw_tokens_scratch(const DrawTokens&);
void draw_tokens(Stream, const DrawTokens&, void* scratch);
void quantize(Stream, const Quantize&);
// out[t·parts + p]: the largest magnitude of row t in the p-th of `parts` equal ranges of columns.
void row_largest(Stream, const ConstMat& x, int parts, float* out);

void act(Stream, const Act&);
void act_grad(Stream, const ActGrad&);
void add(Stream, const Add&);
void copy(Stream, const Copy&);
void rowwise_fp8_transpose(Stream, const RowwiseFp8Transpose&);
// The product that a weight's gradient is, without addresses: a is [n, tokens], with a scale a row.
kernels::Gemm fp8_linear_dw_product(const Fp8LinearDw&);
// Makes its operands, in scratch, and returns it.
size_t fp8_linear_dw_scratch(const Fp8LinearDw&);
kernels::Gemm fp8_linear_dw(Stream, const Fp8LinearDw&, void* scratch);
void causal_conv(Stream, const CausalConv&);
size_t causal_conv_grad_scratch(const CausalConvGrad&);
void causal_conv_grad(Stream, const CausalConvGrad&, void* scratch);
void gated_delta(Stream, const GatedDelta&);
size_t gated_delta_grad_scratch(const GatedDeltaGrad&);
void gated_delta_grad(Stream, const GatedDeltaGrad&, void* scratch);
// Its last step: dq̂ and dk̂ of every value head ([tokens, value_heads, key_dim]) to q's and k's columns of dqkv, and
// what a token gives to a_log and dt_bias ([tokens, value_heads, 2]) summed.
void gated_delta_sums(Stream, const GatedDeltaGrad&, float* dq, float* dk, float* dlog);
void gated_norm(Stream, const GatedNorm&);
size_t gated_norm_grad_scratch(const GatedNormGrad&);
void gated_norm_grad(Stream, const GatedNormGrad&, void* scratch);
void sigmoid_gate(Stream, const SigmoidGate&);
void sigmoid_gate_grad(Stream, const SigmoidGateGrad&);
void split_gates(Stream, const SplitGates&);

size_t route_scratch(const Route&);
void route(Stream, const Route&, void* scratch);
void route_grad(Stream, const RouteGrad&);
void expert_gather(Stream, const ExpertGather&);
void expert_sum(Stream, const ExpertSum&);
void expert_dots(Stream, const ExpertDots&);
void route_load(Stream, const RouteLoad&);
void balance_loss(Stream, const BalanceLoss&);
void mix(Stream, const Mix&);
size_t mix_grad_scratch(const MixGrad&);
void mix_grad(Stream, const MixGrad&, void* scratch);
void gate(Stream, const Gate&);
size_t gate_grad_scratch(const GateGrad&);
void gate_grad(Stream, const GateGrad&, void* scratch);
void add_bias(Stream, const Mat& y, const void* bias, DType bias_type);  // y += bias, in place
size_t bias_grad_scratch(const BiasGrad&);
void bias_grad(Stream, const BiasGrad&, void* scratch);
void dropout(Stream, const Dropout&);

void attention_sinks(Stream, const AttentionSinks&);
size_t attention_sinks_grad_scratch(const AttentionSinksGrad&);
void attention_sinks_grad(Stream, const AttentionSinksGrad&, void* scratch);
void clamped_glu(Stream, const ClampedGlu&);
void clamped_glu_grad(Stream, const ClampedGluGrad&);
void expert_bias(Stream, const ExpertBias&);
void expert_bias_grad(Stream, const ExpertBiasGrad&);

void embedding(Stream, const Embedding&);
size_t embedding_grad_scratch(const EmbeddingGrad&);
void embedding_grad(Stream, const EmbeddingGrad&, void* scratch);
void gather_rows(Stream, const GatherRows&);
void scatter_rows(Stream, const ScatterRows&);

void cross_entropy(Stream, const CrossEntropy&);
void label_grad(Stream, const LabelGrad&);

// A list of tensors cut into pieces of kPiece elements, one block each. The tables live on the device.
inline constexpr int64_t kPiece = 16384;
struct Piece {
  int32_t tensor;
  int32_t index;  // of the piece within its tensor
};
struct AdamWScalars {
  float beta1, beta2, one_minus_beta1, one_minus_beta2, eps, correction1, correction2, grad_scale;
  const float* device_grad_scale;  // null, or a factor on the device
};
// `rates`: [tensors][2] learning rate and weight decay.
void adamw(Stream, const OptTensor* tensors, const float* rates, const Piece* pieces, int64_t count,
           const AdamWScalars&);
// `maps`: the signed and the unsigned dynamic_map(), [2][256].
void adamw_8bit(Stream, const Opt8Tensor* tensors, const float* rates, const Piece* pieces, int64_t count,
                const AdamWScalars&, const float* maps);
struct LionScalars {
  float beta1, beta2, one_minus_beta1, one_minus_beta2, grad_scale;
  const float* device_grad_scale;
};
void lion(Stream, const OptTensor* tensors, const float* rates, const Piece* pieces, int64_t count, const LionScalars&);
struct AdafactorScalars {
  double decay;
  float eps, clip, grad_scale;
  const float* device_grad_scale;
};
size_t adafactor_scratch(const AdafactorTensor&);
void adafactor(Stream, const AdafactorTensor&, const AdafactorScalars&, void* scratch);
struct MuonDirectionArgs {
  const float* grad;
  float* momentum;
  float grad_scale;
  const float* device_grad_scale;
  float mu, one_minus_mu, slack, eps;
  bool equalise;
};
size_t muon_direction_scratch(const MuonDirection&);
void muon_direction(Stream, const MuonDirection&, void* scratch);
size_t muon_update_scratch(const MuonUpdate&);
void muon_update(Stream, const MuonUpdate&, void* scratch);
struct Span {
  const float* p;
  int64_t n;
};
// out[0] = Σ g²; partial holds `count` doubles.
void squared_norm(Stream, const Span* spans, const Piece* pieces, int64_t count, double* partial, double* out);
// scale[0] = min(1, max_norm / (√squared + 1e-6)), as torch.nn.utils.clip_grad_norm_.
void clip_scale(Stream, const double* squared, double max_norm, float* scale);

// One warp a query, any head dimension up to 256, either type: what every other attention is compared with on the
// device.
void plain_attention(Stream, const Attention&);
size_t plain_attention_grad_scratch(const AttentionGrad&);
void plain_attention_grad(Stream, const AttentionGrad&, void* scratch);
// On the matrix units: bf16, head dimensions 64 and 128. lse is [heads, tokens].
bool flash_covers(const Attention&);
bool flash_covers(const AttentionGrad&);
void flash_attention(Stream, const Attention&);
size_t flash_attention_grad_scratch(const AttentionGrad&);
void flash_attention_grad(Stream, const AttentionGrad&, void* scratch);
// Some documents of a batch, by index.
struct DocumentList {
  static constexpr int kMost = 512;
  int32_t count = -1;
  int32_t index[kMost];
};
// Tables of a packed batch: six rows of batch+1 int32. Row 0 holds the lengths of the documents (0 past the last), row
// r > 0 the documents' first tokens times lds[r]. `list`: of these documents, in this order; null: of all.
void packed_tables(Stream, const int32_t* cu_seqlens, int64_t documents, const DocumentList* list, int64_t batch,
                   const int64_t (&lds)[6], int32_t* tables);
// Where few queries look over many keys, blocks share them: `parts` takes what each found, `done` counts (4 bytes an
// answer, 0 before and after every call).
struct CachedScratch {
  size_t parts = 0, done = 0;
};
inline constexpr size_t kMostDone = 4096;
CachedScratch cached_attention_scratch(const CachedAttention&);
void cached_attention(Stream, const CachedAttention&, void* parts, void* done, const float* sinks = nullptr);
void store_cache(Stream, const StoreCache&);

}  // namespace mxt::kernels::MXT_GPU_NS
