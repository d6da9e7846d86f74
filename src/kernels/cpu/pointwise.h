// The CPU's pointwise operations and reductions (everything of api.h but GEMM and attention): Highway, the instruction
// set chosen at run time. Work is cut by shape alone, so results do not depend on the number of threads; pieces of less
// than a few microseconds are not shared out.
#pragma once

#include <cstdint>

#include "kernels/api.h"

namespace mxt::kernels::cpu {

void norm(const Norm&);
void norm_grad(const NormGrad&);
void qk_norm_rope(const QkNormRope&);
void qk_norm_rope_grad(const QkNormRopeGrad&);
void act(const Act&);
void act_grad(const ActGrad&);
void add(const Add&);
void mix(const Mix&);
void mix_grad(const MixGrad&);
void gate(const Gate&);
void gate_grad(const GateGrad&);
void bias_grad(const BiasGrad&);
void dropout(const Dropout&);
void cross_entropy(const CrossEntropy&);
void label_grad(const LabelGrad&);
void embedding(const Embedding&);
void embedding_grad(const EmbeddingGrad&);
void copy(const Copy&);
void gather_rows(const GatherRows&);
void scatter_rows(const ScatterRows&);
void mean_pool(const MeanPool&);
void adamw(const AdamW&);
void adamw_8bit(const AdamW8bit&);
void lion(const Lion&);
void adafactor(const Adafactor&);
void muon_direction(const MuonDirection&);
void muon_update(const MuonUpdate&);
double squared_norm(const SquaredNorm&);

// Whole arrays, round to nearest even, on all threads.
void convert(const float* from, uint16_t* to, int64_t n);
void convert(const uint16_t* from, float* to, int64_t n);

// The instruction set in use: "AVX3" (AVX-512), "AVX2" or "SCALAR".
const char* vector_target();

}  // namespace mxt::kernels::cpu
