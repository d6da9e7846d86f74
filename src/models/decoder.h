// Blocks that the decoder-only models share. Internal to the room.
#pragma once

#include "models/model.h"

namespace mxt::models {

// Biases of an attention's projections, and the norm over its queries and keys.
struct AttentionStyle {
  bool qkv_bias = false, out_bias = false;
  bool head_norm = false;  // RMSNorm over every query and key head before the rotation (Qwen3)
};

// The residual stream: `branch` is what the last block adds to `h`, which the next norm does.
struct Stream {
  graph::ValueId h = graph::kNone, branch = graph::kNone;
};

class Decoder {
 public:
  Decoder(const formats::ModelConfig& config, const BuildOptions& options);
  graph::Graph g;
  const formats::ModelConfig& c;
  const BuildOptions& o;
  const int64_t width, query, key_value;
  const float std, eps;

  graph::ValueId matrix(std::string name, int64_t cols, std::vector<graph::Segment> segments, float std);
  graph::ValueId vector(std::string name, graph::ParamKind kind, std::vector<graph::Segment> segments);
  // One norm weight or bias of n elements, named as in the checkpoint.
  graph::ValueId norm_weight(const std::string& ours, const std::string& theirs, int64_t n);
  graph::ValueId bias(const std::string& ours, std::vector<graph::Segment> segments);

  // Below, `ours` and `theirs` begin a block's names: "layers.3." and "model.layers.3.".

  // The embedding of the tokens; the rotary tables are made. Also refuses what the blocks below do not compute.
  Stream embed();
  // h += branch; returns RMSNorm(h).
  graph::ValueId rms_norm(Stream& s, const std::string& ours, const std::string& theirs);
  // Rotated, masked attention with its projections q, k, v and o, of layer i.
  graph::ValueId attention(graph::ValueId x, int64_t i, const AttentionStyle& style);
  // down(silu(gate x) ∘ up x)
  graph::ValueId swiglu(graph::ValueId x, int64_t i);
  // The last norm and the head.
  void finish(Stream& s);
  // Appends the head for the purpose, over the output matrix (the embedding where they are tied).
  void finish(graph::ValueId h, graph::ValueId embedding);

 private:
  graph::ValueId table_ = graph::kNone;
};

// Llama's block, with the attention that `style` says: what Mistral, Qwen2 and Qwen3 took over.
graph::Graph llama_like(const formats::ModelConfig& config, const BuildOptions& options, const AttentionStyle& style);

graph::Graph llama(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph mistral(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph qwen2(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph qwen3(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph gpt2(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph bert(const formats::ModelConfig& config, const BuildOptions& options);

}  // namespace mxt::models
