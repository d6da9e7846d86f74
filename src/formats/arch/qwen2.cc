// Qwen2 and Qwen2.5 (Yang et al. 2024): biases on q, k and v, never on o, whatever the file says.
#include "formats/arch/families.h"

namespace mxt::formats {
namespace {

void write_gguf(const GgufKeys& k, const ModelConfig& c) {
  write_gguf_attention(k, c, false);
  write_gguf_rope(k, c);
}

}  // namespace

constinit const Family kQwen2 = [] {
  Family f = decoder("qwen2", "Qwen2ForCausalLM");
  f.classifier = "Qwen2ForSequenceClassification";
  f.vocab_size = 151936;
  f.hidden_size = 4096;
  f.intermediate_size = 22016;
  f.num_layers = f.num_heads = f.num_kv_heads = 32;
  f.max_positions = 32768;
  f.attention_bias = true;
  f.reads_attention_bias = false;
  f.windows = Windows::kSwitch;
  gguf_decoder(f, "qwen2", write_gguf);
  return f;
}();

}  // namespace mxt::formats
