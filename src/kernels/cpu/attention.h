// Attention on the CPU: tiles of queries against tiles of keys with an online softmax (Milakov & Gimelshein 2018; Dao 2023),
// fp32 sums, one thread an output tile and no atomics, so results do not depend on the number of threads.
#pragma once

#include <string>
#include <vector>

#include "kernels/api.h"
#include "kernels/cpu/scratch.h"

namespace mxt::kernels::cpu {

std::vector<std::string> attention_algorithms();

size_t attention_scratch(const Attention& a);
void attention(const Attention& a, Scratch scratch);

size_t attention_grad_scratch(const AttentionGrad& a);
void attention_grad(const AttentionGrad& a, Scratch scratch);

void cached_attention(const CachedAttention& a, Scratch scratch);
void store_cache(const StoreCache& c);

}  // namespace mxt::kernels::cpu
