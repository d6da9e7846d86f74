// What a recipe's adapter is: where it is put, what trains beside it, and what others will not make of it.
#pragma once

#include "config/recipe.h"
#include "formats/model_config.h"
#include "formats/peft.h"
#include "models/model.h"

namespace mxt::train {

struct Setup;

// A recipe's adapter as PEFT states one.
formats::AdapterConfig adapter_config(const config::Recipe& recipe);

// The same as a graph is built from it.
models::LoraPlan lora_plan(const config::Recipe& recipe);

// What an adapter may be put on, and what trains beside it: kBadInput or kMissing, naming the key.
void check_adapter(const config::Recipe& recipe, const formats::ModelConfig& model);

// Every entry of target_modules and every key of a pattern names a module that gets an adapter: what matches nothing
// would train nothing (kBadInput).
void require_targets(const Setup& s);

// Whether head and embedding are to be two, where the model has one: as PEFT, which wraps the one that is named.
bool parts_head(const config::Recipe& recipe);

// Warns of adapters of experts that train here and that PEFT does not read as they are.
void say_beyond_peft(const config::Recipe& recipe, const formats::ModelConfig& model);
// Whether experts' adapters are saved stacked: as the recipe says, else where PEFT does not read single experts'.
bool stacks_experts(const config::Lora& lora, const formats::ModelConfig& model);

}  // namespace mxt::train
