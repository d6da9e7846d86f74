// What verbs answer with --json, for Coach as well.
#pragma once

#include <vector>

#include "base/json.h"
#include "config/recipe.h"
#include "registry/registry.h"

namespace mxt::app {

OrderedJson check_answer(const std::vector<config::Issue>& issues, const config::Recipe& recipe);  // validate
OrderedJson doctor_answer();
OrderedJson run_answer(const registry::Run& run);  // runs show, but for last_step
OrderedJson last_step(
    const registry::Run& run);  // the last line of its metrics; null where there is none, or not its own
OrderedJson compare_answer(const registry::Run& a, const registry::Run& b);  // runs compare

}  // namespace mxt::app
