// What variants of adapters and fine-tuning add to a step: DoRA's magnitudes, and noise on embeddings. The conventions
// of api.h hold. A backend that has these calls is also a Variants.
#pragma once

#include <cstdint>

#include "kernels/api.h"

namespace mxt::kernels {

// DoRA (Liu et al. 2024): row i of an adapted matrix is W'_i = m_i · V_i/‖V_i‖ with V = W + scale·B·A. Lengths are
// taken as they are, no gradient flows through them: norm_i = ‖V_i‖, from p = W·Aᵀ and q = A·Aᵀ, so that V is never
// made:
//   ‖V_i‖² = ‖W_i‖² + 2·scale·B_i·p_iᵀ + scale²·B_i·q·B_iᵀ        gain_i = m_i/‖V_i‖
// Without w (columns of a product that no adapter reaches): gain = norm = 1.
struct DoraGain {
  ConstMat w;  // [rows, width], act
  ConstMat p;  // [rows, rank], act
  ConstMat q;  // [rank, rank], act
  ConstMat b;  // [rows, rank], act
  const float* m = nullptr;
  float scale = 1;
  int64_t rows = 0;
  float *gain = nullptr, *norm = nullptr;  // [rows]
};
// y[t, i] = gain_i·u[t, i] + bias_i.
struct DoraScale {
  ConstMat u;
  const float* gain = nullptr;  // [cols]
  const void* bias = nullptr;   // [cols] of bias_type; null: none
  DType bias_type = DType::kF32;
  Mat y;
};
// du = gain∘dy; dm_i (+)= Σ_t dy[t, i]·u[t, i]/norm_i, null: not wanted.
struct DoraScaleGrad {
  ConstMat dy, u;
  const float *gain = nullptr, *norm = nullptr;  // [cols]
  Mat du;
  float* dm = nullptr;  // [cols]
  bool accumulate = true;
};

// NEFTune (Jain et al. 2023): y[t] = x[t] + alpha/√(L·cols)·r, L the tokens of t's document; r in (−1, 1) is noise_of()
// the word that Dropout (api.h) would draw for that element.
struct EmbeddingNoise {
  ConstMat x;
  Mat y;  // may be x
  const int32_t* cu_seqlens = nullptr;
  int64_t documents = 0, longest_document = 0;
  float alpha = 0;
  uint64_t seed = 0, stream = 0;
  int64_t first_row = 0;
};
// The upper 23 bits of a word as a number in (−1, 1).
inline float noise_of(uint32_t word) { return static_cast<float>(2 * (word >> 9) + 1) * 0x1p-23f - 1.0f; }

void check(const DoraGain&);  // as checks.h
void check(const DoraScale&);
void check(const DoraScaleGrad&);
void check(const EmbeddingNoise&);

class Variants {
 public:
  virtual ~Variants() = default;
  virtual void dora_gain(const DoraGain&) = 0;
  virtual void dora_scale(const DoraScale&) = 0;
  virtual void dora_scale_grad(const DoraScaleGrad&) = 0;
  virtual void embedding_noise(const EmbeddingNoise&) = 0;
};

namespace reference {
void dora_gain(const DoraGain&);
void dora_scale(const DoraScale&);
void dora_scale_grad(const DoraScaleGrad&);
void embedding_noise(const EmbeddingNoise&);
}  // namespace reference
namespace cpu {
void dora_gain(const DoraGain&);
void dora_scale(const DoraScale&);
void dora_scale_grad(const DoraScaleGrad&);
void embedding_noise(const EmbeddingNoise&);
}  // namespace cpu

}  // namespace mxt::kernels
