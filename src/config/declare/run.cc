// Declarations of meta, hardware, autotune and model.
#include "config/field.h"

namespace mxt::config {
namespace {

// Known prices of one device for an hour: AMD Developer Cloud's MI300X and the list price of one H100 that the cost
// comparison of the project uses. A machine of one's own (cpu) costs its energy only.
std::optional<double> price_of(GpuName n) {
  if (n == GpuName::kMi300x) return 1.99;
  if (n == GpuName::kH100) return 4.00;
  if (n == GpuName::kCpu) return 0.0;
  return {};
}

}  // namespace

Section declare(const Meta*) {
  Declaration<Meta> d("Who and what this run is.");
  d.field("project", &Meta::project, "Project that the run belongs to.").required();
  d.field("run_name", &Meta::run_name, "Name of the run.").required();
  d.field("seed", &Meta::seed, "Seed of every random number of the run.").min(0);
  d.field("license", &Meta::license, "License of the result, as SPDX spells it.");
  d.field("description", &Meta::description, "Free text.");
  return d.take();
}

Section declare(const Hardware*) {
  Declaration<Hardware> d(
      "The machine that the recipe is written for. Without this section: the machine that runs it, its GPU where this "
      "build trains on it, else its processor.");
  d.field("name", &Hardware::name,
          "Kind of device; `cuda` is an NVIDIA card since Ampere that has no name here (write its memory, too).");
  d.field("gfx_arch", &Hardware::gfx_arch, "Its instruction set; one that contradicts `name` is an error.")
      .derived("from `name`", [](const Recipe& r) { return arch_of(r.hardware.name); });
  d.field("gpus", &Hardware::gpus,
          "Devices of one machine. MI300-class: 1 or 8 (2 and 4 have asymmetric xGMI links, which starve sharded "
          "training in silence). NVIDIA's: 1, 2, 4 or 8. 0 = the CPU lane, whatever `name` says.")
      .min(0)
      .derived("1; 0 for cpu", [](const Recipe& r) -> int64_t { return r.hardware.name == GpuName::kCpu ? 0 : 1; });
  d.field("nodes", &Hardware::nodes, "Machines, joined by MPI.").min(1).plus();
  d.field("expected_hbm_gb", &Hardware::expected_hbm_gb,
          "Memory of one device that the plan may count on, in GB: at least 64 for MI300-class, h100 and h200.")
      .min(1)
      .derived("from `name`: 192 mi300x, 256 mi325x, 288 mi350x and mi355x, 80 h100, 141 h200, ...; 8 cuda",
               [](const Recipe& r) { return device_kind(r.hardware.name).memory_gb; });
  d.field("usd_per_hour", &Hardware::usd_per_hour, "Price of one device for an hour, for `plan` and the receipt.")
      .min(0)
      .plus()
      .derived("1.99 mi300x, 4.00 h100, 0 cpu; else unknown",
               [](const Recipe& r) { return price_of(r.hardware.name); });
  return d.take();
}

Section declare(const Autotune*) {
  Declaration<Autotune> d("The probe that measures before anything trains.");
  d.field("enabled", &Autotune::enabled, "Measure; false = the reference plan, which says so.");
  d.field("plan_path", &Autotune::plan_path,
          "Where `bench` writes its plan; a run keeps its own as plan.json and takes another by --plan.")
      .non_empty();
  d.field("budget_seconds", &Autotune::budget_seconds, "Longest time that the probe takes.").range(10, 600);
  d.field("policy", &Autotune::policy, "Everything is decided ahead of time: no tuning inside a run, ever.");
  return d.take();
}

Section declare(const Pretrain*) {
  Declaration<Pretrain> d(
      "A nanochat model of 2026 from random weights. The depth gives width, heads, tokens of a step, steps, rates and "
      "decay as nanochat derives them; what other sections give wins.");
  d.field("depth", &Pretrain::depth, "Layers; width 64 a layer, in whole heads of 128.")
      .required()
      .range(1, 128)
      .plus();
  d.field("vocab_size", &Pretrain::vocab_size, "Tokens of `model.tokenizer`.").range(2, 1 << 24).plus();
  d.field("tokens_per_parameter", &Pretrain::tokens_per_parameter,
          "How long it trains: tokens for each weight of the blocks' matrices and the head.")
      .above(0)
      .plus();
  d.field("window_pattern", &Pretrain::window_pattern,
          "S = attention over a quarter of the sequence, L = over all; repeated over the layers, the last is L.")
      .non_empty()
      .plus();
  return d.take();
}

Section declare(const Model*) {
  Declaration<Model> d("The base model.");
  d.field("name", &Model::name,
          "Hub id; **+** a short name that `mindxtrain models` lists; **+** local folder in HF layout; **+** `.gguf` "
          "file; **+** `recipe:NAME` = what that recipe trains, which runs first, as a part of this one. "
          "`model: NAME` says the name alone.")
      .required();
  d.field("revision", &Model::revision, "Branch, tag or commit on the Hub.").non_empty();
  d.field("attn_implementation", &Model::attn_implementation, "Accepted; the plan decides.").hint();
  d.field("torch_dtype", &Model::torch_dtype, "How frozen weights are held; what trains has an fp32 master.");
  d.field("trust_remote_code", &Model::trust_remote_code, "Must be false: no code from a model folder is ever run.");
  d.field("init", &Model::init, "Where weights come from; random needs `config`.").plus();
  d.field("config", &Model::config, "For `init: random`: path of an HF config.json, or its keys inline.").plus();
  d.field(
       "freeze", &Model::freeze,
       "Parts that keep their weights where every weight would train: vision = the tower that sees pictures, with its "
       "mergers.")
      .later();
  d.field(
       "vision", &Model::vision,
       "Of a Qwen3.5 or 3.6: also the tower that sees pictures, without which its text alone is used. Qwen3-VL always "
       "has its own.")
      .later();
  d.field("tokenizer", &Model::tokenizer,
          "Folder, Hub id, `.gguf` file, `char` (one id a character of the data, sorted), or `train` (nanochat's "
          "tokenizer and chat template, learned from the data as a stage of the run: `pretrain.vocab_size` tokens, or "
          "with `init: random` the `vocab_size` that `config` has in the recipe).")
      .non_empty()
      .plus()
      .default_is("the model's own");
  d.field("chat_template", &Model::chat_template, "Jinja file that renders conversations.")
      .non_empty()
      .plus()
      .default_is("the tokenizer's own");
  return d.take();
}

}  // namespace mxt::config
