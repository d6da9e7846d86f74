// Builders: each checks its operands' shapes (a mismatch is a bug of the model's code), makes the output values and
// appends the operation. Derivatives stand beside them in ops/*.cc and are reached through derive().
#pragma once

#include "graph/graph.h"

namespace mxt::graph {

ValueId embedding(Graph& g, ValueId table, RowOf row = RowOf::kId, int64_t padding = -1);
ValueId linear(Graph& g, ValueId x, ValueId w, ValueId bias = kNone);
struct NormOut {
  ValueId h, y;  // h: the residual stream after the addition (x itself where there was no residual)
};
NormOut norm(Graph& g, ValueId x, ValueId residual, ValueId w, ValueId b, bool layer_norm, float eps);
ValueId qk_norm_rope(Graph& g, ValueId qkv, const QkNormRopeOp& attrs, ValueId q_w = kNone, ValueId k_w = kNone);
ValueId qkv_norm(Graph& g, ValueId qkv, const QkvNormOp& attrs, ValueId q_w, ValueId k_w);
ValueId attention(Graph& g, ValueId qkv, const AttentionOp& attrs, ValueId sinks = kNone);
ValueId act(Graph& g, ValueId x, ActKind kind);
ValueId clamped_glu(Graph& g, ValueId x, const ClampedGluOp& attrs);
ValueId add(Graph& g, ValueId a, ValueId b);
ValueId scale(Graph& g, ValueId x, float by);
ValueId mix(Graph& g, ValueId x, ValueId z, const MixOp& attrs, ValueId b, ValueId a = kNone);
ValueId gate(Graph& g, ValueId x, ValueId s, ValueId w, ValueId u, const GateOp& attrs, ValueId lambda = kNone);
ValueId dropout(Graph& g, ValueId x, float p);
ValueId embedding_noise(Graph& g, ValueId x, float alpha);
ValueId lora_add(Graph& g, ValueId y, ValueId z, const std::vector<ValueId>& bs, const std::vector<LoraBlock>& blocks);
// u with the columns of blocks as long as m says, then the bias (graph.h, DoraGainOp).
ValueId dora(Graph& g, ValueId u, ValueId w, ValueId a, ValueId m, const std::vector<ValueId>& bs,
             const std::vector<LoraBlock>& blocks, ValueId bias = kNone);
// Mixture of experts. What a router decided; k·kTokens routed rows follow it.
struct Routing {
  ValueId weights = kNone, probabilities = kNone, expert = kNone, row = kNone, slot = kNone, first = kNone;
  int64_t experts = 0, k = 0;
};
Routing route(Graph& g, ValueId logits, int64_t k, bool renormalize);
ValueId expert_gather(Graph& g, ValueId x, const Routing& r);
ValueId expert_linear(Graph& g, ValueId x, ValueId w, ValueId first, int64_t experts);
ValueId expert_bias(Graph& g, ValueId y, const Routing& r, ValueId b);
ValueId expert_sum(Graph& g, ValueId x, const Routing& r);  // weighted
ValueId expert_lora_add(Graph& g, ValueId y, ValueId z, ValueId first, int64_t experts, const std::vector<ValueId>& bs,
                        const std::vector<LoraBlock>& blocks);
// A root beside the head: call it before head(). Coefficient 0: only what it measures is wanted.
void balance_loss(Graph& g, const std::vector<Routing>& layers, float coefficient);
// Gated DeltaNet.
ValueId causal_conv(Graph& g, ValueId x, ValueId w, int layer);
ValueId gated_delta(Graph& g, ValueId qkv, ValueId ba, ValueId a_log, ValueId dt_bias, const GatedDeltaOp& attrs);
ValueId gated_norm(Graph& g, ValueId x, ValueId gate, ValueId w, float eps);
ValueId sigmoid_gate(Graph& g, ValueId x, ValueId gate);
struct Split {
  ValueId plain, gate;
};
Split split_gates(Graph& g, ValueId all, int64_t heads, int64_t dim);
// Pictures. Rows of what the batch brings are pictures' patches, or tokens for `features`.
ValueId picture_input(Graph& g, int64_t cols, const PictureInputOp& attrs = {});
ValueId interpolate(Graph& g, ValueId table);
ValueId regroup(Graph& g, ValueId x, Extent rows, int64_t cols);
ValueId place(Graph& g, ValueId base, ValueId x, bool add);
// Appends the loss; with `gradient` also dh (the derivative of Σ weight·nll). Returns {nll, dh}.
struct HeadOut {
  ValueId nll, dh;
};
HeadOut head(Graph& g, ValueId h, ValueId w, int64_t chunk, float softcap, bool gradient);
// Appends log-probabilities of the targets as a root (Graph::roots). Returns logp.
ValueId token_log_prob(Graph& g, ValueId h, ValueId w, const TokenLogProbOp& attrs);
// Makes v a root: differentiate() then begins from it (and not from a head's own loss).
void add_root(Graph& g, ValueId v);
void logits(Graph& g, ValueId h, ValueId w, float softcap);
void mean_pool(Graph& g, ValueId h);

// The state of reverse-mode differentiation that a derivative reads and extends.
class Backward {
 public:
  explicit Backward(Graph& graph);
  Graph& g;
  // Whether a gradient must flow to v: it depends on something that trains, or trains itself.
  bool needs(ValueId v) const { return needs_[static_cast<size_t>(v)]; }
  ValueId grad(ValueId v) const {
    return v < static_cast<ValueId>(grads_.size()) ? grads_[static_cast<size_t>(v)] : kNone;
  }
  void set_grad(ValueId v, ValueId dv);
  // dv becomes part of v's gradient: the first is taken as it is, a later one is added.
  void accumulate(ValueId v, ValueId dv);
  // A value with v's shape, for its gradient.
  ValueId like(ValueId v, std::string name = {});
  // Marks an operation as contributing to a parameter's gradient.
  void contributes(Op& op, ValueId param_value);

 private:
  std::vector<ValueId> grads_;
  std::vector<bool> needs_, touched_;
};

// Appends the derivative of g.ops[index] to the graph.
void derive(Backward& b, size_t index);

// Appends the whole backward pass: from the roots, or after a head() with gradient. Returns the number of appended
// operations.
int64_t differentiate(Graph& g);

}  // namespace mxt::graph
