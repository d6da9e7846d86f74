#include "kernels/cpu/gemm.h"

#include "base/error.h"
#include "kernels/cpu/gemm/onednn.h"

namespace mxt::kernels::cpu {

std::vector<std::string> gemm_algorithms() { return {"onednn"}; }
size_t gemm_scratch(const Gemm& g) { return onednn_scratch(g); }
void gemm(const Gemm& g, Scratch scratch) { onednn_gemm(g, scratch); }

}  // namespace mxt::kernels::cpu
