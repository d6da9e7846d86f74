// Our own matrix product: panels of 64 columns of B are packed (a small B once for all threads, else by the thread that
// uses them) and multiplied with rows of A read in place (or packed, when A is transposed or k is odd). Packs
// into what gemm/workspace.h keeps.
#pragma once

#include <cstddef>

#include "kernels/api.h"

namespace mxt::kernels::cpu {

// Products of bf16 with k at least this use AMX tiles where there are any; not with a transposed A or an odd k.
inline constexpr int64_t kLeastTileDepth = 64;

// B laid out once for many products, whatever their A (Gemm::b_packed): its bytes, and the packing. a and c of the Gemm
// are not looked at.
size_t panels_packed_bytes(const Gemm& g);
void panels_pack(const Gemm& g, void* to);
// m, n, k ≥ 1. `portable` asks for the fp32 kernel that any processor runs.
void panels_gemm(const Gemm& g, bool portable = false);

}  // namespace mxt::kernels::cpu
