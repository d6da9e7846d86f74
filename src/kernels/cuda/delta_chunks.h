// The gated delta rule (kernels/delta.h) by chunks of 64 tokens, on the matrix units: bf16 in and out, state and sums
// in fp32, products with operands rounded to TF32. Heads of 128 columns (Qwen3.5's) that start from zero.
//
// With G the running sum of log α within a chunk, γ = exp(G), K̂ and Q̂ the normalised rows, S the state at its start:
//   A[i,j] = β_i·k̂_i·k̂_j·exp(G_i − G_j) for j < i     T = (I + A)⁻¹     X = β·(V − γ·K̂·S)     R = T·X
//   P[i,j] = q̂_i·k̂_j·exp(G_i − G_j) for j ≤ i          O = γ·Q̂·S + P·R
//   S' = γ_64·S + Σ_j exp(G_64 − G_j)·k̂_j·r_jᵀ
// (Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule", with the gate of "Gated Delta Networks").
// T and P are made for all chunks side by side, states from chunk to chunk. Chunks begin where their document does, so
// what a document gives does not depend on its neighbours.
#pragma once

#include <cuda_runtime.h>

#include "kernels/api.h"

namespace mxt::kernels::cuda {

// Whether these kernels take the call; otherwise gated_delta() of gpu/ goes token by token.
bool delta_chunks_cover(const GatedDelta& g);
bool delta_chunks_cover(const GatedDeltaGrad& g);
size_t delta_chunks_scratch(const GatedDelta& g);
size_t delta_chunks_scratch(const GatedDeltaGrad& g);
void delta_chunks(cudaStream_t stream, const GatedDelta& g, void* scratch);
void delta_chunks_grad(cudaStream_t stream, const GatedDeltaGrad& g, void* scratch);

}  // namespace mxt::kernels::cuda
