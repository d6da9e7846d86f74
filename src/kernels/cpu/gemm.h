// Matrix products on the CPU. Every candidate gives the same bits for any number of threads.
//   "auto"          by a written rule (choose() in gemm/gemm.cc): what measured best for the processor and the shape
//   "panels"        our packed kernel: one fixed order of summation for an output element, whatever m, n and the
//                   tiling, so a token's result does not depend on which other tokens are in the batch
//   "onednn"        oneDNN's matmul on fixed tiles of the output
//   "rows"          for y = x Wᵀ (else panels): dot products along k, W read as it lies; for few rows below AVX-512
//                   several times faster than packing. A token's result does not depend on the others
//   "tiles"         bf16 on processors with AMX (else panels): both operands packed into tiles (gemm/tiles.h)
// Memory: gemm/workspace.h, whatever the shapes; no other scratch is used.
#pragma once

#include <string>
#include <vector>

#include "kernels/api.h"
#include "kernels/cpu/scratch.h"

namespace mxt::kernels::cpu {

std::vector<std::string> gemm_algorithms();
int same_gemm(const Gemm&, int algo);  // Ops::same_gemm

inline size_t gemm_scratch(const Gemm&) { return 0; }
size_t gemm_memory(const Gemm&);       // of all threads
size_t packed_b_bytes(const Gemm& g);  // Ops::packed_b_bytes, ::pack_b
void pack_b(const Gemm& g, void* to);
void gemm(const Gemm& g);
inline void gemm(const Gemm& g, Scratch) { gemm(g); }

}  // namespace mxt::kernels::cpu
