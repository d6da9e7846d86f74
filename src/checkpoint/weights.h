// Base weights between files and a ParamStore.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.h"
#include "formats/weight_source.h"
#include "graph/graph.h"
#include "kernels/blocks.h"
#include "runtime/params.h"

namespace mxt::checkpoint {

// For every parameter of g whose rows the file holds in blocks that multiply as they are (GGUF's Q4_0 to Q8_0 and Q4_K
// to Q6_K), with `plain` also what is stored in BF16 or computed in it: those, in the order of g's parameters; null for
// the others. For ParamStore.
struct BlockWeights {
  device::Buffer memory;  // all of them, on huge pages
  std::vector<std::unique_ptr<kernels::BlockMatrix>> matrices;
};
BlockWeights load_blocks(const graph::Graph& g, const formats::WeightSource& source, bool plain);

// The file holds every base parameter of g in its shape. Reads no weights. Errors: as load_base.
void check_base(const graph::Graph& g, const formats::WeightSource& source);

// Tensors of the file that g does not read, in file order, without masks and tables: another architecture's, a head for
// another task, biases that the configuration does not speak of.
std::vector<std::string> unused_tensors(const graph::Graph& g, const formats::WeightSource& source);

// Fills every base parameter (not adapters, nor what the store has in blocks); names of unused tensors are said once a
// file. Errors (kBadInput): a missing tensor or one of another shape, by name, with the shape that was expected.
void load_base(const graph::Graph& g, runtime::ParamStore& params, const formats::WeightSource& source);

// Random base weights: normal(0, Param::init_std) for matrices, norm weights 1, biases 0. A function of (seed,
// parameter's name, element), so it does not depend on the order of parameters or on threads.
void init_random(const graph::Graph& g, runtime::ParamStore& params, uint64_t seed);

// The type in which a tensor of this name (one expert's of a stack) is written.
using WrittenType = std::function<DType(const std::string& name)>;

// A folder that transformers loads: config.json and model.safetensors (sharded above 5 GB) in `type`, or each tensor in
// its own where `written` is given, with the weights as they now are. The caller adds the tokenizer's files.
void save_model(const std::string& folder, const graph::Graph& g, const runtime::ParamStore& params,
                const formats::ModelConfig& config, DType type, const WrittenType& written = {});

// One parameter's segment as the checkpoint holds it: F32, [rows, cols] or transposed. Used by savers and quantizers.
std::vector<float> read_segment(const graph::Graph& g, const runtime::ParamStore& params, const graph::Param& p,
                                const graph::Segment& s);

// base + scale·B·A added into the base weights, for `merge` and for serving a merged model. After it the adapter's
// parameters must not be used. The answer: sums of squares over the matrices that it changed, of the change, and of
// what rounding the result to `written` changes besides (nothing where it is empty).
struct MergeCost {
  double change = 0, rounding = 0;
};
MergeCost merge_adapter(const graph::Graph& g, runtime::ParamStore& params, const WrittenType& written = {});

}  // namespace mxt::checkpoint
