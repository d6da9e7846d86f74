// A family of models as it stands on disk: what transformers' class is called and defaults to, which keys it reads,
// what its weights are called in a Hugging Face folder and in a GGUF. One file of arch/ each; `models/` holds the
// graph.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "formats/model_config.h"

namespace mxt::formats {

class ArchKeys;
class GgufKeys;
class Keys;

// A side of a weight, as the config sizes it.
enum class Extent : uint8_t {
  kNone,
  kVocab,
  kPositions,
  kWidth,
  kHeadDim,
  kHeads,
  kQuery,     // num_heads · head_dim
  kKeyValue,  // num_kv_heads · head_dim
  kQkv,       // query, key and value side by side
  kInner,     // intermediate_size
  kGateUp,    // twice that
  kExperts,
  kExpertInner,
  kSharedInner,  // of the expert that every token passes
  kOne,
  kGatedQuery,  // twice the query: each head's gate behind it
  // Of gated DeltaNet: keys twice and values side by side, values, heads of values, one of them, taps.
  kDeltaQkv,
  kDeltaValues,
  kDeltaHeads,
  kDeltaHeadDim,
  kDeltaTaps,
};
int64_t size_of(Extent e, const ModelConfig& c);

// head_dim · partial_rotary_factor, which may be odd: exponents of the frequencies are divided by it. The last pair
// that an odd one begins turns whole (ModelConfig::rotary).
int64_t stated_rotary(const ModelConfig& c);

// `gguf` (blk.N. before it in a block) and `hf` (Family::blocks N. before it) name the same module; .weight or .bias
// follows. Sides are those of the weight in Hugging Face's layout; kNone as `cols` makes it a vector.
struct WeightName {
  enum class Turn : uint8_t {
    kNone,
    kQueryPairs,  // rows that llama.cpp may hold in rotary pairs
    kKeyPairs,
    // Gated DeltaNet: Hugging Face has the value heads of one key head side by side, llama.cpp the first of every key
    // head, then the second of every one.
    kValueHeads,    // rows, linear_value_head_dim a head
    kValueNumbers,  // rows, one a head
    kQkvHeads,      // rows behind those of queries and keys
    kValueColumns,
  };
  std::string_view gguf, hf;
  Extent rows = Extent::kNone, cols = Extent::kNone;
  Turn turn = Turn::kNone;
  bool plus_one = false;  // llama.cpp holds 1 + w
  bool decay = false;     // llama.cpp holds −e^w
  bool taps = false;      // of a convolution: Hugging Face's shape has a side of 1 between the two
  bool whole = false;     // both names are whole: nothing follows
};

enum class Windows : uint8_t {
  kNone,       // no window, whatever the file says
  kSwitch,     // sliding_window where use_sliding_window says so, in the layers from max_window_layers on (Qwen)
  kSwitchAll,  // the same in every layer, whatever other keys say (Qwen3-MoE)
  kAll,        // sliding_window, in every layer (Mistral)
  kMost,       // sliding_window, in all layers but every sliding_window_pattern-th (Gemma 3)
};

struct Family {
  std::string_view model_type, architecture;

  // Defaults of transformers 5's configuration class.
  int64_t vocab_size, hidden_size, intermediate_size /* 0 = four times the width */, num_layers, num_heads,
      num_kv_heads;
  bool kv_heads_follow;  // an absent num_key_value_heads means as many as heads
  int64_t head_dim;      // 0 = hidden_size / num_heads
  int64_t max_positions;
  double norm_eps, rope_theta /* 0 = none */;
  double partial_rotary_factor = 1.0;
  bool reads_partial_rotary = false;  // partial_rotary_factor, where the default is all
  bool tie_embeddings = false;
  bool attention_bias = false, always_bias = false;
  std::span<const std::string_view> own_keys;                // that bend what others compute, and this class reads
  bool reads_attention_bias = true, reads_mlp_bias = false;  // whether the class has these keys; else they say nothing
  std::string_view activation = "silu";
  double dropout = 0;
  int64_t bos = -1, eos = -1, pad = -1;
  Windows windows = Windows::kNone;
  bool linear_attention = false;  // layers of gated DeltaNet, all but every full_attention_interval-th
  int64_t num_experts = 0, experts_per_token = 0, moe_intermediate_size = 0, shared_expert_intermediate_size = 0;
  bool norm_topk_prob = false;
  // Stacked experts lie as [experts, in, out], gate's and up's columns in turn, with biases beside them (gpt-oss).
  bool turned_experts = false;
  bool stacked_adapters = false;  // transformers' class reads no adapter of one expert: PEFT has them stacked
  bool vision = false;            // it sees pictures
  bool optional_vision = false;   // the same, but its text is used alone unless pictures are asked for
  bool own_code = false;          // its class comes with its folder: other trainers would have to run that
  std::string_view classifier;    // transformers' class of its reward models; empty: there is none
  double softcap = 0;
  int64_t window = 4096;       // sliding_window; 0 = none
  int64_t window_pattern = 6;  // of Windows::kMost: every so many layers one sees everything
  double sliding_rope_theta = 0;

  // Keys that the class spells its own way.
  const char *norm_eps_key = "rms_norm_eps", *activation_key = "hidden_act", *inner_key = "intermediate_size";
  void (*read)(const Keys&, ModelConfig&) = nullptr;  // keys that no other family has

  // Weights.
  std::string_view prefix = "model.";  // of the model below its head; a checkpoint without the head lacks it
  std::span<const std::string_view> other_prefixes;  // under which the same weights lie in another class's files
  std::string_view blocks = "model.layers.";         // "N." follows
  std::string_view embedding = "model.embed_tokens.weight";
  std::span<const std::string_view> lora_modules;  // last parts of the names of modules that LoRA can be put on
  bool conv1d = false;                             // matrices of blocks are stored [in, out] (GPT-2)
  bool heads_fill_width = false;                   // head_dim · num_heads must be the width
  bool encoder = false;                            // gives embeddings alone

  // GGUF; without an architecture's name llama.cpp does not know the family.
  std::string_view gguf;
  std::span<const WeightName> gguf_block, gguf_top, gguf_experts;
  std::span<const std::string_view> gguf_beside;  // tensors that are no weights: the config is read from them
  bool gguf_windows = false;                      // llama.cpp follows windows that its keys state
  bool gguf_yarn_truncates = true;                // RopeScaling::truncate of its models, which no key states
  bool gguf_pairs = false;                        // rows of q and k stand in rotary pairs
  const char* gguf_eps_key = "attention.layer_norm_rms_epsilon";
  void (*read_gguf)(const ArchKeys&, ModelConfig&) = nullptr;         // keys that no other family has
  void (*write_gguf)(const GgufKeys&, const ModelConfig&) = nullptr;  // keys beside those of every model
  std::string (*gguf_lacks)(const ModelConfig&) = nullptr;            // what such a file cannot state; "" = nothing
  void (*write)(const ModelConfig&, OrderedJson&) = nullptr;          // config.json of a model that came from a GGUF
};

const Family* family_of_type(std::string_view model_type);            // null where unknown
const Family* family_of_architecture(std::string_view architecture);  // null where unknown
const Family* family_of_gguf(std::string_view architecture);          // null where unknown
std::string known_model_types();
std::string known_gguf_architectures();

}  // namespace mxt::formats
