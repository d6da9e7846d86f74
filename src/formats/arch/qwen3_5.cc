// Qwen3-Next, Qwen3.5 and 3.6: layers of gated DeltaNet with full attention between, dense or with experts.
#include <nlohmann/json.hpp>

#include "formats/arch/families.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kModules[] = {"q_proj",    "k_proj",    "v_proj",   "o_proj",    "in_proj_qkv", "in_proj_z",
                                         "in_proj_b", "in_proj_a", "out_proj", "gate_proj", "up_proj",     "down_proj"};
constexpr std::string_view kText[] = {"model."}, kWhole[] = {"model.language_model."};

using Turn = WeightName::Turn;

constexpr WeightName number(std::string_view gguf, std::string_view hf, bool decay) {  // one a head
  WeightName w{gguf, hf, Extent::kDeltaHeads, Extent::kNone, Turn::kValueNumbers};
  w.decay = decay;
  w.whole = true;
  return w;
}
constexpr WeightName taps() {
  WeightName w{"ssm_conv1d", "linear_attn.conv1d", Extent::kDeltaQkv, Extent::kDeltaTaps, Turn::kQkvHeads};
  w.taps = true;
  return w;
}
constexpr WeightName kMixers[] = {
    zero_centred("attn_norm", "input_layernorm", Extent::kWidth),
    zero_centred("post_attention_norm", "post_attention_layernorm", Extent::kWidth),
    {"attn_q", "self_attn.q_proj", Extent::kGatedQuery, Extent::kWidth},
    {"attn_k", "self_attn.k_proj", Extent::kKeyValue, Extent::kWidth},
    {"attn_v", "self_attn.v_proj", Extent::kKeyValue, Extent::kWidth},
    {"attn_output", "self_attn.o_proj", Extent::kWidth, Extent::kQuery},
    zero_centred("attn_q_norm", "self_attn.q_norm", Extent::kHeadDim),
    zero_centred("attn_k_norm", "self_attn.k_norm", Extent::kHeadDim),
    {"attn_qkv", "linear_attn.in_proj_qkv", Extent::kDeltaQkv, Extent::kWidth, Turn::kQkvHeads},
    {"attn_gate", "linear_attn.in_proj_z", Extent::kDeltaValues, Extent::kWidth, Turn::kValueHeads},
    {"ssm_beta", "linear_attn.in_proj_b", Extent::kDeltaHeads, Extent::kWidth, Turn::kValueNumbers},
    {"ssm_alpha", "linear_attn.in_proj_a", Extent::kDeltaHeads, Extent::kWidth, Turn::kValueNumbers},
    taps(),
    number("ssm_a", "linear_attn.A_log", true),
    number("ssm_dt.bias", "linear_attn.dt_bias", false),
    {"ssm_norm", "linear_attn.norm", Extent::kDeltaHeadDim},
    {"ssm_out", "linear_attn.out_proj", Extent::kWidth, Extent::kDeltaValues, Turn::kValueColumns},
};
constexpr auto kBlock = joined(kMixers, {{"ffn_gate", "mlp.gate_proj", Extent::kInner, Extent::kWidth},
                                         {"ffn_up", "mlp.up_proj", Extent::kInner, Extent::kWidth},
                                         {"ffn_down", "mlp.down_proj", Extent::kWidth, Extent::kInner}});
constexpr auto kMoeBlock =
    joined(kMixers, {{"ffn_gate_inp", "mlp.gate", Extent::kExperts, Extent::kWidth},
                     {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", Extent::kOne, Extent::kWidth},
                     {"ffn_gate_shexp", "mlp.shared_expert.gate_proj", Extent::kSharedInner, Extent::kWidth},
                     {"ffn_up_shexp", "mlp.shared_expert.up_proj", Extent::kSharedInner, Extent::kWidth},
                     {"ffn_down_shexp", "mlp.shared_expert.down_proj", Extent::kWidth, Extent::kSharedInner}});
constexpr WeightName kTextTop[] = {{"token_embd", "model.embed_tokens", Extent::kVocab, Extent::kWidth},
                                   zero_centred("output_norm", "model.norm", Extent::kWidth),
                                   {"output", "lm_head", Extent::kVocab, Extent::kWidth}};
constexpr WeightName kWholeTop[] = {{"token_embd", "model.language_model.embed_tokens", Extent::kVocab, Extent::kWidth},
                                    zero_centred("output_norm", "model.language_model.norm", Extent::kWidth),
                                    {"output", "lm_head", Extent::kVocab, Extent::kWidth}};

constexpr int64_t kInterval = 4;  // every so many layers one attends, where a file does not say
constexpr int64_t kSections[] = {11, 11, 10};

void read_gguf(const ArchKeys& k, ModelConfig& c) {
  c.linear_conv_kernel = k.need("ssm.conv_kernel", 1, 64);
  c.linear_key_head_dim = k.need("ssm.state_size", 1, kMaxCount);
  c.linear_key_heads = k.need("ssm.group_count", 1, kMaxCount);
  c.linear_value_heads = k.need("ssm.time_step_rank", 1, kMaxCount);
  const int64_t values = k.need("ssm.inner_size", 1, kMaxWidth);
  if (values % c.linear_value_heads != 0 || c.linear_value_heads % c.linear_key_heads != 0)
    fail_input("{}: {} values, {} heads of them and {} of keys do not divide: the file is damaged", k.file().path(),
               values, c.linear_value_heads, c.linear_key_heads);
  c.linear_value_head_dim = values / c.linear_value_heads;
  if (const auto sections = k.list("rope.dimension_sections")) {
    c.rope_scaling.mrope_section.assign(sections->begin(),
                                        sections->begin() + std::min<ptrdiff_t>(3, std::ssize(*sections)));
    // What a converter puts where the model does not say it need not fit.
    int64_t sum = 0;
    for (int64_t s : c.rope_scaling.mrope_section) sum += s < 0 || s > c.head_dim ? c.head_dim : s;
    if (sum != c.rotary() / 2) c.rope_scaling.mrope_section.clear();
  }
  const auto listed = k.list("attention.recurrent_layers");
  if (listed && std::ssize(*listed) < c.num_layers)
    fail_input("{}: key \"{}\" lists {} of {} layers", k.file().path(), k.key("attention.recurrent_layers"),
               listed->size(), c.num_layers);
  const int64_t interval = k.find("full_attention_interval", 1, kMaxLayers).value_or(kInterval);
  for (int64_t i = 0; i < c.num_layers; ++i)
    if (listed ? (*listed)[static_cast<size_t>(i)] != 0 : (i + 1) % interval != 0)
      c.layers[static_cast<size_t>(i)].mixer = LayerSpec::Mixer::kGatedDelta;
}

void read_gguf_moe(const ArchKeys& k, ModelConfig& c) {
  read_gguf(k, c);
  c.num_experts = k.need("expert_count", 1, kMaxCount);
  c.experts_per_token = k.need("expert_used_count", 1, kMaxCount);
  c.moe_intermediate_size = k.need("expert_feed_forward_length", 1, kMaxWidth);
  c.shared_expert_intermediate_size = k.need("expert_shared_feed_forward_length", 1, kMaxWidth);
  c.norm_topk_prob = true;
  c.router_aux_loss_coef = 0.001;
  c.stacked_experts = true;  // as a folder of such a model has them
  if (c.intermediate_size == 0) c.intermediate_size = c.moe_intermediate_size;
  for (LayerSpec& l : c.layers) l.mlp = LayerSpec::Mlp::kExperts;
}

bool attends(const ModelConfig& c, int64_t i) {
  return c.layers[static_cast<size_t>(i)].mixer == LayerSpec::Mixer::kAttention;
}

// Every so many layers one attends; 0 where there is no such number.
int64_t interval_of(const ModelConfig& c) {
  int64_t first = 0;
  while (first < c.num_layers && !attends(c, first)) ++first;
  for (int64_t i = 0; i < c.num_layers; ++i)
    if (attends(c, i) != ((i + 1) % (first + 1) == 0)) return 0;
  return first + 1;
}

void write_gguf(const GgufKeys& k, const ModelConfig& c) {
  write_gguf_attention(k, c);
  k.whole("rope.dimension_count", c.rotary());
  write_gguf_sections(k, c, kSections);
  write_gguf_rope(k, c);
  k.whole("ssm.conv_kernel", c.linear_conv_kernel);
  k.whole("ssm.state_size", c.linear_key_head_dim);
  k.whole("ssm.group_count", c.linear_key_heads);
  k.whole("ssm.time_step_rank", c.linear_value_heads);
  k.whole("ssm.inner_size", c.linear_value_heads * c.linear_value_head_dim);
  std::vector<uint64_t> recurrent;
  for (int64_t i = 0; i < c.num_layers; ++i) recurrent.push_back(!attends(c, i));
  k.switches("attention.recurrent_layers", std::move(recurrent));
  // Readers from before that list go by this one.
  if (const int64_t n = interval_of(c); n > 0) k.whole("full_attention_interval", n);
}

void write_gguf_moe(const GgufKeys& k, const ModelConfig& c) {
  write_gguf(k, c);
  k.whole("expert_count", c.num_experts);
  k.whole("expert_used_count", c.experts_per_token);
  k.whole("expert_feed_forward_length", c.moe_intermediate_size);
  k.whole("expert_shared_feed_forward_length", c.shared_expert_intermediate_size);
}

std::string lacks(const ModelConfig& c) {
  if (c.attention_bias) return "attention_bias of Qwen3.5";
  if (c.linear_key_head_dim != c.linear_value_head_dim)
    return fmt::format("linear_value_head_dim {} beside linear_key_head_dim {}", c.linear_value_head_dim,
                       c.linear_key_head_dim);
  if (c.linear_value_heads % c.linear_key_heads != 0)
    return fmt::format("{} linear value heads for {} key heads", c.linear_value_heads, c.linear_key_heads);
  return gguf_lacks_activation(c);
}

std::string lacks_moe(const ModelConfig& c) {
  if (!c.norm_topk_prob) return "norm_topk_prob: false";
  if (c.shared_expert_intermediate_size == 0) return "experts without a shared one";
  for (const LayerSpec& l : c.layers)
    if (l.mlp != LayerSpec::Mlp::kExperts) return "experts in some layers alone";
  return lacks(c);
}

void write(const ModelConfig& c, OrderedJson& j) {
  write_decoder(c, j);
  write_rope_parameters(c, j);
  j["linear_conv_kernel_dim"] = c.linear_conv_kernel;
  j["linear_key_head_dim"] = c.linear_key_head_dim;
  j["linear_value_head_dim"] = c.linear_value_head_dim;
  j["linear_num_key_heads"] = c.linear_key_heads;
  j["linear_num_value_heads"] = c.linear_value_heads;
  OrderedJson& types = j["layer_types"] = OrderedJson::array();
  for (int64_t i = 0; i < c.num_layers; ++i) types.push_back(attends(c, i) ? "full_attention" : "linear_attention");
}

void write_moe(const ModelConfig& c, OrderedJson& j) {
  write(c, j);
  write_experts(c, j);
  j["shared_expert_intermediate_size"] = c.shared_expert_intermediate_size;
}

constexpr void gguf(Family& f) {
  gguf_decoder(f, "qwen35", write_gguf);
  f.gguf_block = kBlock;
  f.gguf_top = kTextTop;
  f.gguf_lacks = lacks;
  f.read_gguf = read_gguf;
  f.write = write;
}

constexpr void gguf_moe(Family& f) {
  gguf(f);
  f.gguf = "qwen35moe";
  f.gguf_block = kMoeBlock;
  f.gguf_experts = kDecoderExperts;
  f.write_gguf = write_gguf_moe;
  f.gguf_lacks = lacks_moe;
  f.read_gguf = read_gguf_moe;
  f.write = write_moe;
}

// The whole model's files hold the text model under a name of its own; either class reads the other's.
constexpr Family whole(Family f) {
  f.prefix = kWhole[0];
  f.other_prefixes = kText;
  f.blocks = "model.language_model.layers.";
  f.embedding = "model.language_model.embed_tokens.weight";
  f.optional_vision = true;
  f.gguf_top = kWholeTop;
  return f;
}

constexpr Family hybrid(std::string_view type, std::string_view architecture) {
  Family f = decoder(type, architecture);
  f.max_positions = 32768;
  f.head_dim = 256;
  f.partial_rotary_factor = 0.25;
  f.linear_attention = true;
  f.lora_modules = kModules;
  f.other_prefixes = kWhole;
  return f;
}

constexpr void experts(Family& f, int64_t experts, int64_t chosen) {
  f.hidden_size = 2048;
  f.intermediate_size = 5632;
  f.num_heads = 16;
  f.num_kv_heads = 2;
  f.num_experts = experts;
  f.stacked_adapters = true;
  f.experts_per_token = chosen;
  f.moe_intermediate_size = f.shared_expert_intermediate_size = 512;
  f.norm_topk_prob = true;
}

constexpr Family qwen3_5(std::string_view type, std::string_view architecture) {
  Family f = hybrid(type, architecture);
  f.vocab_size = 248320;
  f.hidden_size = 4096;
  f.intermediate_size = 12288;
  f.num_layers = 32;
  f.num_heads = 16;
  f.num_kv_heads = 4;
  gguf(f);
  return f;
}

constexpr Family qwen3_5_moe(std::string_view type, std::string_view architecture) {
  Family f = hybrid(type, architecture);
  f.vocab_size = 248320;
  f.num_layers = 40;
  experts(f, 256, 8);
  gguf_moe(f);
  return f;
}

}  // namespace

constinit const Family kQwen3Next = [] {
  Family f = hybrid("qwen3_next", "Qwen3NextForCausalLM");
  f.vocab_size = 151936;
  f.num_layers = 48;
  experts(f, 512, 10);
  return f;
}();

constinit const Family kQwen35 = whole(qwen3_5("qwen3_5", "Qwen3_5ForConditionalGeneration"));
constinit const Family kQwen35Text = [] {
  Family f = qwen3_5("qwen3_5_text", "Qwen3_5ForCausalLM");
  f.classifier = "Qwen3_5TextForSequenceClassification";
  return f;
}();
constinit const Family kQwen35Moe = whole(qwen3_5_moe("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"));
constinit const Family kQwen35MoeText = qwen3_5_moe("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM");

}  // namespace mxt::formats
