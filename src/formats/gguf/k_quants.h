// The K-quants' encoders: 256 values to one block, byte by byte as ggml's reference.
#pragma once

#include <cstdint>

#include "base/ggml_blocks.h"

namespace mxt::formats {

void encode_q4_k(const float* x, uint8_t* block);
void encode_q5_k(const float* x, uint8_t* block);
void encode_q6_k(const float* x, uint8_t* block);

}  // namespace mxt::formats
