// What models load their weights from, whatever stands behind it: a Hugging Face folder or a GGUF file. Names and
// shapes are Hugging Face's in both cases.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "formats/model_config.h"

namespace mxt::formats {

// What a quantized layout does at run time to the inputs of a product: FP8 with a scale for each token or for 128
// columns, MXFP4 for 32 columns.
enum class InputRounding { kNone, kFp8Token, kFp8Group128, kMxfp4 };
enum class GgmlType : uint32_t;

class WeightSource {
 public:
  // A folder with config.json and safetensors, or a .gguf file. Everything is checked here.
  static std::unique_ptr<WeightSource> open(const std::string& folder_or_gguf);
  // The base with a PEFT adapter added to its weights (W + scale·B·A in fp32, as they are read).
  static std::unique_ptr<WeightSource> with_adapter(std::unique_ptr<WeightSource> base,
                                                    const std::string& adapter_folder);
  // The same with a head of its own: of a model whose head is its embedding, that table under the head's name too.
  static std::unique_ptr<WeightSource> untied(std::unique_ptr<WeightSource> base);
  virtual ~WeightSource() = default;

  const ModelConfig& config() const { return config_; }
  const std::string& path() const { return path_; }

  // F32, F16 or BF16: what most of the weights' numbers are stored in, whatever the configuration says; of weights in
  // codes and blocks what the configuration says they decode to, else BF16. F64 counts as F32.
  DType held_type() const { return held_; }

  virtual std::vector<std::string> names() const = 0;  // in file order
  virtual bool has(std::string_view name) const = 0;
  virtual std::vector<int64_t> shape(std::string_view name) const = 0;
  // How the tensor is stored, where that is a plain type (a quantised one gives kF32, what it decodes to).
  virtual DType stored_type(std::string_view name) const = 0;

  // How the product with this weight rounds its input; kNone for weights that are not quantized, and for static scales,
  // which are not followed here.
  virtual InputRounding input_rounding(std::string_view) const { return InputRounding::kNone; }

  // Rows [row_begin, row_end) (−1: to the end) along the first dimension, converted to `to` (F32, BF16, F16, F8_E4M3,
  // or the stored type itself). `out` holds rows × the product of the other dimensions.
  virtual void read(std::string_view name, DType to, void* out, int64_t row_begin = 0, int64_t row_end = -1) const = 0;

  // The tensor's bytes in the mapped file, where they stand there exactly as `type` and aligned for it; else empty.
  virtual std::span<const std::byte> mapped(std::string_view name, DType type) const = 0;

  // The ggml type of a tensor whose rows can be had as the file holds them (block_row); nothing where they cannot.
  virtual std::optional<GgmlType> block_type(std::string_view) const { return std::nullopt; }
  virtual std::span<const std::byte> block_row(std::string_view name, int64_t row) const;

  // One line "blake3 bytes name" a weight file. Reads every byte: minutes on large models.
  virtual std::string digest_text() const = 0;
  // Lets the kernel forget the pages that reading touched.
  virtual void drop_pages() const = 0;

 protected:
  ModelConfig config_;
  std::string path_;
  DType held_ = DType::kBF16;
};

// True where the path names a GGUF file: by its suffix, or by its first bytes.
bool is_gguf(const std::string& path);

}  // namespace mxt::formats
