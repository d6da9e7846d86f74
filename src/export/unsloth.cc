// Unsloth's YAML (unsloth_cli/config.py as of 2026.10): `unsloth train --config FILE`. It knows supervised fine-tuning,
// and settles optimizer and schedule itself.
#include <nlohmann/json.hpp>

#include "export/hugging_face.h"
#include "export/limits.h"
#include "export/trainers.h"

namespace mxt::exporting {
namespace {

using K = config::MethodKind;
constexpr std::string_view kTitle = "Unsloth";

OrderedJson data_of(const Job& job, Settings* s) {
  const config::Recipe& r = job.recipe;
  OrderedJson d;
  if (job.rows.hub_id.empty())
    d["local_dataset"] = OrderedJson::array({job.rows.folder + "/train.jsonl"});
  else
    d["dataset"] = job.rows.hub_id;
  if (!job.rows.hub_id.empty() && r.data.split != "train") s->differs.push_back("data.split: train is read there");
  d["format_type"] = job.rows.form == Form::kText ? "raw" : "chatml";
  return d;
}

}  // namespace

Settings unsloth_settings(const Job& job) {
  const config::Recipe& r = job.recipe;
  const config::Train& t = r.train;
  refuse_own(job, kTitle);
  need_method(job, kTitle, {K::kFull, K::kLora, K::kQLora, K::kCpt});
  need_form(job, kTitle, {Form::kText, Form::kChat});
  refuse(job, kTitle,
         {"lora_plus", "init_adapter", "eight_bit", "mxfp4", "scales_in_fp32", "other_than_bfloat16", "muon",
          "router_aux_loss", "chat_template", "tokenizer", "revision"});
  if (r.hardware.cpu_lane()) cannot(job, kTitle, "hardware.name", "train on a CPU");
  // Named as targets these train whole there (_redirect_embedding_targets).
  if (const auto& lora = t.method.lora)
    for (const std::string& target : lora->target_modules)
      if (target.ends_with("lm_head") || target.ends_with("embed_tokens"))
        cannot(job, kTitle, "train.method.target_modules", "put an adapter on " + target);
  Settings s;
  s.yaml["model"] = job.base.name;
  s.yaml["data"] = data_of(job, &s);
  const bool warms = t.schedule.warmup_steps || t.schedule.max_steps || t.schedule.warmup_ratio == 0;
  const int64_t warmup = warms ? warmup_of(t.schedule, &s).get<int64_t>() : 0;
  if (!warms)
    s.differs.push_back("train.schedule.warmup_ratio: none there, since it wants a number of steps (set max_steps)");
  OrderedJson training{
      {"training_type", t.method.lora ? "lora" : "full"},
      {"max_seq_length", r.data.seq_len},
      {"load_in_4bit", t.method.kind == K::kQLora},
      {"output_dir", job.out + "/out"},
      {"num_epochs", t.schedule.epochs},
      {"learning_rate", t.optimizer.lr},
      {"batch_size", t.batch.per_device},
      {"gradient_accumulation_steps", t.batch.grad_accum},
      {"warmup_steps", warmup},
      {"max_steps", t.schedule.max_steps.value_or(0)},
      {"save_steps", t.save_every.value_or(0)},
      {"weight_decay", t.optimizer.weight_decay},
      {"random_seed", r.meta.seed},
      {"packing", r.data.packing},
      {"train_on_completions", job.rows.form == Form::kChat && r.data.train_on == config::TrainOn::kAssistant},
      {"gradient_checkpointing", t.gradient_checkpointing ? "unsloth" : "none"}};
  s.yaml["training"] = training;
  if (const auto& lora = t.method.lora) {
    std::string modules;
    for (const auto& m : linear_modules(*lora)) modules += (modules.empty() ? "" : ",") + m;
    s.yaml["lora"] = {{"lora_r", lora->r},         {"lora_alpha", lora->alpha},      {"lora_dropout", lora->dropout},
                      {"target_modules", modules}, {"use_rslora", lora->use_rslora}, {"use_loftq", false},
                      {"use_dora", false}};
  }
  OrderedJson logging{{"enable_wandb", false}, {"enable_tensorboard", false}};
  for (const auto tracker : t.report_to) {
    if (tracker == config::Tracker::kWandb) logging["enable_wandb"] = true;
    if (tracker == config::Tracker::kTensorboard) logging["enable_tensorboard"] = true;
    if (tracker != config::Tracker::kWandb && tracker != config::Tracker::kTensorboard)
      s.absent.push_back(fmt::format("train.report_to: {} is not written", config::text_of(tracker)));
  }
  logging["wandb_project"] = r.meta.project;
  s.yaml["logging"] = logging;
  s.differs.push_back(
      "train.optimizer: AdamW in 8 bits, betas 0.9 and 0.999, clipping at 1: it takes rate and decay alone");
  s.differs.push_back("train.schedule.type: linear there");
  if (t.eval_every) s.absent.push_back("train.eval_every: no evaluation while training");
  note_data(job, &s, false);
  list_stages(job, &s);
  s.command = "unsloth train --config " + job.out + "/unsloth.yaml";
  return s;
}

}  // namespace mxt::exporting
