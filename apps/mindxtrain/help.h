// What the program says of itself: its version, and below each verb's options its exit codes, environment and files.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace mxt::app {

// "mindxtrain 0.1.0", then commit, compiler, libraries, and each backend with what it would need.
std::string version_text();

// Verbs about the program itself.
void add_version(CLI::App& app);
void add_models(CLI::App& app);
void add_completion(CLI::App& app);
void add_help(CLI::App& app);
// Errors (kBadInput): `word` is none of the app's verbs, with the nearest one.
void require_verb(const CLI::App& app, const std::string& word);
// Before the verbs are added: no line of their help is wider than COLUMNS, or the terminal.
void fit_help(CLI::App& app);
// After every verb has been added.
void add_footers(CLI::App& app);

}  // namespace mxt::app
