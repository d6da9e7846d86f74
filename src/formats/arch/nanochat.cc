// nanochat as transformers holds it.
#include "formats/arch/families.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kModules[] = {"q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2"};
constexpr std::string_view kOwnKeys[] = {"final_logit_softcapping"};

}  // namespace

constinit const Family kNanochat = [] {
  Family f = decoder("nanochat", "NanoChatForCausalLM");
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

}  // namespace mxt::formats
