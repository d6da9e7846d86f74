// What gpt-oss (OpenAI 2025) adds to a decoder with experts. The conventions of api.h hold. A backend that has these
// calls is also a GptOss.
#pragma once

#include <cstdint>

#include "kernels/api.h"

namespace mxt::kernels {

// Attention sinks (Xiao et al. 2023): beside the scores of every query stands one more of its head, learned, whose
// weight is dropped after the softmax. With o and lse of attention without it:
//   lse' = ln(e^lse + e^sink)        o' = o·e^(lse − lse')
// written over them. What goes on from lse' and o' is attention's own gradient.
struct AttentionSinks {
  Mat out;                       // [tokens, heads·head_dim]
  float* lse = nullptr;          // [heads, tokens]
  const float* sinks = nullptr;  // [heads]
  int64_t heads = 0;
};
// dsinks_h (+)= −Σ_t e^(sink_h − lse'[h, t])·(dout[t, h]·o'[t, h])
struct AttentionSinksGrad {
  ConstMat out, dout;
  const float* lse = nullptr;
  const float* sinks = nullptr;
  int64_t heads = 0;
  float* dsinks = nullptr;
  bool accumulate = true;
};
// The same of attention through a cache, which has no gradient.
struct CachedSinks {
  CachedAttention of;
  const float* sinks = nullptr;
};

// x = [gate | up], y = (u + 1)·g·σ(alpha·g) with g = min(gate, limit), u = max(−limit, min(up, limit)).
struct ClampedGlu {
  ConstMat x;
  Mat y;
  float alpha = 0, limit = 0;
};
// Nothing flows where a bound holds; on the bound itself the gradient passes, as torch.clamp has it.
struct ClampedGluGrad {
  ConstMat x, dy;
  Mat dx;  // may be x
  float alpha = 0, limit = 0;
};

// y[r] += bias_e for the rows r of expert e, [first[e], first[e + 1]).
struct ExpertBias {
  Mat y;
  ConstMat bias;                   // [1, experts·cols]
  const int32_t* first = nullptr;  // [experts + 1]
  int64_t experts = 0;
};
// dbias_e (+)= Σ dy[r] over its rows.
struct ExpertBiasGrad {
  ConstMat dy;
  const int32_t* first = nullptr;
  int64_t experts = 0;
  float* dbias = nullptr;  // [experts·cols]
  bool accumulate = true;
};

void check(const AttentionSinks&);  // as checks.h
void check(const AttentionSinksGrad&);
void check(const CachedSinks&);
void check(const ClampedGlu&);
void check(const ClampedGluGrad&);
void check(const ExpertBias&);
void check(const ExpertBiasGrad&);

class GptOss {
 public:
  virtual ~GptOss() = default;
  virtual void attention_sinks(const AttentionSinks&) = 0;
  virtual void attention_sinks_grad(const AttentionSinksGrad&) = 0;
  virtual void cached_sinks(const CachedSinks&) = 0;
  virtual void clamped_glu(const ClampedGlu&) = 0;
  virtual void clamped_glu_grad(const ClampedGluGrad&) = 0;
  virtual void expert_bias(const ExpertBias&) = 0;
  virtual void expert_bias_grad(const ExpertBiasGrad&) = 0;
};

namespace reference {
void attention_sinks(const AttentionSinks&);
void attention_sinks_grad(const AttentionSinksGrad&);
void cached_sinks(const CachedSinks&);
void clamped_glu(const ClampedGlu&);
void clamped_glu_grad(const ClampedGluGrad&);
void expert_bias(const ExpertBias&);
void expert_bias_grad(const ExpertBiasGrad&);
}  // namespace reference
namespace cpu {
void attention_sinks(const AttentionSinks&);
void attention_sinks_grad(const AttentionSinksGrad&);
void cached_sinks(const CachedSinks&);
void clamped_glu(const ClampedGlu&);
void clamped_glu_grad(const ClampedGluGrad&);
void expert_bias(const ExpertBias&);
void expert_bias_grad(const ExpertBiasGrad&);
}  // namespace cpu

}  // namespace mxt::kernels
