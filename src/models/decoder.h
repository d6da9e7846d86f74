// Blocks that the decoder-only models share. Internal to the room.
#pragma once

#include "graph/ops.h"
#include "models/model.h"

namespace mxt::models {

// The RMSNorm over queries and keys before the rotation.
enum class QkNorm : uint8_t {
  kNone,
  kHead,        // over every head, with a weight (Qwen3, Gemma 3)
  kWeightless,  // over every head, without (nanochat)
  kWhole,       // over all of a token's queries, and all of its keys (OLMo 2)
};

struct AttentionStyle {
  bool qkv_bias = false, out_bias = false;
  QkNorm norm = QkNorm::kNone;
  bool output_gate = false;      // q_proj makes [query | gate] for each head; o_proj reads attention·σ(gate) (Qwen3.5)
  bool sinks = false;            // a learned score of each head beside the others (gpt-oss)
  bool fused = false;            // q, k and v stand in one matrix of the checkpoint, qkv_proj (Phi-3)
  float qk_scale = 1;            // of queries and of keys, behind their norm
  float std = -1, out_std = -1;  // of random initialisation, where it is not the configuration's
  std::function<graph::ValueId(graph::ValueId qkv)> values;  // what the products' values become before attention
};

// How a router and its experts are named, and what they have beside their matrices.
struct ExpertStyle {
  std::string_view router = "gate";
  bool bias = false;  // of the router and of each expert's matrices
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
  float norm_offset = 0;  // 1: norms multiply by 1 + w (Gemma, Qwen3.5)
  bool trains;            // parameters that are made from here on
  graph::RowOf ids = graph::RowOf::kId;
  int64_t padding = c.pad;  // the embedding's row that learns nothing where it is read, as transformers builds it
  graph::Angles angles = graph::Angles::kPositions;

  graph::ValueId matrix(std::string name, int64_t cols, std::vector<graph::Segment> segments, float std);
  graph::ValueId vector(std::string name, graph::ParamKind kind, std::vector<graph::Segment> segments);
  graph::ValueId vector(std::string name, graph::ParamKind kind, std::vector<graph::Segment> segments, DType type);
  // One norm weight or bias of n elements, named as in the checkpoint.
  graph::ValueId norm_weight(const std::string& ours, const std::string& theirs, int64_t n);
  graph::ValueId ones(const std::string& ours, int64_t n);  // in a norm weight's place
  graph::ValueId bias(const std::string& ours, std::vector<graph::Segment> segments);

  graph::ValueId table = graph::kNone;  // of embed()
  graph::Param& param(graph::ValueId v) { return g.params[static_cast<size_t>(g.value(v).param)]; }

  // Below, `ours` and `theirs` begin a block's names: "layers.3." and "model.layers.3.", which block(3) gives.
  std::string block(int64_t layer) const;

  // The embedding of the tokens; the rotary tables are made. Also refuses what the blocks below do not compute.
  Stream embed();
  // h += branch; returns RMSNorm(h), without a weight where `theirs` is empty.
  graph::ValueId rms_norm(Stream& s, const std::string& ours, const std::string& theirs);
  // The same of a value by itself.
  graph::ValueId rms_norm(graph::ValueId x, const std::string& ours, const std::string& theirs);
  // Rotated, masked attention with its projections q, k, v and o, of layer i.
  graph::ValueId attention(graph::ValueId x, int64_t i, const AttentionStyle& style);
  // down(f(gate x) ∘ up x), f as the configuration says. `fused`: gate and up stand in one matrix, gate_up_proj. Where
  // layer i is sparse, experts().
  graph::ValueId gated_mlp(graph::ValueId x, int64_t i, bool fused = false);
  // The same, `inner` wide, under these names.
  graph::ValueId gated_mlp(graph::ValueId x, const std::string& ours, const std::string& theirs, int64_t inner,
                           bool fused = false);
  // k of the experts (Shazeer et al. 2017), and the shared one with its gate where there is one (experts.cc).
  graph::ValueId experts(graph::ValueId x, const std::string& ours, const std::string& theirs,
                         const ExpertStyle& style = {});
  // down(f(up x)) with modules fc1 and fc2; standard deviations of random initialisation as in AttentionStyle.
  graph::ValueId mlp(graph::ValueId x, int64_t i, graph::ActKind kind, float up_std = -1, float down_std = -1);
  // The last norm, named as in the checkpoint, the experts' balance loss, and the head.
  void finish(Stream& s, const std::string& norm = "model.norm");
  // Appends the head for the purpose, over the output matrix (the embedding where they are tied).
  void finish(graph::ValueId h, graph::ValueId embedding);

 private:
  std::vector<graph::Routing> routed_;   // of the sparse layers
  int64_t rope_ = 0, sliding_rope_ = 0;  // tables
};

// Llama's block, with the attention that `style` says: what Mistral, Qwen2 and Qwen3 took over.
graph::Graph llama_like(const formats::ModelConfig& config, const BuildOptions& options, const AttentionStyle& style);

graph::Graph llama(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph mistral(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph qwen2(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph qwen3(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph qwen3_5(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph qwen3_vl(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph instella(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph olmo2(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph phi3(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph gemma3(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph gpt_oss(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph nanochat(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph nanochat_v2(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph gpt2(const formats::ModelConfig& config, const BuildOptions& options);
graph::Graph bert(const formats::ModelConfig& config, const BuildOptions& options);

}  // namespace mxt::models
