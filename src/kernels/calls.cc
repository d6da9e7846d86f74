#include "kernels/calls.h"

#include <algorithm>

#include "base/error.h"
#include "device/accelerator.h"

namespace mxt::kernels {
namespace {

[[noreturn]] void lacks(const Ops& o, std::string_view call) {
  fail_missing("the {} backend has no call {} for these shapes: run on a device that has it, or on the CPU", o.name(),
               call);
}

Variants& variants(Ops& o, std::string_view call) {
  auto* v = dynamic_cast<Variants*>(&o);
  if (!v) lacks(o, call);
  return *v;
}

GptOss& gpt_oss(Ops& o, std::string_view call) {
  auto* g = dynamic_cast<GptOss*>(&o);
  if (!g) lacks(o, call);
  return *g;
}

void make(Ops& o, const Gemm& c) { o.gemm(c); }
void make(Ops& o, const Quantize& c) { o.quantize(c); }
void make(Ops& o, const Decode& c) {
  auto* decoder = dynamic_cast<Decoder*>(&o);
  if (!decoder) lacks(o, "decode");
  decoder->decode(c);
}
void make(Ops& o, const RowwiseFp8Linear& c) { o.rowwise_fp8_linear(c); }
void make(Ops& o, const RowwiseFp8LinearDw& c) { o.rowwise_fp8_linear_dw(c); }
void make(Ops& o, const RowwiseFp8Transpose& c) { o.rowwise_fp8_transpose(c); }
void make(Ops& o, const Fp8LinearDw& c) { o.fp8_linear_dw(c); }
void make(Ops& o, const LoraGrad& c) {
  if (!o.has_lora_grad(c)) lacks(o, "lora_grad");
  o.lora_grad(c);
}
void make(Ops& o, const Embedding& c) { o.embedding(c); }
void make(Ops& o, const EmbeddingGrad& c) { o.embedding_grad(c); }
void make(Ops& o, const Norm& c) { o.norm(c); }
void make(Ops& o, const NormGrad& c) { o.norm_grad(c); }
void make(Ops& o, const QkNormRope& c) { o.qk_norm_rope(c); }
void make(Ops& o, const QkNormRopeGrad& c) { o.qk_norm_rope_grad(c); }
void make(Ops& o, const Attention& c) { o.attention(c); }
void make(Ops& o, const AttentionGrad& c) { o.attention_grad(c); }
void make(Ops& o, const CachedAttention& c) { o.cached_attention(c); }
void make(Ops& o, const StoreCache& c) { o.store_cache(c); }
void make(Ops& o, const Act& c) { o.act(c); }
void make(Ops& o, const ActGrad& c) { o.act_grad(c); }
void make(Ops& o, const ActLora& c) {
  if (!o.has_act_lora(c)) lacks(o, "act_lora");
  o.act_lora(c);
}
void make(Ops& o, const ActLoraGrad& c) {
  if (!o.has_act_lora_grad(c)) lacks(o, "act_lora_grad");
  o.act_lora_grad(c);
}
void make(Ops& o, const Add& c) { o.add(c); }
void make(Ops& o, const Mix& c) { o.mix(c); }
void make(Ops& o, const MixGrad& c) { o.mix_grad(c); }
void make(Ops& o, const Gate& c) { o.gate(c); }
void make(Ops& o, const GateGrad& c) { o.gate_grad(c); }
void make(Ops& o, const BiasGrad& c) { o.bias_grad(c); }
void make(Ops& o, const Dropout& c) { o.dropout(c); }
void make(Ops& o, const CrossEntropy& c) { o.cross_entropy(c); }
void make(Ops& o, const LabelGrad& c) { o.label_grad(c); }
void make(Ops& o, const Copy& c) { o.copy(c); }
void make(Ops& o, const GatherRows& c) { o.gather_rows(c); }
void make(Ops& o, const ScatterRows& c) { o.scatter_rows(c); }
void make(Ops& o, const MeanPool& c) {
  if (o.device()) lacks(o, "mean_pool");
  o.mean_pool(c);
}
void make(Ops& o, const RoundRows& c) {
  if (o.device()) lacks(o, "round_rows");
  round_rows(c.type, c.group, c.x, c.y);
}
void make(Ops& o, const ToHost& c) {
  const size_t n = static_cast<size_t>(c.x.rows * c.x.cols);
  device::Accelerator* device = o.device();
  MXT_ASSERT(c.x.ld == c.x.cols && c.y.ld == c.y.cols && c.y.type == DType::kF32);
  if (device == nullptr) return convert(c.x.p, c.x.type, c.y.p, c.y.type, n);
  if (c.x.type == c.y.type) return device->download(c.y.p, c.x.p, n * size_of(c.x.type));
  std::vector<std::byte> fetched(n * size_of(c.x.type));
  device->download(fetched.data(), c.x.p, fetched.size());
  device->synchronize();
  convert(fetched.data(), c.x.type, c.y.p, c.y.type, n);
}
void make(Ops& o, const Route& c) { o.route(c); }
void make(Ops& o, const RouteGrad& c) { o.route_grad(c); }
void make(Ops& o, const ExpertGather& c) { o.expert_gather(c); }
void make(Ops& o, const ExpertSum& c) { o.expert_sum(c); }
void make(Ops& o, const ExpertDots& c) { o.expert_dots(c); }
void make(Ops& o, const GroupedGemm& c) { o.grouped_gemm(c); }
void make(Ops& o, const RouteLoad& c) { o.route_load(c); }
void make(Ops& o, const BalanceLoss& c) { o.balance_loss(c); }
void make(Ops& o, const CausalConv& c) { o.causal_conv(c); }
void make(Ops& o, const CausalConvGrad& c) { o.causal_conv_grad(c); }
void make(Ops& o, const GatedDelta& c) { o.gated_delta(c); }
void make(Ops& o, const GatedDeltaGrad& c) { o.gated_delta_grad(c); }
void make(Ops& o, const GatedNorm& c) { o.gated_norm(c); }
void make(Ops& o, const GatedNormGrad& c) { o.gated_norm_grad(c); }
void make(Ops& o, const SigmoidGate& c) { o.sigmoid_gate(c); }
void make(Ops& o, const SigmoidGateGrad& c) { o.sigmoid_gate_grad(c); }
void make(Ops& o, const SplitGates& c) { o.split_gates(c); }
void make(Ops& o, const DrawTokens& c) {
  auto* drawer = dynamic_cast<Drawer*>(&o);
  if (!drawer) lacks(o, "draw_tokens");
  drawer->draw_tokens(c);
}
void make(Ops& o, const External& c) {
  if (!c.kernel->runs_on(o)) lacks(o, c.kernel->name());
  c.kernel->run(o, c);
}
void make(Ops& o, const DoraGain& c) { variants(o, "dora_gain").dora_gain(c); }
void make(Ops& o, const DoraScale& c) { variants(o, "dora_scale").dora_scale(c); }
void make(Ops& o, const DoraScaleGrad& c) { variants(o, "dora_scale_grad").dora_scale_grad(c); }
void make(Ops& o, const EmbeddingNoise& c) { variants(o, "embedding_noise").embedding_noise(c); }
void make(Ops& o, const AttentionSinks& c) { gpt_oss(o, "attention_sinks").attention_sinks(c); }
void make(Ops& o, const AttentionSinksGrad& c) { gpt_oss(o, "attention_sinks_grad").attention_sinks_grad(c); }
void make(Ops& o, const CachedSinks& c) { gpt_oss(o, "cached_sinks").cached_sinks(c); }
void make(Ops& o, const ClampedGlu& c) { gpt_oss(o, "clamped_glu").clamped_glu(c); }
void make(Ops& o, const ClampedGluGrad& c) { gpt_oss(o, "clamped_glu_grad").clamped_glu_grad(c); }
void make(Ops& o, const ExpertBias& c) { gpt_oss(o, "expert_bias").expert_bias(c); }
void make(Ops& o, const ExpertBiasGrad& c) { gpt_oss(o, "expert_bias_grad").expert_bias_grad(c); }

// One product of [m, k] and [k, n].
double product(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

template <typename C>
double count(const C&) {
  return 0;
}
double count(const Gemm& g) { return product(g.c.rows, g.c.cols, (g.trans_a ? g.a.rows : g.a.cols) + g.tail_a.cols); }
double count(const GroupedGemm& g) {
  return g.kind == Grouped::kWeight ? product(g.a.cols, g.b.cols, g.a.rows) : product(g.c.rows, g.c.cols, g.a.cols);
}
double count(const GatedDelta& g) { return 3 * product(g.qkv.rows, g.of.value_heads * g.of.value_dim, g.of.key_dim); }
double count(const GatedDeltaGrad& g) {
  return 7 * product(g.qkv.rows, g.of.value_heads * g.of.value_dim, g.of.key_dim);
}
double count(const RowwiseFp8Linear& c) { return product(c.z.rows, c.z.cols, c.q.cols); }
double count(const RowwiseFp8LinearDw& c) { return product(c.dz.cols, c.q.cols, c.q.rows); }
double count(const Fp8LinearDw& c) { return product(c.dy.cols, c.x.cols, c.x.rows); }
double count(const LoraGrad& g) {
  double total = product(g.dy.rows, g.dz.cols, g.dy.cols);
  for (const auto& k : g.blocks) total += product(k.cols, k.rank, g.dy.rows);
  return total;
}
double count(const External& c) { return c.kernel->operations(c); }
double count(const ActLora& c) { return product(c.z.rows, c.z.cols, c.act.y.cols); }
double count(const ActLoraGrad& c) { return count(c.lora) + product(c.dz.cols, c.act.dy.cols, c.dz.rows); }

// Causal: half of the square.
template <typename A>
double attention(const A& a, bool causal, double products) {
  const double all = static_cast<double>(a.longest), half = all / 2;
  const double seen = !causal ? all : a.window > 0 ? std::min(half, static_cast<double>(a.window)) : half;
  return products * 2.0 * static_cast<double>(a.q.rows) * seen * static_cast<double>(a.heads * a.head_dim);
}
double count(const Attention& a) { return attention(a, a.causal, 2); }
double count(const AttentionGrad& a) { return attention(a, a.causal, 5); }

}  // namespace

std::string_view name_of(const AnyCall& call) {
  static constexpr std::string_view kNames[] = {"gemm",
                                                "quantize",
                                                "decode",
                                                "rowwise_fp8_linear",
                                                "rowwise_fp8_linear_dw",
                                                "rowwise_fp8_transpose",
                                                "fp8_linear_dw",
                                                "lora_grad",
                                                "embedding",
                                                "embedding_grad",
                                                "norm",
                                                "norm_grad",
                                                "qk_norm_rope",
                                                "qk_norm_rope_grad",
                                                "attention",
                                                "attention_grad",
                                                "cached_attention",
                                                "store_cache",
                                                "act",
                                                "act_grad",
                                                "act_lora",
                                                "act_lora_grad",
                                                "add",
                                                "mix",
                                                "mix_grad",
                                                "gate",
                                                "gate_grad",
                                                "bias_grad",
                                                "dropout",
                                                "cross_entropy",
                                                "label_grad",
                                                "copy",
                                                "gather_rows",
                                                "scatter_rows",
                                                "mean_pool",
                                                "round_rows",
                                                "to_host",
                                                "route",
                                                "route_grad",
                                                "expert_gather",
                                                "expert_sum",
                                                "expert_dots",
                                                "grouped_gemm",
                                                "route_load",
                                                "balance_loss",
                                                "causal_conv",
                                                "causal_conv_grad",
                                                "gated_delta",
                                                "gated_delta_grad",
                                                "gated_norm",
                                                "gated_norm_grad",
                                                "sigmoid_gate",
                                                "sigmoid_gate_grad",
                                                "split_gates",
                                                "draw_tokens",
                                                "dora_gain",
                                                "dora_scale",
                                                "dora_scale_grad",
                                                "embedding_noise",
                                                "attention_sinks",
                                                "attention_sinks_grad",
                                                "cached_sinks",
                                                "clamped_glu",
                                                "clamped_glu_grad",
                                                "expert_bias",
                                                "expert_bias_grad",
                                                "external"};
  static_assert(std::size(kNames) == std::variant_size_v<AnyCall>);
  if (const auto* external = std::get_if<External>(&call)) return external->kernel->name();
  return kNames[call.index()];
}

void run(Ops& ops, const AnyCall& call) {
  std::visit([&](const auto& c) { make(ops, c); }, call);
}

double operations(const AnyCall& call) {
  return std::visit([](const auto& c) { return count(c); }, call);
}

}  // namespace mxt::kernels
