// One kernel call of a step program with memory of its own, so that each of its algorithms can be timed.
#pragma once

#include <string>
#include <vector>

#include "autotune/device_timer.h"
#include "device/memory.h"
#include "kernels/calls.h"
#include "runtime/program.h"

namespace mxt::autotune {

using Tunable = runtime::Program::Tunable;

// A matrix product, or attention with its gradient: these two are one choice, because the gradient reads what the
// forward's algorithm wrote.
struct Choice {
  std::vector<Tunable> calls;  // one product; or forward, then gradient where the step has one
  double flops() const;        // of one time through `calls`
  double count() const { return static_cast<double>(calls[0].count); }
};
// The choices of a program, the most work first.
std::vector<Choice> choices_of(const std::vector<Tunable>& tunables);

// Algorithms (indices into the backend's list) that do different things for this choice; the default first.
std::vector<int> algorithms_of(const Choice& choice, kernels::Ops& ops);

// Where the operands of one copy of a choice's calls lie. Operands of one name are one place, whichever call has them:
// what the forward pass writes its gradient reads. What lies in the same rows in the program (q, k and v) does so here.
struct Layout {
  std::vector<std::vector<size_t>> at;  // of each call's operands, in the order of kernels::operands()
  size_t bytes = 0;
};

// Memory for the calls, made once and lent to one call at a time.
class Operands {
 public:
  // Enough for each of these choices.
  Operands(const std::vector<const Choice*>& choices, kernels::Ops& ops);
  static size_t bytes(const Choice& choice, const kernels::Ops& ops);  // of one copy
  std::byte* at(size_t offset) const { return memory_.bytes_at(offset); }

 private:
  device::Buffer memory_;
};

class CallBench {
 public:
  // `document`: tokens of a full document. `packed`: rows hold shorter documents too, so that attention is timed over
  // full ones, quarters and sixteenths. `operands` must outlive the bench.
  CallBench(const Choice& choice, kernels::Ops& ops, const Operands& operands, int64_t document, bool packed);
  // µs of each call with this algorithm, operands taking turns so that they come from memory as they do in a step.
  // `repeats`: how many times the work is done for one sample.
  std::vector<double> sample(int algorithm, DeviceTimer& clock, int repeats);

 private:
  void make_documents(int64_t tokens);
  size_t scratch_bytes() const;
  // Call `c` of the choice over the operands of this copy and, of attention, these documents.
  kernels::AnyCall bound(size_t c, int copy, size_t mix, int algorithm) const;

  const Choice& choice_;
  kernels::Ops& ops_;
  const Operands& operands_;
  int64_t document_;
  bool packed_;
  Layout at_;
  device::Buffer scratch_;
  int copies_ = 1, turn_ = 0;
  struct Mix {
    int64_t documents, longest;
    size_t at;  // of its cu_seqlens in cu_ and documents_
  };
  std::vector<Mix> mixes_;  // of a product one, which it does not look at
  std::vector<int32_t> cu_;
  device::Buffer documents_;  // the same on the device
};

}  // namespace mxt::autotune
