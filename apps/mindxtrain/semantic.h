// The models behind the data room's embeddings and perplexities.
#pragma once

#include <memory>
#include <string>

#include "data/semantic/models.h"
#include "model_files.h"

namespace mxt::app {

// `model`: Hub id, folder or .gguf. Errors: kMissing where the model cannot be had, naming `field` of the recipe or
// command line.
std::unique_ptr<data::Embedder> make_embedder(const std::string& model, const std::string& field,
                                              Fetch fetch = Fetch::kAllowed);
std::unique_ptr<data::Scorer> make_scorer(const std::string& model, const std::string& field,
                                          Fetch fetch = Fetch::kAllowed);

}  // namespace mxt::app
