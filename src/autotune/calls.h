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

// Where the operands of one copy of a call lie: offsets among what is read and among what is written, and the bytes of
// each.
struct Layout {
  std::vector<size_t> read, written;
  size_t read_bytes = 0, written_bytes = 0;
};

// Operands of the calls, made once and lent to one call at a time: what is only read, and what is written.
class Operands {
 public:
  // Enough for each of these choices.
  Operands(const std::vector<const Choice*>& choices, kernels::Ops& ops);
  static size_t bytes(const Choice& choice, const kernels::Ops& ops);  // of one copy
  std::byte* read_at(size_t offset) const { return read_.bytes_at(offset); }
  std::byte* written_at(size_t offset) const { return written_.bytes_at(offset); }

 private:
  device::Buffer read_, written_;
};

class CallBench {
 public:
  // `document`: tokens of a full document. `packed`: rows hold shorter documents too, so that attention is timed over
  // full ones, quarters and sixteenths. `operands` must outlive the bench.
  CallBench(const Choice& choice, kernels::Ops& ops, const Operands& operands, int64_t document, bool packed);
  // µs of each call with this algorithm, operands taking turns so that they come from memory as they do in a step.
  // `repeats`: how many times the work is done for one sample.
  std::vector<double> sample(int algorithm, Clock& clock, int repeats);

 private:
  void make_documents(const kernels::Attention& a);
  size_t scratch_bytes() const;
  kernels::Gemm gemm(int copy, int algorithm) const;
  template <typename C>
  C attention(const C& shape, int copy, size_t mix, int algorithm) const;

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
  std::vector<Mix> mixes_;
  std::vector<int32_t> cu_;
  device::Buffer documents_;  // the same on the device
};

}  // namespace mxt::autotune
