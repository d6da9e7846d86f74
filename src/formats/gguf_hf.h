// A GGUF seen under Hugging Face's tensor names and layouts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/model_config.h"

namespace mxt::formats {

struct GgufView {
  enum class Layout {
    kPlain,       // rows as they stand
    kRopePairs,   // llama: rows of q and k stand interleaved per head (pairs side by side); `heads` of them
    kTransposed,  // GPT-2: Hugging Face keeps [in, out], GGUF [out, in]
  };
  std::string name;            // Hugging Face's
  std::vector<int64_t> shape;  // Hugging Face's
  const GgufTensor* tensor = nullptr;
  int64_t first_row = 0;  // of the tensor: experts of one layer stand in one tensor
  Layout layout = Layout::kPlain;
  int64_t heads = 0;
  float less = 0;  // of a vector: what the file holds more than Hugging Face's does
};

// kMissing where GGUF has no name for the model's family.
void check_gguf_family(const ModelConfig& config);

// One view for every weight, in the order of the file. kBadInput for a tensor that the architecture does not know or
// whose shape does not fit the config, kMissing for an architecture without a mapping.
std::vector<GgufView> gguf_hf_views(const Gguf& gguf, const ModelConfig& config);

// Rows [begin, end) of a view to fp32, un-permuted or transposed.
void read_gguf_view(const Gguf& gguf, const GgufView& view, int64_t begin, int64_t end, float* out);

// The keys of a file that say what the model is. kMissing for what such a file cannot state.
void write_gguf_model(GgufWriter& out, const ModelConfig& config, const std::string& name, uint32_t file_type);
// Llama 3's frequency divisors, which llama.cpp reads as a tensor; empty where the model has none.
std::vector<float> rope_divisors(const ModelConfig& config);

// GGUF's name of a Hugging Face tensor of the architectures above ("" where it has none); experts excluded.
bool gguf_holds_plus_one(std::string_view gguf_name, const ModelConfig& config);  // a norm's 1 + w for w
std::string gguf_tensor_name(std::string_view hf_name, const ModelConfig& config);

}  // namespace mxt::formats
