// Pieces that the decoder-only models share. Internal to the room.
#pragma once

#include "models/model.h"

namespace mxt::models {

class Decoder {
 public:
  Decoder(const formats::ModelConfig& config, const BuildOptions& options);
  graph::Graph g;
  const formats::ModelConfig& c;
  const BuildOptions& o;

  graph::ValueId matrix(std::string name, int64_t cols, std::vector<graph::Segment> segments, float std);
  graph::ValueId vector(std::string name, graph::ParamKind kind, std::vector<graph::Segment> segments);
  // One norm weight or bias of n elements, named as in the checkpoint.
  graph::ValueId norm_weight(const std::string& ours, const std::string& theirs, int64_t n);
  graph::ValueId bias(const std::string& ours, std::vector<graph::Segment> segments);
  // Appends the head for the purpose, over the output matrix (the embedding where they are tied).
  void finish(graph::ValueId h, graph::ValueId embedding);
};

// A pre-norm transformer block's model with rotary embedding and SwiGLU: Llama and its kin. `qk_norm`: Qwen3's.
graph::Graph llama_like(const formats::ModelConfig& config, const BuildOptions& options, bool qk_norm, bool qkv_bias,
                        bool out_bias);

graph::Graph llama(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph qwen3(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph gpt2(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph bert(const formats::ModelConfig& config, const BuildOptions& options);

}  // namespace mxt::models
