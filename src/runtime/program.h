// A compiled step: a flat list of kernel calls with every operand's place fixed. Running it is replaying the list.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "device/memory.h"
#include "graph/graph.h"
#include "graph/memory.h"
#include "kernels/api.h"
#include "kernels/plan.h"
#include "runtime/params.h"

namespace mxt::runtime {

// Paged key/value cache of one request batch (generation). Layout of a layer's memory: kernels::CachedAttention.
struct CacheView {
  std::vector<void*> k, v;  // per layer
  int64_t page = 0, max_pages = 0;
  const int32_t *cu_q = nullptr, *context = nullptr, *tables = nullptr, *slots = nullptr;
  int64_t requests = 0;
};

// One micro-batch, in host memory that the caller keeps until run() returns.
struct Batch {
  int64_t tokens = 0;
  const int32_t* ids = nullptr;         // [tokens]
  const int32_t* positions = nullptr;   // [tokens], counted from each document's start
  const int32_t* cu_seqlens = nullptr;  // [documents + 1]
  int64_t documents = 0;
  // Training and scoring: targets[t] is the token that position t must predict, −100 where none; weights may be null
  // (1).
  const int32_t* targets = nullptr;
  const float* weights = nullptr;
  float loss_scale = 1;         // 1 / (target tokens of the whole global batch)
  bool first_micro = true;      // gradients are overwritten, later micro-batches add
  uint64_t seed = 0, step = 0;  // for dropout
  int64_t first_row = 0;        // rows of the step's earlier micro-batches; for dropout
  // Generation: rows whose logits are wanted, into logits [rows, vocab] F32.
  const int32_t* logit_rows = nullptr;
  int64_t logit_count = 0;
  float* logits = nullptr;           // null: not wanted; with a device, pinned (device::Buffer::shared_with)
  float* hidden = nullptr;           // of the same rows, what the head reads, [rows, width] F32; null: not wanted
  float* pooled = nullptr;           // embedding: the mean of each document's rows, [documents, width] F32
  const CacheView* cache = nullptr;  // set: attention reads the cache instead of the batch's own documents
};

struct ProgramBytes {
  int64_t activations = 0;  // the arena
  int64_t lower_bound = 0;  // of the arena
  int64_t logits = 0;       // the head's chunk
  int64_t workspace = 0;    // kernels' scratch
  int64_t kernels = 0;      // what kernels keep of their own for these calls
  int64_t batch = 0;        // ids, positions, offsets, targets; the rotary tables where a device has its own copy
  int64_t total() const { return activations + logits + workspace + kernels + batch; }
};

struct ProgramSettings {
  int64_t max_tokens = 0;
  int64_t max_documents = 0;    // 0: up to max_tokens
  bool cached = false;          // generation: attention over a cache
  int64_t document = 0;         // length of a full document, for attention's scratch; 0: max_tokens
  bool packed_weights = false;  // frozen weights are read as ParamStore::pack_frozen() laid them out
};

class Program {
 public:
  // Everything is decided here; nothing is allocated until allocate().
  Program(const graph::Graph& g, const kernels::KernelPlan& plan, kernels::Ops& ops, const ProgramSettings& settings);
  ~Program();
  Program(const Program&) = delete;
  ProgramBytes bytes() const { return bytes_; }
  // Calls whose algorithm a plan may choose: key → the call at max_tokens with empty pointers. The probe runs these.
  struct Tunable {
    std::string key;
    std::variant<kernels::Gemm, kernels::Attention, kernels::AttentionGrad> call;
    int64_t count = 0;  // times per pass
  };
  std::vector<Tunable> tunables() const;
  // Model floating-point operations of one pass at `tokens` tokens in documents of `document` tokens, of which
  // `targets` are trained on (the head works on these alone): the matrix products and attention; recomputed work is not
  // counted.
  double flops(int64_t tokens, int64_t document, int64_t targets) const;

  void allocate(ParamStore& params);
  // Queues the pass on a device, runs it on the host. The batch may change when it returns.
  void run(const Batch& batch);
  // The same pass with the clock read around every call (the device's, where there is one), summed over calls of one
  // kind.
  struct Timing {
    std::string what;  // operation, and the shape of the weight that it reads
    int64_t count = 0;
    double us = 0;
  };
  std::vector<Timing> profile(const Batch& batch);
  // [tokens] of the last run, in host memory; 0 where there was no target. Waits for the device.
  const float* nll() const;
  // Queues the copy of the same into host memory: there when the device has been waited for.
  void copy_nll(float* to) const;
  // Fills the arena with NaN between a value's last use and the next write in tests: replay must not change.
  void set_poison(bool on) { poison_ = on; }

 private:
  friend class Lowering;
  // A batch where the kernels read it: the same arrays packed into one block (the device's memory, where it has one),
  // and the rows that have a target.
  struct Staged : Batch {
    const int32_t *head_rows = nullptr, *head_labels = nullptr;
    const float* head_weights = nullptr;
    const int32_t *host_rows = nullptr, *host_cu_seqlens = nullptr;
    int64_t head_count = 0, longest = 0;
  };
  struct Frame {
    const Staged* batch;
    int64_t tokens;
  };
  class Staging;
  struct Launch {
    size_t op;  // of the graph
    std::function<void(const Frame&)> run;
  };
  const graph::Graph& graph_;
  kernels::Ops& ops_;
  ProgramSettings settings_;
  graph::MemoryPlan memory_;
  ProgramBytes bytes_;
  std::unique_ptr<class Lowering> lowering_;  // launches refer to it
  std::vector<Launch> launches_;
  std::vector<std::vector<graph::ValueId>> dead_after_;
  std::vector<Tunable> tunables_;
  device::Buffer arena_, head_, scratch_, rope_;
  std::unique_ptr<Staging> staging_;
  const float *cos_ = nullptr, *sin_ = nullptr;
  int64_t head_chunk_ = 0, tokens_ = 0;
  mutable std::vector<float> nll_host_;
  mutable bool nll_fetched_ = false;
  ParamStore* params_ = nullptr;
  graph::ValueId nll_ = graph::kNone;
  bool poison_ = false;
  std::function<void()> before_;              // each launch, while a pass is profiled
  std::function<void(const Batch&)> finish_;  // on the host when all is queued; null: nothing
  // Small generation passes are the same calls again and again, with what changes in the device's memory: the device
  // keeps a recording of each kind and is given one order a pass instead of hundreds. Null: seen once, not recorded
  // yet.
  std::map<std::vector<uint64_t>, void*> recordings_;
  void find_dead(const std::vector<graph::Step>& steps, const std::vector<graph::ValueId>& keep);
  bool replay(const Frame& frame);
  void queue(const Frame& frame);
  void forget_recordings();
};

}  // namespace mxt::runtime
