// Weights of a graph in memory: the computing copy (the graph's activation type), and for what trains the fp32 master,
// the gradient and the arrays that an optimizer keeps. Everything lies in one allocation whose size is known
// beforehand, array after array, each over all parameters in the graph's order: first the weights with what stands
// beside them, then masters, gradients, the optimizer's. What is offloaded from a device lies in another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/memory.h"
#include "graph/graph.h"

namespace mxt::kernels {
struct BlockMatrix;
class Ops;
}  // namespace mxt::kernels

namespace mxt::runtime {

// An array that an optimizer keeps beside a parameter. Zero at the start of a run.
struct StateArray {
  std::string name;  // "m"
  DType type = DType::kF32;
  int64_t count = 0;
  int64_t bytes() const { return count * static_cast<int64_t>(size_of(type)); }
  bool operator==(const StateArray&) const = default;
};
// One list a parameter of the graph, empty for what does not train; no lists at all: no optimizer.
using States = std::vector<std::vector<StateArray>>;

struct ParamSlot {
  const kernels::BlockMatrix* blocks = nullptr;  // set: the weight is this, and `weight` is null
  void* weight = nullptr;                        // [rows, cols] of the value's type; rows lie graph::stride() apart
  float* master = nullptr;                       // trainable only; the weight itself where the graph computes in F32
  float* grad = nullptr;
  std::vector<void*> states;  // the optimizer's, in the order in which States lists them
  // graph::Storage: a power of two a row; with kFp8 `weight` holds E4M3, and the same transposed stands in `transposed`
  // where there is a gradient of the input, and the adapter's scaled B (graph::joined_stride elements a row) in
  // `joined`. graph::Param::back: the transpose of a head as E4M3 with a scale a row of it, or [rows, cols] of the
  // values that it stands for. kCoded: `weight` has the segments' codes and `scale` their scales and nested scales,
  // where coded_place() says.
  float* scale = nullptr;
  void *transposed = nullptr, *joined = nullptr;
  // Of a frozen weight, once pack_frozen() was called: as the kernels read it forward and for the input's gradient
  // (kernels::Gemm::b_packed), null where they have no use for that.
  void *packed = nullptr, *packed_dx = nullptr;
  int64_t size = 0;
};

// Where a segment of a matrix held in codes begins in ParamSlot::weight and ::scale, in bytes.
struct CodedPlace {
  int64_t codes = 0, scales = 0, nested = 0;
  bool operator==(const CodedPlace&) const = default;
};
CodedPlace coded_place(const graph::Param& p, size_t segment);

// What of a training run lies in the host's memory although a device trains: nothing, or what the optimizer alone
// touches, once a step (its states, and masters where the graph computes in less than F32). The update reads and writes
// it over the host's link, so results are the same bit by bit.
enum class Offload { kNone, kOptimizer };
std::string_view offload_name(Offload o);  // none, optimizer
bool offload_from_name(std::string_view name, Offload* o);

// How the frozen weights of a run on the CPU stand: as they are, or packed too (ParamStore::pack_frozen).
std::string_view weights_name(bool packed);  // packed, plain
bool weights_from_name(std::string_view name, bool* packed);

struct ParamBytes {
  int64_t weights = 0, masters = 0, gradients = 0, states = 0, packed = 0;
  int64_t total() const { return weights + masters + gradients + states + packed; }
  int64_t offloaded(Offload o) const { return o == Offload::kOptimizer ? masters + states : 0; }
};

class ParamStore {
 public:
  // How much it will take, before anything is allocated. `training`: with masters and gradients for what trains, and
  // the optimizer's `states`.
  static ParamBytes measure(const graph::Graph& g, bool training, const States& states = {});
  // In the memory of `device`; null: the host's.
  // `blocks`, one a parameter or empty: where set, the weight is that and takes no memory here; it must outlive the
  // store. On the host alone.
  ParamStore(const graph::Graph& g, bool training, device::Accelerator* device = nullptr,
             Offload offload = Offload::kNone, States states = {},
             const std::vector<const kernels::BlockMatrix*>& blocks = {});
  // For use, not training: the weights of the base model are those of `base`, which must outlive this store; only what
  // an adapter adds has memory of its own. `g` has the base parameters of base's graph in the same order.
  ParamStore(const graph::Graph& g, const ParamStore& base);
  const ParamSlot& operator[](graph::ParamId p) const { return slots_[static_cast<size_t>(p)]; }
  size_t size() const { return slots_.size(); }
  // A parameter's weight and master in host memory with its rows side by side: the slot itself where the store has it
  // so, a copy otherwise, in which everything else is null.
  // What write() gave is carried back when the access ends. A matrix held in E4M3 or in codes is seen as its values in
  // the graph's type, and rounded when it is carried back.
  class Access {
   public:
    Access(const ParamStore& store, graph::ParamId p, bool write);
    ~Access();
    Access(const Access&) = delete;
    const ParamSlot* operator->() const { return &slot; }
    ParamSlot slot;

   private:
    void move(bool back);
    void decode();
    void encode();
    void decode_segments();
    void encode_segments();
    void turn();
    const ParamStore& store_;
    graph::ParamId p_;
    bool write_;
    std::vector<std::byte> copy_;
  };
  Access read(graph::ParamId p) const { return {*this, p, false}; }
  Access write(graph::ParamId p) { return {*this, p, true}; }
  // The arrays of a parameter that trains besides its weight, by name: "master", "grad" and the optimizer's.
  std::vector<StateArray> arrays(graph::ParamId p) const;
  // One of them in host memory: where it lies, or a copy, which write_array() carries back when the access ends.
  class Array {
   public:
    Array(const ParamStore& store, graph::ParamId p, std::string_view name, bool write);
    ~Array();
    Array(const Array&) = delete;
    void* data = nullptr;
    size_t bytes = 0;

   private:
    const ParamStore& store_;
    void* there_;
    bool write_;
    std::vector<std::byte> copy_;
  };
  Array read_array(graph::ParamId p, std::string_view name) const { return {*this, p, name, false}; }
  Array write_array(graph::ParamId p, std::string_view name) { return {*this, p, name, true}; }
  // A segment of a matrix held in codes, as a file has them; `from` is of the segment's coding and size.
  void write_coded(graph::ParamId p, size_t segment, const Coded& from);
  device::Accelerator* device() const { return device_; }
  // Lays the weights that g's products read and nothing trains out once more, as the products' algorithm reads them
  // (an index into ops.gemm_algorithms()), in memory of its own: nothing has to be packed in a step then. Call it when
  // the weights are there; none of them may be written after.
  void pack_frozen(const graph::Graph& g, kernels::Ops& ops, int algo = 0);
  static int64_t packed_bytes(const graph::Graph& g, const kernels::Ops& ops, int algo = 0);  // what that takes
  // Copies masters into the computing copies (after loading or an outside change).
  void sync_weights(graph::ParamId p);
  // Another graph over the same parameters, in the same order (an evaluation or generation graph of the same model).
  bool matches(const graph::Graph& g) const;

 private:
  void fetch(void* to, const void* from, size_t bytes) const;  // out of the store's memory, and into it
  void put(void* to, const void* from, size_t bytes) const;
  device::Accelerator* device_ = nullptr;
  device::Buffer memory_, offloaded_, packed_;
  std::vector<ParamSlot> slots_;
  States states_;
  struct CodedPart {
    int64_t row, rows;
    Coding coding;
    DType through;
    CodedPlace at;
    bool operator==(const CodedPart&) const = default;
  };
  struct Shape {
    int64_t rows, cols, joined, stride;
    graph::Storage held, back;
    std::vector<CodedPart> parts;  // of Storage::kCoded
    bool operator==(const Shape&) const = default;
  };
  static Shape shape_of(const graph::Param& p);
  void put_coded(const ParamSlot& slot, const CodedPart& part, int64_t cols, const Coded& from) const;
  std::vector<Shape> shapes_;
  std::vector<DType> types_;
};

}  // namespace mxt::runtime
