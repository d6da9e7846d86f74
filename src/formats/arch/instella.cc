// Instella-3B (AMD). Its class ships with the model: the defaults are Instella-3B's own sizes.
#include "formats/arch/families.h"

namespace mxt::formats {

constinit const Family kInstella = [] {
  Family f = decoder("instella", "InstellaForCausalLM");
  f.own_code = true;
  f.vocab_size = 50304;
  f.hidden_size = 2560;
  f.intermediate_size = 6912;
  f.num_layers = 36;
  f.num_heads = f.num_kv_heads = 32;
  f.kv_heads_follow = true;
  f.max_positions = 4096;
  f.norm_eps = 1e-5;
  f.reads_mlp_bias = true;
  f.eos = 0;
  f.pad = 1;
  return f;
}();

}  // namespace mxt::formats
