// What recipes are for where they name no machine, and whether this build and this machine can train one.
#pragma once

#include <string>

#include "config/this_machine.h"

namespace mxt::app {

// The device that this build trains on here: the GPU where its driver, libmindxtrain_cuda.so and a card that it knows
// are there, else the processor. Asked once; a driver whose card cannot be used is said why, in one line.
config::GpuName this_machine();

// In one line what this processor lacks for its kernels to be fast, and what to do; "" where it lacks nothing.
std::string slow_processor();

// The file's, or that of the recipe that ships under this name where no file has it. Errors: as read_file's, or
// kBadInput with the nearest name.
std::string recipe_text(const std::string& path);
// As config::load_recipe and config::parse_recipe, for this machine where the recipe names none. `path`: as
// recipe_text()'s.
config::Recipe load_recipe(const std::string& path);
config::Recipe parse_recipe(std::string_view text, std::string_view source);

// What this build lacks for models of that architecture (model_type of a config.json); "" where it has a graph for
// them.
std::string architecture_lacking(const std::string& model_type);

// Whether this build, on this machine, from this folder, can train the recipe and those that run before it. Nothing is
// fetched: a model of the Hub whose configuration is not here is known by the table of models, or its architecture
// counts as one that can be trained.
struct Trainable {
  bool build = true, machine = true;
  bool files = true;   // the local files that it names are here, and its base is or may be fetched
  std::string reason;  // of all that are false, each with what to do; "" where they hold
};
Trainable trainable_here(const config::Recipe& recipe);

}  // namespace mxt::app
