// `key new FILE`, and `receipt keygen FILE`, which is the same.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace mxt::app {

CLI::App* add_new_key(CLI::App& verb, const std::string& name, const std::string& description);

}  // namespace mxt::app
