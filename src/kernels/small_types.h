// What activations become when a quantized layout holds them in a small type: for running such layouts on the host as
// they define it. No device offers this yet, so it is no operation of api.h.
#pragma once

#include <cstdint>

#include "kernels/api.h"

namespace mxt::kernels {

enum class SmallType : uint8_t { kFp8, kMxfp4 };

// y = x with every `group` columns of a row (0: all of them) held with one scale. FP8 E4M3: scale = max|x|/448. MXFP4:
// E2M1 with a power of two, whose exponent is that of the largest value (its mantissa rounded to one bit first) less 2;
// larger quotients are cut to 6. Values round to nearest, ties to even. F32 or BF16; y may be x; on all threads.
void round_rows(SmallType type, int64_t group, const ConstMat& x, const Mat& y);

// Quantize of api.h on all threads.
void quantize_rows(const Quantize&);

}  // namespace mxt::kernels
