// Declaration of train.
#include "base/text.h"
#include "config/field.h"

namespace mxt::config {
namespace {

// Reads `kind` first: it decides which keys the rest may have, and their defaults.
void read_method(const Field& self, void* owner, const YamlNode& n, const std::string& path, Reader& reader) {
  Method& method = static_cast<Train*>(owner)->method;
  if (n.kind != YamlNode::Kind::kMap)
    return reader.issue(n.mark, path, fmt::format("is {}: write a map with a `kind`", n.kind_name()));
  const YamlNode* kind_node = n.find("kind");
  if (!kind_node) return reader.issue(n.mark, path + ".kind", "is missing: it says which method");
  Field kind;
  kind.choices = spellings_of(MethodKind{});
  const auto word = read_choice(kind, *kind_node, path + ".kind", reader);
  if (!word) return;
  MethodKind k{};
  enum_from_text(*word, &k);
  method = default_method(k);
  self.variants[static_cast<size_t>(k)].second->read(&method, n, path, reader);
}

Field method_field() {
  Field f;
  f.key = "method";
  f.doc = "What is trained and by which objective. Each kind has its own fields.";
  f.shape = Shape::kUnion;
  for (size_t i = 0; i < enum_names(MethodKind{}).size(); ++i) {
    const auto kind = static_cast<MethodKind>(i);
    f.variants.emplace_back(text_of(kind), std::make_shared<const Section>(declare_method(kind)));
  }
  f.default_note = "kind lora with its defaults";
  f.read = read_method;
  f.write = [](const Field& self, const void* owner) {
    const Method& m = static_cast<const Train*>(owner)->method;
    return self.variants[static_cast<size_t>(m.kind)].second->write(&m);
  };
  return f;
}

}  // namespace

Train::Train() : method(default_method(MethodKind::kLora)) {}

Section declare(const Muon*) {
  Declaration<Muon> d("Muon for matrices of the blocks.");
  d.field("variant", &Muon::variant,
          "nanochat = rows equalised, Polar Express, NorMuon, cautious decay, and its six AdamW groups with betas, eps "
          "and decay of their own; torch = as torch.optim.Muon, and one AdamW for the rest.")
      .later();
  d.field("lr", &Muon::lr,
          "Learning rate of the matrices, final: a matrix taller than wide gets √(rows/columns) of it.")
      .above(0)
      .plus();
  d.field("momentum", &Muon::momentum, "Nesterov momentum, where `schedule` is none.").min(0).below(1).plus();
  d.field("weight_decay", &Muon::weight_decay, "Decay of the matrices.").min(0).plus();
  d.field("schedule", &Muon::schedule,
          "Momentum and weight decay over the run: pretrain = momentum 0.85 to 0.97 over 400 steps, to 0.9 while wsd "
          "falls, decay by a half cosine to 0; sft = momentum 0.85 to 0.95 over 300 steps, no decay; none = constant.")
      .later();
  d.field("embedding_lr", &Muon::embedding_lr, "Rate of the embeddings; value embeddings half of it.")
      .above(0)
      .plus()
      .default_is("optimizer.lr");
  d.field("head_lr", &Muon::head_lr, "Rate of the output head.").above(0).plus().default_is("optimizer.lr");
  d.field("scalar_lr", &Muon::scalar_lr,
          "Rate of scalars and norms; residual lambdas 0.01 of it, smear and backout always 0.2.")
      .above(0)
      .plus()
      .default_is("optimizer.lr");
  return d.take();
}

Section declare(const Optimizer*) {
  Declaration<Optimizer> d("How gradients become updates.");
  d.field(
      "name", &Optimizer::name,
      "adamw_torch_fused and adamw_torch are our AdamW; adamw_8bit holds its moments in 8 bits as bitsandbytes does "
      "(embeddings and tensors below 4,096 elements in 32); adafactor as transformers' Trainer sets it up.");
  d.field("lr", &Optimizer::lr, "Peak learning rate.").above(0);
  d.field("betas", &Optimizer::betas,
          "Decay of the two moments; lion: of the update and of the momentum. adafactor has neither.")
      .min(0)
      .below(1);
  d.field("eps", &Optimizer::eps, "Added to the root of the second moment; not of lion and adafactor.").above(0).plus();
  d.field("weight_decay", &Optimizer::weight_decay, "Decoupled; leaves out biases and norm weights.").min(0);
  d.field("grad_clip", &Optimizer::grad_clip, "Largest global gradient norm; 0 = off.").min(0);
  d.field("muon", &Optimizer::muon, "Muon's own settings; only with `name: muon`.")
      .plus()
      .derived("its defaults for muon", [](const Recipe& r) -> std::optional<Muon> {
        if (r.train.optimizer.muon) return r.train.optimizer.muon;  // by pretrain.depth
        if (r.train.optimizer.name == OptimizerName::kMuon) return Muon{};
        return {};
      });
  return d.take();
}

Section declare(const Schedule*) {
  Declaration<Schedule> d("Learning rate over the steps.");
  d.field("type", &Schedule::type, "Shape after the warm-up; wsd falls at the end.");
  d.field("warmup_ratio", &Schedule::warmup_ratio, "Part of the steps with a rising rate.").range(0, 1);
  d.field("warmup_steps", &Schedule::warmup_steps, "Steps with a rising rate; wins over `warmup_ratio`.")
      .min(0)
      .later();
  d.field("decay_ratio", &Schedule::decay_ratio, "wsd: part of the steps over which the rate falls, in whole steps.")
      .above(0)
      .max(1)
      .later()
      .default_is("a fifth");
  d.field("epochs", &Schedule::epochs, "Passes over the rows.").range(1, 100);
  d.field("max_steps", &Schedule::max_steps, "Optimizer steps; wins over `epochs`.").min(1).plus();
  d.field("min_lr_ratio", &Schedule::min_lr_ratio, "The rate at the end, as a part of the peak.").range(0, 1).plus();
  return d.take();
}

Section declare(const Batch*) {
  Declaration<Batch> d("Sequences of one optimizer step.");
  d.field("per_device", &Batch::per_device, "Sequences of one device and pass.").range(1, 1'048'576);
  d.field("grad_accum", &Batch::grad_accum, "Passes whose gradients are added.").range(1, 1'048'576);
  return d.take();
}

Section declare(const FlashAttention*) {
  Declaration<FlashAttention> d("Attention kernel.");
  d.field("backend", &FlashAttention::backend, "Accepted; the plan decides.").hint();
  return d.take();
}

Section declare(const Fsdp*) {
  Declaration<Fsdp> d("Fully sharded data parallel.");
  d.field("enabled", &Fsdp::enabled, "Shard weights, gradients and optimizer states over the devices.");
  d.field("auto_wrap", &Fsdp::auto_wrap, "Gather one block at a time; false = the whole model at once.");
  return d.take();
}

Section declare(const CpuThrottle*) {
  Declaration<CpuThrottle> d("How much of the host a run on the CPU takes.");
  d.field("percent", &CpuThrottle::percent,
          "Part of the cores, where neither --threads nor OMP_NUM_THREADS says how many.")
      .range(1, 100);
  d.field("nice_level", &CpuThrottle::nice_level, "Scheduling priority.").range(-20, 19);
  d.field(
      "omp_proc_bind", &CpuThrottle::omp_proc_bind,
      "A permission: the plan may bind each thread to a core, where all cores are used and that is measured faster.");
  return d.take();
}

Section declare(const Rollouts*) {
  Declaration<Rollouts> d("Answers that were sampled elsewhere.");
  d.field("path", &Rollouts::path,
          "JSONL, one prompt a line: {\"prompt_ids\", \"completions\": [{\"ids\", \"reward\", \"old_logprobs\"}]}; a "
          "step takes "
          "per_device * grad_accum / num_generations of them in their order.")
      .non_empty()
      .plus();
  return d.take();
}

Section declare(const Train*) {
  Declaration<Train> d("Method, optimizer, schedule, batch, numbers and environment.");
  d.field("backend", &Train::backend,
          "native = this program; trl = TRL on the same prepared rows, found by MINDXTRAIN_PYTHON or as python3; the "
          "others: `mindxtrain export` "
          "writes what they read.");
  d.add(method_field());
  d.field("optimizer", &Train::optimizer, "How gradients become updates.");
  d.field("schedule", &Train::schedule, "Learning rate over the steps.");
  d.field("batch", &Train::batch, "Sequences of one optimizer step.");
  d.field("precision", &Train::precision,
          "Compute and activation type; fp8_e4m3 where every weight trains: FP8 products of the layers' matrices "
          "and the head, forward and both gradients, amid bfloat16.");
  d.field(
       "base_precision", &Train::base_precision,
       "Of a frozen base under LoRA; fp8_e4m3 = FP8 products, forward and activation gradient (the CPU lane multiplies "
       "the same rounded numbers in train.precision).")
      .plus()
      .only({Precision::kBFloat16, Precision::kFp8E4M3})
      .derived("= torch_dtype", [](const Recipe& r) {
        // Weights held in a type that the device cannot multiply are widened to the compute type.
        return device_computes(r.hardware, r.model.torch_dtype) ? r.model.torch_dtype : r.train.precision;
      });
  d.field("micro_batch", &Train::micro_batch, "Sequences of one pass through the model.")
      .min(1)
      .plus()
      .default_is("planned");
  d.field("gradient_checkpointing", &Train::gradient_checkpointing,
          "A permission to recompute activations; the planner decides for each tensor.");
  d.field("flash_attention", &Train::flash_attention, "Attention kernel.");
  d.field("fsdp", &Train::fsdp, "Fully sharded data parallel.");
  d.field("cpu_throttle", &Train::cpu_throttle, "How much of the host a run on the CPU takes.");
  d.field(
       "neftune_noise_alpha", &Train::neftune_noise_alpha,
       "NEFTune: embeddings of a document of L tokens get noise, uniform up to alpha / sqrt(L * width), in training. "
       "Absent = none.")
      .above(0)
      .later();
  d.field("rollouts", &Train::rollouts, "Given rollouts instead of sampling, for grpo and gspo.").later();
  d.field("env", &Train::env,
          "Environment of the run. MI300-class: always the eight keys PYTORCH_ROCM_ARCH (follows gfx_arch), "
          "HSA_NO_SCRATCH_RECLAIM=1, HIP_FORCE_DEV_KERNARG=1, GPU_MAX_HW_QUEUES=1, NVTE_CK_USES_BWD_V3=1, "
          "NVTE_CK_IS_V3_ATOMIC_FP32=1, PRIMUS_TURBO_ATTN_V3_ATOMIC_FP32=1, NCCL_MIN_NCHANNELS=112; a plan may change "
          "their values, never remove them.")
      .default_is("filled");
  d.field("eval_every", &Train::eval_every, "Steps between evaluations of the held-out part.")
      .min(1)
      .plus()
      .default_is("–");
  d.field("save_every", &Train::save_every, "Steps between checkpoints.").min(1).plus().default_is("the end");
  d.field("keep_last", &Train::keep_last,
          "Checkpoints that are kept, counted from the last; the best evaluation's is kept beside them.")
      .min(1)
      .plus();
  d.field("log_every", &Train::log_every,
          "Steps between two looks at the progress on the terminal; metrics.jsonl has every step.")
      .min(1)
      .plus();
  d.field("report_to", &Train::report_to,
          "Trackers that follow the run: wandb = an offline run in OUT/wandb (`wandb sync` sends it), trackio = its "
          "SQLite file (TRACKIO_DIR), mlflow = the server at MLFLOW_TRACKING_URI, the only one that is reached over a "
          "network; tensorboard = OUT/tensorboard, which every run has.")
      .later();
  return d.take();
}

}  // namespace mxt::config
