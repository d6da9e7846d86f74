// A smaller copy of a model. Scheme → layout, by RECIPE's names:
//
//   fp8_dynamic  compressed-tensors float-quantized: one scale a row (in the model's type), tokens rounded at run time
//   fp8_block    transformers `fp8`: one F32 scale for 128×128 weights, and for 128 of a token at run time
//   quark_fp8    AMD Quark: one F32 scale a row (ptpc) or a tensor, tokens rounded at run time
//   mxfp4        compressed-tensors mxfp4-pack-quantized: 4-bit weights, activations as they are
//   quark_mxfp4  AMD Quark fp4 by groups of 32, weights and (at run time) activations
//   bnb_nf4      bitsandbytes NF4 as transformers saves and loads it, _dq with double quantization; 4-bit weights
//   gguf_*       one file model.gguf for llama.cpp; q4_k_m mixes types as llama-quantize does. What sees pictures goes
//                into mmproj.gguf beside it, in BF16 (gguf_f16: F16)
//
// Folders quantize the matrices of the layers alone; embeddings, the head, routers, norms and biases stay, and the
// config says so. Their other files (config.json apart) are the caller's: tokenizer files belong beside the weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stop.h"
#include "config/sections/quantize.h"
#include "formats/weight_source.h"
#include "tokenizer/tokenizer.h"

namespace mxt::quantize {

struct Written {
  std::string model;              // what the engine opens: the folder, or the .gguf in it
  uint64_t bytes = 0;             // of the weight files
  int64_t parameters = 0;         // elements of all tensors
  int64_t quantized = 0;          // tensors in the small type
  std::vector<std::string> kept;  // matrices of layers that stayed, because the layout cannot hold their shape
  bool tokenizer_inside = false;  // GGUF: nothing more is needed
};

// kMissing for a scheme that is not built in.
void check_scheme(config::QuantScheme scheme);

// kMissing for a scheme that has no layout for the model, kBadInput for one that lacks the tokenizer: known before its
// weights are. `name` is the model's in the message.
void check_layout(config::QuantScheme scheme, const formats::ModelConfig& model, bool has_tokenizer,
                  const std::string& name);

// Writes into `folder`, which must exist. Holds a few rows at a time whatever the model's size. `tok` may be null for
// folders. `name` goes into a GGUF's general.name. Errors: kBadInput for weights that are not finite, by name; kMissing
// for a scheme or an architecture that has no such layout; kInterrupted between tensors once `stop` is set.
Written write_quantized(const formats::WeightSource& source, const tokenizer::Tokenizer* tok,
                        const config::Quantize& settings, const std::string& name, const std::string& folder,
                        StopFlag stop = nullptr);

bool is_gguf_scheme(config::QuantScheme scheme);

}  // namespace mxt::quantize
