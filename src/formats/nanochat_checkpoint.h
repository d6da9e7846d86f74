// nanochat's own checkpoints (model_NNNNNN.pt with meta_NNNNNN.json beside it) as a folder of the form `nanochat_v2`.
#pragma once

#include <string>

namespace mxt::formats {

// Writes config.json and model.safetensors into `folder`, which exists. Numbers keep their types; rows that only pad
// the vocabulary are left out; what an older checkpoint does not have (value embeddings, smear, lambdas, backout) is
// off. Errors (kBadInput): those of TorchFile; no meta file, or one of another model: a tensor that is missing, of
// another shape, or that no layer of it has.
void convert_nanochat(const std::string& checkpoint, const std::string& folder);

}  // namespace mxt::formats
