// Attention through cuDNN's graph API: bf16, head sizes that are multiples of 8 up to 128. Documents of one length run
// as a dense batch; others as a packed batch with lengths and offsets on the device. lse is cuDNN's own layout:
// [documents, heads, length] dense, [tokens, heads] packed. The backward is the deterministic one.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "kernels/api.h"
#include "kernels/cuda/attention_tiles.h"

namespace mxt::kernels::cuda {

class CudnnAttention {
 public:
  explicit CudnnAttention(cudaStream_t stream);
  ~CudnnAttention();
  static bool covers(const Attention& a);
  static bool covers(const AttentionGrad& a);
  static StatsLayout stats_layout(const AttentionGrad& a);  // of lse
  size_t scratch(const Attention& a);
  size_t scratch(const AttentionGrad& a);
  void run(const Attention& a, void* workspace, size_t bytes);
  void run(const AttentionGrad& a, void* workspace, size_t bytes);
  std::string version() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mxt::kernels::cuda
