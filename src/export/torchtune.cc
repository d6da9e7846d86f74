// torchtune's YAML (its recipes and builders as of 0.6.1): `tune run RECIPE --config FILE`. Models are built from their
// sizes by the family's builder; weights and tokenizer come from a folder.
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "export/hugging_face.h"
#include "export/limits.h"
#include "export/rows.h"
#include "export/trainers.h"

namespace mxt::exporting {
namespace {

using K = config::MethodKind;
constexpr std::string_view kTitle = "torchtune";

// A family that it has, and the files of the published models that its tokenizer reads.
struct Family {
  std::string_view builder, model_type, tokenizer;
  std::vector<std::string> files;  // "path" and, of two, "merges_file"
};

Family family_of(const Job& job) {
  const formats::ModelConfig& c = *job.base.config;
  if (c.model_type == "qwen2") return {"qwen2.qwen2", "QWEN2", "qwen2.qwen2_tokenizer", {"vocab.json", "merges.txt"}};
  if (c.model_type == "mistral")
    return {"mistral.mistral", "MISTRAL", "mistral.mistral_tokenizer", {"tokenizer.model"}};
  if (c.model_type == "phi3") return {"phi3.phi3", "PHI3_MINI", "phi3.phi3_mini_tokenizer", {"tokenizer.model"}};
  constexpr int64_t kLlama3 = 128256;  // other vocabularies have tokenizers that it does not know
  if (c.model_type == "llama" && c.vocab_size == kLlama3) {
    const bool scaled = c.rope_scaling.kind == formats::RopeScaling::Kind::kLlama3;
    return {c.tie_embeddings ? "llama3_2.llama3_2"
            : scaled         ? "llama3_1.llama3_1"
                             : "llama3.llama3",
            c.tie_embeddings ? "LLAMA3_2" : "LLAMA3",
            "llama3.llama3_tokenizer",
            {"original/tokenizer.model"}};
  }
  cannot(job, kTitle, "model.name",
         "train the family " + c.model_type + " (it has Llama 3, Mistral, Qwen2, Qwen2.5, Phi-3)");
}

void put_lora(const Job& job, OrderedJson& m) {
  const config::Lora& lora = *job.recipe.train.method.lora;
  const auto no = [&](const std::string& what) { cannot(job, kTitle, "train.method.target_modules", what); };
  OrderedJson attention = OrderedJson::array();
  int mlp = 0;
  bool head = false;
  for (const std::string& t : linear_modules(lora)) {
    if (t == "gate_proj" || t == "up_proj" || t == "down_proj")
      ++mlp;
    else if (t == "q_proj" || t == "k_proj" || t == "v_proj" || t == "o_proj")
      attention.push_back(t == "o_proj" ? "output_proj" : t);
    else if (t == "lm_head" && !job.base.config->tie_embeddings)
      head = true;
    else
      no("put an adapter on " + t + (t == "lm_head" ? ", which is the embedding's matrix" : ""));
  }
  if (attention.empty()) no("put adapters on none of attention's matrices");
  if (mlp != 0 && mlp != 3) no("put adapters on some of the MLP's matrices and not on all");
  m["lora_attn_modules"] = attention;
  m["apply_lora_to_mlp"] = mlp == 3;
  m["apply_lora_to_output"] = head;
  m["lora_rank"] = lora.r;
  m["lora_alpha"] = lora.alpha;
  m["lora_dropout"] = lora.dropout;
  if (lora.use_dora) m["use_dora"] = true;
  if (job.recipe.train.method.kind == K::kQLora) m["quantize_base"] = true;
}

OrderedJson model_of(const Job& job, const Family& f) {
  const formats::ModelConfig& c = *job.base.config;
  const bool lora = job.recipe.train.method.lora.has_value();
  std::string builder(f.builder);
  if (lora) builder.insert(builder.find('.') + 1, "lora_");
  OrderedJson m{{"_component_", "torchtune.models." + builder}};
  if (lora) put_lora(job, m);
  m["vocab_size"] = c.vocab_size;
  m["num_layers"] = c.num_layers;
  m["num_heads"] = c.num_heads;
  m["num_kv_heads"] = c.num_kv_heads;
  m["embed_dim"] = c.hidden_size;
  m["intermediate_dim"] = c.intermediate_size;
  m["max_seq_len"] = c.max_positions;
  m["norm_eps"] = c.norm_eps;
  m["rope_base"] = static_cast<int64_t>(c.rope_theta);
  if (c.rope_scaling.kind == formats::RopeScaling::Kind::kLlama3)
    m["scale_factor"] = static_cast<int64_t>(c.rope_scaling.factor);
  if (c.model_type == "qwen2" || f.builder == "llama3_2.llama3_2") m["tie_word_embeddings"] = c.tie_embeddings;
  return m;
}

std::string file_of(const Job& job, const std::string& name) {
  const std::string path = job.base.name + "/" + name;
  if (!fs::is_regular_file(path))
    fail_missing("{}: torchtune reads the tokenizer from it: fetch the whole model (hf download ID --local-dir {})",
                 path, job.base.name);
  return path;
}

void put_model(const Job& job, Settings* s) {
  const Family f = family_of(job);
  OrderedJson& y = s->yaml;
  y["output_dir"] = job.out + "/out";
  y["model"] = model_of(job, f);
  OrderedJson tokenizer{{"_component_", "torchtune.models." + std::string(f.tokenizer)},
                        {"path", file_of(job, f.files[0])}};
  if (f.files.size() > 1) tokenizer["merges_file"] = file_of(job, f.files[1]);
  tokenizer["max_seq_len"] = job.recipe.data.seq_len;
  y["tokenizer"] = tokenizer;
  OrderedJson weights = OrderedJson::array();
  for (const std::string& name : list_files(job.base.name))
    if (name.starts_with("model") && name.ends_with(".safetensors") && name.find('/') == std::string::npos)
      weights.push_back(name);
  if (weights.empty())
    fail_missing("{}: has no .safetensors, which torchtune trains from: fetch the whole model", job.base.name);
  y["checkpointer"] = {{"_component_", "torchtune.training.FullModelHFCheckpointer"},
                       {"checkpoint_dir", job.base.name},
                       {"checkpoint_files", weights},
                       {"recipe_checkpoint", nullptr},
                       {"output_dir", "${output_dir}"},
                       {"model_type", f.model_type}};
  y["resume_from_checkpoint"] = false;
  if (job.recipe.train.method.lora) y["save_adapter_weights_only"] = true;
}

OrderedJson data_of(const Job& job) {
  const config::Recipe& r = job.recipe;
  const bool all = r.data.train_on == config::TrainOn::kAll;
  OrderedJson d;
  if (job.rows.form == Form::kPair)
    d = {{"_component_", "torchtune.datasets.preference_dataset"}};
  else if (job.rows.form == Form::kText)
    d = {{"_component_", "torchtune.datasets.text_completion_dataset"}, {"column", "text"}, {"packed", r.data.packing}};
  else
    d = {{"_component_", "torchtune.datasets.chat_dataset"},
         {"conversation_column", "messages"},
         {"conversation_style", "openai"},
         {"train_on_input", all},
         {"packed", r.data.packing}};
  if (job.rows.hub_id.empty()) {
    d["source"] = "json";
    d["data_files"] = job.rows.folder + "/train.jsonl";
    d["split"] = "train";
  } else {
    d["source"] = job.rows.hub_id;
    if (r.data.hf_config) d["name"] = *r.data.hf_config;
    d["split"] = r.data.split;
  }
  return d;
}

void put_optimizer(const Job& job, Settings* s) {
  using O = config::OptimizerName;
  const config::Optimizer& o = job.recipe.train.optimizer;
  if (o.name == O::kLion || o.name == O::kAdafactor)
    cannot(job, kTitle, "train.optimizer.name",
           "run " + std::string(config::text_of(o.name)) + " as transformers does");
  OrderedJson y{{"_component_", o.name == O::kAdamw8bit ? "bitsandbytes.optim.AdamW8bit" : "torch.optim.AdamW"},
                {"lr", o.lr},
                {"betas", OrderedJson::array({o.betas[0], o.betas[1]})},
                {"eps", o.eps},
                {"weight_decay", o.weight_decay}};
  if (o.name == O::kAdamwTorchFused && !job.recipe.hardware.cpu_lane()) y["fused"] = true;
  s->yaml["optimizer"] = y;
  if (o.weight_decay > 0 && !job.recipe.train.method.lora)
    s->differs.push_back("train.optimizer.weight_decay: biases and norms are decayed there too");
}

void put_schedule(const Job& job, Settings* s) {
  const config::Schedule& c = job.recipe.train.schedule;
  if (c.type != config::ScheduleType::kCosine || c.min_lr_ratio > 0)
    cannot(job, kTitle, "train.schedule", "follow another rate than a cosine that ends at 0");
  const Schedule schedule = schedule_of(job, kTitle, s);
  if (schedule.warmup.is_number_float())
    cannot(job, kTitle, "train.schedule.warmup_ratio",
           "warm up over a part of the steps (set warmup_steps or max_steps)");
  OrderedJson& y = s->yaml;
  y["lr_scheduler"] = {{"_component_", "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup"},
                       {"num_warmup_steps", schedule.warmup}};
  y["epochs"] = c.max_steps ? 1 : c.epochs;
  y["max_steps_per_epoch"] = c.max_steps ? OrderedJson(*c.max_steps) : OrderedJson();
  if (c.max_steps)
    s->differs.push_back("train.schedule.max_steps: it ends with the first pass over the rows, if that is shorter");
}

}  // namespace

Settings torchtune_settings(const Job& job) {
  const config::Recipe& r = job.recipe;
  const config::Train& t = r.train;
  refuse_own(job, kTitle, {"use_dora"});
  need_method(job, kTitle, {K::kFull, K::kLora, K::kQLora, K::kCpt, K::kDpo});
  refuse(job, kTitle,
         {"lora_plus", "rslora", "init_adapter", "eight_bit", "mxfp4", "scales_in_fp32", "muon", "router_aux_loss",
          "chat_template", "tokenizer"});
  const bool dpo = t.method.kind == K::kDpo;
  if (dpo && t.method.loss != config::PreferenceLoss::kSigmoid)
    cannot(job, kTitle, "train.method.loss", "train by " + std::string(config::text_of(t.method.loss)));
  if (dpo)
    need_form(job, kTitle, {Form::kPair});
  else
    need_form(job, kTitle, {Form::kText, Form::kChat});
  if (dpo && !job.rows.chat) cannot(job, kTitle, "data", "read pairs of plain texts");
  if (job.rows.tools) cannot(job, kTitle, "data", "show a template the tools of a row");
  if (!job.base.config || !fs::is_directory(job.base.name))
    fail_missing("{}: model.name: torchtune reads a folder: `hf download {} --local-dir DIR`, and name DIR", r.source,
                 r.model.name);
  Settings s;
  OrderedJson& y = s.yaml;
  put_model(job, &s);
  y["dataset"] = data_of(job);
  y["seed"] = r.meta.seed;
  y["shuffle"] = r.data.shuffle;
  y["batch_size"] = t.batch.per_device;
  y["gradient_accumulation_steps"] = t.batch.grad_accum;
  put_schedule(job, &s);
  put_optimizer(job, &s);
  y["loss"] =
      dpo ? OrderedJson{{"_component_", "torchtune.rlhf.loss.DPOLoss"}, {"beta", t.method.beta}, {"label_smoothing", 0}}
          : OrderedJson{{"_component_", "torchtune.modules.loss.CEWithChunkedOutputLoss"}};
  y["clip_grad_norm"] = t.optimizer.grad_clip > 0 ? OrderedJson(t.optimizer.grad_clip) : OrderedJson();
  y["device"] = r.hardware.cpu_lane() ? "cpu" : "cuda";
  y["dtype"] = t.precision == config::Precision::kBFloat16 ? "bf16" : "fp32";
  y["enable_activation_checkpointing"] = t.gradient_checkpointing;
  y["enable_activation_offloading"] = false;
  y["compile"] = false;
  y["metric_logger"] = {{"_component_", "torchtune.training.metric_logging.DiskLogger"},
                        {"log_dir", "${output_dir}/logs"}};
  y["log_every_n_steps"] = 1;
  y["log_peak_memory_stats"] = !r.hardware.cpu_lane();
  if (t.precision == config::Precision::kFloat16) cannot(job, kTitle, "train.precision", "train in float16");
  if (y["dtype"] == "bf16")
    s.differs.push_back("weights: what trains is held and updated in bfloat16 there; here it has an fp32 master");
  note_data(job, &s, false);
  if (r.data.shuffle) s.differs.push_back("order: rows are shuffled by another generator, from the same seed");
  if (t.eval_every) s.absent.push_back("train.eval_every: no evaluation while training");
  if (!t.report_to.empty()) s.absent.push_back("train.report_to: what it logs stands in out/logs alone");
  if (t.save_every) s.absent.push_back("train.save_every: saved after each epoch");
  list_stages(job, &s);
  const int64_t processes = r.hardware.gpus * r.hardware.nodes;
  const std::string recipe = fmt::format("{}_{}",
                                         dpo             ? (t.method.lora ? "lora_dpo" : "full_dpo")
                                         : t.method.lora ? "lora_finetune"
                                                         : "full_finetune",
                                         processes > 1 || (dpo && !t.method.lora) ? "distributed" : "single_device");
  s.command = fmt::format("tune run {}{} --config {}/torchtune.yaml",
                          processes > 1 ? fmt::format("--nproc_per_node {} ", r.hardware.gpus) : "", recipe, job.out);
  return s;
}

OrderedJson torchtune_row(const data::Example& e, const config::Recipe& recipe) {
  OrderedJson row = trl_row(e, recipe);
  if (e.kind != data::Example::Kind::kChat) return row;
  if (!e.rejected) return {{"messages", *e.messages}};
  const auto joined = [](const OrderedJson& a, const OrderedJson& b) {
    OrderedJson all = a;
    for (const auto& m : b) all.push_back(m);
    return all;
  };
  return {{"chosen", joined(row["prompt"], row["chosen"])}, {"rejected", joined(row["prompt"], row["rejected"])}};
}

}  // namespace mxt::exporting
