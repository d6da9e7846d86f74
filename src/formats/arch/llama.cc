// Llama (Touvron et al. 2023).
#include <nlohmann/json.hpp>

#include "formats/arch/families.h"

namespace mxt::formats {

void write_gguf_llama(const GgufKeys& k, const ModelConfig& c) {
  write_gguf_attention(k, c);
  k.whole("vocab_size", c.vocab_size);
  k.whole("rope.dimension_count", c.rotary());
  write_gguf_rope(k, c);
}

namespace {

void write(const ModelConfig& c, OrderedJson& j) {
  write_decoder(c, j);
  j["mlp_bias"] = c.mlp_bias;
}

}  // namespace

constinit const Family kLlama = [] {
  Family f = decoder("llama", "LlamaForCausalLM");
  f.classifier = "LlamaForSequenceClassification";
  f.vocab_size = 32000;
  f.hidden_size = 4096;
  f.intermediate_size = 11008;
  f.num_layers = f.num_heads = f.num_kv_heads = 32;
  f.kv_heads_follow = true;
  f.max_positions = 2048;
  f.reads_mlp_bias = true;
  f.bos = 1;
  f.eos = 2;
  gguf_decoder(f, "llama", write_gguf_llama);
  f.gguf_pairs = true;
  f.write = write;
  return f;
}();

}  // namespace mxt::formats
