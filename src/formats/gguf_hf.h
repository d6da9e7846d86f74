// A GGUF seen under Hugging Face's tensor names and layouts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/model_config.h"

namespace mxt::formats {

// How a weight stands in the file that stands otherwise in Hugging Face's.
struct GgufForm {
  enum class Layout {
    kPlain,       // rows as they stand
    kRopePairs,   // llama: rows of q and k stand interleaved per head (pairs side by side), `unit` pairs of them
    kTransposed,  // GPT-2: Hugging Face keeps [in, out], GGUF [out, in]
    kValueHeads,  // gated DeltaNet: from row `start` on, heads of `unit` rows, `each` side by side for one of `groups`
                  // in Hugging Face's order, `groups` side by side in the file's
    kValueColumns,  // the same of columns
  };
  Layout layout = Layout::kPlain;
  int64_t start = 0, unit = 1, groups = 1, each = 1;
  float more = 0;      // what the file's values are more than Hugging Face's
  bool decay = false;  // the file has −e^w

  int64_t in_file(int64_t row) const;  // (or column) of Hugging Face's
  int64_t in_hf(int64_t row) const;    // the way back
  bool changes_values() const { return more != 0 || decay; }
};

struct GgufView {
  std::string name;            // Hugging Face's
  std::vector<int64_t> shape;  // Hugging Face's
  const GgufTensor* tensor = nullptr;
  int64_t first_row = 0;  // of the tensor: experts of one layer stand in one tensor
  GgufForm form;
};

// kMissing where GGUF has no name for the model's family.
void check_gguf_family(const ModelConfig& config);

// One view for every weight, in the order of the file. kBadInput for a tensor that the architecture does not know or
// whose shape does not fit the config, kMissing for an architecture without a mapping.
std::vector<GgufView> gguf_hf_views(const Gguf& gguf, const ModelConfig& config);

// Rows [begin, end) of a view to fp32, un-permuted or transposed, with Hugging Face's values.
void read_gguf_view(const Gguf& gguf, const GgufView& view, int64_t begin, int64_t end, float* out);

// The keys of a file that say what the model is. kMissing for what such a file cannot state.
void write_gguf_model(GgufWriter& out, const ModelConfig& config, const std::string& name, uint32_t file_type);
// Frequency divisors that llama.cpp reads as tensors: Llama 3's, LongRoPE's two, or a file's own; empty where the model
// has none.
struct RopeTensor {
  std::string name;
  std::vector<float> divisors;
};
std::vector<RopeTensor> rope_tensors(const ModelConfig& config);

// GGUF's name of a Hugging Face tensor of the architectures above, under any prefix that its files have ("" where it
// has none), and the form of such a tensor. Of an expert's weight or bias `expert` says which, of others −1.
std::string gguf_tensor_name(std::string_view hf_name, const ModelConfig& config, int64_t* expert = nullptr);
GgufForm gguf_form(std::string_view gguf_name, const ModelConfig& config);
// The shape that the config asks of that tensor in Hugging Face's layout (of one expert, where it holds all); empty for
// an unknown name.
std::vector<int64_t> gguf_hf_shape(std::string_view gguf_name, const ModelConfig& config);

}  // namespace mxt::formats
