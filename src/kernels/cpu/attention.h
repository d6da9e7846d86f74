// Attention on the CPU: tiles of queries against tiles of keys with an online softmax (Milakov & Gimelshein 2018; Dao
// 2023), fp32 sums, one thread an output and no atomics, so results do not depend on the number of threads. A candidate
// is a size of tile. Memory: threads keep what a tile's block needs (an L2 cache's worth forward, more backward for
// long documents).
#pragma once

#include <string>
#include <vector>

#include "kernels/api.h"
#include "kernels/cpu/scratch.h"

namespace mxt::kernels::cpu {

std::vector<std::string> attention_algorithms();
int same_attention(const Attention&, int algo);  // Ops::same_attention

void attention(const Attention& a);
void attention_grad(const AttentionGrad& a);
// lse, where it is given: as Attention's, [heads, tokens].
void cached_attention(const CachedAttention& a, float* lse = nullptr);
void store_cache(const StoreCache& c);

// What the threads keep for such calls, all together.
size_t attention_memory(const Attention& a);
size_t attention_grad_memory(const AttentionGrad& a);
inline size_t attention_scratch(const Attention&) { return 0; }
inline size_t attention_grad_scratch(const AttentionGrad&) { return 0; }
inline void attention(const Attention& a, Scratch) { attention(a); }
inline void attention_grad(const AttentionGrad& a, Scratch) { attention_grad(a); }
inline void cached_attention(const CachedAttention& a, Scratch) { cached_attention(a); }

}  // namespace mxt::kernels::cpu
