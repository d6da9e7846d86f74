// The devices that a run can be put on: the CPU, or an accelerator whose code lies in a shared object opened on demand,
// so that one binary runs where there is no GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/accelerator.h"
#include "kernels/api.h"

namespace mxt::kernels {

struct Backend {
  device::Accelerator* device = nullptr;  // null: host memory, the CPU
  Ops* ops = nullptr;
};

// What is to be known of a backend before its device is opened: a plan is also made for a machine that is not here.
// Whoever decides asks for one of these, never for a name.
struct BackendInfo {
  std::string_view kind;               // DeviceIdentity::kind, device::Properties::kind
  std::vector<std::string_view> arch;  // instruction sets of a recipe's hardware that it drives; "none": the CPU lane
  // Its memory is a card's, apart from the host's: passes are cut to fill it, and what the optimizer alone touches may
  // stay with the host.
  bool own_memory = false;
  bool fp8_products = false;        // multiplies by a base held in E4M3; elsewhere the base is rounded as if it were
  bool thin_products_cost = false;  // so adapters are joined to the products that they sit on
  // Ranks of adapters whose gradients a kernel makes in one pass over what it reads, on a device of this instruction
  // set (above 16 beside SwiGLU alone). Products read it again: that costs below the largest of these, and nothing
  // above it. Null: all are products.
  std::vector<int64_t> (*one_pass_ranks)(std::string_view arch, bool fp8) = nullptr;  // ask the function below
  // Whether attention of these heads has a kernel of some speed where documents go on from others (Attention::prefix).
  // Null: it is as fast as any.
  bool (*prefixes)(std::string_view arch, int64_t head_dim, bool windows) = nullptr;
  // Whether products end in ReLU² or its gradient (Gemm::relu2) on a device of this instruction set. Null: none do.
  bool (*relu2_products)(std::string_view arch) = nullptr;
  bool packs_weights = false;  // reads frozen weights faster in a layout of its own (ParamStore::pack_frozen)
  // Rows whose logits are made at once: with a frozen head, with one that trains, and where only scores are wanted.
  int64_t head_chunk = 0, trained_head_chunk = 0, scoring_head_chunk = 0;
  Backend (*open)() = nullptr;  // kMissing, with what to do, where the device is not here
};
const std::vector<BackendInfo>& backends();
// `fp8`: over a base held in E4M3.
std::vector<int64_t> one_pass_ranks(const BackendInfo& backend, std::string_view arch, bool fp8);
// The one that drives `arch`; null: none of this build does.
const BackendInfo* backend_for(std::string_view arch);

// Opens libmindxtrain_cuda.so from beside the binary, its ../lib, or the loader's path, and GPU `ordinal` (once; later
// calls give the same objects). kMissing, with what to do, where the shared object, the driver, a library or the GPU is
// not there.
Backend cuda_backend(int ordinal = 0);
// From then on GPUs that are opened count as ones of this lower compute capability ("8.6"), and run what such a card
// would; "": as what they are. One that is none is refused when the GPU is opened.
void treat_cuda_as(std::string capability);

}  // namespace mxt::kernels
