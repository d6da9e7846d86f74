// A compiled step: a ProgramSpec with every operand's place bound to an address. Running it is replaying the list.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.h"
#include "graph/graph.h"
#include "kernels/api.h"
#include "kernels/plan.h"
#include "runtime/params.h"
#include "runtime/spec.h"

namespace mxt::runtime {

// Paged key/value cache of one request batch (generation). Layout of a layer's memory: kernels::CachedAttention.
struct CacheView {
  std::vector<void*> k, v;  // per layer
  int64_t page = 0, max_pages = 0;
  // Of layers of gated DeltaNet, null elsewhere: what a convolution and a state carry on (kernels::Carried), and whose
  // place each request has there.
  std::vector<void*> convolution, state;
  const int32_t* state_slots = nullptr;
  const int32_t *cu_q = nullptr, *context = nullptr, *tables = nullptr, *slots = nullptr;
  int64_t requests = 0;
};

// The pictures of a micro-batch, in the order of their tokens. Pixels, or the features that a pass over them gave.
struct PictureBatch {
  int64_t count = 0, tokens = 0;
  const int32_t* grids = nullptr;   // [count, 2]: patches down and across; null with features
  const float* pixels = nullptr;    // [patches, Pictures::values]
  const float* features = nullptr;  // [tokens, Pictures::features]
  const int32_t* rows = nullptr;    // [tokens]: which token of the batch
};

// One micro-batch, in host memory that the caller keeps until run() returns.
struct Batch {
  int64_t tokens = 0;
  const int32_t* ids = nullptr;         // [tokens]
  const int32_t* positions = nullptr;   // [tokens], counted from each document's start (its prefix's, where it has one)
  const int32_t* previous = nullptr;    // [tokens], the id before each in its document; null: in the row before it
  const int32_t* cu_seqlens = nullptr;  // [documents + 1]
  const int32_t* prefix = nullptr;      // [documents], of kernels::Attention; null: none goes on from another
  // Of a model that sees pictures: positions in time, down and across, [3, tokens] (positions_of); null: all are
  // `positions`.
  const int32_t* axes = nullptr;
  const PictureBatch* pictures = nullptr;  // null: none
  int64_t documents = 0;
  // Training and scoring: targets[t] is the token that position t must predict, −100 where none; weights may be null
  // (1).
  const int32_t* targets = nullptr;
  const float* weights = nullptr;
  float loss_scale = 1;         // 1 / (target tokens of the whole global batch)
  bool first_micro = true;      // gradients are overwritten, later micro-batches add
  uint64_t seed = 0, step = 0;  // for dropout
  int64_t first_row = 0;        // rows of the step's earlier micro-batches; for dropout
  // Where the batch's rows begin and end, [rows + 1]: what the load-balancing loss is taken of; balance_scale: 1 / rows
  // of the whole global batch. Tokens past the last row are none of its.
  const int32_t* row_offsets = nullptr;
  int64_t rows = 0;
  float balance_scale = 0;
  // Generation: rows whose logits are wanted, into logits [rows, vocab] F32.
  const int32_t* logit_rows = nullptr;
  int64_t logit_count = 0;
  float* logits = nullptr;  // null: not wanted; with a device, pinned (device::Buffer::shared_with)
  // Of the same rows, drawn where the logits are (kernels::DrawTokens; Program::draws()), {id, log-probability}; pinned
  // as logits. Null: not wanted.
  const float* draw_temperature = nullptr;
  const int32_t* draw_bits = nullptr;
  float* drawn = nullptr;
  float* hidden = nullptr;           // of the same rows, what the head reads, [rows, width] F32; null: not wanted
  float* pooled = nullptr;           // embedding: the mean of each document's rows, [documents, width] F32
  const CacheView* cache = nullptr;  // set: attention reads the cache instead of the batch's own documents
};

class Program {
 public:
  // Everything is decided here; nothing is allocated until allocate().
  Program(const graph::Graph& g, const kernels::KernelPlan& plan, kernels::Ops& ops, const ProgramSettings& settings);
  ~Program();
  Program(const Program&) = delete;
  ProgramBytes bytes() const { return spec_.bytes; }
  // What runs, as data.
  const ProgramSpec& spec() const { return spec_; }
  using Tunable = runtime::Tunable;
  std::vector<Tunable> tunables() const { return spec_.tunables; }
  // Model floating-point operations of one pass at `tokens` tokens in documents of `document` tokens, of which
  // `targets` are trained on (the head works on these alone): the matrix products and attention; recomputed work is not
  // counted.
  double flops(int64_t tokens, int64_t document, int64_t targets) const;

  void allocate(ParamStore& params);
  // Queues the pass on a device, runs it on the host. The batch may change when it returns. `between`: of a graph with
  // roots and a backward pass, and of no other: called after the forward pass, to read the roots and write their seeds.
  void run(const Batch& batch, const std::function<void()>& between = nullptr);
  // A root's value or another one that lies in the arena: [its rows in the last run, cols], F32 in host memory. They
  // wait for the device. From `between`, or read() after a run without a backward pass.
  void read(graph::ValueId v, float* to) const;
  void write(graph::ValueId v, const float* from);
  // The same pass with the clock read around every call (the device's, where there is one), summed over calls of one
  // kind.
  struct Timing {
    std::string what;  // operation of the graph, and the shape of the weight that it reads
    int64_t count = 0;
    double us = 0;
  };
  std::vector<Timing> profile(const Batch& batch);
  // [tokens] of the last run, in host memory; 0 where there was no target. Waits for the device.
  const float* nll() const;
  // Queues the copy of the same into host memory: there when the device has been waited for.
  void copy_nll(float* to) const;
  // Of a graph with experts that trains: their number (0: none); and of the last run's rows the load-balancing loss,
  // [rows], and how often each expert was chosen over all layers, [rows, experts]. As copy_nll().
  int64_t experts() const { return spec_.experts; }
  void copy_loads(float* loss, float* count, int64_t rows) const;
  // `watch` is shown every call of spec().calls as it is about to be made; while there is one nothing is recorded.
  using Watch = std::function<void(size_t index, const kernels::AnyCall& call)>;
  void set_watch(Watch watch) { watch_ = std::move(watch); }
  // Fills the arena with NaN between a value's last use and the next write in tests: replay must not change.
  void set_poison(bool on) { poison_ = on; }

 private:
  friend struct Bind;
  class Staging;
  // Fields of the calls that are written again when a batch, a pass or a chunk begins.
  struct Site {
    void* field;  // a pointer
    int64_t offset;
  };
  struct RowSite {
    int64_t* rows;
    int64_t factor;
  };
  struct DrawSite {
    uint64_t *seed, *stream;
    int64_t* first_row;
    int64_t id;
  };
  struct Call {
    kernels::AnyCall call;
    const kernels::BlockMatrix* blocks = nullptr;  // of the weight, where the store has it so
    std::vector<bool*> overwrites_first;
  };
  void bind();
  void* base_of(const BufferSpec& b) const;
  void set_buffer(BufferId id, void* base);
  void set_rows(graph::Dim dim, int64_t n);
  void begin(const Batch& batch);
  void queue(size_t first, size_t last);  // calls
  void run_loop(const Loop& loop);
  void make(size_t i);
  bool replay();
  void finish(const Batch& batch);
  void poison(size_t upto);
  void forget_recordings();
  void* address(Ref r) const;
  void* place_of(graph::ValueId v) const;  // in the arena
  int64_t count_of(graph::ValueId v) const;
  void clear_gradients();
  void copy_out(Ref from, int64_t floats, float* to) const;

  const graph::Graph& graph_;
  kernels::Ops& ops_;
  ProgramSpec spec_;
  std::vector<Call> calls_;               // spec_.calls with addresses
  std::vector<void*> bases_;              // of the buffers, now
  std::vector<std::vector<Site>> sites_;  // of a buffer
  std::array<std::vector<RowSite>, graph::kDims> row_sites_;
  std::array<int64_t, graph::kDims> rows_{};
  std::vector<DrawSite> draws_;
  std::vector<std::pair<int64_t*, int64_t*>> documents_, picture_documents_, cache_;
  std::vector<int64_t*> pages_;
  device::Buffer arena_, head_, decoded_, zeros_, scratch_, rope_;
  std::unique_ptr<Staging> staging_;
  ParamStore* params_ = nullptr;
  const float *cos_ = nullptr, *sin_ = nullptr;
  uint16_t holds_ = 0;  // of When, for this batch and chunk
  int64_t tokens_ = 0;
  mutable std::vector<float> nll_host_;
  mutable bool nll_fetched_ = false;
  std::vector<int32_t> previous_;  // Batch::previous, where the batch does not give it
  bool poison_ = false;
  size_t poisoned_ = 0;  // operations whose dead buffers are filled
  Watch watch_;
  // Small generation passes are the same calls again and again, with what changes in the device's memory: the device
  // keeps a recording of each kind and is given one order a pass instead of hundreds. Null: seen once, not recorded
  // yet.
  std::map<std::vector<uint64_t>, void*> recordings_;
};

}  // namespace mxt::runtime
