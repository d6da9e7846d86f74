// One kernel call of a step program with memory of its own, so that each of its algorithms can be timed.
#pragma once

#include <string>
#include <vector>

#include "autotune/clock.h"
#include "device/memory.h"
#include "kernels/api.h"
#include "runtime/program.h"

namespace mxt::autotune {

using Tunable = runtime::Program::Tunable;

// A matrix product, or attention with its gradient: these two are one choice, because the gradient reads what the forward's
// algorithm wrote.
struct Choice {
  std::vector<Tunable> calls;  // one product; or forward, then gradient where the step has one
  double flops() const;        // of one time through `calls`
  double count() const { return static_cast<double>(calls[0].count); }
};
// The choices of a program, the most work first.
std::vector<Choice> choices_of(const std::vector<Tunable>& tunables);

class CallBench {
 public:
  // `document`: tokens of a full document. `packed`: rows hold shorter documents too, so that attention is timed over full ones,
  // quarters and sixteenths.
  CallBench(const Choice& choice, kernels::Ops& ops, int64_t document, bool packed);
  // µs of each call with this algorithm, operands taking turns so that they come from memory as they do in a step. `repeats`: how
  // many times the work is done for one sample.
  std::vector<double> sample(int algorithm, Clock& clock, int repeats);
  static size_t bytes(const Choice& choice);  // operands of one copy

 private:
  void build_gemm(const kernels::Gemm& g);
  void build_attention();
  void fill();
  kernels::Gemm gemm(int copy, int algorithm) const;
  template <typename C>
  C attention(const C& shape, int copy, size_t mix, int algorithm) const;

  const Choice& choice_;
  kernels::Ops& ops_;
  int64_t document_;
  bool packed_;
  device::Buffer memory_, scratch_;
  std::vector<size_t> at_;     // operands of one copy: offsets
  size_t stride_ = 0;          // bytes of one copy
  int copies_ = 1, turn_ = 0;
  struct Mix {
    int64_t documents, longest;
    size_t at;  // of its cu_seqlens in cu_ and documents_
  };
  std::vector<Mix> mixes_;
  std::vector<int32_t> cu_;
  device::Buffer documents_;  // the same on the device
};

}  // namespace mxt::autotune
