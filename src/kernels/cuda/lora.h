// Both gradients of an adapter in one pass over dy (LoraGrad of api.h): dy is read once where two products would read
// it twice, and each of them costs just that. bf16, one rank of 8 or 16 for all blocks.
#pragma once

#include <cuda_runtime.h>

#include "kernels/api.h"

namespace mxt::kernels::cuda {

bool lora_grad_covers(const LoraGrad& g);
bool lora_grad_covers(const LoraGrad& g, int64_t most_ranks);  // whatever its rank is, up to so many: 8, 16, 32
size_t lora_grad_scratch(const LoraGrad& g);
void lora_grad(cudaStream_t stream, const LoraGrad& g, void* scratch);

// RowwiseFp8Linear and RowwiseFp8LinearDw of api.h: fast for bf16 and whole eights of ranks, right for all.
void rowwise_fp8_linear(cudaStream_t stream, const RowwiseFp8Linear& c);
size_t rowwise_fp8_linear_dw_scratch(const RowwiseFp8LinearDw& c);
void rowwise_fp8_linear_dw(cudaStream_t stream, const RowwiseFp8LinearDw& c, void* scratch);

// ActLora of api.h in one pass: gate and up are read once, y is not written. bf16, rank 8, 16 or 32.
bool act_lora_covers(const ActLora& g);
size_t act_lora_scratch(const ActLora& g);
void act_lora(cudaStream_t stream, const ActLora& g, void* scratch);

// ActLoraGrad of api.h in one pass: gate, up and dy are read once, their gradients written once, and nothing of them is
// read again. Rank 8 or 16, and 32 where dx is left in E4M3: without that products are as fast (lora.cu), and at 64
// they are in any case.
bool act_lora_grad_covers(const ActLoraGrad& g);
size_t act_lora_grad_scratch(const ActLoraGrad& g);
void act_lora_grad(cudaStream_t stream, const ActLoraGrad& g, void* scratch);

}  // namespace mxt::kernels::cuda
