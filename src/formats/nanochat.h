// What nanochat's form of 2026 has beside the older one. Its configuration states each part; any may be missing.
#pragma once

#include "formats/model_config.h"

namespace mxt::formats {

struct NanochatParts {
  bool value_embeddings = true;  // every other layer's values take a row of a table of their own, through a gate
  bool residual_lambdas = true;  // a layer reads a mix of the stream and of what it began as
  bool smear = true;             // a token's embedding takes something of the one before it
  bool backout = true;           // the middle of the stream is taken out again before the last norm
  double qk_scale = 1.2;         // of normed queries and of keys
};

// From the file as it was. kBadInput for a key of another type.
NanochatParts nanochat_parts(const ModelConfig& config);

}  // namespace mxt::formats
