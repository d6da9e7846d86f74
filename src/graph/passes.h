// Rewrites of a graph. They know nothing of devices; a plan names what they choose.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace mxt::graph {

// LoRA (Hu et al. 2021): beside every product y = x Wᵀ whose weight has targeted segments, z = x Aᵀ and y += scale · z Bᵀ. The
// A matrices of segments that read the same x are stacked, so x is read once. Call before differentiate(), on a frozen base.
struct LoraSettings {
  struct Target {
    int64_t rank = 16;
    float scale = 2;  // alpha/r, or alpha/√r with rsLoRA
  };
  // Decides by the segment's name without ".weight"; returns false where the module gets no adapter.
  bool (*target)(const void* ctx, const std::string& module, Target* out) = nullptr;
  const void* ctx = nullptr;
  float dropout = 0;  // on x before A; one mask for the stacked segments of a product
};
// Names of the made parameters' segments are "<module>.lora_A.weight" and "<module>.lora_B.weight".
void add_lora(Graph& g, const LoraSettings& settings);

// Joins each adapter to the product it sits on, so that its thin products stop moving the wide activations: z is kept right of
// x's columns and dz right of dy's, and with W extended by the scaled B and by A,
//   y = [x|z]·[W|sB]ᵀ     dx = [dy|dz]·[W;A]
// are one product each, whose inner dimension grows by the rank. For devices where a thin product costs its bandwidth. After
// differentiate(); where the adapter has dropout it stays as it is. Not together with recompute().
void join_lora(Graph& g);

// Puts a rounding of x before every product y = x Wᵀ of the forward pass whose weight is quantized with its inputs: `of` says how
// by the segment's name (all segments of a product must agree). Products that read the same x share it; adapters read x as it
// was. After add_lora(), on graphs without a backward pass.
void round_inputs(Graph& g, Rounding (*of)(const void* ctx, const std::string& weight), const void* ctx);

enum class Recompute : uint8_t {
  kNone,   // keep every activation that the backward reads
  kCheap,  // recompute norm and activation-function outputs from what they were made of
  kLayer,  // keep only the residual stream between layers
};
// Clones forward operations into the backward pass so that the dropped activations need not be kept. After differentiate().
void recompute(Graph& g, Recompute level);
std::string_view recompute_name(Recompute level);

}  // namespace mxt::graph
