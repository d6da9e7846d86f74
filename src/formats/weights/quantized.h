// Quantised checkpoints of the ecosystem, decoded as they are read: the weights that such a file stands for, and what
// its scheme does to activations at run time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "base/coding.h"
#include "formats/coded.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "formats/weight_source.h"

namespace mxt::formats {

struct QuantizedWeight {
  enum class Kind {
    kFp8,    // F8_E4M3 times one scale a block of block_rows × block_columns
    kCoded,  // otherwise: MXFP4, or bitsandbytes' NF4
  };
  Kind kind = Kind::kFp8;
  Coding coding = Coding::kNone;  // as base/coding.h has it; kNone: FP8 in blocks of another size
  DType through = DType::kF32;    // CodedTensor::through
  TensorInfo nested;              // of kNf4Double, without the mean
  float mean = 0;
  std::vector<int64_t> shape;  // of the decoded matrix
  TensorInfo data, scale;
  // Of a stack of matrices (gpt-oss's MXFP4): its row r is row first_row + r·row_step of data and of scale.
  int64_t first_row = 0, row_step = 0;  // 0: data and scale are its own
  int64_t block_rows = 1, block_columns = 1;
};

struct QuantizedTensors {
  std::map<std::string, QuantizedWeight, std::less<>> weights;  // by the plain weight's name
  std::set<std::string, std::less<>> hidden;                    // tensors that are part of them
  InputRounding inputs = InputRounding::kNone;                  // of all of them
};

// kMissing for a quant_method without a decoder here; kBadInput where scales do not fit their weights. Known:
// transformers `fp8` (weight_scale_inv), compressed-tensors FP8 (by tensor, channel or block) and mxfp4-pack-quantized,
// Quark FP8 and MXFP4, bitsandbytes NF4 with and without double quantization, gpt-oss's mxfp4 (stacked experts in
// _blocks [experts, rows, columns / 32, 16] and _scales).
QuantizedTensors find_quantized(const Safetensors& files, const ModelConfig& config, const std::string& source);

// Of one with a coding: as it lies in the file; scales of FP8 in F32, one a row where the file has one for all.
CodedTensor coded_of(const Safetensors& files, const QuantizedWeight& w);

void decode_rows(const Safetensors& files, const QuantizedWeight& w, int64_t begin, int64_t end, float* out);

}  // namespace mxt::formats
