// Primus's YAML for post-training by Megatron-Bridge (primus/configs and examples/megatron_bridge as of 2026):
// `bash run.sh FILE` in its checkout. It has the models below, supervised, whole or by LoRA.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "export/hugging_face.h"
#include "export/limits.h"
#include "export/rows.h"
#include "export/trainers.h"

namespace mxt::exporting {
namespace {

using K = config::MethodKind;
constexpr std::string_view kTitle = "Primus";

// Hub id and the file of primus/configs/models/megatron_bridge.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kModels = {
    {{"Qwen/Qwen3-8B", "qwen3_8b.yaml"},
     {"Qwen/Qwen3-32B", "qwen3_32b.yaml"},
     {"Qwen/Qwen3-30B-A3B", "qwen3_30b_a3b.yaml"},
     {"meta-llama/Llama-2-70b-hf", "llama2_70b.yaml"},
     {"meta-llama/Llama-3.1-70B", "llama31_70b.yaml"}}};

OrderedJson data_of(const Job& job) {
  const config::Recipe& r = job.recipe;
  if (!job.rows.hub_id.empty())
    return {{"_target_", "megatron.bridge.data.builders.hf_dataset.HFDatasetConfig"},
            {"dataset_name", job.rows.hub_id},
            {"split", r.data.split},
            {"seq_length", r.data.seq_len},
            {"seed", r.meta.seed},
            {"dataloader_type", "batch"},
            {"val_proportion", r.data.eval_fraction}};
  return {{"_target_", "megatron.bridge.training.config.FinetuningDatasetConfig"},
          {"dataset_root", job.rows.folder},
          {"seq_length", r.data.seq_len},
          {"seed", r.meta.seed},
          {"dataloader_type", "batch"},
          {"do_validation", job.rows.held_out},
          {"do_test", false},
          {"dataset_kwargs", {{"chat", true}, {"use_hf_tokenizer_chat_template", true}}}};
}

}  // namespace

Settings primus_settings(const Job& job) {
  const config::Recipe& r = job.recipe;
  const config::Train& t = r.train;
  refuse_own(job, kTitle);
  need_method(job, kTitle, {K::kFull, K::kLora});
  need_form(job, kTitle, {Form::kChat});
  refuse(job, kTitle,
         {"lora_plus", "rslora", "init_adapter", "other_than_bfloat16", "muon", "router_aux_loss", "chat_template",
          "tokenizer", "revision"});
  if (!config::is_mi300_class(r.hardware.name) || r.hardware.cpu_lane())
    cannot(job, kTitle, "hardware.name",
           "train on " + std::string(config::text_of(r.hardware.name)) + ": it is for AMD's MI300 and MI355");
  const auto model =
      std::find_if(kModels.begin(), kModels.end(), [&](const auto& m) { return m.first == job.base.name; });
  if (model == kModels.end())
    cannot(job, kTitle, "model.name", "post-train " + job.base.name + " (it has Qwen3 8B, 32B, 30B-A3B and Llama 70B)");
  if (t.optimizer.name != config::OptimizerName::kAdamwTorchFused &&
      t.optimizer.name != config::OptimizerName::kAdamwTorch)
    cannot(job, kTitle, "train.optimizer.name", "run " + std::string(config::text_of(t.optimizer.name)));
  if (t.schedule.type != config::ScheduleType::kCosine && t.schedule.type != config::ScheduleType::kLinear)
    cannot(job, kTitle, "train.schedule.type", "follow " + std::string(config::text_of(t.schedule.type)));
  if (!t.schedule.max_steps) cannot(job, kTitle, "train.schedule.epochs", "count in epochs (set max_steps)");
  Settings s;
  const Schedule schedule = schedule_of(job, kTitle, &s);
  OrderedJson o{{"tensor_model_parallel_size", 1},
                {"pipeline_model_parallel_size", 1},
                {"context_parallel_size", 1},
                {"sequence_parallel", false},
                {"use_megatron_fsdp", t.fsdp.enabled},
                {"train_iters", *t.schedule.max_steps},
                {"global_batch_size", t.batch.per_device * t.batch.grad_accum * r.hardware.gpus * r.hardware.nodes},
                {"micro_batch_size", t.micro_batch.value_or(t.batch.per_device)},
                {"seq_length", r.data.seq_len},
                {"eval_interval", t.eval_every.value_or(*t.schedule.max_steps)},
                {"save_interval", t.save_every.value_or(*t.schedule.max_steps)},
                {"peft", t.method.lora ? "lora" : "none"},
                {"packed_sequence", false},
                {"finetune_lr", t.optimizer.lr},
                {"min_lr", t.optimizer.lr * t.schedule.min_lr_ratio},
                {"lr_warmup_iters", schedule.warmup},
                {"lr_decay_iters", *t.schedule.max_steps},
                {"lr_decay_style", config::text_of(t.schedule.type)},
                {"adam_beta1", t.optimizer.betas[0]},
                {"adam_beta2", t.optimizer.betas[1]},
                {"adam_eps", t.optimizer.eps},
                {"weight_decay", t.optimizer.weight_decay},
                {"clip_grad", t.optimizer.grad_clip},
                {"precision_config", "bf16_mixed"},
                {"dataset", data_of(job)}};
  s.yaml = {{"work_group", "mindxtrain"},
            {"user_name", "mindxtrain"},
            {"exp_name", r.meta.run_name},
            {"workspace", job.out + "/out"},
            {"modules",
             {{"post_trainer",
               {{"framework", "megatron_bridge"},
                {"config", "sft_trainer.yaml"},
                {"model", model->second},
                {"overrides", o}}}}}};
  if (t.method.lora)
    s.differs.push_back("train.method: r, alpha, dropout and target_modules are those of its LoRA recipe, not these");
  if (r.data.packing) s.differs.push_back("data.packing: a row is one document there; a step holds fewer tokens");
  note_data(job, &s);
  if (r.data.shuffle) s.differs.push_back("order: rows are shuffled by another generator, from the same seed");
  list_stages(job, &s);
  s.command = "bash run.sh " + job.out + "/primus.yaml";
  return s;
}

OrderedJson primus_row(const data::Example& e, const config::Recipe& recipe) {
  if (e.kind != data::Example::Kind::kChat) return trl_row(e, recipe);
  OrderedJson row{{"messages", *e.messages}};
  if (e.tools) row["tools"] = *e.tools;
  return row;
}

}  // namespace mxt::exporting
