// Builds a model's graph from its configuration.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "formats/model_config.h"
#include "graph/graph.h"
#include "graph/passes.h"

namespace mxt::models {

enum class Purpose : uint8_t {
  kTrain,     // loss, and the backward pass for what trains
  kScore,     // per-token losses only
  kGenerate,  // logits of chosen rows, attention through a cache
  kEmbed,     // the mean of each document's last hidden states
  kPictures,  // what pictures become (Graph::features)
};

enum class Head : uint8_t { kLoss, kLogProb, kScore };

struct LoraTarget {
  int64_t rank = 16;
  double alpha = 32;
  bool rslora = false;
};
struct LoraPlan {
  // Decides for a module such as "model.layers.3.self_attn.q_proj"; nothing = no adapter there.
  std::function<std::optional<LoraTarget>(const std::string& module)> target;
  float dropout = 0;
  bool dora = false;
  // Tensors of the base that train whole beside the adapters, by name; empty: none (graph::train_parts).
  std::function<bool(const std::string& tensor)> trains;
};

// How the store holds the base model's products, by the weight's name (graph::code_base).
struct CodedPlan {
  std::function<graph::SegmentCoding(const std::string& weight)> of;
};

struct BuildOptions {
  DType type = DType::kBF16;  // F32 or BF16: activations and the computing copy of weights
  Purpose purpose = Purpose::kTrain;
  bool train_base = false;   // full training: every weight of the model trains
  bool train_vision = true;  // with train_base: that part of a model which sees pictures too
  bool pictures = false;     // of a model whose text is used alone otherwise (Qwen3.5): the tower that sees them too
  const LoraPlan* lora = nullptr;
  graph::Recompute recompute = graph::Recompute::kNone;
  bool join_lora = false;                        // graph::join_lora; with recompute where base is kFp8
  graph::Storage base = graph::Storage::kPlain;  // graph::quantize_base, under LoRA
  bool fp8_products = false;                     // graph::quantize_trained, while training
  bool relu2_products = false;                   // graph::join_relu2, while training
  const CodedPlan* coded = nullptr;              // under LoRA; null: as its type says
  int64_t positions = 0;  // longest document; the rotary tables reach so far. At most the model's own maximum
  // Coefficient of the experts' load-balancing loss while training; absent: as the configuration says.
  std::optional<double> balance_loss;
  int64_t head_chunk = 256;   // target rows per piece of the head
  float embedding_noise = 0;  // NEFTune's alpha, while training
  // Purposes kTrain and kScore: what the graph ends in. kLoss: cross-entropy. What a loss outside the graph is made of
  // (Graph::roots): kLogProb, the log-probability of every target; kScore, one number a token (of a reward model).
  Head head = Head::kLoss;
  float logit_scale = 1;  // kLogProb: 1/temperature
  bool entropy = false;   // kLogProb: also of every target's distribution
  bool operator==(const BuildOptions&) const = default;
};

// The whole graph for the purpose. Errors: kMissing for an architecture or a setting that this build has no code for,
// and for an encoder (bert) with any purpose but kEmbed;
// kBadInput where `positions` is beyond what the model has positions for.
graph::Graph build(const formats::ModelConfig& config, const BuildOptions& options);

// How a checkpoint may spell a weight's name: the canonical one first, then what older files say.
std::vector<std::string> spellings(const formats::ModelConfig& config, const std::string& name);

// Frequencies' tables for positions [0, positions): cos and sin, [positions, rotary/2] each, in fp32 as transformers
// computes them (linear, llama3, yarn and longrope scaling; the attention factor is folded in). longrope takes its long
// divisors where `positions` is beyond the original maximum, whatever the length of a text.
void rope_tables(const formats::ModelConfig& config, int64_t positions, std::vector<float>& cos,
                 std::vector<float>& sin);
// The same for layers with a window, where these have a base of their own.
void sliding_rope_tables(const formats::ModelConfig& config, int64_t positions, std::vector<float>& cos,
                         std::vector<float>& sin);

// Every module that LoRA can be put on, by its last name part ("q_proj"), for checking target_modules.
std::vector<std::string> lora_modules(const formats::ModelConfig& config);

}  // namespace mxt::models
