// A step program as data: buffers, and kernel calls over them in the order in which they run. Nothing here holds an
// address: an operand is a place in a buffer, a number of rows that a batch decides is an Extent. Program binds it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "graph/graph.h"
#include "graph/memory.h"
#include "kernels/calls.h"
#include "kernels/plan.h"

namespace mxt::runtime {

// Random numbers: one stream per (step, operation), in which a step's rows are counted: independent of order, threads,
// restarts and of how a step is cut into micro-batches. Attention's operations are counted from kAttentionStreams on.
inline constexpr int64_t kStreams = 4096, kAttentionStreams = 2048;

// What a buffer is; `index` of a BufferSpec says of which parameter or layer.
enum class Source : uint8_t {
  // the program's own, allocated with it
  kArena,
  kHead,     // the head's chunk
  kDecoded,  // a piece of a weight that is held in codes
  kZeros,    // as many int32 zeros as a batch has tokens
  kCos,      // rotary tables, in the kernels' memory
  kSin,
  // of a parameter (ParamSlot)
  kWeight,
  kGrad,
  kScale,
  kTransposed,
  kJoined,
  kPacked,
  kPackedDx,
  // of the batch, staged where the kernels read it
  kIds,
  kPositions,
  kPrevious,       // the token before each in its document; its own id where there is none
  kDocuments,      // offsets of documents
  kHostDocuments,  // the same where the host reads them
  kPrefixes,       // what each document goes on from (kernels::Attention::prefix)
  kRowOffsets,     // of the batch's rows, which documents are packed into
  kBalanceScale,   // one number: Batch::balance_scale
  kTargetRows,
  kTargetLabels,
  kTargetWeights,
  kLogitRows,
  kDrawTemperature,  // of the same rows (kernels::DrawTokens)
  kDrawBits,
  kLogits,  // host memory that the caller gave
  kHidden,
  kDrawn,
  kPooled,
  // of the cache (CacheView)
  kQueries,
  kContext,
  kTables,
  kSlots,
  kKeys,
  kValues,
  kStateSlots,
  kConvolutions,
  kStates,
  // of the batch's pictures (PictureBatch)
  kPixels,
  kFeatures,
  kPictureDocuments,  // offsets of pictures, in patches
  kHostPictureDocuments,
  kPictureRows,    // the token of each row
  kTextIds,        // ids, below zero for tokens of pictures
  kCount,          // 0, 1, 2 …
  kCorners,        // of each patch, four rows of the table of places
  kCornerWeights,  // and what each counts
  kPatchCos,       // angles of each patch
  kPatchSin,
  kTokenCos,  // and of each token
  kTokenSin,
  // moves from one chunk of a loop to the next (Window)
  kWindow,
};
std::string_view name_of(Source s);

struct BufferSpec {
  Source source = Source::kArena;
  int32_t index = -1;
  int64_t bytes = 0;  // of the program's own; 0: another's
  std::string name;   // e.g. arena, grad[layers.0.qkv]
};

using BufferId = int32_t;
struct Ref {
  BufferId buffer = -1;  // −1: the call does without this operand
  int64_t offset = 0;    // bytes
};

struct Operand {
  Ref ref;
  graph::Extent rows;  // of a matrix
};

// When a call is made; all that are set must hold.
enum When : uint16_t {
  kAlways = 0,
  kFirstPass = 1,      // of an optimizer step
  kApart = 2,          // the chunk's rows do not lie side by side
  kSomeLeftOut = 4,    // not every token has a target
  kNoTarget = 8,       // none has
  kLogitsWanted = 16,  // by the caller, or to draw from
  kHiddenWanted = 32,
  kLogitsFetched = 64,  // by the caller
  kDrawsWanted = 128,
  kPicturesThere = 256,
};

struct StepCall {
  kernels::AnyCall call;          // at the widest batch, operands null
  std::vector<Operand> operands;  // in the order of kernels::operands()
  size_t op = 0;                  // of the graph that it belongs to
  uint16_t when = kAlways;
  // Bit i: the i-th of the call's results that may be added to is overwritten in the first pass of a step (in a loop:
  // by the first chunk) and added to later. Without it the call says which.
  uint8_t overwrites_first = 0;
  int64_t stream = -1;  // of random numbers, counted within a step
};

// The buffer `window` during a chunk: `of`, advanced by the chunk's first row (or by its place among the rows worked
// on) times `row_bytes`; or `apart`, where the chunk's rows do not lie side by side.
struct Window {
  BufferId window = -1;
  Ref of, apart;
  int64_t row_bytes = 0;
  bool by_place = true;
};

// Calls [first, last) are made for one chunk of rows after another: of those with a target, or those whose logits are
// wanted. Their Extent is kChunk.
struct Loop {
  size_t first = 0, last = 0;
  graph::Dim over = graph::Dim::kTargets;
  int64_t chunk = 0;
  std::vector<Window> windows;
};

struct ProgramBytes {
  int64_t activations = 0;  // the arena
  int64_t lower_bound = 0;  // of the arena
  int64_t logits = 0;       // the head's chunk
  int64_t decoded = 0;      // the largest piece of a weight held in codes
  int64_t workspace = 0;    // kernels' scratch
  int64_t kernels = 0;      // what kernels keep of their own for these calls
  int64_t batch = 0;        // ids, positions, offsets, targets; the rotary tables where a device has its own copy
  int64_t total() const { return activations + logits + decoded + workspace + kernels + batch; }
};

struct ProgramSettings {
  int64_t max_tokens = 0;
  int64_t max_documents = 0;    // 0: up to max_tokens
  bool cached = false;          // generation: attention over a cache
  int64_t document = 0;         // length of a full document, for attention's scratch; 0: max_tokens
  bool packed_weights = false;  // frozen weights are read as ParamStore::pack_frozen() laid them out
  bool prefixes = false;        // batches may have documents that go on from others
};

// Calls whose algorithm a plan may choose: key → the call at the widest batch, its operands as placed() has them.
struct Tunable {
  std::string key;
  std::variant<kernels::Gemm, kernels::Attention, kernels::AttentionGrad> call;
  int64_t count = 0;  // times a pass
};

struct ProgramSpec {
  std::vector<BufferSpec> buffers;
  std::vector<StepCall> calls;
  std::vector<Loop> loops;
  std::vector<Tunable> tunables;
  ProgramSettings settings;
  ProgramBytes bytes;
  Ref nll;              // F32, one a token; where there is a loss
  Ref balance, load;    // F32, of each row of the batch: the load-balancing loss, and how often each expert was chosen
  int64_t experts = 0;  // 0: neither
  float softcap = 0;    // on logits, by the host
  graph::Pictures pictures;
  DType picture_type = DType::kF32;                     // of what the batch brings of them
  std::vector<graph::ParamId> of_pictures;              // their gradients come from pictures alone
  std::vector<std::vector<graph::ValueId>> dead_after;  // an operation of the graph: buffers that nothing reads later
  graph::MemoryPlan memory;
};

// A graph as calls: which kernels, over which places, with the algorithms that the plan chooses. `ops` is asked what it
// can do and what memory that takes; nothing is allocated or run.
ProgramSpec lower(const graph::Graph& g, const kernels::KernelPlan& plan, const kernels::Ops& ops,
                  const ProgramSettings& settings);

// A place as an address, for calls that a backend is asked about: as aligned as the place, and nothing lies there.
void* place(Ref r);
Ref ref_of(const void* placed);
kernels::AnyCall placed(const StepCall& c);

// Bytes that an array of 32-bit numbers takes where a batch is staged.
constexpr int64_t staged_bytes(int64_t count) { return (count * 4 + 255) / 256 * 256; }

// Of a batch's arrays as they are staged; `previous`: with the token before each.
constexpr int64_t batch_bytes(const ProgramSettings& s, bool previous) {
  return 2 * staged_bytes(s.max_documents + 1) + (previous ? 6 : 5) * staged_bytes(s.max_tokens) + staged_bytes(1) +
         (s.prefixes ? staged_bytes(s.max_documents) : 0);
}
bool reads_previous(const ProgramSpec& spec);
// Of its pictures: none where the model sees none.
int64_t picture_bytes(const ProgramSettings& s, const graph::Pictures& p, int64_t rotary, DType type);

// Bytes that the call reads and writes at the widest batch.
int64_t bytes_moved(const StepCall& c);

// The program as text: every buffer, and every call in order with the name of its algorithm, shapes, operands as buffer
// and offset, bytes moved and operations. The same program gives the same text on every machine.
std::string print(const ProgramSpec& spec, const kernels::Ops& ops);

}  // namespace mxt::runtime
