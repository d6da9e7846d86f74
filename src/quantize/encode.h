// Weights to FP8 and MXFP4. All encoders give the same bytes on any number of threads.
//
// FP8 is E4M3 (OCP, largest 448): scale = max|w| / 448 over what shares a scale, q = round(w / scale). MXFP4 (OCP MX
// v1.0) is E2M1 with one power of two for 32 values.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace mxt::quantize {

inline constexpr float kFp8Max = 448.0f;
inline constexpr int64_t kFp8Block = 128;
inline constexpr int64_t kMxGroup = 32;

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
// Two values a byte, the even one in the low nibble: packed[rows, cols/2]; exponents[rows, cols/32] with bias 127. Of
// the two exponents that come into question (the largest value fits, or is cut to 6) the one with the smaller squared
// error. cols is a multiple of 32.
void mxfp4(const float* w, int64_t rows, int64_t cols, uint8_t* packed, uint8_t* exponents);

// Nearest E2M1 value, ties to even: 0 0.5 1 1.5 2 3 4 6 with sign in bit 3; larger values become 6.
uint8_t float_to_e2m1(float x);

}  // namespace mxt::quantize
