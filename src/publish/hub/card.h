// The model card: README.md of a published run, out of its manifest, recipe and dataset record alone, so that the same
// run gives the same text. Front matter as the Hub's model cards have it (huggingface.co/docs/hub/model-cards).
#pragma once

#include <string>

#include "publish/run.h"

namespace mxt::publish {

std::string model_card(const Run& run);

}  // namespace mxt::publish
