// Between the files of the room.
#pragma once

#include "formats/gguf.h"
#include "quantize/quantize.h"

namespace mxt::quantize {

Written write_hf_folder(const formats::WeightSource& source, const config::Quantize& settings,
                        const std::string& folder, StopFlag stop);
Written write_gguf(const formats::WeightSource& source, const tokenizer::Tokenizer& tok, config::QuantScheme scheme,
                   const std::string& name, const std::string& path, StopFlag stop);

// Whether the model's files hold what sees pictures; writes it as a file of its own and gives that file's size. Errors:
// kBadInput for a missing tensor, by name; kMissing for what such a file cannot state.
bool has_tower(const formats::WeightSource& source);
uint64_t write_gguf_tower(const formats::WeightSource& source, config::QuantScheme scheme, const std::string& path,
                          StopFlag stop);

// The keys of a GGUF that say how the model's text is cut.
void add_tokenizer_keys(formats::GgufWriter& out, const formats::ModelConfig& config, const tokenizer::Tokenizer& tok);

// "model.layers.3.mlp.up_proj.weight" → "up_proj".
std::string_view leaf_of(std::string_view name);

// Rows of about 16 MiB of fp32 at a time, a multiple of `unit` rows each but for the last.
template <typename F>
void by_rows(int64_t rows, int64_t width, int64_t unit, F&& body) {
  int64_t step = (int64_t{1} << 22) / (width > 0 ? width : 1) / unit * unit;
  if (step < unit) step = unit;
  for (int64_t r = 0; r < rows; r += step) body(r, r + step < rows ? r + step : rows);
}

}  // namespace mxt::quantize
