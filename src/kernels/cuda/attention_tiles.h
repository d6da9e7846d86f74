// The gradient of causal attention on Hopper's matrix units, for what training mostly asks for: bf16, heads of
// 64 and 128, no dropout; any documents, any grouping of heads, a window where no document goes on from another.
// Deterministic: every sum has one owner and one order.
#pragma once

#include "kernels/gpu/gpu.h"

namespace mxt::kernels::cuda {

// Where the forward pass put the log-sum of exponentials of token t of document i (its t-th) and head h: at
// i·document + (first token of i)·offset + h·head + t·token.
struct StatsLayout {
  int64_t document, offset, head, token;
};

// The head dimensions it is for.
constexpr bool tiles_head(int64_t head_dim) { return head_dim == 64 || head_dim == 128; }
bool tiles_cover(const AttentionGrad&);
// For documents of the given length, as many heads as 4.5 GiB hold: all of 32 would want 34 GB at 32,768 tokens.
size_t tiles_grad_scratch(const AttentionGrad&);
// Whether that is enough for whatever these tokens are cut into: it is up to 32,768 of them with four heads a key head.
bool tiles_always_fit(const AttentionGrad&);
// Whether these documents' own tables and the scores of a key head fit into what was planned: very long ones may not,
// nor very many short ones that go on from a long one.
bool tiles_fit(const AttentionGrad&, size_t bytes);
void tiles_grad(Stream, const AttentionGrad&, const StatsLayout&, void* scratch, size_t bytes);

}  // namespace mxt::kernels::cuda
