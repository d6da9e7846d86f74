// Gated DeltaNet and its gates on the CPU (kernels/delta.h).
#pragma once

#include <cstddef>

#include "kernels/api.h"

namespace mxt::kernels::cpu {

inline constexpr int64_t kDeltaChunk = 64;  // tokens between the states that the backward pass begins from

void causal_conv(const CausalConv&);
void causal_conv_grad(const CausalConvGrad&);
void gated_delta(const GatedDelta&);
void gated_delta_grad(const GatedDeltaGrad&);
size_t gated_delta_grad_memory(const GatedDeltaGrad&);  // of all threads
void gated_norm(const GatedNorm&);
void gated_norm_grad(const GatedNormGrad&);
void sigmoid_gate(const SigmoidGate&);
void sigmoid_gate_grad(const SigmoidGateGrad&);
void split_gates(const SplitGates&);

}  // namespace mxt::kernels::cpu
