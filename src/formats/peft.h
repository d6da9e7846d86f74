// PEFT's LoRA adapter folders: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/types.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"

namespace mxt::formats {

class WeightSource;

// The fields of LoraConfig that matter here; the rest is written with PEFT's defaults.
struct AdapterConfig {
  std::string task_type = "CAUSAL_LM";
  std::string base_model_name_or_path, revision;  // empty = null
  int64_t r = 8;
  double lora_alpha = 8, lora_dropout = 0;
  bool use_rslora = false;      // scaling alpha/√r instead of alpha/r
  bool use_dora = false;        // rows as long as a magnitude of their own
  std::string bias = "none";    // which biases of the base train: none, lora_only or all
  bool fan_in_fan_out = false;  // the base keeps its matrices as [in, out] (GPT-2's Conv1D)
  bool inference_mode = true;
  std::vector<std::string>
      target_modules;  // as written; one text that is a pattern stands alone with target_is_pattern
  bool target_is_pattern = false;
  std::vector<std::string> exclude_modules;  // likewise
  bool exclude_is_pattern = false;
  // What PEFT wraps as parameters, by the endings of their names: stacks of experts (gate_up_proj, down_proj), and the
  // matrix of a module that is no linear layer there ("gate.weight", a router's).
  std::vector<std::string> target_parameters;
  // Module name endings (or regular expressions, matched as PEFT does) to their own rank and alpha, in file order.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;

  std::vector<int64_t> layers_to_transform;  // empty: all
  std::vector<std::string> modules_to_save;  // trained whole, beside the matrices; endings of names
  bool saves_pattern = false;
  // Whether PEFT would put a matrix on this module: by target_parameters, or by target_modules (where there are any of
  // either), exclude_modules and layers_to_transform.
  bool selects(std::string_view module) const;
  // Whether it does so by target_parameters: then patterns go by the parameter's name.
  bool wraps_weight_of(std::string_view module) const;
  int64_t rank(std::string_view module) const;
  double alpha(std::string_view module) const;
  double scaling(std::string_view module) const { return scaling_for(alpha(module), rank(module)); }
  double scaling_for(double alpha, int64_t rank) const;
};

// kMissing for what is not built in, by name (lora_bias, another peft_type …), kBadInput for
// values that make no sense.
AdapterConfig parse_adapter_config(const OrderedJson& j, std::string_view source);
OrderedJson to_json(const AdapterConfig& config);

// Whether a model's weight of this module lies as [in, out] (GPT-2's Conv1D). PEFT goes by the module too, not by the
// fan_in_fan_out that an adapter's file states.
bool holds_transposed(const ModelConfig& config, std::string_view module);

// A layer's module or tensor by the family's own name, where it has that of another class over the same weights: those
// of a text model and of the whole one that it is a part of (Family::other_prefixes).
std::string own_name(const Family& family, std::string_view name);

// An adapter on disk. Accepts the spellings that PEFT and its readers write: with or without `base_model.model.`, with
// an adapter's name inside (`lora_A.default.weight`). What PEFT holds of stacked experts (target_parameters) is read as
// modules of each expert: of …mlp.experts.base_layer (gate_up_proj, where down_proj has one too) and …mlp.experts,
// lora_A [experts · rank, in] with an expert's rows together, lora_B [out, rank · experts] with the expert fastest;
// gate_proj and up_proj share A, but
// where B lies in blocks, a half of the rank for each: then each has its own (stack_experts writes them so).
class Adapter {
 public:
  struct Module {
    std::string name;  // of the base's module: "model.layers.0.self_attn.q_proj"
    int64_t rank = 0, in = 0, out = 0;
    double scaling = 0;      // of B·A
    TensorInfo a, b;         // [rank, in] and [out, rank]
    bool embedding = false;  // of a table of vectors [in, out], to which (B·A)ᵀ is added
    TensorInfo magnitude;    // DoRA: [out], the lengths of the rows of W + scaling·B·A; else without a name
  };

  // `base`: of the model that it is for, whose names its modules then have (own_name), and whose stacked experts may
  // lie turned (Family::turned_experts), so that rows of gate_up_proj's B are gate's and up's in turn.
  static Adapter open(const std::string& folder, const Family* base = nullptr);
  static bool is_adapter(const std::string& folder) { return fs::exists(fs::path(folder) / "adapter_config.json"); }

  const AdapterConfig& config() const { return config_; }
  const std::string& folder() const { return folder_; }
  std::string weights() const { return folder_ + "/adapter_model.safetensors"; }  // the file of its tensors
  const std::vector<Module>& modules() const { return modules_; }                 // sorted by name
  const Module* find(std::string_view module) const;                              // null where there is none
  // Tensors that take the place of the base's, by its names: modules_to_save, trained biases, and the base weights that
  // PEFT keeps beside adapters of embeddings.
  const std::map<std::string, TensorInfo>& replaced() const { return replaced_; }
  // The first module or tensor that is no plain LoRA of a layer's linear module: with magnitudes, of the head, of
  // embeddings, a whole module, a bias; a reward model's head (classifier.h) does not count, which graphs have that
  // want one. Such adapters work when they are merged into the base (WeightSource::with_adapter). "" where there is
  // none.
  std::string beyond_layers() const;
  // A or B of a module, converted.
  void read(const TensorInfo& tensor, DType to, void* out) const;
  // kBadInput where a module is not in the base or has another shape: the adapter was made for another base.
  void check_base(const WeightSource& base) const;

 private:
  std::string folder_;
  AdapterConfig config_;
  // Of a tensor that stands in a stack: where it lies, by the name that a module has for it.
  struct Slice {
    std::string stack;
    int64_t expert = 0, experts = 0;
    bool is_b = false;
    int64_t row = 0, step = 1;  // the first, of lora_B, and from one to the next
    int64_t of = 0, first = 0;  // the stack's rank, and what of it is this one's
  };
  bool in_blocks(const Module& m, int64_t rank, int64_t experts, bool turned) const;
  void unstack(std::map<std::string, Module>& modules, std::vector<std::string>* stacks, bool turned);

  Safetensors file_;
  int64_t experts_ = 0;  // of its stacks
  std::map<std::string, Slice> slices_;
  std::vector<Module> modules_;
  std::map<std::string, TensorInfo> replaced_;
};

struct AdapterTensor {
  std::string module;  // of the base's module
  int64_t rank = 0, in = 0, out = 0;
  const float *a = nullptr, *b = nullptr;  // [rank, in], [out, rank]
  bool embedding = false;                  // of a table of vectors [in, out]
  const float* magnitude = nullptr;        // DoRA: [out]
  bool stack = false;                      // of all of a layer's experts: rank counts theirs together
};
// A tensor that takes the place of the base's: of modules_to_save, or a bias that trained.
struct AdapterWhole {
  std::string name;  // the base's
  std::vector<int64_t> shape;
  std::vector<float> values;
};
// Writes both files into `folder` (made if need be), each atomically; matrices as `type` (F32, BF16 or F16). Modules
// may come in any order; the bytes depend on content alone. rank_pattern is completed from the modules' own ranks.
void write_adapter(const std::string& folder, AdapterConfig config, std::span<const AdapterTensor> modules, DType type,
                   std::span<const AdapterWhole> wholes = {});
// PEFT makes stacks of a base's single experts and takes every name gate_proj, up_proj and down_proj of target_modules
// for theirs. What other layers have of these names `config` states as parameters, which it leaves alone.
void name_beside_experts(AdapterConfig& config, std::span<const AdapterTensor> modules);
// Modules of single experts become those of stacks, as PEFT's target_parameters has them: with gate_proj and up_proj
// both adapted, their A one below the other and B in blocks, at the rank of both; `config` says so. `turned`: as
// Adapter::open. The tensors point into `values`, and into the modules that stay.
void stack_experts(AdapterConfig& config, std::vector<AdapterTensor>& modules, std::list<std::vector<float>>& values,
                   bool turned);

}  // namespace mxt::formats
