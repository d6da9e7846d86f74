// Products of experts over their routed rows (kernels::GroupedGemm). How many rows an expert has stands in the device's
// memory alone: every block finds its own expert, and no host waits.
#pragma once

#include <cuda_runtime.h>

#include "kernels/api.h"

namespace mxt::kernels::cuda {

// bf16 with whole packs of 16 bytes on the matrix units; fp32 and odd shapes by plain threads. settled: as
// thin_grouped_gemm() has it.
void grouped_gemm(cudaStream_t stream, const GroupedGemm& g, bool settled);

// grouped_tiles.cu: Hopper's warpgroup products, for wide results in bf16; grouped_gemm() takes them where they cover
// the call.
bool grouped_tiles_cover(const GroupedGemm& g);
void grouped_tiles(cudaStream_t stream, const GroupedGemm& g);

// grouped_adapters.cu: bf16 of which one side is an adapter's 64 columns at most; likewise.
bool grouped_adapters_cover(const GroupedGemm& g);
void grouped_adapters(cudaStream_t stream, const GroupedGemm& g);

}  // namespace mxt::kernels::cuda
