#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/arch/families.h"

namespace mxt::formats {
namespace {

std::string_view torch_name(DType t) {
  switch (t) {
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    default:
      return "float32";
  }
}

OrderedJson id_or_null(int64_t id) { return id < 0 ? OrderedJson(nullptr) : OrderedJson(id); }

// All of a GGUF's: what is its eot or eom has no other place in a configuration.
OrderedJson eos_of(const ModelConfig& c) {
  std::vector<int64_t> ends = c.eos;
  for (const int64_t id : c.end_of_turn)
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  if (ends.empty()) return nullptr;
  return ends.size() == 1 ? OrderedJson(ends[0]) : OrderedJson(ends);
}

// The spelling from before transformers 5 (rope_scaling beside rope_theta): both read it.
OrderedJson scaling_of(const RopeScaling& r) {
  using Kind = RopeScaling::Kind;
  if (r.kind == Kind::kNone) return nullptr;
  if (r.kind == Kind::kDivisors)
    fail_missing("a config.json cannot state this GGUF file's rope_freqs.weight: begin with the model's folder");
  if (r.kind == Kind::kLongRope) {
    OrderedJson j{{"rope_type", "longrope"},
                  {"short_factor", r.short_factor},
                  {"long_factor", r.long_factor},
                  {"original_max_position_embeddings", r.original_max_positions}};
    if (r.attention_factor) j["attention_factor"] = *r.attention_factor;
    return j;
  }
  OrderedJson j;
  const char* names[] = {"default", "linear", "dynamic", "yarn", "llama3"};
  j["rope_type"] = names[static_cast<int>(r.kind)];
  j["factor"] = r.factor;
  if (r.original_max_positions > 0) j["original_max_position_embeddings"] = r.original_max_positions;
  if (r.kind == Kind::kLlama3) {
    j["low_freq_factor"] = r.low_freq_factor;
    j["high_freq_factor"] = r.high_freq_factor;
  }
  if (r.kind == Kind::kYarn) {
    j["beta_fast"] = r.beta_fast;
    j["beta_slow"] = r.beta_slow;
    if (r.attention_factor) j["attention_factor"] = *r.attention_factor;
    if (!r.truncate) j["truncate"] = false;
  }
  return j;
}

// As these families' classes read it; those with keys of their own write them themselves.
void write_windows(const ModelConfig& c, OrderedJson& j) {
  const int64_t window = sliding_window(c);
  if (window == 0 || c.family->gguf_windows) return;
  j["sliding_window"] = window;
  if (c.family->windows == Windows::kAll) return;
  j["use_sliding_window"] = true;
  for (const LayerSpec& l : c.layers) j["layer_types"].push_back(l.window > 0 ? "sliding_attention" : "full_attention");
}

}  // namespace

void write_decoder(const ModelConfig& c, OrderedJson& j) {
  j["vocab_size"] = c.vocab_size;
  j["hidden_size"] = c.hidden_size;
  j["intermediate_size"] = c.intermediate_size;
  j["num_hidden_layers"] = c.num_layers;
  j["num_attention_heads"] = c.num_heads;
  j["num_key_value_heads"] = c.num_kv_heads;
  j["head_dim"] = c.head_dim;
  j["hidden_act"] = c.activation;
  j["max_position_embeddings"] = c.max_positions;
  j["rms_norm_eps"] = c.norm_eps;
  j["rope_theta"] = c.rope_theta;
  j["rope_scaling"] = scaling_of(c.rope_scaling);
  j["attention_bias"] = c.attention_bias;
  j["attention_dropout"] = c.attn_pdrop;
  write_windows(c, j);
}

void write_rope_parameters(const ModelConfig& c, OrderedJson& j) {
  OrderedJson rope = j["rope_scaling"].is_object() ? j["rope_scaling"] : OrderedJson{{"rope_type", "default"}};
  rope["rope_theta"] = c.rope_theta;
  rope["partial_rotary_factor"] = c.partial_rotary_factor;
  if (!c.rope_scaling.mrope_section.empty()) {
    rope["mrope_section"] = c.rope_scaling.mrope_section;
    rope["mrope_interleaved"] = true;
  }
  j.erase("rope_scaling");
  j.erase("rope_theta");
  j["rope_parameters"] = std::move(rope);
}

void write_partial_rotary(const ModelConfig& c, OrderedJson& j) {
  j["partial_rotary_factor"] = c.partial_rotary_factor;
  if (c.rope_scaling.original_max_positions > 0)
    j["original_max_position_embeddings"] = c.rope_scaling.original_max_positions;
  j["sliding_window"] = c.layers[0].window > 0 ? OrderedJson(c.layers[0].window) : OrderedJson(nullptr);
}

// A GGUF with experts has them in every layer.
void write_experts(const ModelConfig& c, OrderedJson& j) {
  j["num_experts"] = c.num_experts;
  j["num_experts_per_tok"] = c.experts_per_token;
  j["moe_intermediate_size"] = c.moe_intermediate_size;
  j["norm_topk_prob"] = c.norm_topk_prob;
  j["decoder_sparse_step"] = 1;
  j["mlp_only_layers"] = OrderedJson::array();
  j["router_aux_loss_coef"] = c.router_aux_loss_coef;
}

OrderedJson to_hf_config(const ModelConfig& c, std::optional<DType> dtype) {
  OrderedJson j;
  if (!dtype) dtype = c.dtype;
  if (c.raw) {
    j = *c.raw;
    j.erase("quantization_config");
    j["architectures"] = OrderedJson::array({c.architecture});
    j["model_type"] = c.model_type;
  } else {
    MXT_ASSERT(c.family && c.family->write);  // what comes without raw comes from a GGUF
    j["architectures"] = OrderedJson::array({c.architecture});
    j["model_type"] = c.model_type;
    c.family->write(c, j);
    j["initializer_range"] = c.initializer_range;
    j["tie_word_embeddings"] = c.tie_embeddings;
    j["bos_token_id"] = id_or_null(c.bos);
    j["eos_token_id"] = eos_of(c);
    j["pad_token_id"] = id_or_null(c.pad);
    j["use_cache"] = true;
  }
  if (dtype) {
    const bool new_name = j.contains("dtype") && !j.contains("torch_dtype");
    j[new_name ? "dtype" : "torch_dtype"] = torch_name(*dtype);
    if (j.contains("dtype")) j["dtype"] = torch_name(*dtype);
  }
  return j;
}

}  // namespace mxt::formats
