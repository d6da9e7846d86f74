// Every operation that a device must offer, as plain argument structs over caller-owned memory. Kernels know nothing of
// graphs or models; `runtime` lowers graph operations to these calls. `reference/` implements all of them in plain
// loops and is the oracle for every other backend.
//
// Conventions
//  - Matrices are row-major; `ld` counts elements between rows. Activations are [tokens, width].
//  - "act" type: F32 or BF16, the same for all activation operands of a call. Arithmetic is fp32 inside, one rounding
//    at the store. Statistics (rstd, lse, losses) and gradients of parameters are F32.
//  - Parameters that a kernel multiplies with (norm weights, biases) have type `wtype`, F32 or BF16.
//  - "accumulate": true adds into the output, false overwrites it. Reductions have a fixed order: results never depend
//    on the number of threads, and there are no atomics.
//  - Unless said otherwise outputs may not overlap inputs.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "kernels/delta.h"
#include "kernels/experts.h"
#include "kernels/matrix.h"
#include "kernels/optimizer_calls.h"

namespace mxt::device {
class Accelerator;
}

namespace mxt::kernels {

// C = alpha · op(A) · op(B) (+ C) (+ bias as a row). op transposes where the flag says; m, n, k are read off C and A.
// A and B have one type (F32 or BF16), C is F32 or BF16; fp32 accumulation.
// A and B in E4M3: C = diag(a_scale) · A · Bᵀ · diag(b_scale) (+ C), trans_b alone, alpha 1; the inner dimension and n
// are multiples of 16. The tail, of C's type (E4M3 operands alone), is added to that: C = … + tail_a · op(tail_b): an
// adapter beside the held matrix. The three uses: forward y = x Wᵀ (trans_b); input gradient dx = dy W; weight gradient
// dW = dyᵀ x (trans_a).
struct Gemm {
  ConstMat a, b;
  Mat c;
  bool trans_a = false, trans_b = false, accumulate = false;
  float alpha = 1.0f;
  const void* bias = nullptr;  // [n] of bias_type, added once (not with accumulate)
  DType bias_type = DType::kF32;
  const float *a_scale = nullptr, *b_scale = nullptr;  // E4M3: [m], [n]; null = 1
  ConstMat tail_a, tail_b;                             // [m, r], [r, n] (tail_trans_b: [n, r]); no columns: none
  bool tail_trans_b = false;
  // E4M3: the largest magnitude of each row of C as it is stored, where wanted; of each of row_parts equal ranges of
  // its columns: [m, row_parts].
  float* row_absmax = nullptr;
  int row_parts = 1;
  int algo = 0;  // index into Ops::gemm_algorithms(); 0 = the backend's default
  bool b_constant =
      false;  // the call before this one does not write b: a kernel may read it before that call has ended
  const void* b_packed = nullptr;  // b as Ops::pack_b laid it out, or null: never changes a result
  // ReLU² at the store, where BackendInfo::relu2_products says so: all of bf16, not trans_a, alpha 1, nothing added.
  // relu2: C = max(ABᵀ, 0)²; relu2_of, such a result y [m, n]: C = AB ∘ 2√y, the gradient of what y was made of.
  bool relu2 = false;
  ConstMat relu2_of;
  bool ends_in_relu2() const { return relu2 || relu2_of.cols > 0; }
};

// Rows of x∘c held as E4M3 with one scale a row (f8e4m3_row_scale of its largest magnitude): q = round(x∘c / scale).
// With q of x's type: the values that are held so, divided by c again.
struct Quantize {
  ConstMat x;                      // act
  const float* channel = nullptr;  // c: [cols], powers of two; null = 1
  Mat q;                           // E4M3, or x's type (then it may be x)
  float* scale = nullptr;          // [rows]; null = not wanted, with q of x's type
};

// What a kernel that makes rows writes beside them: its rounded result as Quantize holds it. q.p null: not wanted.
struct RowwiseFp8Copy {
  const float* channel = nullptr;
  Mat q;                   // E4M3
  float* scale = nullptr;  // [rows]
};

// An adapter's product with rows held in E4M3, x = scale∘q: z = x·wᵀ; and the gradient of w: dw (+)= dzᵀ·x.
struct RowwiseFp8Linear {
  ConstMat q;                    // E4M3 [tokens, n]
  const float* scale = nullptr;  // [tokens]
  ConstMat w;                    // [r, n], act
  Mat z;                         // [tokens, r], act
};
struct RowwiseFp8LinearDw {
  ConstMat dz, q;  // [tokens, r], act; E4M3 [tokens, n]
  const float* scale = nullptr;
  float* dw = nullptr;  // F32 [r, n]
  bool accumulate = false;
};

// Of a matrix that trains, held in E4M3: its transpose, byte by byte; and its gradient from rows that are held so,
//   dw (+)= diag(1/channel)·(dy_scale∘dy)ᵀ·(x_scale∘x),
// whose operands meet with one scale each, the largest of dy_scale and of x_scale: numbers that are smaller than E4M3's
// least at that scale are rounded there once more (what is 2¹⁸ below the largest becomes 0).
struct RowwiseFp8Transpose {
  ConstMat q;  // E4M3 [n, m], both multiples of 16
  Mat out;     // E4M3 [m, n]
  // With q's scales [n]: its rows first move to one scale, the largest, rounded as Fp8LinearDw's; it is left m times.
  const float* scale = nullptr;
  float* out_scale = nullptr;
};
struct Fp8LinearDw {
  ConstMat dy, x;                                       // E4M3 [tokens, n], [tokens, k]; n and k multiples of 16
  const float *dy_scale = nullptr, *x_scale = nullptr;  // [tokens]
  const float* channel = nullptr;                       // [n], powers of two: what dy was multiplied by; null = 1
  float* dw = nullptr;                                  // F32 [n, k]
  bool accumulate = false;
};

// The gradients of an adapter whose blocks y[:, col..] += z[:, z_col..]·Bᵀ (B scaled) are given dy, in one pass over
// dy:
//   dz[:, z_col..] = dy[:, col..]·B        db (+)= scale · dy[:, col..]ᵀ·z[:, z_col..]
struct LoraGrad {
  struct Block {
    int64_t col = 0, cols = 0, z_col = 0, rank = 0;
    float scale = 1;
    float* db = nullptr;  // F32 [cols, rank]
  };
  ConstMat dy;  // [tokens, n], act
  ConstMat b;   // [n, ranks], act: the scaled B of each block in its own rows and columns, zeros elsewhere
  ConstMat z;   // [tokens, ranks]
  Mat dz;       // [tokens, ranks]
  std::vector<Block> blocks;
  bool accumulate = false;  // of db
};

// y[t] = table[ids[t]]; ids outside the table are a bug of the caller (data is checked before).
struct Embedding {
  const int32_t* ids = nullptr;
  ConstMat table;  // [vocab, width], wtype
  Mat y;           // [tokens, width], act
};
// dtable[ids[t]] += dy[t], tokens in ascending order of t for each row. dtable F32 [vocab, width]; when !accumulate it
// is zeroed first. An id below zero (a picture's token) has no row there, and the row `padding` learns nothing
// (torch.nn.Embedding's padding_idx). With `by` [tokens]: += by[t]·dy[t].
struct EmbeddingGrad {
  const int32_t* ids = nullptr;
  ConstMat dy;
  Mat dtable;
  bool accumulate = true;
  const float* by = nullptr;
  int32_t padding = -1;
  // The row that a token is added to, below zero: none.
  int32_t row_of(int32_t id) const { return id == padding ? -1 : id; }
};

// Optional residual first: h = x + r (written to `h`, act type, when r.p is set; the norm reads the rounded h).
// RMSNorm (Zhang & Sennrich 2019): y = h · rstd · w, rstd = 1/√(mean(h²)+eps).
// LayerNorm: y = (h − mean) · rstd · w + b; biased variance. w and b may be null (1 and 0).
struct Norm {
  bool layer_norm = false;
  ConstMat x, r;  // r.p null: no residual, h is not written and the norm reads x
  Mat h, y;
  const void *w = nullptr, *b = nullptr;
  DType wtype = DType::kF32;
  float* mean = nullptr;  // [rows], LayerNorm only; may be null when no gradient follows
  float* rstd = nullptr;  // [rows]; may be null when no gradient follows
  float eps = 1e-6f;
  RowwiseFp8Copy held;  // of y
  bool keep_y = true;   // false: held alone is wanted, y holds anything afterwards
};
// dx = d norm/dh (+ dres where dres.p is set: the gradient that reaches h past the norm). dw, db: F32 [cols], null =
// not wanted. dx may be dres's buffer.
struct NormGrad {
  bool layer_norm = false;
  ConstMat x, dy, dres;  // x: what the norm read (h)
  Mat dx;
  const void* w = nullptr;
  DType wtype = DType::kF32;
  const float *mean = nullptr, *rstd = nullptr;
  float *dw = nullptr, *db = nullptr;
  bool accumulate = true;  // of dw, db
  RowwiseFp8Copy held;     // of dx
};

// Rotary embedding (Su et al. 2021) in the half-split ("neox") layout of transformers: for i < rotary/2,
//   (x_i, x_{i+rotary/2}) → (x_i cos − x_{i+½} sin, x_{i+½} cos + x_i sin), angle from tables cos/sin [positions,
//   rotary/2] F32;
// columns past `rotary` pass through. With q_w/k_w set each head is first RMS-normalised over its head_dim and
// multiplied by the weight (Qwen3's QK-norm), in fp32, one rounding after the rotation.
// qkv: [tokens, (heads + 2·kv_heads)·head_dim], q heads, then k heads, then v heads. `out` has the same layout and may
// be the same memory as `qkv` when there is no norm; v columns are copied when it is not.
struct QkNormRope {
  ConstMat qkv;
  Mat out;
  int64_t heads = 0, kv_heads = 0, head_dim = 0, rotary = 0;  // rotary 0: no rotation
  const int32_t* positions = nullptr;                         // [tokens]
  const float *cos = nullptr, *sin = nullptr;
  const void *q_w = nullptr, *k_w = nullptr;  // [head_dim] of wtype or null
  DType wtype = DType::kF32;
  float* rstd = nullptr;  // [tokens, heads + kv_heads], with norm (1 for heads without); null when no gradient follows
  float eps = 1e-6f;
};
// dqkv from dout; may be the same memory. qkv (the input of the forward) and rstd are read only with norm.
struct QkNormRopeGrad {
  ConstMat qkv, dout;
  Mat dqkv;
  int64_t heads = 0, kv_heads = 0, head_dim = 0, rotary = 0;
  const int32_t* positions = nullptr;
  const float *cos = nullptr, *sin = nullptr;
  const void *q_w = nullptr, *k_w = nullptr;
  DType wtype = DType::kF32;
  const float* rstd = nullptr;
  float *dq_w = nullptr, *dk_w = nullptr;  // F32 [head_dim] or null
  bool accumulate = true;
  RowwiseFp8Copy held;    // of dqkv
  bool keep_dqkv = true;  // as Norm's keep_y
};

// Softmax attention inside documents: token t of document [cu[i], cu[i+1]) sees tokens s ≤ t of the same
// document (with window w > 0 only t − s < w), or all of it where it is not causal (no window or dropout then). Grouped
// queries: q head h reads kv head h / (heads/kv_heads). q, k, v are column blocks of one buffer (views with a common
// ld); lse F32 holds ln Σ exp of the scaled scores of every head and token, [heads, tokens] except where the algorithm
// says otherwise: the gradient must use the forward's algorithm. dropout p > 0: weights become weight · keep/(1−p)
// after the softmax (lse is that of all of them), keep drawn for query row t and key row s, both counted from
// first_row, by philox4x32(seed, stream, attention_drop_index(head, t, s))[s % 4] ≥ ⌊p·2³²⌋; the gradient draws the
// same.
//
// prefix, where it is given, I32 [documents]: document i goes on from document prefix[i], as if that one's tokens stood
// before its own (several answers to one prompt); −1: from none. Those that go on from one stand directly behind it,
// one after another, and nothing goes on from them. Causal, without dropout.
inline uint64_t attention_drop_index(int64_t head, int64_t t, int64_t s) {
  return static_cast<uint64_t>(head) << 52 | static_cast<uint64_t>(t) << 26 | static_cast<uint64_t>(s) >> 2;
}
struct Attention {
  ConstMat q, k, v;                     // [tokens, heads·head_dim], [tokens, kv_heads·head_dim] twice
  Mat out;                              // [tokens, heads·head_dim]
  float* lse = nullptr;                 // may be null when no gradient follows
  const int32_t* cu_seqlens = nullptr;  // [documents + 1], cu[0] = 0, cu[documents] = tokens; host memory on the CPU
  const int32_t* prefix = nullptr;      // null: no document goes on from another
  int64_t documents = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t longest =
      0;  // no document is longer; 0: not known. documents·longest = tokens says that all are of that length
  int64_t window = 0;
  float scale = 0, dropout = 0;
  bool causal = true;             // false: no window and no dropout
  uint64_t seed = 0, stream = 0;  // of dropout
  int64_t first_row = 0;
  int algo = 0;  // index into Ops::attention_algorithms()
};
struct AttentionGrad {
  ConstMat q, k, v, out, dout;
  const float* lse = nullptr;
  Mat dq, dk, dv;  // overwritten
  const int32_t* cu_seqlens = nullptr;
  const int32_t* host_cu_seqlens =
      nullptr;  // the same in host memory, where cu_seqlens is not: a device sorts documents by length
  const int32_t* prefix = nullptr;
  int64_t documents = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t longest =
      0;  // no document is longer; 0: not known. documents·longest = tokens says that all are of that length
  int64_t window = 0;
  float scale = 0, dropout = 0;
  bool causal = true;
  uint64_t seed = 0, stream = 0;
  int64_t first_row = 0;
  int algo = 0;
};

// Attention of new tokens against a paged cache. Request i owns tokens [cu_q[i], cu_q[i+1]) of q; its cache holds
// context[i] tokens (the new ones included, already stored) in pages of `page` tokens: token s lies in page
// tables[i·max_pages + s/page] at row s % page. Query j of request i sees s ≤ context[i] − n_i + j.
// k_cache, v_cache: [pages, kv_heads, page, head_dim] act type. The sum over s has one fixed order whatever else is in
// the batch and however the prompt was cut.
struct CachedAttention {
  ConstMat q;
  Mat out;
  const void *k_cache = nullptr, *v_cache = nullptr;
  const int32_t *cu_q = nullptr, *context = nullptr, *tables = nullptr;
  int64_t requests = 0, max_pages = 0, page = 0, heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  float scale = 0;
};
// Copies k and v of each token t to cache slot slots[t] (page·page_size + row); slot −1 skips the token.
struct StoreCache {
  ConstMat k, v;
  void *k_cache = nullptr, *v_cache = nullptr;
  const int32_t* slots = nullptr;
  int64_t page = 0, kv_heads = 0, head_dim = 0;
};

enum class Activation : uint8_t {
  kSwiGlu,    // x = [gate | up]: y = silu(gate)·up; y has half of x's columns
  kGeluTanh,  // 0.5x(1+tanh(√(2/π)(x+0.044715x³))), transformers' gelu_new and gelu_pytorch_tanh
  kGelu,      // x Φ(x)
  kRelu2,     // max(x,0)²
  kGeGlu,     // x = [gate | up]: y = gelu_tanh(gate)·up
};
// Whether x is [gate | up], and y has half of its columns.
constexpr bool gated(Activation a) { return a == Activation::kSwiGlu || a == Activation::kGeGlu; }
struct Act {
  Activation kind = Activation::kSwiGlu;
  ConstMat x;
  Mat y;
  RowwiseFp8Copy held;  // of y
  bool keep_y = true;   // false: held alone is wanted, y holds anything afterwards
};
struct ActGrad {  // dx may be the same memory as x
  Activation kind = Activation::kSwiGlu;
  ConstMat x, dy;
  Mat dx;
  RowwiseFp8Copy held;  // of dx
  bool keep_dx = true;  // as keep_y
};

// SwiGLU for a product with a held matrix and its adapter: y as E4M3 (act.held), and z = y·aᵀ of y as it would be
// stored; y itself is not written. The scale is one that no element exceeds: f8e4m3_row_scale(|gate| · |up|) of the
// row's largest.
struct ActLora {
  Act act;                            // kSwiGlu
  ConstMat a;                         // [rank, cols of y], act
  Mat z;                              // [tokens, rank]
  const float* row_absmax = nullptr;  // [rows, 2], the largest |gate| and |up|
};

// SwiGLU's backward and what LoRA needs of its operands, while they are at hand: act (kSwiGlu), then lora with dy =
// act.dx (two blocks: gate's columns, then up's), and da (+)= dzᵀ·y for the adapter of the product that reads y =
// silu(gate)·up.
struct ActLoraGrad {
  ActGrad act;
  LoraGrad lora;
  ConstMat dz;          // [tokens, rank] of that adapter; no rows: da is not wanted
  float* da = nullptr;  // F32 [rank, cols of y]
  bool accumulate_da = false;
  // With held.q dx is not written; it is left as E4M3 instead, with a scale that no element exceeds, since a block does
  // not see a row whole: f8e4m3_row_scale(largest · max(1.1 · |up| · max c of gate, |gate| · max c of up)), since
  // |silu'| < 1.1 and |silu(x)| ≤ |x|.
  RowwiseFp8Copy held;                                    // of dx; channel is wanted
  const float *row_absmax = nullptr, *largest = nullptr;  // [rows, 2], the largest |gate| and |up|; [rows], of |dy|
};

struct Add {  // y = a + b; y may be a or b
  ConstMat a, b;
  Mat y;
};
// y = a·x + sign·b·z, a and b single values of wtype (a null: 1).
struct Mix {
  ConstMat x, z;
  Mat y;
  const void *a = nullptr, *b = nullptr;
  DType wtype = DType::kF32;
  float sign = 1;
};
// dz = sign·b·dy + sum, where sum.p is set (it may be dz); dx = a·dy where dx.p is. da (+)= Σ dy·x, db (+)= sign·Σ
// dy·z: one value each, null = not wanted.
struct MixGrad {
  ConstMat dy, x, z, sum;
  Mat dx, dz;
  const void *a = nullptr, *b = nullptr;
  DType wtype = DType::kF32;
  float sign = 1;
  float *da = nullptr, *db = nullptr;
  bool accumulate = true;
};
// y = x, and y[t, col + g·width + j] += by·λ·σ(Σ_k w[g, k]·s[t, k])·u[t, g·width + j] for w's rows g, width = u.cols /
// w.rows. λ: one value of wtype, null: 1. With positions, tokens at position 0 are left as they are.
struct Gate {
  ConstMat x, s, w, u;
  Mat y;
  const void* lambda = nullptr;
  DType wtype = DType::kF32;  // of lambda
  int64_t col = 0;
  float by = 1;
  const int32_t* positions = nullptr;
};
// ds: overwritten whole (zero past w's columns); dw F32 [w.rows, w.cols] and dlambda, null = not wanted.
struct GateGrad {
  ConstMat dy, s, w, u;
  Mat ds, du;
  const void* lambda = nullptr;
  DType wtype = DType::kF32;
  int64_t col = 0;
  float by = 1;
  const int32_t* positions = nullptr;
  float *dw = nullptr, *dlambda = nullptr;
  bool accumulate = true;
};
struct BiasGrad {  // db[n] (+)= Σ_t dy[t, n], F32
  ConstMat dy;
  float* db = nullptr;
  bool accumulate = true;
};
// y = x · keep/(1−p), keep drawn by philox4x32(seed, stream, element/4)[element%4] ≥ ⌊p·2³²⌋ with element =
// (first_row + row)·cols + col, so that a batch in parts draws what it would at once; the backward is the same call on
// dy.
struct Dropout {
  ConstMat x;
  Mat y;  // may be x
  float p = 0;
  uint64_t seed = 0, stream = 0;
  int64_t first_row = 0;
};

// Rows of logits to losses: nll[i] = lse(logits[i]) − logits[i][label[i]]. With `gradient`, logits[i] is overwritten by
// weight[i]·(softmax(logits[i]) − onehot(label[i])). softcap c > 0: logits are first c·tanh(logits/c), and the gradient
// goes through it. label −100 gives nll 0 and a zero row.
struct CrossEntropy {
  Mat logits;  // [rows, vocab], F32 or BF16
  const int32_t* labels = nullptr;
  const float* weights = nullptr;  // [rows]; null = 1
  float* nll = nullptr;            // [rows]
  bool gradient = false;
  float softcap = 0;
  // With gradient, without softcap: softmax(logits) instead, 0 at the label and without weights; LabelGrad does the
  // rest. What is left is E4M3 where held.q is wanted, and the logits then stay as they are.
  bool softmax = false;
  RowwiseFp8Copy held;
  // [rows], with held alone and without softmax: the gradient at the label, where held has 0 then: it is as large as
  // all others together, and at a scale that it sets most of them would vanish.
  float* at_label = nullptr;
  float* entropy = nullptr;  // [rows]: −Σ p ln p of p = softmax(logits), 0 where the label is −100; null = not wanted
};
// dh[i] = weight[i]·(dh[i] + (softmax[label[i]] − 1)·W[label[i]]), where dh is the product of the other rows of W and
// their softmax, which may have been rounded: the label's part is taken exactly, since it vanishes where the model is
// sure, and a rounding of 1 would not. softmax[label] = exp(−nll). label −100 gives a zero row. With at_label, which
// CrossEntropy leaves: dh[i] + at_label[i]·W[label[i]].
struct LabelGrad {
  Mat dh;      // [rows, width], act
  ConstMat w;  // [vocab, width], act
  const int32_t* labels = nullptr;
  const float* nll = nullptr;      // [rows]
  const float* weights = nullptr;  // [rows]; null = 1
  const float* at_label = nullptr;
};
struct Copy {  // y = scale · x, both of one type; y may be x
  ConstMat x;
  Mat y;
  float scale = 1;
};
struct GatherRows {  // y[i] = x[rows[i]]
  ConstMat x;
  const int32_t* rows = nullptr;
  Mat y;
};
struct MeanPool {  // y[i] = mean of the rows of document [cu[i], cu[i+1]), at least one
  ConstMat x;      // [tokens, width], act
  const int32_t* cu_seqlens = nullptr;
  Mat y;  // [documents, width], F32
};
struct ScatterRows {  // y = 0 (where `zero`), then y[rows[i]] = x[i]; rows distinct
  ConstMat x;
  const int32_t* rows = nullptr;
  Mat y;
  bool zero = true;
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual std::string_view name() const = 0;  // "reference", "cpu", "cuda", "hip"
  // Whose memory operands lie in; null: the host's.
  virtual device::Accelerator* device() const { return nullptr; }

  // Names of the ways to compute a call, best default first. A plan stores names; lowering turns them into indices.
  virtual std::vector<std::string> gemm_algorithms() const = 0;
  virtual std::vector<std::string> attention_algorithms() const = 0;
  // The first algorithm that runs the same code for this call as `algo` does: what goes under two names is timed once.
  virtual int same_gemm(const Gemm&, int algo) const { return algo; }
  virtual int same_attention(const Attention&, int algo) const { return algo; }

  virtual void gemm(const Gemm&) = 0;
  // A weight that many products read can be laid out once the way their kernel reads it. Bytes of that, for b's type
  // and sizes, trans_b and the algorithm (nothing else is looked at); 0 where nothing would be gained.
  virtual size_t packed_b_bytes(const Gemm&) const { return 0; }
  virtual void pack_b(const Gemm&, void* /*to*/) {}
  virtual void quantize(const Quantize&) = 0;
  virtual void rowwise_fp8_linear(const RowwiseFp8Linear&) = 0;
  virtual void rowwise_fp8_linear_dw(const RowwiseFp8LinearDw&) = 0;
  virtual void rowwise_fp8_transpose(const RowwiseFp8Transpose&) = 0;
  virtual void fp8_linear_dw(const Fp8LinearDw&) = 0;
  // Only where has_lora_grad says so (pointers may be null when it is asked): elsewhere products do the same.
  virtual bool has_lora_grad(const LoraGrad&) const { return false; }
  virtual void lora_grad(const LoraGrad&) {}
  virtual bool has_act_lora(const ActLora&) const { return false; }
  virtual void act_lora(const ActLora&) {}
  virtual bool has_act_lora_grad(const ActLoraGrad&) const { return false; }
  virtual void act_lora_grad(const ActLoraGrad&) {}
  virtual void embedding(const Embedding&) = 0;
  virtual void embedding_grad(const EmbeddingGrad&) = 0;
  virtual void norm(const Norm&) = 0;
  virtual void norm_grad(const NormGrad&) = 0;
  virtual void qk_norm_rope(const QkNormRope&) = 0;
  virtual void qk_norm_rope_grad(const QkNormRopeGrad&) = 0;
  virtual void attention(const Attention&) = 0;
  virtual void attention_grad(const AttentionGrad&) = 0;
  virtual void cached_attention(const CachedAttention&) = 0;
  virtual void store_cache(const StoreCache&) = 0;
  virtual void act(const Act&) = 0;
  virtual void act_grad(const ActGrad&) = 0;
  virtual void add(const Add&) = 0;
  virtual void bias_grad(const BiasGrad&) = 0;
  virtual void dropout(const Dropout&) = 0;
  virtual void cross_entropy(const CrossEntropy&) = 0;
  virtual void label_grad(const LabelGrad&) = 0;
  virtual void copy(const Copy&) = 0;
  virtual void gather_rows(const GatherRows&) = 0;
  virtual void scatter_rows(const ScatterRows&) = 0;
  virtual void mean_pool(const MeanPool&) {}  // the host's backends alone: lowering refuses it elsewhere
  // Experts; a backend without them says so.
  virtual void route(const Route&) { lacks("route"); }
  virtual void route_grad(const RouteGrad&) { lacks("route_grad"); }
  virtual void expert_gather(const ExpertGather&) { lacks("expert_gather"); }
  virtual void expert_sum(const ExpertSum&) { lacks("expert_sum"); }
  virtual void expert_dots(const ExpertDots&) { lacks("expert_dots"); }
  virtual void grouped_gemm(const GroupedGemm&) { lacks("grouped_gemm"); }
  virtual void route_load(const RouteLoad&) { lacks("route_load"); }
  virtual void balance_loss(const BalanceLoss&) { lacks("balance_loss"); }
  // Gated DeltaNet and the gates around it; likewise.
  virtual void causal_conv(const CausalConv&) { lacks("causal_conv"); }
  virtual void causal_conv_grad(const CausalConvGrad&) { lacks("causal_conv_grad"); }
  virtual void gated_delta(const GatedDelta&) { lacks("gated_delta"); }
  virtual void gated_delta_grad(const GatedDeltaGrad&) { lacks("gated_delta_grad"); }
  virtual void gated_norm(const GatedNorm&) { lacks("gated_norm"); }
  virtual void gated_norm_grad(const GatedNormGrad&) { lacks("gated_norm_grad"); }
  virtual void sigmoid_gate(const SigmoidGate&) { lacks("sigmoid_gate"); }
  virtual void sigmoid_gate_grad(const SigmoidGateGrad&) { lacks("sigmoid_gate_grad"); }
  virtual void split_gates(const SplitGates&) { lacks("split_gates"); }
  // Residual streams mixed by learned scalars and gated additions (nanochat); likewise.
  virtual void mix(const Mix&) { lacks("mix"); }
  virtual void mix_grad(const MixGrad&) { lacks("mix_grad"); }
  virtual void gate(const Gate&) { lacks("gate"); }
  virtual void gate_grad(const GateGrad&) { lacks("gate_grad"); }
  virtual void adamw(const AdamW&) = 0;
  virtual void adamw_8bit(const AdamW8bit&) = 0;
  virtual void lion(const Lion&) = 0;
  virtual void adafactor(const Adafactor&) = 0;
  virtual void muon_direction(const MuonDirection&) = 0;
  virtual void muon_update(const MuonUpdate&) = 0;
  virtual double squared_norm(const SquaredNorm&) = 0;
  // The same left in the memory of the device, where one has memory of its own: no host waits for it. clip_scale makes
  // the factor of gradient clipping from it, min(1, max_norm / (√squared + 1e-6)).
  virtual void squared_norm_to(const SquaredNorm& s, double* squared) { *squared = squared_norm(s); }
  virtual void clip_scale(const double* squared, double max_norm, float* scale) {
    const double c = max_norm / (std::sqrt(*squared) + 1e-6);
    *scale = c < 1 ? static_cast<float>(c) : 1.0f;
  }

  // Scratch memory that a call may use, given once by the owner of the memory plan; a call that needs more is a bug.
  virtual size_t gemm_scratch(const Gemm&) const = 0;
  virtual size_t attention_scratch(const Attention&) const = 0;
  virtual size_t attention_grad_scratch(const AttentionGrad&) const = 0;
  virtual size_t fp8_linear_dw_scratch(const Fp8LinearDw&) const { return 0; }
  virtual void set_scratch(void* memory, size_t bytes) = 0;

 protected:
  [[noreturn]] void lacks(std::string_view call) const;  // kMissing (checks.cc)
};

// Plain loops, no SIMD, no scratch. Slow; right.
Ops& reference_ops();
// oneDNN and Highway, the instruction set chosen at run time by what the processor has.
Ops& cpu_ops();

// What the CPU backend found: for the plan's device identity and `doctor`.
struct CpuFeatures {
  std::string model, vector_target;  // e.g. "AMD EPYC …", "AVX3" (Highway's name of AVX-512), "AVX2", "SCALAR"
  bool avx2 = false, avx512 = false, avx512_bf16 = false, amx_bf16 = false;
  std::string onednn_version, onednn_isa;
};
CpuFeatures cpu_features();

}  // namespace mxt::kernels
