// GPT-2 (Radford et al. 2019), and nanoGPT's variant of it without biases (`"bias": false`).
#include "formats/arch/families.h"
#include "formats/config/keys.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kModules[] = {"c_attn", "c_proj", "c_fc"};
constexpr WeightName kBlock[] = {
    {"attn_norm", "ln_1", Extent::kWidth},
    {"attn_qkv", "attn.c_attn", Extent::kWidth, Extent::kQkv},
    {"attn_output", "attn.c_proj", Extent::kWidth, Extent::kWidth},
    {"ffn_norm", "ln_2", Extent::kWidth},
    {"ffn_up", "mlp.c_fc", Extent::kWidth, Extent::kInner},
    {"ffn_down", "mlp.c_proj", Extent::kInner, Extent::kWidth},
};
constexpr WeightName kTop[] = {{"token_embd", "transformer.wte", Extent::kVocab, Extent::kWidth},
                               {"position_embd", "transformer.wpe", Extent::kPositions, Extent::kWidth},
                               {"output_norm", "transformer.ln_f", Extent::kWidth},
                               {"output", "lm_head", Extent::kVocab, Extent::kWidth}};

void read(const Keys& k, ModelConfig& c) {
  c.scale_attn_by_layer = k.boolean({"scale_attn_by_inverse_layer_idx"}, false);
  c.scale_attn = k.boolean({"scale_attn_weights"}, true);
}

void write(const ModelConfig& c, OrderedJson& j) {
  j["vocab_size"] = c.vocab_size;
  j["n_positions"] = c.max_positions;
  j["n_embd"] = c.hidden_size;
  j["n_layer"] = c.num_layers;
  j["n_head"] = c.num_heads;
  j["n_inner"] = c.intermediate_size;
  j["activation_function"] = c.activation;
  j["layer_norm_epsilon"] = c.norm_eps;
  j["resid_pdrop"] = c.resid_pdrop;
  j["embd_pdrop"] = c.embd_pdrop;
  j["attn_pdrop"] = c.attn_pdrop;
}

void write_gguf(const GgufKeys& k, const ModelConfig& c) { k.real("attention.layer_norm_epsilon", c.norm_eps); }

std::string lacks(const ModelConfig& c) {
  if (!c.scale_attn) return "scale_attn_weights: false";
  if (c.scale_attn_by_layer) return "scale_attn_by_inverse_layer_idx";
  if (c.activation != "gelu_new" && c.activation != "gelu_pytorch_tanh")  // a GGUF's is the one by tanh
    return fmt::format("the activation {} of this architecture", c.activation);
  return "";
}

}  // namespace

constinit const Family kGpt2 = [] {
  Family f{};
  f.model_type = "gpt2";
  f.architecture = "GPT2LMHeadModel";
  f.classifier = "GPT2ForSequenceClassification";
  f.vocab_size = 50257;
  f.hidden_size = 768;
  f.num_layers = f.num_heads = 12;
  f.kv_heads_follow = true;
  f.max_positions = 1024;
  f.norm_eps = 1e-5;
  f.tie_embeddings = true;
  f.always_bias = true;
  f.activation = "gelu_new";
  f.dropout = 0.1;
  f.bos = f.eos = 50256;
  f.norm_eps_key = "layer_norm_epsilon";
  f.activation_key = "activation_function";
  f.inner_key = "n_inner";
  f.read = read;
  f.prefix = "transformer.";
  f.blocks = "transformer.h.";
  f.embedding = "transformer.wte.weight";
  f.lora_modules = kModules;
  f.conv1d = f.heads_fill_width = true;
  f.gguf = "gpt2";
  f.gguf_block = kBlock;
  f.gguf_top = kTop;
  f.gguf_eps_key = "attention.layer_norm_epsilon";
  f.write_gguf = write_gguf;
  f.gguf_lacks = lacks;
  f.write = write;
  return f;
}();

}  // namespace mxt::formats
