// Mixture of experts on the CPU (kernels/experts.h). Results do not depend on the number of threads; products are those
// of gemm.h over an expert's rows.
#pragma once

#include <cstddef>

#include "kernels/api.h"

namespace mxt::kernels::cpu {

void route(const Route&);
void route_grad(const RouteGrad&);
void expert_gather(const ExpertGather&);
void expert_sum(const ExpertSum&);
void expert_dots(const ExpertDots&);
void grouped_gemm(const GroupedGemm&);
size_t grouped_gemm_memory(const GroupedGemm&);  // beyond one product's
void route_load(const RouteLoad&);
void balance_loss(const BalanceLoss&);

}  // namespace mxt::kernels::cpu
