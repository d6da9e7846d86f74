// nanochat (Karpathy 2025): as transformers holds it, and its form of 2026, which transformers does not know.
#include "formats/nanochat.h"
#include "formats/arch/families.h"
#include "formats/config/keys.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kModules[] = {"q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2"};
constexpr std::string_view kOwnKeys[] = {"final_logit_softcapping"};

// window_pattern is repeated over the layers, and the last one sees everything. A short window reaches short_window
// tokens back, so it sees one more; nanochat's own is a quarter of the sequence in whole 128s.
void read_windows(const Keys& k, ModelConfig& c) {
  const std::string pattern = k.text({"window_pattern"}, "SSSL");
  if (pattern.empty() || pattern.find_first_not_of("SL") != std::string::npos)
    fail_input("{}: \"window_pattern\" is \"{}\": letters S (short) and L (all) are wanted", k.source(), pattern);
  const int64_t quarter = (c.max_positions + 511) / 512 * 128;
  const int64_t window = k.integer({"short_window"}, quarter, 1, kMaxTokens) + 1;
  for (size_t i = 0; i + 1 < c.layers.size(); ++i)
    if (pattern[i % pattern.size()] == 'S' && window < c.max_positions) c.layers[i].window = window;
}

NanochatParts read_parts(const Keys& k) {
  NanochatParts p;
  p.value_embeddings = k.boolean({"value_embeddings"}, true);
  p.residual_lambdas = k.boolean({"residual_lambdas"}, true);
  p.smear = k.boolean({"smear"}, true);
  p.backout = k.boolean({"backout"}, true);
  p.qk_scale = k.number({"qk_scale"}, p.qk_scale, 1e-3, 1e3);
  return p;
}

void read_v2(const Keys& k, ModelConfig& c) {
  read_windows(k, c);
  const NanochatParts p = read_parts(k);
  if (p.smear && c.hidden_size < 24) fail_input("{}: \"smear\" reads 24 of {} channels", k.source(), c.hidden_size);
  if (p.value_embeddings && c.hidden_size < 12)
    fail_input("{}: \"value_embeddings\" reads 12 of {} channels", k.source(), c.hidden_size);
}

}  // namespace

NanochatParts nanochat_parts(const ModelConfig& config) {
  return config.raw ? read_parts(Keys(*config.raw, "config.json")) : NanochatParts{};
}

constinit const Family kNanochat = [] {
  Family f = decoder("nanochat", "NanoChatForCausalLM");
  f.own_code = true;
  f.vocab_size = 50304;
  f.hidden_size = 768;
  f.intermediate_size = 8192;
  f.num_layers = 12;
  f.num_heads = f.num_kv_heads = 6;
  f.kv_heads_follow = true;
  f.max_positions = 2048;
  f.activation = "relu2";
  f.bos = 0;
  f.eos = f.pad = 1;
  f.softcap = 15.0;
  f.own_keys = kOwnKeys;
  f.lora_modules = kModules;
  return f;
}();

constinit const Family kNanochatV2 = [] {
  Family f = decoder("nanochat_v2", "NanoChatV2ForCausalLM");
  f.own_code = true;
  f.vocab_size = 32768;
  f.hidden_size = 768;
  f.intermediate_size = 0;
  f.num_layers = 12;
  f.num_heads = f.num_kv_heads = 6;
  f.kv_heads_follow = true;
  f.max_positions = 2048;
  f.norm_eps = 1.1920929e-07;  // fp32's, whatever the activations are
  f.rope_theta = 100000;
  f.activation = "relu2";
  f.softcap = 15.0;
  f.own_keys = kOwnKeys;
  f.lora_modules = kModules;
  f.read = read_v2;
  return f;
}();

}  // namespace mxt::formats
