// Attention over a paged cache on the matrix units: bf16, head dimensions 64, 96, 128 and 256, pages of whole tiles of
// 16 keys. Which sum a key belongs to depends on its position alone, so that a query's bits do not depend on what else
// the pass holds.
#pragma once

#include <cuda_runtime.h>

#include "kernels/gpu/launch.h"

namespace mxt::kernels::cuda {

bool cached_tiles_cover(const CachedAttention& c);
CachedScratch cached_tiles_scratch(const CachedAttention& c);
// `parts` and `done` as for cached_attention(); sinks: [heads], or null.
void cached_tiles(cudaStream_t stream, const CachedAttention& c, void* parts, void* done, const float* sinks);

}  // namespace mxt::kernels::cuda
