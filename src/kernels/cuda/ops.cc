#include "kernels/cuda/ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "kernels/checks.h"
#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/cached_tiles.h"
#include "kernels/cuda/delta_chunks.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/lora.h"
#include "kernels/cuda/relu2.h"
#include "kernels/cuda/rowwise_fp8.h"
#include "kernels/cuda/thin.h"
#include "kernels/gpu/launch.h"
#include "kernels/memory.h"

namespace mxt::kernels::cuda {

void check_launch(const char* what) { device::check_cuda(cudaGetLastError(), what); }
void require(bool ok, const char* what) {
  if (!ok) fail_missing("CUDA kernels: {}", what);
}

namespace {

enum AttentionAlgorithm : int { kTiles, kPlain, kFlash, kCudnn };

// A list of tensors as the kernels want it: made once per list and kept, since a run steps over the same tensors every
// time.
struct Table {
  std::vector<std::byte> key;
  void* items = nullptr;  // OptTensor, Opt8Tensor or Span
  Piece* pieces = nullptr;
  float* rates = nullptr;     // of an optimizer's step
  double* partial = nullptr;  // squared norm
  int64_t count = 0;
};

class CudaOps final : public Ops, public OwnMemory, public Decoder, public Drawer, public Variants, public GptOss {
 public:
  explicit CudaOps(device::CudaDevice& d) : d_(d), s_(d.stream()), attention_(s_) {
    own_ = d_.allocate(kOwn);
    answer_ = static_cast<double*>(d_.allocate(sizeof(double)));
    done_ = d_.allocate(kMostDone);
    d_.fill(done_, 0, kMostDone);
    d_.add_library("cublaslt", gemm_.version());
    d_.add_library("cudnn", attention_.version());
  }
  ~CudaOps() override {
    for (auto& t : tables_)
      for (void* p :
           {t.items, static_cast<void*>(t.pieces), static_cast<void*>(t.rates), static_cast<void*>(t.partial)})
        d_.release(p);
    d_.release(own_);
    d_.release(answer_);
    d_.release(maps_);
    d_.release(delta_);
    d_.release(done_);
  }

  std::string_view name() const override { return "cuda"; }
  device::Accelerator* device() const override { return &d_; }
  // ltN: the N-th of cuBLASLt's own ranking for the shape; thin: our kernel for few rows; tiles: ours for operands held
  // in E4M3, and what alone ends in ReLU²; auto: tiles where it takes the call and lt0 elsewhere, as the others where
  // they do not take it.
  enum GemmAlgorithm : int { kAuto, kLt, kThin = kLt + GemmRunner::kAlgorithms, kTiledGemm };
  std::vector<std::string> gemm_algorithms() const override {
    std::vector<std::string> names{"auto"};
    for (int i = 0; i < GemmRunner::kAlgorithms; ++i) names.push_back(fmt::format("lt{}", i));
    names.push_back("thin");
    names.push_back("tiles");
    return names;
  }
  static int gemm_algorithm(const Gemm& c, int algo) {
    if (c.ends_in_relu2()) return kTiledGemm;
    if (algo == kThin && thin_covers(c)) return kThin;
    if (algo >= kLt && algo < kThin) return algo;
    return rowwise_fp8_gemm_covers(c) ? kTiledGemm : kLt;
  }
  int same_gemm(const Gemm& c, int algo) const override {
    const int own = gemm_algorithm(c, algo);
    return own == gemm_algorithm(c, kAuto) ? kAuto : own;
  }
  // cudnn_tiles: cuDNN's forward pass and our own gradient. What a call is computed by: cuDNN has no fp32, no head
  // sizes above 128 or not a multiple of 8, other random numbers for dropout and no documents that go on from others;
  // our gradient of its forward pass is for heads of 64 and 128, cuDNN's for the rest; `flash` takes bf16 of 64 and
  // 128; `plain` takes all.
  std::vector<std::string> attention_algorithms() const override { return {"cudnn_tiles", "plain", "flash", "cudnn"}; }
  int same_attention(const Attention& c, int algo) const override {
    return algo == kCudnn && !tiles_head(c.head_dim) ? kTiles : algo;
  }
  static int algorithm_of(const Attention& c) { return general_algorithm(c); }
  static int algorithm_of(const AttentionGrad& c) {
    const int general = general_algorithm(c);
    if (general == kFlash && c.prefix != nullptr && tiles_cover(c)) return kTiles;
    return general == kCudnn && c.algo == kTiles && tiles_cover(c) ? kTiles : general;
  }
  template <typename A>
  static int general_algorithm(const A& c) {
    if ((c.algo == kTiles || c.algo == kCudnn) && c.prefix == nullptr && CudnnAttention::covers(c) && !(c.dropout > 0))
      return kCudnn;
    return c.algo != kPlain && flash_covers(c) ? kFlash : kPlain;
  }

  void gemm(const Gemm& c) override {
    check(c);
    const int algo = gemm_algorithm(c, c.algo);
    if (algo == kThin) return thin_gemm(s_, c);
    if (c.ends_in_relu2()) {
      if (!relu2_gemm_covers(c)) lacks("products that end in ReLU² of these rows");
      return relu2_gemm(s_, c);
    }
    if (algo == kTiledGemm) return rowwise_fp8_gemm(s_, c);
    Gemm g = c;
    g.algo = algo - kLt;
    gemm_.run(g, scratch_, scratch_bytes_, s_);
    if (c.row_absmax != nullptr) row_largest(s_, c.c, c.row_parts, c.row_absmax);
  }
  void quantize(const Quantize& c) override { check(c), cuda::quantize(s_, c); }
  void draw_tokens(const DrawTokens& c) override { check(c), cuda::draw_tokens(s_, c, own(draw_tokens_scratch(c))); }
  void decode(const Decode& c) override { check(c), cuda::decode(s_, c); }
  void dora_gain(const DoraGain& c) override { check(c), cuda::dora_gain(s_, c); }
  void dora_scale(const DoraScale& c) override { check(c), cuda::dora_scale(s_, c); }
  void dora_scale_grad(const DoraScaleGrad& c) override {
    check(c), cuda::dora_scale_grad(s_, c, own(dora_scale_grad_scratch(c)));
  }
  void embedding_noise(const EmbeddingNoise& c) override { check(c), cuda::embedding_noise(s_, c); }
  void rowwise_fp8_linear(const RowwiseFp8Linear& c) override { check(c), cuda::rowwise_fp8_linear(s_, c); }
  void rowwise_fp8_linear_dw(const RowwiseFp8LinearDw& c) override {
    check(c), cuda::rowwise_fp8_linear_dw(s_, c, own(rowwise_fp8_linear_dw_scratch(c)));
  }
  void rowwise_fp8_transpose(const RowwiseFp8Transpose& c) override { check(c), cuda::rowwise_fp8_transpose(s_, c); }
  size_t fp8_linear_dw_scratch(const Fp8LinearDw& c) const override {
    return fp8_dw_product_scratch(c) + cuda::fp8_linear_dw_scratch(c);
  }
  void fp8_linear_dw(const Fp8LinearDw& c) override {
    check(c);
    MXT_ASSERT(scratch_bytes_ >= fp8_linear_dw_scratch(c));
    if (c.x.rows == 0) {
      if (!c.accumulate) d_.fill(c.dw, 0, static_cast<size_t>(c.dy.cols * c.x.cols) * sizeof(float));
      return;
    }
    const size_t product = fp8_dw_product_scratch(c);
    const Gemm g = cuda::fp8_linear_dw(s_, c, static_cast<std::byte*>(scratch_) + product);
    if (rowwise_fp8_dw_covers(g))
      rowwise_fp8_dw(s_, g, scratch_, GemmRunner::kWorkspace);
    else
      gemm_.run(g, scratch_, product, s_);
  }
  bool has_lora_grad(const LoraGrad& c) const override { return lora_grad_covers(c) && lora_grad_scratch(c) <= kOwn; }
  void lora_grad(const LoraGrad& c) override {
    MXT_ASSERT(lora_grad_covers(c));
    cuda::lora_grad(s_, c, own(lora_grad_scratch(c)));
  }
  bool has_act_lora(const ActLora& c) const override { return act_lora_covers(c) && act_lora_scratch(c) <= kOwn; }
  void act_lora(const ActLora& c) override {
    MXT_ASSERT(act_lora_covers(c));
    cuda::act_lora(s_, c, own(act_lora_scratch(c)));
  }
  bool has_act_lora_grad(const ActLoraGrad& c) const override {
    return act_lora_grad_covers(c) && act_lora_grad_scratch(c) <= kOwn;
  }
  void act_lora_grad(const ActLoraGrad& c) override {
    MXT_ASSERT(act_lora_grad_covers(c));
    cuda::act_lora_grad(s_, c, own(act_lora_grad_scratch(c)));
  }
  void embedding(const Embedding& c) override { check(c), cuda::embedding(s_, c); }
  void embedding_grad(const EmbeddingGrad& c) override {
    check(c), cuda::embedding_grad(s_, c, own(embedding_grad_scratch(c)));
  }
  void norm(const Norm& c) override { check(c), cuda::norm(s_, c); }
  void norm_grad(const NormGrad& c) override { check(c), cuda::norm_grad(s_, c, own(norm_grad_scratch(c))); }
  void qk_norm_rope(const QkNormRope& c) override { check(c), cuda::qk_norm_rope(s_, c); }
  void qk_norm_rope_grad(const QkNormRopeGrad& c) override {
    check(c), cuda::qk_norm_rope_grad(s_, c, own(qk_norm_rope_grad_scratch(c)));
  }
  void attention(const Attention& c) override {
    check(c);
    switch (algorithm_of(c)) {
      case kCudnn:
        return attention_.run(c, scratch_, scratch_bytes_);
      case kFlash:
        return flash_attention(s_, c);
      default:
        return plain_attention(s_, c);
    }
  }
  void attention_grad(const AttentionGrad& c) override {
    check(c);
    const int algorithm = algorithm_of(c);
    if (algorithm == kCudnn) return attention_.run(c, scratch_, scratch_bytes_);
    if (algorithm == kTiles) {
      const bool flash = c.prefix != nullptr;  // whose forward pass it was
      if (tiles_fit(c, scratch_bytes_))
        return tiles_grad(s_, c, flash ? StatsLayout{0, 1, c.q.rows, 1} : CudnnAttention::stats_layout(c), scratch_,
                          scratch_bytes_);
      if (!flash) return attention_.run(c, scratch_, scratch_bytes_);
    }
    MXT_ASSERT(scratch_bytes_ >= attention_grad_scratch(c));
    switch (algorithm) {
      case kTiles:
      case kFlash:
        return flash_attention_grad(s_, c, scratch_);
      default:
        return plain_attention_grad(s_, c, scratch_);
    }
  }
  void cached_attention(const CachedAttention& c) override { check(c), cached(c, nullptr); }
  void attention_sinks(const AttentionSinks& c) override { check(c), cuda::attention_sinks(s_, c); }
  void attention_sinks_grad(const AttentionSinksGrad& c) override {
    check(c), cuda::attention_sinks_grad(s_, c, own(attention_sinks_grad_scratch(c)));
  }
  void cached_sinks(const CachedSinks& c) override { check(c), cached(c.of, c.sinks); }
  void clamped_glu(const ClampedGlu& c) override { check(c), cuda::clamped_glu(s_, c); }
  void clamped_glu_grad(const ClampedGluGrad& c) override { check(c), cuda::clamped_glu_grad(s_, c); }
  void expert_bias(const ExpertBias& c) override { check(c), cuda::expert_bias(s_, c); }
  void expert_bias_grad(const ExpertBiasGrad& c) override { check(c), cuda::expert_bias_grad(s_, c); }
  void store_cache(const StoreCache& c) override { check(c), cuda::store_cache(s_, c); }
  void act(const Act& c) override { check(c), cuda::act(s_, c); }
  void act_grad(const ActGrad& c) override { check(c), cuda::act_grad(s_, c); }
  void add(const Add& c) override { check(c), cuda::add(s_, c); }
  void route(const Route& c) override {
    check(c), cuda::route(s_, c, own(route_scratch(c)));
    routed_ = c.first, settled_ = nullptr;
  }
  void route_grad(const RouteGrad& c) override { check(c), cuda::route_grad(s_, c); }
  void expert_gather(const ExpertGather& c) override {
    check(c), cuda::expert_gather(s_, c);
    if (c.y.rows > 0) settled_ = routed_;
  }
  void expert_sum(const ExpertSum& c) override { check(c), cuda::expert_sum(s_, c); }
  void expert_dots(const ExpertDots& c) override { check(c), cuda::expert_dots(s_, c); }
  void grouped_gemm(const GroupedGemm& c) override { check(c), cuda::grouped_gemm(s_, c, c.first == settled_); }
  void route_load(const RouteLoad& c) override { check(c), cuda::route_load(s_, c); }
  void balance_loss(const BalanceLoss& c) override { check(c), cuda::balance_loss(s_, c); }
  void causal_conv(const CausalConv& c) override { check(c), cuda::causal_conv(s_, c); }
  void causal_conv_grad(const CausalConvGrad& c) override {
    check(c), cuda::causal_conv_grad(s_, c, own(causal_conv_grad_scratch(c)));
  }
  void gated_delta(const GatedDelta& c) override {
    check(c);
    if (!delta_chunks_cover(c)) return cuda::gated_delta(s_, c);
    delta_chunks(s_, c, delta_memory(own_memory(c)));
  }
  size_t own_memory(const Gemm&) const override { return 0; }
  size_t own_memory(const Attention&) const override { return 0; }
  size_t own_memory(const AttentionGrad&) const override { return 0; }
  size_t own_memory(const GroupedGemm&) const override { return 0; }
  size_t own_memory(const GatedDelta& c) const override {
    return plan_delta(delta_chunks_cover(c) ? delta_chunks_scratch(c) : 0);
  }
  size_t own_memory(const GatedDeltaGrad& c) const override {
    return plan_delta(delta_chunks_cover(c) ? delta_chunks_scratch(c) : gated_delta_grad_scratch(c));
  }
  void gated_delta_grad(const GatedDeltaGrad& c) override {
    check(c);
    void* scratch = delta_memory(own_memory(c));
    delta_chunks_cover(c) ? delta_chunks_grad(s_, c, scratch) : cuda::gated_delta_grad(s_, c, scratch);
  }
  void gated_norm(const GatedNorm& c) override { check(c), cuda::gated_norm(s_, c); }
  void gated_norm_grad(const GatedNormGrad& c) override {
    check(c), cuda::gated_norm_grad(s_, c, own(gated_norm_grad_scratch(c)));
  }
  void sigmoid_gate(const SigmoidGate& c) override { check(c), cuda::sigmoid_gate(s_, c); }
  void sigmoid_gate_grad(const SigmoidGateGrad& c) override { check(c), cuda::sigmoid_gate_grad(s_, c); }
  void split_gates(const SplitGates& c) override { check(c), cuda::split_gates(s_, c); }
  void mix(const Mix& c) override { check(c), cuda::mix(s_, c); }
  void mix_grad(const MixGrad& c) override { check(c), cuda::mix_grad(s_, c, own(mix_grad_scratch(c))); }
  void gate(const Gate& c) override { check(c), cuda::gate(s_, c); }
  void gate_grad(const GateGrad& c) override { check(c), cuda::gate_grad(s_, c, own(gate_grad_scratch(c))); }
  void bias_grad(const BiasGrad& c) override { check(c), cuda::bias_grad(s_, c, own(bias_grad_scratch(c))); }
  void dropout(const Dropout& c) override { check(c), cuda::dropout(s_, c); }
  void cross_entropy(const CrossEntropy& c) override { check(c), cuda::cross_entropy(s_, c); }
  void label_grad(const LabelGrad& c) override { check(c), cuda::label_grad(s_, c); }
  void copy(const Copy& c) override { check(c), cuda::copy(s_, c); }
  void gather_rows(const GatherRows& c) override { check(c), cuda::gather_rows(s_, c); }
  void scatter_rows(const ScatterRows& c) override { check(c), cuda::scatter_rows(s_, c); }

  void adamw(const AdamW& c) override {
    check(c);
    Table& t = rated_table(c.tensors);
    cuda::adamw(s_, static_cast<const OptTensor*>(t.items), t.rates, t.pieces, t.count, scalars(c));
  }
  void adamw_8bit(const AdamW8bit& c) override {
    check(c);
    Table& t = rated_table(c.tensors);
    if (maps_ == nullptr) {
      std::vector<float> maps(dynamic_map(true), dynamic_map(true) + 256);
      maps.insert(maps.end(), dynamic_map(false), dynamic_map(false) + 256);
      maps_ = static_cast<float*>(d_.allocate(maps.size() * sizeof(float)));
      d_.upload(maps_, maps.data(), maps.size() * sizeof(float));
      d_.synchronize();
    }
    cuda::adamw_8bit(s_, static_cast<const Opt8Tensor*>(t.items), t.rates, t.pieces, t.count, scalars(c), maps_);
  }
  void lion(const Lion& c) override {
    check(c);
    Table& t = rated_table(c.tensors);
    cuda::lion(s_, static_cast<const OptTensor*>(t.items), t.rates, t.pieces, t.count,
               {static_cast<float>(c.beta1), static_cast<float>(c.beta2), static_cast<float>(1.0 - c.beta1),
                static_cast<float>(1.0 - c.beta2), c.grad_scale, c.device_grad_scale});
  }
  void adafactor(const Adafactor& c) override {
    check(c);
    for (const AdafactorTensor& t : c.tensors)
      cuda::adafactor(s_, t, {c.decay, c.eps, c.clip, c.grad_scale, c.device_grad_scale}, own(adafactor_scratch(t)));
  }
  void muon_direction(const MuonDirection& c) override {
    check(c), cuda::muon_direction(s_, c, own(muon_direction_scratch(c)));
  }
  void muon_update(const MuonUpdate& c) override { check(c), cuda::muon_update(s_, c, own(muon_update_scratch(c))); }
  void squared_norm_to(const SquaredNorm& c, double* squared) override {
    check(c);
    std::vector<Span> items;
    for (size_t i = 0; i < c.grads.size(); ++i) items.push_back({c.grads[i], c.sizes[i]});
    Table& t = table(items.data(), items.size() * sizeof(Span), items.size(), [&](size_t i) { return items[i].n; });
    if (t.partial == nullptr)
      t.partial =
          static_cast<double*>(d_.allocate(static_cast<size_t>(std::max<int64_t>(t.count, 1)) * sizeof(double)));
    cuda::squared_norm(s_, static_cast<const Span*>(t.items), t.pieces, t.count, t.partial, squared);
  }
  double squared_norm(const SquaredNorm& c) override {
    squared_norm_to(c, answer_);
    double v = 0;
    d_.download(&v, answer_, sizeof v);
    d_.synchronize();
    return v;
  }
  void clip_scale(const double* squared, double max_norm, float* scale) override {
    cuda::clip_scale(s_, squared, max_norm, scale);
  }

  size_t gemm_scratch(const Gemm& c) const override { return c.ends_in_relu2() ? 0 : GemmRunner::scratch(c); }
  size_t attention_scratch(const Attention& c) const override {
    return algorithm_of(c) == kCudnn ? attention_.scratch(c) : 0;
  }
  size_t attention_grad_scratch(const AttentionGrad& c) const override {
    switch (algorithm_of(c)) {
      case kCudnn:
        return attention_.scratch(c);
      case kTiles: {
        const size_t tiles = tiles_grad_scratch(c);
        if (c.prefix != nullptr) return std::max(tiles, flash_attention_grad_scratch(c));
        return tiles_always_fit(c) ? tiles : std::max(tiles, attention_.scratch(c));
      }
      case kFlash:
        return flash_attention_grad_scratch(c);
      default:
        return plain_attention_grad_scratch(c);
    }
  }
  void set_scratch(void* memory, size_t bytes) override { scratch_ = memory, scratch_bytes_ = bytes; }

 private:
  static constexpr size_t kOwn = size_t{64} << 20;  // partial sums of reductions: at most 256 rows of them
  void* own(size_t bytes) {
    require(bytes <= kOwn, "a row is too wide for the reduction's partial sums");
    return own_;
  }

  void cached(const CachedAttention& c, const float* sinks) {
    const bool tiles = cached_tiles_cover(c);
    const CachedScratch bytes = tiles ? cached_tiles_scratch(c) : cached_attention_scratch(c);
    MXT_ASSERT(bytes.done <= kMostDone);
    (tiles ? cached_tiles : cuda::cached_attention)(s_, c, own(bytes.parts), done_, sinks);
  }

  // Whether it adds is the pass's, and the plan's memory is for all of them.
  static size_t fp8_dw_product_scratch(const Fp8LinearDw& c) {
    Gemm g = cuda::fp8_linear_dw_product(c);
    g.accumulate = true;
    return GemmRunner::scratch(g);
  }

  // Rates change from step to step, the rest does not.
  template <typename T>
  Table& rated_table(std::vector<T> items) {
    std::vector<float> rates;
    for (T& t : items) {
      rates.push_back(std::exchange(t.lr, 0.0f));
      rates.push_back(std::exchange(t.weight_decay, 0.0f));
    }
    Table& t = table(items.data(), items.size() * sizeof(T), items.size(), [&](size_t i) { return items[i].n; });
    if (t.rates == nullptr)
      t.rates = static_cast<float*>(d_.allocate(std::max<size_t>(rates.size(), 1) * sizeof(float)));
    d_.upload(t.rates, rates.data(), rates.size() * sizeof(float));  // pageable: CUDA copies it aside before it returns
    return t;
  }
  template <typename C>
  static AdamWScalars scalars(const C& c) {
    AdamWScalars a{};
    a.beta1 = static_cast<float>(c.beta1);
    a.beta2 = static_cast<float>(c.beta2);
    a.one_minus_beta1 = static_cast<float>(1.0 - c.beta1);
    a.one_minus_beta2 = static_cast<float>(1.0 - c.beta2);
    a.eps = c.eps;
    a.correction1 = static_cast<float>(1.0 - std::pow(c.beta1, static_cast<double>(c.step)));
    a.correction2 = static_cast<float>(std::sqrt(1.0 - std::pow(c.beta2, static_cast<double>(c.step))));
    a.grad_scale = c.grad_scale;
    a.device_grad_scale = c.device_grad_scale;
    return a;
  }

  template <typename N>
  Table& table(const void* items, size_t bytes, size_t tensors, N size) {
    for (Table& t : tables_)
      if (t.key.size() == bytes && std::memcmp(t.key.data(), items, bytes) == 0) return t;
    Table& t = tables_.emplace_back();
    t.key.resize(bytes);
    std::memcpy(t.key.data(), items, bytes);
    std::vector<Piece> pieces;
    for (size_t i = 0; i < tensors; ++i)
      for (int64_t k = 0; k < ceil_div(size(i), kPiece); ++k)
        pieces.push_back({static_cast<int32_t>(i), static_cast<int32_t>(k)});
    t.count = static_cast<int64_t>(pieces.size());
    t.items = d_.allocate(std::max<size_t>(bytes, 1));
    t.pieces = static_cast<Piece*>(d_.allocate(std::max<size_t>(pieces.size(), 1) * sizeof(Piece)));
    d_.upload(t.items, items, bytes);
    d_.upload(t.pieces, pieces.data(), pieces.size() * sizeof(Piece));
    d_.synchronize();
    return t;
  }

  device::CudaDevice& d_;
  cudaStream_t s_;
  mutable GemmRunner gemm_;
  mutable CudnnAttention attention_;
  std::vector<Table> tables_;
  void* own_ = nullptr;
  double* answer_ = nullptr;
  float* maps_ = nullptr;  // of 8-bit states, once they are needed
  size_t plan_delta(size_t bytes) const {
    delta_planned_ = std::max(delta_planned_, bytes);
    return bytes;
  }
  // Once: the widest call was asked about before.
  void* delta_memory(size_t bytes) {
    if (bytes > delta_bytes_) {
      if (delta_ != nullptr) d_.release(delta_);
      delta_bytes_ = std::max(bytes, delta_planned_);
      delta_ = d_.allocate(delta_bytes_);
    }
    return delta_;
  }

  void* delta_ = nullptr;  // states and parts of the delta rule
  size_t delta_bytes_ = 0;
  mutable size_t delta_planned_ = 0;
  void* done_ = nullptr;  // of blocks that share an answer
  // Where the last routing put its experts' runs; settled once a kernel was launched that lets none in before the
  // routing has ended.
  const int32_t *routed_ = nullptr, *settled_ = nullptr;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Ops> make_ops(device::CudaDevice& device) { return std::make_unique<CudaOps>(device); }

}  // namespace mxt::kernels::cuda
