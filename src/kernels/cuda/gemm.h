// Matrix products through cuBLASLt, the algorithm chosen by index in the library's own ranking for the call's shape.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <memory>
#include <optional>
#include <string>

#include "kernels/api.h"

namespace mxt::kernels::cuda {

class GemmRunner {
 public:
  static constexpr int kAlgorithms = 8;
  static constexpr size_t kWorkspace = size_t{32} << 20;  // what cuBLAS advises on Hopper
  // The workspace, and what products in E4M3 want beside it on cards where the library does not scale their rows.
  static size_t scratch(const Gemm& g);
  GemmRunner();
  ~GemmRunner();
  void run(const Gemm& g, void* workspace, size_t bytes, cudaStream_t stream);
  std::string version() const;

 private:
  struct Plan;
  std::optional<bool> adds_;
  // Whether the library adds products of E4M3 operands into C: asked once, with a small one.
  bool adds_quantized(void* workspace, cudaStream_t stream);
  void multiply(const Gemm& g, void* workspace, cudaStream_t stream);
  void run_unscaled(const Gemm& g, void* workspace, size_t bytes, cudaStream_t stream);
  void run_with_tail(const Gemm& g, void* workspace, size_t bytes, cudaStream_t stream);
  void set_scales(Plan& p, const Gemm& g);
  Plan& plan_for(const Gemm& g, bool epilogue_bias);  // without algorithms where the library does not add the bias
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mxt::kernels::cuda
