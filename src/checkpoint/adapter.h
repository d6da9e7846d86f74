// LoRA adapters in PEFT's layout: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/peft.h"
#include "graph/graph.h"
#include "models/model.h"
#include "runtime/params.h"

namespace mxt::checkpoint {

// A: uniform in ±1/√(inputs) (PyTorch's kaiming_uniform with a = √5, as PEFT); B: zeros; of embeddings A zeros and B
// normal; magnitudes (DoRA): the lengths of the base's rows, which must be there. A function of (seed, module,
// element).
void init_adapter(const graph::Graph& g, runtime::ParamStore& params, uint64_t seed);

// Writes the folder from the master weights, F32: matrices, magnitudes, and what of the base trained beside them, a
// reward model's head among it. Bytes depend on the weights and settings alone. `start`: with it the adapter is written
// as its difference from that one, at twice the rank and alpha, and belongs to the base that `start` was taken out of
// (pissa.h).
class PissaStart;
// Adapters of experts: one by one, or stacked as PEFT has them; `turned`: of a base whose stacks are; `converted`: of
// one whose single experts' adapters PEFT stacks (both formats/peft.h).
struct ExpertForm {
  bool stacked = false, turned = false, converted = false;
};
void save_adapter(const std::string& folder, const graph::Graph& g, const runtime::ParamStore& params,
                  formats::AdapterConfig config, const PissaStart* start = nullptr, ExpertForm experts = {});

// The LoRA plan of a PEFT folder, to build the graph with (dropout is for training and left out). Refuses what PEFT can
// express and a server beside its base cannot (DoRA, trained biases, modules_to_save), naming the tensor.
models::LoraPlan adapter_plan(const std::string& folder, const formats::Family* base = nullptr);

// Fills the adapter's parameters. kBadInput for an adapter of another base: a module that the graph has not, another
// shape, or a module without its tensors; and for one that scales B·A otherwise than `plan`, where that is not the
// adapter's own. `base`: as formats::Adapter::open. With `plan` it is an adapter to train on: what of the base it has
// trained is loaded too.
void load_adapter(const std::string& folder, const graph::Graph& g, runtime::ParamStore& params,
                  const models::LoraPlan* plan = nullptr, const formats::Family* base = nullptr);

// What load_adapter refuses of modules, shapes and scaling, from the folder's headers alone: before a run prepares
// anything.
void check_adapter(const std::string& folder, const graph::Graph& g, const models::LoraPlan& plan,
                   const formats::Family* base = nullptr);

}  // namespace mxt::checkpoint
