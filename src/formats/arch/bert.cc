// BERT (Devlin et al. 2018), for embeddings.
#include "formats/arch/families.h"
#include "formats/config/keys.h"

namespace mxt::formats {
namespace {

void read(const Keys& k, ModelConfig& c) { c.type_vocab_size = k.integer({"type_vocab_size"}, 2, 1, kMaxCount); }

}  // namespace

constinit const Family kBert = [] {
  Family f{};
  f.model_type = "bert";
  f.architecture = "BertModel";
  f.vocab_size = 30522;
  f.hidden_size = 768;
  f.intermediate_size = 3072;
  f.num_layers = f.num_heads = 12;
  f.kv_heads_follow = true;
  f.max_positions = 512;
  f.norm_eps = 1e-12;
  f.tie_embeddings = true;
  f.always_bias = true;
  f.activation = "gelu";
  f.dropout = 0.1;
  f.pad = 0;
  f.norm_eps_key = "layer_norm_eps";
  f.read = read;
  f.prefix = "bert.";
  f.blocks = "bert.encoder.layer.";
  f.embedding = "bert.embeddings.word_embeddings.weight";
  f.heads_fill_width = true;
  f.encoder = true;
  return f;
}();

}  // namespace mxt::formats
