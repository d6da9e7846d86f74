// Gated DeltaNet (Yang et al. 2024, "Gated Delta Networks") as Qwen3.5 has it, and the gates around it: arguments of
// its kernels. Part of api.h, whose conventions hold. Convolution and state begin anew at each document, whose results
// do not depend on what else is in the batch: packed equals separate, bit for bit.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"

namespace mxt::kernels {

// What a sequence that is generated carries on from pass to pass. slot[d] is the place of document d's state; a
// document whose context[d] tokens are all in this pass starts from zero, any other from what stands there. What it
// ends with is written back.
struct Carried {
  bool on = false;  // false: every document starts from zero and leaves nothing
  void* states = nullptr;
  const int32_t* slot = nullptr;
  const int32_t* context = nullptr;
  int64_t pages = 0;  // nothing to these kernels: documents are then a cache's requests
};

// y[t, c] = silu(Σ_i w[c, i]·x[t − (width−1) + i, c]), tokens of the same document only (zeros before it). States: the
// last width − 1 rows of x, [slots, width − 1, channels] of x's type.
struct CausalConv {
  ConstMat x;  // [tokens, channels], act
  ConstMat w;  // [channels, width], act
  Mat y;
  const int32_t* cu_seqlens = nullptr;
  int64_t documents = 0, longest_document = 0;
  Carried carried;
};
struct CausalConvGrad {
  ConstMat x, w, dy;
  Mat dx;               // p null: not wanted
  float* dw = nullptr;  // F32 [channels, width]; null: not wanted
  bool accumulate = true;
  const int32_t* cu_seqlens = nullptr;
  int64_t documents = 0, longest_document = 0;
};

// qkv holds key_heads·key_dim columns of q, as many of k, and value_heads·value_dim of v; value head h reads key head
// h·key_heads/value_heads. ba: [tokens, 2·value_heads], b then a. With q̂ = q/√(Σq² + 1e-6)/√key_dim, k̂ = k/√(Σk² +
// 1e-6), β = σ(b), α = exp(−exp(a_log)·softplus(a + dt_bias)), and a state S [key_dim, value_dim] for each value head,
// 0 where a document begins, in fp32:
//   S ← α·S     S ← S + k̂·(β·(v − Sᵀk̂))ᵀ     o = Sᵀq̂
// States: [slots, value_heads, key_dim, value_dim], F32.
struct DeltaShape {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int64_t width() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};
struct GatedDelta {
  ConstMat qkv, ba;         // act
  ConstMat a_log, dt_bias;  // [1, value_heads], F32
  Mat out;                  // [tokens, value_heads·value_dim]
  DeltaShape of;
  const int32_t* cu_seqlens = nullptr;
  int64_t documents = 0, longest_document = 0;
  Carried carried;
};
// States are made again from those at every 64th token, which lie in memory of the kernel's own.
struct GatedDeltaGrad {
  ConstMat qkv, ba, a_log, dt_bias, dout;
  Mat dqkv, dba;                                 // overwritten
  float *da_log = nullptr, *ddt_bias = nullptr;  // F32 [value_heads], null: not wanted
  bool accumulate = true;
  DeltaShape of;
  const int32_t* cu_seqlens = nullptr;
  int64_t documents = 0;
  int64_t longest_document = 0;  // none is longer; 0: not known
};

// For each run of w.cols columns (a head): y = x·rstd·w·silu(gate), rstd = 1/√(mean(x²) + eps).
struct GatedNorm {
  ConstMat x, gate, w;  // [tokens, heads·dim] twice, [1, dim]; act
  Mat y;
  float* rstd = nullptr;  // [tokens, heads]; null when no gradient follows
  float eps = 1e-6f;
};
struct GatedNormGrad {
  ConstMat x, gate, w, dy;
  const float* rstd = nullptr;
  Mat dx, dgate;        // may be x's and gate's memory
  float* dw = nullptr;  // F32 [dim]; null: not wanted
  bool accumulate = true;
};

// y = x·σ(gate); gate has x's columns, or one for all of them.
struct SigmoidGate {
  ConstMat x, gate;
  Mat y;
};
struct SigmoidGateGrad {
  ConstMat x, gate, dy;
  Mat dx, dgate;
};

// Heads that carry a gate each: all = [q_0 | gate_0 | q_1 | gate_1 | … | rest] to plain = [q_0 | q_1 | … | rest] and
// gate, `dim` columns a head; and back, with `merge`.
struct SplitGates {
  Mat all, plain, gate;
  int64_t dim = 0;
  bool merge = false;  // all is written, from the others
};

}  // namespace mxt::kernels
