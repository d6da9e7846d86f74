// Mistral 7B (Jiang et al. 2023): Llama's layout; a window, where there is one, slides over every layer. llama.cpp
// knows it as a llama.
#include "formats/arch/families.h"

namespace mxt::formats {

constinit const Family kMistral = [] {
  Family f = decoder("mistral", "MistralForCausalLM");
  f.classifier = "MistralForSequenceClassification";
  f.vocab_size = 32000;
  f.hidden_size = 4096;
  f.intermediate_size = 14336;
  f.num_layers = f.num_heads = 32;
  f.num_kv_heads = 8;
  f.max_positions = 131072;
  f.reads_attention_bias = false;
  f.bos = 1;
  f.eos = 2;
  f.windows = Windows::kAll;
  gguf_decoder(f, "llama", write_gguf_llama);
  f.gguf_pairs = true;
  return f;
}();

}  // namespace mxt::formats
