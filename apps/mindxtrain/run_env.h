// train.env of a recipe, put into the environment of a run.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace mxt::app {

// Names of `env` that a run sets: those of devices, collectives and math libraries, which read them when they are first
// used. Not those that say where to find code or files, nor the system's, the Hub's and this program's: a recipe may
// come from somebody else.
bool may_set(const std::string& name);

// The line that names those of `env` that no run sets and that do not stand as they are there; "": none.
std::string left_to_the_shell(const std::map<std::string, std::string>& env);

// Sets what may be set; the names of the rest are said, once, with what to do.
void set_environment(const std::map<std::string, std::string>& env);

}  // namespace mxt::app
