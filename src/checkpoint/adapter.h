// LoRA adapters in PEFT's layout: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "models/model.h"
#include "runtime/params.h"

namespace mxt::checkpoint {

struct AdapterSettings {
  std::string base, revision;  // base_model_name_or_path and its revision, "" for none
  int64_t rank = 16;
  double alpha = 32, dropout = 0;
  bool rslora = false, fan_in_fan_out = false;
  std::vector<std::string> target_modules;
};

// A: uniform in ±1/√(inputs) (PyTorch's kaiming_uniform with a = √5, as PEFT); B: zeros. A function of (seed, module,
// element).
void init_adapter(const graph::Graph& g, runtime::ParamStore& params, uint64_t seed);

// Writes the folder from the master weights, F32; a reward model's head beside them, in modules_to_save. Bytes depend
// on the weights and settings alone.
void save_adapter(const std::string& folder, const graph::Graph& g, const runtime::ParamStore& params,
                  const AdapterSettings& settings);

// The LoRA plan of a PEFT folder, to build the graph with (dropout is for training and left out). Refuses what PEFT can
// express and this build cannot (DoRA, trained biases, modules_to_save), naming the key.
models::LoraPlan adapter_plan(const std::string& folder);

// Fills the adapter's parameters. kBadInput for an adapter of another base: a module that the graph has not, another
// shape, or a module without its tensors; and for one that scales B·A otherwise than `plan`, where that is not the
// adapter's own.
void load_adapter(const std::string& folder, const graph::Graph& g, runtime::ParamStore& params,
                  const models::LoraPlan* plan = nullptr);

}  // namespace mxt::checkpoint
