// From a recipe's set-up to a plan: measured on this machine, or of default choices.
#pragma once

#include "autotune/probe.h"
#include "kernels/plan.h"
#include "train/setup.h"

namespace mxt::app {

// Default choices, not measured; says so in the plan.
kernels::KernelPlan reference_plan(const train::Setup& setup);

// The same for a recipe whose device is not here: shapes, environment and how a step is cut, no kernel's choice.
// `setup`: of the recipe's CPU lane.
kernels::KernelPlan absent_plan(const train::Setup& setup, const config::Recipe& recipe);

// Measures within the recipe's budget. `ask_threads`: the number of threads is a question too (the command line did not
// say it).
autotune::Report measured_plan(const train::Setup& setup, bool ask_threads, bool enumerate);

// What was asked, chosen and gained, as a table.
std::string table_of(const autotune::Report& report, int64_t rows, int64_t seq_len);

// Whether --threads or OMP_NUM_THREADS said how many threads to use.
bool threads_given(int asked);
// Whether the plan may bind threads to cores: the recipe permits it and every core is used; two programs that share a
// machine would be bound to the same ones.
bool may_pin(const config::Recipe& recipe);

}  // namespace mxt::app
