// Products of bf16 by AMX tiles, for attention and for panels: the operands are those of the AVX-512 kernel for pairs
// (micro.h), whose panels [steps][width] are what a tile register wants of a right operand.
//
// A sum runs over blocks of 16 steps. Within a block the even and the odd elements of k are summed apart and then added
// (Intel SDM, TDPBF16PS), so it differs from VDPBF16PS in the last bits; zeros at the end of k change nothing.
#pragma once

#include "kernels/cpu/gemm/micro.h"

namespace mxt::kernels::cpu {

// Whether this processor has AMX with bf16, the system lets us use it, and a product by it came out right. Asked once.
bool amx_here();

// p.a_step must be 4 (k contiguous); no bias, fp32 results that are not added to. Whole vectors of 16 columns of C are
// written, also where n ends before.
void amx_panel(const PanelCall& p);

// The kernel of panels for bf16, null where amx_here() says no: any call whose a_step is 4. Sums kept between parts of
// k are the whole sum's as long as parts end after whole blocks.
const Micro* amx_micro();

}  // namespace mxt::kernels::cpu
