// nanochat as of 2026 (Karpathy): the older form, and beside it smeared embeddings, residual streams mixed by learned
// scalars, value embeddings behind gates, scaled queries and keys, windows, and the middle of the stream taken out
// again.
#include <cmath>

#include "base/error.h"
#include "formats/nanochat.h"
#include "models/decoder.h"

namespace mxt::models {

using namespace graph;

namespace {

constexpr int64_t kSmearTaps = 24, kValueTaps = 12;  // channels that a gate reads
constexpr float kValueGain = 3, kGateInit = 0.02f;

class Nanochat {
 public:
  Nanochat(const formats::ModelConfig& config, const BuildOptions& options)
      : d_(config, options), g_(d_.g), c_(config), parts_(formats::nanochat_parts(config)) {}

  Graph run() {
    using Kind = formats::RopeScaling::Kind;
    if (c_.attention_bias) fail_missing("nanochat_v2 models with \"attention_bias\" are not built in");
    if (c_.rope_scaling.kind == Kind::kYarn || c_.rope_scaling.kind == Kind::kLongRope)
      fail_missing("nanochat_v2 models with YaRN or LongRoPE are not built in");
    d_.padding = -1;  // nanochat's own table has none
    Stream s = d_.embed();
    d_.param(d_.table).init_std = 0.8f;
    for (float& x : g_.rope_sin) x = -x;  // heads turn the other way
    ValueId x = smeared(d_.rms_norm(s, "", ""));
    const ValueId first = x;
    const ValueId keep = parts_.residual_lambdas ? lambdas("resid_lambdas", 1.15f, 1.05f) : kNone;
    const ValueId back = parts_.residual_lambdas ? lambdas("x0_lambdas", 0.20f, 0.05f) : kNone;
    ValueId middle = kNone;
    for (int64_t i = 0; i < c_.num_layers; ++i) {
      if (parts_.residual_lambdas) x = mix(g_, x, first, {i, i}, back, keep);
      x = layer(x, i);
      if (i == c_.num_layers / 2) middle = x;
    }
    if (parts_.backout) x = mix(g_, x, middle, {-1, 0, -1.0f}, scalar("backout_lambda", 0.2f));
    d_.finish(d_.rms_norm(x, "", ""), d_.table);
    if (options_head() != kNone) d_.param(options_head()).init_std = 0.001f;
    return std::move(g_);
  }

 private:
  // The learned vectors stay fp32, as there: a value a layer between first and last, or one.
  ValueId vector(const std::string& name, std::vector<float> init) {
    Param p;
    p.name = name;
    p.kind = ParamKind::kBias;
    p.cols = static_cast<int64_t>(init.size());
    p.segments = {{"model." + name, 0, p.cols}};
    p.trainable = d_.o.train_base;
    p.init_values = std::move(init);
    return g_.params[static_cast<size_t>(g_.add_param(std::move(p), DType::kF32))].value;
  }
  ValueId scalar(const std::string& name, float init) { return vector(name, {init}); }
  ValueId lambdas(const std::string& name, float first, float last) {
    std::vector<float> init;
    const auto steps = static_cast<float>(std::max<int64_t>(c_.num_layers - 1, 1));
    for (int64_t i = 0; i < c_.num_layers; ++i) init.push_back(first + (last - first) * static_cast<float>(i) / steps);
    return vector(name, std::move(init));
  }
  ValueId gate_weight(const std::string& ours, const std::string& theirs, int64_t groups, int64_t taps) {
    const ValueId w = d_.matrix(ours, taps, {{theirs, 0, groups}}, 0);
    d_.param(w).init_high = kGateInit;
    return w;
  }

  // x_t += λ·σ(w·x_t)·x_{t−1}, of the embeddings as they are before it; a document's first token has none before it.
  ValueId smeared(ValueId x) {
    if (!parts_.smear) return x;
    const ValueId before = d_.rms_norm(embedding(g_, d_.table, RowOf::kPrevious), "", "");
    const ValueId w = gate_weight("smear_gate", "model.smear_gate.weight", 1, kSmearTaps);
    GateOp a;
    a.inside = true;
    return gate(g_, x, x, w, before, a, scalar("smear_lambda", 0));
  }

  ValueId layer(ValueId x, int64_t i) {
    const float root = 1.0f / std::sqrt(static_cast<float>(d_.width));  // of a uniform draw within √3 times that
    const ValueId h = d_.rms_norm(x, "", "");
    AttentionStyle style{.norm = QkNorm::kWeightless};  // commutes with turning
    style.qk_scale = static_cast<float>(parts_.qk_scale);
    style.std = root;
    style.out_std = 0;
    if (parts_.value_embeddings && i % 2 == (c_.num_layers - 1) % 2)
      style.values = [&, h](ValueId qkv) { return with_values(qkv, h, i); };
    Stream s{x, d_.attention(h, i, style)};
    const ValueId branch = d_.mlp(d_.rms_norm(s, "", ""), i, ActKind::kRelu2, 0.4f * root, 0);
    return add(g_, s.h, branch);
  }

  // v += 3·σ(w·h)·(the token's row of the layer's table), a gate for each key/value head.
  ValueId with_values(ValueId qkv, ValueId h, int64_t i) {
    const std::string ours = fmt::format("layers.{}.", i);
    const ValueId table = d_.matrix(ours + "value_embed", d_.key_value,
                                    {{fmt::format("model.value_embeds.{}.weight", i), 0, c_.vocab_size}},
                                    1.0f / std::sqrt(static_cast<float>(d_.width)));
    d_.param(table).kind = ParamKind::kEmbedding;
    const ValueId w = gate_weight(ours + "ve_gate", fmt::format("model.layers.{}.self_attn.ve_gate.weight", i),
                                  c_.num_kv_heads, kValueTaps);
    GateOp a;
    a.col = d_.query + d_.key_value;
    a.groups = c_.num_kv_heads;
    a.by = kValueGain;
    return gate(g_, qkv, h, w, embedding(g_, table), a);
  }

  ValueId options_head() const {
    for (const Param& p : g_.params)
      if (p.name == "head") return p.value;
    return kNone;
  }

  Decoder d_;
  Graph& g_;
  const formats::ModelConfig& c_;
  const formats::NanochatParts parts_;
};

}  // namespace

Graph nanochat_v2(const formats::ModelConfig& c, const BuildOptions& options) {
  if (c.activation != "relu2")
    fail_missing("nanochat models with \"hidden_act\": \"{}\" are not built in: relu2 is", c.activation);
  return Nanochat(c, options).run();
}

}  // namespace mxt::models
