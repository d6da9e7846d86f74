// For models whose numbers for a sequence must not depend on what stands beside it in a pass.
#pragma once

#include "kernels/plan.h"
#include "runtime/program.h"

namespace mxt::infer {

// The default choices, but products whose results for a token do not depend on how many others there are, where the
// backend has them.
inline kernels::KernelPlan plan_alone(const graph::Graph& g, kernels::Ops& ops,
                                      const runtime::ProgramSettings& settings) {
  kernels::KernelPlan plan;
  for (const std::string& name : ops.gemm_algorithms())
    if (name == "panels")
      for (const auto& t : runtime::Program(g, plan, ops, settings).tunables())
        if (std::holds_alternative<kernels::Gemm>(t.call)) plan.choices[t.key] = name;
  return plan;
}

}  // namespace mxt::infer
