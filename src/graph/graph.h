// Graph: a list of operations in execution order over single-assignment values.
//
// Every activation is a matrix [rows, cols] whose rows are an Extent: most have one a token of the packed batch
// (kTokens). It is known when a batch arrives and never above the bound that memory was planned for. Token ids,
// positions, document offsets, targets and loss weights belong to the batch and are read by the operations that need
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/coding.h"
#include "base/types.h"
#include "graph/extent.h"

namespace mxt::kernels {
class ExternalKernel;
}

namespace mxt::graph {

using ValueId = int32_t;
using ParamId = int32_t;
inline constexpr int32_t kNone = -1;

enum class ParamKind : uint8_t {
  kMatrix,
  kEmbedding,
  kNormWeight,
  kBias,
  kDecay,  // a vector of rates (A_log), which weight decay reaches
  kConv,   // depthwise: [channels, width], stored [channels, 1, width]
};

// Where rows [row, row+rows) of a parameter live in a checkpoint. `transposed`: stored [cols, rows] there (GPT-2's
// Conv1D).
struct Segment {
  std::string name;  // e.g. model.layers.0.self_attn.q_proj.weight
  int64_t row = 0, rows = 0;
  bool transposed = false;
  bool frozen = false;  // of a vector that trains: this part of it does not
  // With Storage::kCoded: how its rows are held, and the type that its weights are rounded through when they are
  // decoded (F32: none).
  Coding coding = Coding::kNone;
  DType through = DType::kF32;
};

// How a store holds a frozen matrix: as its type says; as the values that E4M3 with a power of two a row would hold
// (Quantize of kernels/api.h); as those E4M3 numbers themselves; or segment by segment in codes of a few bits
// (base/coding.h), which are decoded piece by piece where they are multiplied.
enum class Storage : uint8_t { kPlain, kFakeQuant, kFp8, kCoded };

struct Param {
  std::string name;  // ours, e.g. layers.0.qkv
  ParamKind kind = ParamKind::kMatrix;
  int64_t rows = 1, cols = 0;     // vectors are [1, n]
  std::vector<int64_t> tail;      // a checkpoint's shape is [rows, tail…] where it is not [rows, cols]
  std::vector<Segment> segments;  // none: no part of a checkpoint, ones that never train
  bool trainable = false;
  bool adapter = false;            // made by the LoRA pass, not part of the base model
  Storage held = Storage::kPlain;  // passes/quantize.cc, passes/code.cc
  Storage back =
      Storage::kPlain;  // of a head: its columns are kept so besides, with a scale each, for its input's gradient
  int64_t joined = 0;   // ranks of the adapters whose scaled B stands right of the matrix and whose A stands below it
  int64_t experts = 0;  // matrices of so many experts, one below the other; 0: one matrix
  float init_mean = 0;  // of a bias
  float init_std = 0;   // random initialisation: normal(0, std); 0 with kMatrix means zeros
  float init_low = 0, init_high = 0;  // where high is above: uniform between them instead
  std::vector<float> init_values;     // of a vector: exactly these instead
  float offset = 0;                   // held is what the checkpoint has plus this: 1 for norms that multiply by 1 + w
  ValueId value = kNone;
};

// Elements between rows of a parameter in memory, and its rows there: more than its own where adapters are joined to
// it. (kFp8: the scaled B has a matrix of its own, joined_stride() wide, and A stays where it is).
inline int64_t joined_stride(const Param& p) { return (p.joined + 63) / 64 * 64; }
inline int64_t stride(const Param& p) {
  return p.joined > 0 && p.held != Storage::kFp8 ? p.cols + joined_stride(p) : p.cols;
}
inline int64_t height(const Param& p) { return p.held == Storage::kFp8 ? p.rows : p.rows + p.joined; }

struct Value {
  Extent rows = kTokens;
  int64_t cols = 0;
  DType type = DType::kF32;
  ParamId param = kNone;     // set for parameters
  ValueId alias_of = kNone;  // this value is computed in place of that one, whose last use is the producing operation
  ValueId adjacent_to = kNone;  // this value lies right of that one's columns, in the same rows
  int64_t pad = 0;              // of a buffer's first value: columns kept free right of its own, for values beside it
  std::string name;
};

// ---- operations: attributes, and in `info` what is to be known of one (op_info.h). Inputs and outputs are listed as
// in/out. ----

struct OpInfo;

// Which row of the table a token takes: its id's, its position's, the first (BERT's token type, one for all), or that
// of the token before it in its document (its own where there is none). kText: its id's, to which tokens of pictures
// leave no gradient.
enum class RowOf : uint8_t { kId, kPosition, kFirst, kPrevious, kText };
struct EmbeddingOp {
  static const OpInfo info;
  RowOf row = RowOf::kId;
  int64_t padding = -1;  // the row that learns nothing of where it is read
};  // in: table → out: y
struct EmbeddingGradOp {
  static const OpInfo info;
  RowOf row = RowOf::kId;
  int64_t padding = -1;
};  // in: dy; param
struct LinearOp {
  static const OpInfo info;
  int64_t joined = 0;
  bool fp8 = false;
  bool row_absmax = false;
  bool relu2 = false;
};  // in: x, w[, bias] → out: y = x wᵀ + bias[, the largest magnitudes of each row's two halves]
struct LinearDxOp {
  static const OpInfo info;
  int64_t joined = 0;
  bool fp8 = false;
  bool row_absmax = false;
  bool relu2 = false;
};  // in: dy, w[, sum] → out: dx (in place of sum where given)[, the largest magnitude of each row]
//   joined r > 0: one more input comes last, z (dz), which lies beside x (dy): y = [x|z]·[w|sB]ᵀ, dx = [dy|dz]·[w;A]
//   relu2 (join_relu2): y = max(x wᵀ, 0)²; of dx one more input comes last, such a y: dx = dy w ∘ 2√y
//   fp8: x (dy) is a QuantizeOp's q, z may lie anywhere, w is held in E4M3, and the scales of q come last; before them,
//   with joined and dx, stands A. Of a matrix that trains w is a QuantizeOp's q too, and its scales stand before those
//   of x; dx reads a RowwiseFp8TransposeOp's result, whose scales are in dy
struct LinearDwOp {
  static const OpInfo info;
};  // in: dy, x; param
struct BiasGradOp {
  static const OpInfo info;
};  // in: dy; param
struct LoraBlock {
  int64_t col = 0, cols = 0, z_col = 0, rank = 0;
  float scale = 1;
};  // y[:,col..] += scale·z[:,z_col..]·Bᵀ
struct LoraAddOp {
  static const OpInfo info;
  std::vector<LoraBlock> blocks;
};  // in: y, z, B… → out: y (in place)
struct LoraDzOp {
  static const OpInfo info;
  std::vector<LoraBlock> blocks;
  int64_t z_cols = 0;
  bool joined = false;
  std::vector<ParamId> b;
};  // in: dy, B… → out: dz
//   joined: in: dy, w[, z]; dz = dy · (the scaled B beside w); with z the gradients of the parameters b are made in the
//   same pass over dy
struct LoraDbOp {
  static const OpInfo info;
  LoraBlock block;
};  // in: dy, z; param
struct LoraJoinOp {
  static const OpInfo info;
  std::vector<LoraBlock> blocks;
};  // in: w, A, B…: writes A and scaled B beside w, once a step
struct NormOp {
  static const OpInfo info;
  bool layer_norm = false;
  float eps = 1e-6f;
  bool residual = false, has_w = true, has_b = false;
  bool held = false;
};
//   in: x[, r][, w][, b] → out: y, rstd[, mean][, h][, q, scale]; held: y is also written as QuantizeOp would,
//   and itself only where something reads it
struct NormGradOp {
  static const OpInfo info;
  NormOp of;
  ParamId b = kNone;
  bool has_dres = false, held = false;
};
//   in: h, dy, rstd[, mean][, w][, dres][, channels] → out: dx (in place of dres where given)[, q, scale]; params w, b;
//   held: dx also as QuantizeOp would write it, with the scales of the weight `channels`
// What a rotation's angles are those of: a token's position, by the graph's tables; what the batch says of a token
// (Pictures::axes); or a patch's row and column.
enum class Angles : uint8_t { kPositions, kTokens, kPatches };
struct QkNormRopeOp {
  static const OpInfo info;
  int64_t heads = 0, kv_heads = 0, head_dim = 0, rotary = 0;
  float eps = 1e-6f;
  bool norm = false;
  int64_t table = 0;  // where its frequencies begin in the graph's tables (Graph::add_rope)
  Angles angles = Angles::kPositions;
};
//   in: qkv[, q_w, k_w] → out: qkv'[, rstd] (in place without norm)
struct QkNormRopeGradOp {
  static const OpInfo info;
  QkNormRopeOp of;
  ParamId q_w = kNone, k_w = kNone;
  bool held = false;
};
//   in: dout[, qkv, rstd, q_w, k_w][, channels] → out: dqkv (in place of dout)[, q, scale]; held: as NormGradOp's
// RMSNorm of all queries and of all keys of a token, each as one vector (OLMo 2); values pass.
struct QkvNormOp {
  static const OpInfo info;
  int64_t query = 0, key = 0;  // columns
  float eps = 1e-6f;
};
//   in: qkv, q_w, k_w → out: qkv', rstd of queries, of keys [tokens, 1]
struct QkvNormGradOp {
  static const OpInfo info;
  QkvNormOp of;
  ParamId q_w = kNone, k_w = kNone;
};
//   in: dout, qkv, rstd of queries, of keys, q_w, k_w → out: dqkv
struct AttentionOp {
  static const OpInfo info;
  int64_t heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  float scale = 0;
  int layer = 0;
  float dropout = 0;
  bool causal = true;
  bool pictures = false;  // documents are pictures, of whose patches the rows are
};
//   in: qkv[, sinks [1, heads], F32] → out: o, lse; not causal: every token of a document sees all of it; sinks: one
//   more score of each head, whose weight is dropped after the softmax (kernels/gpt_oss.h)
struct AttentionGradOp {
  static const OpInfo info;
  AttentionOp of;
};  // in: qkv, o, lse, do[, sinks] → out: dqkv; param sinks
enum class ActKind : uint8_t { kSwiGlu, kGeluTanh, kGelu, kRelu2, kGeGlu };  // kernels::Activation
struct ActOp {
  static const OpInfo info;
  ActKind kind = ActKind::kSwiGlu;
  bool held = false;
};
//   in: x[, largest] → out: y[, q, scale]; largest: the magnitudes of x's rows' halves, from which q's scale may come,
//   y not being written then (kernels::ActLora)
struct ActGradOp {
  static const OpInfo info;
  ActKind kind = ActKind::kSwiGlu;
  bool held = false;
};
//   in: x, dy[, largest of x, largest |dy| of each row, channels] → out: dx (in place of x: its last use)[, q, scale];
//   held: dx also as QuantizeOp would write it, with the scales of the weight `channels`, or as kernels::ActLoraGrad
//   leaves it
// y = (up + 1)·gate·σ(alpha·gate), both within their bounds (kernels/gpt_oss.h).
struct ClampedGluOp {
  static const OpInfo info;
  float alpha = 0, limit = 0;
};  // in: x = [gate | up] → out: y
struct ClampedGluGradOp {
  static const OpInfo info;
  ClampedGluOp of;
};  // in: x, dy → out: dx (in place of x: its last use)
// What a product with a quantized weight sees of its input at run time. kFp8Group128 and kMxfp4 share a scale over 128
// and 32 columns, kFp8Token over the row.
enum class Rounding : uint8_t { kNone, kFp8Token, kFp8Group128, kMxfp4 };
struct RoundOp {
  static const OpInfo info;
  Rounding kind = Rounding::kNone;
};  // in: x → out: y
// x for a product with a weight held in E4M3, or rounded as if it were: with w its scales multiply x's columns first
// (the gradient dy of y = x·(diag(scale)·Q)ᵀ meets Q as dy∘scale). In: x[, w] → out: q (E4M3), scale [tokens, 1]; or,
// for rounded weights, y.
struct QuantizeOp {
  static const OpInfo info;
};
// y = x wᵀ of an adapter's w and rows x that are held in E4M3; in: q, scale, w → out: y. And the gradient of w; in: dy,
// q, scale; param.
struct RowwiseFp8LinearOp {
  static const OpInfo info;
};
struct RowwiseFp8LinearDwOp {
  static const OpInfo info;
};
// Of a matrix that trains (quantize_trained). In: q [n, m], E4M3[, scales] → out: its transpose[, scales]. And dw = dyᵀ
// x of rows that are held in E4M3, dy as QuantizeOp holds it with the weight's scales as its channels; in: dy, its
// scales, x, its scales, the weight's scales; param.
struct RowwiseFp8TransposeOp {
  static const OpInfo info;
};
struct Fp8LinearDwOp {
  static const OpInfo info;
};
// Mixture of experts (kernels/experts.h says what each computes). Values of the choice are I32.
struct RouteOp {
  static const OpInfo info;
  int64_t k = 0;
  bool renormalize = false;
};  // in: logits → out: weights, probabilities, expert, row, slot, first
struct RouteGradOp {
  static const OpInfo info;
  RouteOp of;
  bool weights = false, balance = false;
};  // in: probabilities, expert[, dweights][, balance] → out: dlogits
struct ExpertGatherOp {
  static const OpInfo info;
  bool weighted = false;
};  // in: x, slot, row[, weights] → out: routed rows
struct ExpertSumOp {
  static const OpInfo info;
  bool weighted = false, add = false;
};  // in: routed rows, row, slot[, weights][, add] → out: y (in place of add)
struct ExpertDotsOp {
  static const OpInfo info;
};  // in: dy, routed rows, row → out: dweights
struct ExpertLinearOp {
  static const OpInfo info;
  int64_t experts = 0;
};  // in: x, w, first → out: y; w: the experts' matrices one below the other
struct ExpertLinearDxOp {
  static const OpInfo info;
  int64_t experts = 0;
};  // in: dy, w, first → out: dx
struct ExpertLinearDwOp {
  static const OpInfo info;
  int64_t experts = 0;
};  // in: dy, x, first; param
// An adapter of a block of each expert's rows: y[:, col..] += scale·z[:, z_col..]·B_eᵀ, B: [experts·cols, rank].
struct ExpertLoraAddOp {
  static const OpInfo info;
  int64_t experts = 0;
  std::vector<LoraBlock> blocks;
};  // in: y, z, first, B… → out: y (in place)
struct ExpertLoraDzOp {
  static const OpInfo info;
  int64_t experts = 0;
  std::vector<LoraBlock> blocks;
};  // in: dy, first, B… → out: dz
struct ExpertLoraDbOp {
  static const OpInfo info;
  int64_t experts = 0;
  LoraBlock block;
};  // in: dy, z, first; param
// A vector for each expert's rows; b: the experts' side by side.
struct ExpertBiasOp {
  static const OpInfo info;
  int64_t experts = 0;
};  // in: y, first, b → out: y (in place)
struct ExpertBiasGradOp {
  static const OpInfo info;
  int64_t experts = 0;
};  // in: dy, first; param
// The load-balancing loss of each row of the batch over all layers: a root beside the head.
struct BalanceLossOp {
  static const OpInfo info;
  int64_t layers = 0, k = 0;
  float coefficient = 0;
};  // in: (probabilities, expert) of each layer → out: loss, balance, count, mass
// Gated DeltaNet and the gates around it (kernels/delta.h).
struct CausalConvOp {
  static const OpInfo info;
  int layer = 0;
};  // in: x, w → out: y
struct CausalConvGradOp {
  static const OpInfo info;
};  // in: x, w, dy → out: dx; param w
struct GatedDeltaOp {
  static const OpInfo info;
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int layer = 0;
};  // in: qkv, ba, a_log, dt_bias → out: o
struct GatedDeltaGradOp {
  static const OpInfo info;
  GatedDeltaOp of;
  ParamId a_log = kNone, dt_bias = kNone;
};  // in: qkv, ba, a_log, dt_bias, do → out: dqkv, dba
struct GatedNormOp {
  static const OpInfo info;
  float eps = 1e-6f;
};  // in: x, gate, w → out: y, rstd
struct GatedNormGradOp {
  static const OpInfo info;
};  // in: x, gate, w, rstd, dy → out: dx, dgate; param w
struct SigmoidGateOp {
  static const OpInfo info;
};  // in: x, gate → out: y
struct SigmoidGateGradOp {
  static const OpInfo info;
};  // in: x, gate, dy → out: dx, dgate
struct SplitGatesOp {
  static const OpInfo info;
  int64_t dim = 0;
};  // in: all → out: plain, gate
struct MergeGatesOp {
  static const OpInfo info;
  int64_t dim = 0;
};  // in: plain, gate → out: all
struct AddOp {
  static const OpInfo info;
};  // in: a, b → out: y
struct ScaleOp {
  static const OpInfo info;
  float by = 1;
};  // in: x → out: y = by · x; backward is the same op on dy
// y = a·x + sign·b·z with learned scalars, elements of the vectors a and b; without a: 1.
struct MixOp {
  static const OpInfo info;
  int64_t a = -1, b = 0;  // which element; a −1: there is none
  float sign = 1;
};  // in: x, z, b[, a] → out: y
struct MixGradOp {
  static const OpInfo info;
  MixOp of;
  ParamId a = kNone;
};  // in: dy, x, z, b[, a][, sum] → out: dz + sum (in place of it)[, dx]; params b, a
// y = x, but for groups·width columns from `col` on, to which by·λ·σ(w·s)[group]·u is added: a gate a group, read off
// the first columns of s. `inside`: a document's first token is left as it is. λ: a learned scalar, 1 where absent.
struct GateOp {
  static const OpInfo info;
  int64_t col = 0, groups = 1;
  float by = 1;
  bool inside = false;
};  // in: x, s, w [groups, taps], u [tokens, groups·width][, λ] → out: y
struct GateGradOp {
  static const OpInfo info;
  GateOp of;
  ParamId lambda = kNone;
};  // in: dy, s, w, u[, λ] → out: ds, du; params w, λ
struct DropoutOp {
  static const OpInfo info;
  float p = 0;
  int64_t id = 0;
};  // in: x → out: y; backward is the same op on dy
// y = x with noise up to alpha/√(tokens of the document · width) in every element; the gradient passes.
struct EmbeddingNoiseOp {
  static const OpInfo info;
  float alpha = 0;
  int64_t id = 0;
};  // in: x → out: y
// DoRA (kernels/adapters.h): of the rows of w that adapters reach, m over the length of W + scale·B·A; 1 for others.
struct DoraGainOp {
  static const OpInfo info;
  std::vector<LoraBlock> blocks;
};  // in: w, A, m, B… → out: gain [1, rows], norm [1, rows], W·Aᵀ, A·Aᵀ; m: of the blocks' rows, side by side
struct DoraScaleOp {
  static const OpInfo info;
  std::vector<LoraBlock> blocks;
};  // in: u, gain, norm, m[, bias] → out: y = gain∘u + bias
struct DoraScaleGradOp {
  static const OpInfo info;
  std::vector<LoraBlock> blocks;
};  // in: dy, u, gain, norm → out: du; param m
// The output head fused with cross-entropy, in chunks of `chunk` target rows, so that logits never exist whole. With
// `gradient` the derivative is taken at once: out dh, and dW into the parameter when it trains.
struct FusedLinearCrossEntropyOp {
  static const OpInfo info;
  int64_t chunk = 256;
  float softcap = 0;
  bool gradient = false;
  float adapter = 0;
};
//   in: h, w[, z, B | w in E4M3, its scales, it turned, its] → out: nll [tokens, 1][, dh[, dz]]; param w. With z = h Aᵀ
//   the logits are h wᵀ + adapter·z Bᵀ and the parameter is B; with w in E4M3 the products are of rounded operands
// The log-probability of every target, ln softmax(scale·h wᵀ)[target] in nats, in chunks as
// FusedLinearCrossEntropyOp's: 0 where there is no target. scale is 1/temperature. With `entropy` also that of each
// such row's distribution.
struct TokenLogProbOp {
  static const OpInfo info;
  int64_t chunk = 256;
  float softcap = 0, scale = 1;
  bool entropy = false;
};
//   in: h, w → out: logp [tokens, 1][, entropy [tokens, 1]], F32
// Its gradient, given that of each logp; the logits are made again.
struct TokenLogProbGradOp {
  static const OpInfo info;
  TokenLogProbOp of;
};  // in: h, w, dlogp [tokens, 1] → out: dh; param w
// Pictures. What the batch brings: patches' pixels, [patches, Pictures::values], or with `features` what another pass
// made of them, columns [col, col + width) of that, [picture tokens, width].
struct PictureInputOp {
  static const OpInfo info;
  bool features = false;
  int64_t col = 0;
};  // in: none → out: y
// Each patch's place in its picture, between four rows of a square table (bilinear, corners aligned).
struct InterpolateOp {
  static const OpInfo info;
};  // in: table → out: y, the four rows of each
struct InterpolateGradOp {
  static const OpInfo info;
};  // in: dy → out: its share of each of the four rows; param
// The same elements in rows of another width.
struct RegroupOp {
  static const OpInfo info;
};  // in: x → out: y
// Rows of pictures in the places of their tokens: y = base, but x there, or base + x with `add`. The derivative by base
// is dy all the same: without `add` what made base leaves tokens of pictures out (RowOf::kText).
struct PlaceOp {
  static const OpInfo info;
  bool add = false;
};  // in: base, x → out: y (in place of base)[, sums]
struct PlaceGradOp {
  static const OpInfo info;
};  // in: dy → out: dx
// Logits of chosen rows (the batch names them), F32, for generation.
struct LogitsOp {
  static const OpInfo info;
  float softcap = 0;
};  // in: h, w; result goes to the batch's buffer
// The mean of each document's rows, F32, for embeddings.
struct MeanPoolOp {
  static const OpInfo info;
};  // in: h; result goes to the batch's buffer

// An operation that is defined outside this tree: what is to be known of it, and what it runs as (kernels/external.h),
// with its operands and results as they stand here; its attributes are the kernel's. `of` outlives the graph.
struct ExternalOp {
  static const OpInfo info;
  const OpInfo* of = nullptr;
  std::shared_ptr<const kernels::ExternalKernel> kernel;
};  // in: any → out: any; param, where it makes a parameter's gradient

using Attrs =
    std::variant<EmbeddingOp, EmbeddingGradOp, LinearOp, LinearDxOp, LinearDwOp, BiasGradOp, LoraAddOp, LoraDzOp,
                 LoraDbOp, LoraJoinOp, NormOp, NormGradOp, QkNormRopeOp, QkNormRopeGradOp, AttentionOp, AttentionGradOp,
                 ActOp, ActGradOp, AddOp, DropoutOp, FusedLinearCrossEntropyOp, TokenLogProbOp, TokenLogProbGradOp,
                 LogitsOp, RoundOp, QuantizeOp, RowwiseFp8LinearOp, RowwiseFp8LinearDwOp, RowwiseFp8TransposeOp,
                 Fp8LinearDwOp, MeanPoolOp, ScaleOp, QkvNormOp, QkvNormGradOp, MixOp, MixGradOp, GateOp, GateGradOp,
                 RouteOp, RouteGradOp, ExpertGatherOp, ExpertSumOp, ExpertDotsOp, ExpertLinearOp, ExpertLinearDxOp,
                 ExpertLinearDwOp, ExpertLoraAddOp, ExpertLoraDzOp, ExpertLoraDbOp, BalanceLossOp, CausalConvOp,
                 CausalConvGradOp, GatedDeltaOp, GatedDeltaGradOp, GatedNormOp, GatedNormGradOp, SigmoidGateOp,
                 SigmoidGateGradOp, SplitGatesOp, MergeGatesOp, PictureInputOp, InterpolateOp, InterpolateGradOp,
                 RegroupOp, PlaceOp, PlaceGradOp, EmbeddingNoiseOp, DoraGainOp, DoraScaleOp, DoraScaleGradOp,
                 ClampedGluOp, ClampedGluGradOp, ExpertBiasOp, ExpertBiasGradOp, ExternalOp>;

struct Op {
  Attrs attrs;
  std::vector<ValueId> in, out;
  ParamId param = kNone;    // whose gradient this operation adds to
  bool first_grad = false;  // first contribution of a pass to that gradient: overwrites it in the first micro-batch
};

const OpInfo& info(const Op& op);
std::string_view op_name(const Op& op);

// Operations in the order of their execution. It counts how many of them are looked at (one by its place, all by a
// walk), so that a test can hold the work of building a graph linear in its depth.
class OpList : public std::vector<Op> {
 public:
  using std::vector<Op>::vector;
  using std::vector<Op>::operator=;
  Op& operator[](size_t i) { return ++looked_at_, data()[i]; }
  const Op& operator[](size_t i) const { return ++looked_at_, data()[i]; }
  iterator begin() { return looked_at_ += size(), std::vector<Op>::begin(); }
  const_iterator begin() const { return looked_at_ += size(), std::vector<Op>::begin(); }
  static uint64_t looked_at() { return looked_at_; }  // by this thread so far

 private:
  static inline thread_local uint64_t looked_at_ = 0;
};

// Where a loss that is not part of the graph takes hold of it: the caller reads `value` after the forward pass and
// writes the loss's derivative by it, `seed` (of its shape and type), before the backward pass.
struct Root {
  ValueId value = kNone, seed = kNone;
};

// How pictures stand in a batch of a model that sees them.
struct Pictures {
  int64_t merge = 0;          // merge² patches become a token; 0: the model sees none
  int64_t values = 0;         // of a patch's pixels
  int64_t side = 0;           // of the table of places
  int64_t rotary = 0;         // coordinates of a patch's heads, all of which are rotated
  int64_t features = 0;       // columns of what generation is given instead of pixels
  std::vector<uint8_t> axes;  // of the text's frequencies, [rotary/2]: 0 turns with time, 1 with rows, 2 with columns
};

struct Graph {
  DType act_type = DType::kF32;  // F32 or BF16: activations and the computing copy of weights
  std::vector<Value> values;
  std::vector<Param> params;
  OpList ops;
  int64_t dropouts = 0;     // operations of that kind in the forward pass: each draws from a stream of its own
  int32_t forward_ops = 0;  // ops[0, forward_ops) are the forward pass (head included)
  std::vector<Root> roots;  // empty where the head's own loss is what is differentiated
  ValueId hidden = kNone;   // what the head reads
  int64_t vocab = 0, max_positions = 0, rotary = 0;
  Pictures pictures;
  std::vector<ValueId> features;          // of a graph that ends in them (models::Purpose::kPictures)
  std::vector<float> rope_cos, rope_sin;  // [max_positions, rotary/2], one such table after another

  ValueId add_value(Extent rows, int64_t cols, DType type, std::string name = {});
  ParamId add_param(Param p, DType type);                                          // also makes its value
  int64_t add_rope(const std::vector<float>& cos, const std::vector<float>& sin);  // where the table begins
  Op& add_op(Attrs attrs, std::vector<ValueId> in, std::vector<ValueId> out);
  const Value& value(ValueId v) const { return values[static_cast<size_t>(v)]; }
  const Param& param_of(ValueId v) const { return params[static_cast<size_t>(value(v).param)]; }
  ValueId root(ValueId v) const;  // follows alias_of and beside to the buffer's first value
  int64_t ld(ValueId v) const;    // elements between rows of an activation
  std::string print() const;
};

}  // namespace mxt::graph
