// A recipe and a plan compiled into what will run: the graph, its sizes in bytes, the number of steps. Nothing is
// allocated here: `plan` prints it, `train` runs it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "formats/weight_source.h"
#include "image/processor.h"
#include "kernels/backend.h"
#include "kernels/plan.h"
#include "models/model.h"
#include "runtime/params.h"
#include "runtime/program.h"

namespace mxt::train {

// One way to cut a step into passes.
struct Pass {
  int64_t micro_batch = 1;  // rows
  graph::Recompute recompute = graph::Recompute::kNone;
  runtime::Offload offload = runtime::Offload::kNone;  // a GPU's last resort
  bool packed_weights = false;                         // runtime::ProgramSettings
};

struct Setup {
  config::Recipe recipe;
  std::unique_ptr<formats::WeightSource> weights;  // null for model.init random
  formats::ModelConfig model;
  std::optional<image::Processor> processor;  // of a model that sees pictures
  models::LoraPlan lora;
  models::CodedPlan coded;                                      // of qlora
  std::shared_ptr<const std::map<std::string, Coding>> blocks;  // of a GGUF that holds weights so; null: none
  bool has_lora = false;
  const kernels::BackendInfo* backend = nullptr;  // of the recipe's lane
  DType type = DType::kBF16;
  int64_t seq_len = 0, rows_per_step = 0;
  int64_t sequences_per_row = 1;  // of seq_len tokens at most: a preference pair has two
  int64_t micro_batch = 0;        // rows per pass
  int64_t max_tokens = 0;         // of a pass
  runtime::Offload offload = runtime::Offload::kNone;
  bool packed_weights = false;
  bool share_prompts = false;    // a prompt's answers in one pass have it once
  std::string unshared;          // why they do not, where a method samples several; empty: they do
  models::BuildOptions options;  // of the training graph; `lora` points into this object

  Setup() = default;
  Setup(const Setup&) = delete;  // options point into it

  // Of so many rows, at most. Rows of one group have its prompt once, where prompts are shared.
  int64_t pass_tokens(int64_t rows) const;
  int64_t whole_rows() const;  // that a pass is best made of: a group, where it has its prompt once
  Pass pass() const { return {micro_batch, options.recompute, offload, packed_weights}; }
  // Built once for each way to recompute that has a name, and kept; of any other number of tensors the last one is
  // kept. Adapters are joined where joins() says so and options do.
  const graph::Graph& training_graph() const { return training_graph(options.recompute); }
  const graph::Graph& training_graph(graph::Recompute recompute) const;
  bool joins(graph::Recompute recompute) const;  // where nothing is recomputed, or the base is held in E4M3
  std::vector<graph::Recomputable> recompute_order()
      const;                           // what a pass may recompute, the cheapest for its bytes first
  graph::Graph scoring_graph() const;  // the same parameters in the same order

 private:
  struct Built {
    models::BuildOptions options;
    graph::Graph graph;
  };
  mutable std::vector<std::unique_ptr<Built>> built_;
};

// Of a tokenizer: how many ids it makes (0: there is none), and which of them begin and end a text (−1: none does).
struct Vocabulary {
  Vocabulary(int64_t ids = 0, int64_t begin = -1, int64_t end = -1) : size(ids), bos(begin), eos(end) {}
  int64_t size, bos, eos;
};

// `model_path`: folder or .gguf file of model.name, found or downloaded by the caller ("" for init random).
// `vocabulary`: of the data; a random model takes of it what its configuration leaves out, any other must be at least
// as large. Errors: kMissing for what this build cannot train, kBadInput for a recipe and a model that do not fit. Of a
// folder, Reads::kConfig takes config.json alone (its weights may be absent): for counting and probing, which see no
// value; nothing can be trained with it.
enum class Reads { kWeights, kConfig };
std::unique_ptr<Setup> make_setup(const config::Recipe& recipe, const std::string& model_path,
                                  const Vocabulary& vocabulary, const kernels::KernelPlan* plan,
                                  Reads reads = Reads::kWeights);

// As the recipe wants pictures seen (data.pictures), by whatever the model's folder says. kBadInput where the two
// together leave no size.
image::Processor picture_sizes(image::Processor processor, const config::Recipe& recipe);

// The same model under another recipe: for asking what a change would take.
std::unique_ptr<Setup> with_recipe(const Setup& s, const config::Recipe& recipe);

// The model that a recipe with init: random describes; vocab_size, bos_token_id and eos_token_id are the tokenizer's
// where it does not state them: the class's default would be a token of some other tokenizer.
formats::ModelConfig random_config(const config::Recipe& recipe, const Vocabulary& vocabulary);

// Bytes of the parameters of one of its training graphs, with all that training keeps beside them.
runtime::ParamBytes param_bytes(const Setup& s, const graph::Graph& g);

// What calls are derived from; a plan for other shapes is refused.
std::map<std::string, int64_t> shapes_of(const Setup& s);
// Those of them that `plan` can be compared by: older plans state nothing of layers' kinds, experts and delta heads.
std::map<std::string, int64_t> shapes_beside(const kernels::KernelPlan& plan, const Setup& s);
// Why a plan cannot be taken as it stands for `s` (made without one): another device, other shapes, or a pass that the
// recipe cuts otherwise. Empty where it can.
std::vector<std::string> differences(const kernels::KernelPlan& plan, const kernels::DeviceIdentity& device,
                                     const Setup& s);

// What drives the recipe's lane; null: nothing in this build.
const kernels::BackendInfo* backend_of(const config::Recipe& recipe);
// The device of the recipe's lane, opened: kMissing, with what to do, where this machine has none.
kernels::Backend open_backend(const Setup& s);
kernels::DeviceIdentity identity_of(const kernels::Backend& backend, int threads);
kernels::DeviceIdentity cpu_identity(int threads);

// The plan of default choices for this set-up on this machine, not measured.
kernels::KernelPlan default_plan(const Setup& s, const kernels::DeviceIdentity& device, kernels::Ops& ops,
                                 const Pass& pass);

// What a pass of the run's step is made of: the program that train() runs.
runtime::ProgramSettings program_settings(const Setup& s);
runtime::ProgramSettings program_settings(const Setup& s, const Pass& pass);
runtime::ProgramSpec step_program(const Setup& s, const kernels::KernelPlan& plan, const kernels::Ops& ops);

// S of RECIPE.md, from the prepared dataset's rows (0 = random windows, which need schedule.max_steps).
int64_t total_steps(const config::Recipe& recipe, int64_t rows, int64_t rows_per_step);

bool evaluates(const config::Recipe& recipe, const std::string& data_folder);

}  // namespace mxt::train
