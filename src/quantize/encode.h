// Weights to FP8 (base/coding.h has the types of four bits). All encoders give the same bytes on any number of threads.
//
// FP8 is E4M3 (OCP, largest 448): scale = max|w| / 448 over what shares a scale, q = round(w / scale).
#pragma once

#include <cstdint>

#include "base/types.h"

namespace mxt::quantize {

inline constexpr float kFp8Max = 448.0f;
inline constexpr int64_t kFp8Block = 128;

// The scale for values up to `largest`, as it is after being stored as `stored` (F32, BF16 or F16), so that values are
// divided by what a reader multiplies with. 1 for all zeros.
float fp8_scale(float largest, DType stored);

// max |w|; NaN and infinities give infinity.
float largest(const float* w, int64_t count);

// q[rows, cols] with one given scale for all.
void fp8_with_scale(const float* w, int64_t count, float scale, uint8_t* q);
// One scale a row: scales[rows].
void fp8_by_row(const float* w, int64_t rows, int64_t cols, DType stored, uint8_t* q, float* scales);
// One scale a 128×128 block, ragged at the end: scales[⌈rows/128⌉ · ⌈cols/128⌉]. `rows` starts at a block's first row.
void fp8_by_block(const float* w, int64_t rows, int64_t cols, uint8_t* q, float* scales);

}  // namespace mxt::quantize
