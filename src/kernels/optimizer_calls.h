// The calls of an optimizer step. Everywhere: `master` is what trains, fp32; `copy` (BF16, may be null) receives the
// rounded weight where the model computes in bf16; a gradient g is grad times both scales; weight decay is decoupled,
// p ← p(1 − lr·wd) before the update, where nothing else is said. Tensors are contiguous.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/matrix.h"

namespace mxt::kernels {

// What multiplies every gradient of a call.
struct GradScale {
  float grad_scale = 1;
  const float* device_grad_scale = nullptr;  // a second factor where the operands lie (clip_scale), null = 1
  // Both, where the operands lie in the host's memory.
  float whole_grad_scale() const { return grad_scale * (device_grad_scale ? *device_grad_scale : 1.0f); }
};

// One tensor of an optimizer step.
struct OptTensor {
  float* master = nullptr;
  const float* grad = nullptr;
  float *m = nullptr, *v = nullptr;  // Lion has no v
  uint16_t* copy = nullptr;
  int64_t n = 0;
  float lr = 0, weight_decay = 0;
};
// AdamW (Loshchilov & Hutter 2019) as PyTorch computes it: p ← p(1 − lr·wd); m, v moments of g;
// p ← p − lr/(1−β1^t) · m / (√v/√(1−β2^t) + eps). `step` counts from 1.
struct AdamW : GradScale {
  std::vector<OptTensor> tensors;
  double beta1 = 0.9, beta2 = 0.95;  // double: 1 − 0.999f is off by 1.3e-5, which PyTorch's states do not show
  float eps = 1e-8f;
  int64_t step = 1;
};

// The same with both moments in 8 bits (Dettmers et al. 2022, as bitsandbytes lays it out): blocks of kStateBlock
// elements, each value a code of dynamic_map() times its block's largest magnitude. The update reads the moments before
// they are rounded again; the nearest code is taken, the lower of two equally near.
inline constexpr int64_t kStateBlock = 256;
inline int64_t state_blocks(int64_t n) { return (n + kStateBlock - 1) / kStateBlock; }
struct Opt8Tensor {
  float* master = nullptr;
  const float* grad = nullptr;
  uint8_t *m = nullptr, *v = nullptr;                // codes of the signed and of the unsigned map
  float *m_largest = nullptr, *v_largest = nullptr;  // [state_blocks(n)]
  uint16_t* copy = nullptr;
  int64_t n = 0;
  float lr = 0, weight_decay = 0;
};
struct AdamW8bit : GradScale {
  std::vector<Opt8Tensor> tensors;
  double beta1 = 0.9, beta2 = 0.95;
  float eps = 1e-8f;
  int64_t step = 1;
};

// Lion (Chen et al. 2023): p ← p(1 − lr·wd) − lr·sign(β1·m + (1−β1)·g), sign(0) = 0; m ← β2·m + (1−β2)·g.
struct Lion : GradScale {
  std::vector<OptTensor> tensors;
  double beta1 = 0.9, beta2 = 0.99;
};

// Adafactor (Shazeer & Stern 2018) as transformers' with neither relative steps, parameter scaling nor momentum. With
// s = g² + eps and β = decay: a matrix keeps row ← β·row + (1−β)·mean over columns of s, col likewise over rows, and
// u = g / √(row_i · col_j / mean(row)); a vector (row null) keeps v ← β·v + (1−β)·s, and u = g/√v. Then
// p ← p(1 − lr·wd) − lr · u / max(1, √mean(u²) / clip).
struct AdafactorTensor {
  float* master = nullptr;
  const float* grad = nullptr;
  float *row = nullptr, *col = nullptr;  // [rows], [cols]
  float* v = nullptr;                    // [rows·cols], of a vector
  uint16_t* copy = nullptr;
  int64_t rows = 1, cols = 0;
  float lr = 0, weight_decay = 0;
};
struct Adafactor : GradScale {
  std::vector<AdafactorTensor> tensors;
  double decay = 0;  // 1 − t^−0.8 at step t
  float eps = 1e-30f, clip = 1.0f;
};

// Muon (Jordan et al. 2024) around its orthogonalisation, which is products. What goes into it:
//   momentum ← μ·momentum + (1−μ)·g;  u = (1−μ)·g + μ·momentum, rounded to x's type;
//   equalise: each row of u times (‖u‖/√rows) / max(‖row‖, 1e-6);  x = u / (slack·‖u‖ + eps), norms Frobenius's.
// Without `equalise` x = u / max(‖u‖, eps) as torch.optim.Muon.
struct MuonDirection : GradScale {
  const float* grad = nullptr;  // [rows, cols] of x
  float* momentum = nullptr;
  Mat x;  // F32 or BF16, ld = cols
  double mu = 0.95;
  bool equalise = true;
  float slack = 1.01f, eps = 1e-6f;
};
// What is made of its result x: nanochat's form (second set) scales x to the norm √min(rows, cols), then divides by the
// root of a running mean of its squares along the shorter way (NorMuon, Li et al. 2025): over columns, one v a row,
// where rows ≥ cols, else over rows; v ← β2·v + (1−β2)·mean(x²), x ← x / √max(v, 1e-10), and keeps the norm. Without
// it x is taken as it is. Then p ← p − lr·x − lr·wd·p, the decay where x·p ≥ 0 alone with `cautious`.
struct MuonUpdate {
  float* master = nullptr;
  uint16_t* copy = nullptr;
  ConstMat x;
  float* second = nullptr;  // [max(rows, cols)]
  double beta2 = 0.9;
  float lr = 0, weight_decay = 0;
  bool cautious = true;
};

// Σ over all tensors of Σ g², in double, fixed order.
struct SquaredNorm {
  std::vector<const float*> grads;
  std::vector<int64_t> sizes;
};

// The 256 values of bitsandbytes' dynamic 8-bit type, ascending: decades from 1e-7 to 1, whose i-th has 2^i values of
// each sign (2^(i+1) without one), the middles of equal parts of [0.1, 1]; 0 and 1.
const float* dynamic_map(bool is_signed);

}  // namespace mxt::kernels
