// What a run takes of the machine's memory, known before anything of it is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/setup.h"

namespace mxt::train {

struct MemoryEstimate {
  runtime::ParamBytes params;
  runtime::ProgramBytes program, scoring;
  int64_t sampler = 0;    // what draws a policy's answers and judges them
  int64_t update = 0;     // the optimizer's work beside its states
  int64_t offloaded = 0;  // of params: in the host's memory, while a device trains
  int64_t data = 0;       // pages of the dataset that the steps map: resident, but given back where memory is short
  int64_t process = 0;    // the program itself: code, libraries, tokenizer, tables; 0 on a device
  // Of the memory where the step runs: the device's, or the host's where there is none.
  int64_t needs() const {
    return params.total() - offloaded + program.total() + scoring.total() + sampler + update + process;
  }
};

// What the process holds before the run's buffers: resident now (code and libraries as far as they were touched, the
// tokenizer, the model's tables), and what the first step touches beyond that.
int64_t process_bytes();

MemoryEstimate estimate_memory(const Setup& s, const kernels::KernelPlan& plan, kernels::Ops& ops);
MemoryEstimate estimate_memory(const Setup& s, const Pass& pass, const kernels::KernelPlan& plan, kernels::Ops& ops);

// Of the arena, what passes of at most `tokens` tokens touch: a host gives no page before it is written to. `spec`: of
// `g`.
int64_t touched_activations(const graph::Graph& g, const runtime::ProgramSpec& spec, int64_t tokens);

// Likewise of the head's buffer, whose chunk has `chunk` rows, by passes of at most `targets` targets.
int64_t touched_logits(const runtime::ProgramBytes& program, int64_t chunk, int64_t targets);

// Bytes that a run may plan with on this host: what is free (of the machine, or of the cgroup) and what the process
// holds already, less a twentieth.
uint64_t host_memory();

// The ways to cut a step that the recipe leaves open and that fit into `memory` bytes, each with the fewest recomputed
// tensors that do; the first is the default: as many rows as make about 2,048 tokens. Where nothing fits, the one that
// takes least.
std::vector<Pass> open_passes(const Setup& s, kernels::Ops& ops, uint64_t memory);

// Changes of the recipe that make the run fit into `memory`, what costs least first: results stay the same, then speed
// is lost, then the training is another one. At most `most` of them.
struct Change {
  std::string text;   // e.g. "train.micro_batch: 2"
  int64_t bytes = 0;  // what the run then takes
};
std::vector<Change> changes_that_fit(const Setup& s, kernels::Ops& ops, uint64_t memory, size_t most = 3);

// kBadInput with the figures and the changes where the run does not fit.
void require_fit(const Setup& s, const kernels::KernelPlan& plan, kernels::Ops& ops, uint64_t memory);

}  // namespace mxt::train
