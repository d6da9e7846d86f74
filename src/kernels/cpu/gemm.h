// Matrix products on the CPU. Every candidate gives the same bits for any number of threads.
//   "auto"          by a written rule (choose() in gemm/gemm.cc): what measured best for the processor and the shape
//   "panels"        our packed kernel: one fixed order of summation for an output element, whatever m, n and the tiling, so
//                   a token's result does not depend on which other tokens are in the batch
//   "onednn"        oneDNN's matmul over the whole product; thin outputs with a long K go through "onednn_tiles"
//   "onednn_tiles"  fixed tiles of the output, each one single-threaded oneDNN call
#pragma once

#include <string>
#include <vector>

#include "kernels/api.h"
#include "kernels/cpu/scratch.h"

namespace mxt::kernels::cpu {

std::vector<std::string> gemm_algorithms();

// Bytes that gemm(g) may use with this number of threads; grows with m, n and k.
size_t gemm_scratch(const Gemm& g);
void gemm(const Gemm& g, Scratch scratch);

}  // namespace mxt::kernels::cpu
