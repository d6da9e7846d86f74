// Tensors that a file holds in codes (base/coding.h), as they lie there: a frozen base takes them without a second
// rounding.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/coding.h"
#include "formats/model_config.h"

namespace mxt::formats {

class WeightSource;
enum class GgmlType : uint32_t;

struct CodedTensor {
  Coded matrix;                 // into the mapped file, or into what stands below
  DType through = DType::kF32;  // the type that decoded weights are rounded to (F32: none)
  std::vector<float> floats;
  std::vector<uint8_t> bytes;  // codes, scales or blocks of rows that do not lie in the file as they are wanted
};

// Nothing where the tensor is held otherwise.
std::optional<CodedTensor> coded_tensor(const WeightSource& source, std::string_view name);

// What a type of GGUF is here: kNone where its values are plain, or nothing decodes it.
Coding ggml_coding(GgmlType type);

// The same as far as config.json says it, for counting without the weights: how this weight of a matrix (not the output
// head's) is held. Nothing where it does not say that the model is held in codes; kNone for what it leaves out.
struct ConfigCoding {
  Coding coding = Coding::kNone;
  DType through = DType::kF32;
};
std::optional<ConfigCoding> config_coding(const ModelConfig& config, const std::string& name);

// The rows × columns that one scale of an FP8 layout is for, where config.json says that they are blocks; 0 or less for
// what it says of them that is no size.
struct Fp8Blocks {
  int64_t rows = 0, columns = 0;
};
std::optional<Fp8Blocks> fp8_blocks(const ModelConfig& config);

}  // namespace mxt::formats
