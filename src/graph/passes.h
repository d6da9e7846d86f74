// Rewrites of a graph. They know nothing of devices; a plan names what they choose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace mxt::graph {

// LoRA (Hu et al. 2021): beside every product y = x Wᵀ whose weight has targeted segments, z = x Aᵀ and y += scale · z
// Bᵀ. The A matrices of segments that read the same x are stacked, so x is read once. Call before differentiate(), on a
// frozen base.
struct LoraSettings {
  struct Target {
    int64_t rank = 16;
    float scale = 2;  // alpha/r, or alpha/√r with rsLoRA
  };
  // Decides by the segment's name without ".weight"; returns false where the module gets no adapter.
  bool (*target)(const void* ctx, const std::string& module, Target* out) = nullptr;
  const void* ctx = nullptr;
  float dropout = 0;  // on x before A; one mask for the stacked segments of a product
  // DoRA (Liu et al. 2024): rows of W + scale·B·A are as long as a vector m that trains too says.
  bool dora = false;
};
// Names of the made parameters' segments are "<module>.lora_A.weight", "<module>.lora_B.weight" and
// "<module>.lora_magnitude_vector"; of a table of embeddings, whose rows get z = A[:, id], "<module>.
// lora_embedding_A" and "…_B". An adapter of the head is part of the head's operation (cross-entropy alone).
void add_lora(Graph& g, const LoraSettings& settings);

// Marks parts of the base that train beside adapters: `trains` decides by the segment's name. A matrix trains whole.
// Before add_lora() and differentiate().
void train_parts(Graph& g, bool (*trains)(const void* ctx, const std::string& tensor), const void* ctx);

// Joins each adapter to the product it sits on, so that its thin products stop moving the wide activations: z is kept
// right of x's columns and dz right of dy's, and with W extended by the scaled B and by A,
//   y = [x|z]·[W|sB]ᵀ     dx = [dy|dz]·[W;A]
// are one product each, whose inner dimension grows by the rank. For devices where a thin product costs its bandwidth.
// After differentiate(); where the adapter has dropout it stays as it is. `base`: how quantize_base() will hold the
// matrices. After recompute() with kFp8 alone, whose products take z and dz from anywhere (whole sixteens of ranks):
// beside rows that are made again they would keep these.
void join_lora(Graph& g, Storage base = Storage::kPlain, bool recomputed = false);

// Has the store hold the frozen matrices of the base model in codes (Storage::kCoded): those that nothing but products
// y = x Wᵀ and their gradients read, so not the head. `of` says how by the segment's name (all segments of a product
// must agree on whether at all). Values are those of the decoded matrix, in the graph's type. Before join_lora(), which
// leaves such products as they are.
struct SegmentCoding {
  Coding coding = Coding::kNone;
  DType through = DType::kF32;
};
void code_base(Graph& g, SegmentCoding (*of)(const void* ctx, const std::string& weight), const void* ctx);

// Puts a rounding of x before every product y = x Wᵀ of the forward pass whose weight is quantized with its inputs:
// `of` says how by the segment's name (all segments of a product must agree). Products that read the same x share it;
// adapters read x as it was. After add_lora(), on graphs without a backward pass.
void round_inputs(Graph& g, Rounding (*of)(const void* ctx, const std::string& weight), const void* ctx);

// Holds the frozen matrices of the base model as E4M3 with a power of two a row, and rounds what they are multiplied
// with to E4M3 with a power of two a token: x in the forward pass, dy∘scale for the gradient of x. `as`: kFp8 for
// devices with such products, kFakeQuant for the same values in the graph's own type. Embeddings, norms and adapters
// stay as they are; so does the head, but for its input's gradient, which is the product of rounded operands
// (Param::back). An adapter of a norm's or attention's result reads the rounded x that its base reads, where its ranks
// are whole sixteens (of all adapters of that x); else, and behind an activation, x itself. The gradient passes the
// rounding of x unchanged. With kFp8 norms, activations and their gradients write the rounded rows themselves. After
// differentiate(), recompute() and join_lora(); before in_place().
void quantize_base(Graph& g, Storage as);

// Products of matrices that train, y = x Wᵀ and both gradients, of operands rounded to E4M3: x and W with a power of
// two a row, dy∘scale(W) with one a token, so that its product with Wᵀ needs no scale of its own; the gradient of W is
// summed over tokens of the same numbers with one power of two for all of dy and one for all of x (what is 2¹⁸ below
// the largest of them is lost there). W is rounded in every pass, from its computing copy. Matrices of at least 128
// rows and columns, whole sixteens of each; not a router's, and not the head, the embeddings or experts', which stay in
// the graph's type. After differentiate() and recompute(); before in_place().
void quantize_trained(Graph& g);

// Ends the products that ReLU² alone reads in ReLU², and those that its gradient alone reads in that, which takes it
// from ReLU²'s result: what lies between is neither kept nor moved. Plain products of whole eights of rows and columns
// in bf16, for devices that have such (BackendInfo::relu2_products). After all passes that change products; before
// in_place().
void join_relu2(Graph& g);

// How much is computed again in the backward pass instead of being kept.
struct Recompute {
  int64_t tensors = 0;  // the first so many of recompute_order(); 0: none, kLayer's: all
  bool operator==(const Recompute&) const = default;
  static const Recompute kNone;   // keep every activation that the backward reads
  static const Recompute kCheap;  // norm and activation-function outputs
  static const Recompute kLayer;  // keep only the residual stream between layers
};
inline constexpr Recompute Recompute::kNone{0};
inline constexpr Recompute Recompute::kCheap{-1};
inline constexpr Recompute Recompute::kLayer{INT64_MAX};

// An activation that the backward pass reads and that can be made again from what is kept.
struct Recomputable {
  ValueId value = kNone;
  double cost = 0;   // of making it again, operations of a token; what only moves memory counts 50 a byte
  double bytes = 0;  // of a token
};
// All of them, the least cost for a byte first; of equal ones the earlier layer's, whose memory is bound for longer.
// `document`: tokens of a document, which attention's cost grows with. After differentiate().
std::vector<Recomputable> recompute_order(const Graph& g, int64_t document);

// Clones forward operations into the backward pass so that the dropped activations need not be kept. After
// differentiate().
void recompute(Graph& g, Recompute what,
               int64_t document = 0);        // document 0: the longest that the graph has positions for
std::string recompute_name(Recompute what);  // "none", "cheap", "layer" or the number
// The inverse; false where `name` is none of these.
bool recompute_from_name(const std::string& name, Recompute* what);

// Which results lie where an operand lay: undoes what a derivative marked and what is not safe in this graph (the
// operand is read again later), and joins what is safe (sums, dropout). Last of the passes.
void in_place(Graph& g);

}  // namespace mxt::graph
