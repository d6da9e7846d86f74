// Quantised checkpoints of the ecosystem, decoded as they are read: the weights that such a file stands for, and what
// its scheme does to activations at run time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "formats/weight_source.h"

namespace mxt::formats {

struct QuantizedWeight {
  enum class Kind {
    kFp8,    // F8_E4M3 times one scale a block of block_rows × block_columns
    kMxfp4,  // U8, two E2M1 values a byte (low nibble first), one E8M0 scale for 32 of a row
  };
  Kind kind = Kind::kFp8;
  std::vector<int64_t> shape;  // of the decoded matrix
  TensorInfo data, scale;
  int64_t block_rows = 1, block_columns = 1;
};

struct QuantizedTensors {
  std::map<std::string, QuantizedWeight, std::less<>> weights;  // by the plain weight's name
  std::set<std::string, std::less<>> hidden;                    // tensors that are part of them
  InputRounding inputs = InputRounding::kNone;                  // of all of them
};

// kMissing for a quant_method without a decoder here; kBadInput where scales do not fit their weights. Known:
// transformers `fp8` (weight_scale_inv), compressed-tensors FP8 (by tensor or channel) and mxfp4-pack-quantized, Quark
// FP8 and MXFP4.
QuantizedTensors find_quantized(const Safetensors& files, const ModelConfig& config, const std::string& source);

void decode_rows(const Safetensors& files, const QuantizedWeight& w, int64_t begin, int64_t end, float* out);

}  // namespace mxt::formats
