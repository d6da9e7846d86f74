// axolotl's YAML (axolotl/utils/schemas as of 0.19): `axolotl train FILE`.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "export/hugging_face.h"
#include "export/limits.h"
#include "export/rows.h"
#include "export/trainers.h"

namespace mxt::exporting {
namespace {

using K = config::MethodKind;
constexpr std::string_view kTitle = "axolotl";

void put_model(const Job& job, OrderedJson& y) {
  const config::Recipe& r = job.recipe;
  y["base_model"] = job.base.name;
  if (!job.base.revision.empty()) y["revision_of_model"] = job.base.revision;
  y["trust_remote_code"] = false;
  const auto& lora = r.train.method.lora;
  if (lora) {
    y["adapter"] = r.train.method.kind == K::kQLora ? "qlora" : "lora";
    y["load_in_8bit"] = false;
    y["load_in_4bit"] = r.train.method.kind == K::kQLora;
    if (r.train.method.kind == K::kQLora)
      y["bnb_config_kwargs"] = {{"bnb_4bit_quant_type", "nf4"},
                                {"bnb_4bit_use_double_quant", r.train.method.double_quant}};
    y["lora_r"] = lora->r;
    y["lora_alpha"] = lora->alpha;
    y["lora_dropout"] = lora->dropout;
    if (is_all_linear(*lora))
      y["lora_target_linear"] = true;
    else
      y["lora_target_modules"] = lora->target_modules;
    for (const char* fused : {"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"}) y[fused] = false;
    if (lora->use_rslora) y["peft_use_rslora"] = true;
    if (lora->lora_plus != 1) y["loraplus_lr_ratio"] = lora->lora_plus;
    if (lora->use_dora) y["peft_use_dora"] = true;
    if (lora->init_lora_weights == config::LoraInit::kPissa) y["peft_init_lora_weights"] = "pissa";
    if (!lora->modules_to_save.empty()) y["lora_modules_to_save"] = lora->modules_to_save;
    if (!lora->layers_to_transform.empty()) y["peft_layers_to_transform"] = lora->layers_to_transform;
    if (!lora->rank_pattern.empty()) y["lora_rank_pattern"] = lora->rank_pattern;
    if (!lora->alpha_pattern.empty()) y["lora_alpha_pattern"] = lora->alpha_pattern;
    if (lora->init_adapter) y["lora_model_dir"] = *lora->init_adapter;
  }
  if (r.model.chat_template) {
    y["chat_template"] = "jinja";
    y["chat_template_jinja"] = *r.model.chat_template;
  }
}

// How a file of ours is named in `datasets`.
OrderedJson data_set(const Job& job, const std::string& file) {
  const config::Recipe& r = job.recipe;
  OrderedJson d;
  if (!job.rows.hub_id.empty()) {
    d["path"] = job.rows.hub_id;
    if (r.data.hf_config && !r.train.method.is_preference()) d["name"] = *r.data.hf_config;
    d["split"] = r.data.split;
    if (r.data.hf_revision) d["revision"] = *r.data.hf_revision;
  } else if (r.train.method.is_preference() && r.train.method.kind != K::kOrpo && r.train.method.kind != K::kReward) {
    d["path"] = "json";
    d["data_files"] = OrderedJson::array({job.rows.folder + "/" + file});
    d["split"] = "train";
  } else {
    d["path"] = job.rows.folder + "/" + file;
    d["ds_type"] = "json";
    d["split"] = "train";
  }
  switch (job.rows.form) {
    case Form::kTokens:
      break;  // rows with input_ids, attention_mask and labels are taken as they are
    case Form::kText:
      d["type"] = "completion";
      d["field"] = "text";
      break;
    case Form::kCompletion:
      d["type"] = "input_output";
      break;
    case Form::kChat:
      d["type"] = "chat_template";
      d["field_messages"] = "messages";
      d["roles_to_train"] = OrderedJson::array({"assistant"});
      d["train_on_eos"] = "turn";
      break;
    case Form::kPair:
      d["type"] = r.train.method.kind == K::kOrpo     ? "chat_template.argilla"
                  : r.train.method.kind == K::kReward ? "bradley_terry.chat_template"
                  : job.rows.hub_id.empty()           ? "passthrough.default"
                                                      : "chat_template.default";
      break;
    case Form::kLabelled:
      d["type"] = {{"field_prompt", "prompt"}, {"field_completion", "completion"}, {"field_label", "label"}};
      break;
    case Form::kReference:
      break;
  }
  return d;
}

void put_method(const Job& job, Settings* s) {
  const config::Method& m = job.recipe.train.method;
  OrderedJson& y = s->yaml;
  switch (m.kind) {
    case K::kDpo:
      need_form(job, kTitle, {Form::kPair});
      y["rl"] = m.loss == config::PreferenceLoss::kIpo     ? "ipo"
                : m.loss == config::PreferenceLoss::kSimpo ? "simpo"
                                                           : "dpo";
      y["rl_beta"] = m.beta;
      if (m.loss == config::PreferenceLoss::kHinge) y["dpo_loss_type"] = OrderedJson::array({"hinge"});
      if (m.loss == config::PreferenceLoss::kSimpo) y["simpo_gamma"] = m.simpo_gamma;
      return;
    case K::kOrpo:
      need_form(job, kTitle, {Form::kPair});
      if (!job.rows.chat) cannot(job, kTitle, "data", "read pairs of plain texts for orpo");
      y["rl"] = "orpo";
      y["orpo_alpha"] = m.beta;
      y["remove_unused_columns"] = false;
      return;
    case K::kKto:
      need_form(job, kTitle, {Form::kLabelled});
      if (job.rows.chat && job.rows.hub_id.empty())
        cannot(job, kTitle, "data", "read labelled answers that are messages: write prompt and completion as texts");
      y["rl"] = "kto";
      y["rl_beta"] = m.beta;
      y["kto_desirable_weight"] = m.desirable_weight;
      y["kto_undesirable_weight"] = m.undesirable_weight;
      y["remove_unused_columns"] = false;
      return;
    case K::kReward:
      need_form(job, kTitle, {Form::kPair});
      if (!job.rows.chat) cannot(job, kTitle, "data", "read pairs of plain texts for a reward model");
      y["reward_model"] = true;
      y["model_type"] = "AutoModelForSequenceClassification";
      y["num_labels"] = 1;
      y["center_rewards_coefficient"] = m.center_rewards;
      return;
    default:
      need_form(job, kTitle, {Form::kText, Form::kCompletion, Form::kChat, Form::kTokens});
      y["train_on_inputs"] = job.recipe.data.train_on == config::TrainOn::kAll;
  }
}

void put_schedule(const Job& job, Settings* s) {
  const config::Train& t = job.recipe.train;
  OrderedJson& y = s->yaml;
  y["micro_batch_size"] = t.batch.per_device;
  y["gradient_accumulation_steps"] = t.batch.grad_accum;
  y["num_epochs"] = t.schedule.epochs;
  if (t.schedule.max_steps) y["max_steps"] = *t.schedule.max_steps;
  y["optimizer"] = optimizer_name(job.recipe);
  y["learning_rate"] = t.optimizer.lr;
  if (t.optimizer.name != config::OptimizerName::kAdafactor) {
    y["adam_beta1"] = t.optimizer.betas[0];
    y["adam_beta2"] = t.optimizer.betas[1];
    if (t.optimizer.name != config::OptimizerName::kLion) y["adam_epsilon"] = t.optimizer.eps;
  }
  y["weight_decay"] = t.optimizer.weight_decay;
  y["max_grad_norm"] = t.optimizer.grad_clip;
  const Schedule schedule = schedule_of(job, kTitle, s);
  y["lr_scheduler"] = schedule.type;
  if (!schedule.kwargs.empty()) y["lr_scheduler_kwargs"] = schedule.kwargs;
  y[schedule.warmup.is_number_float() ? "warmup_ratio" : "warmup_steps"] = schedule.warmup;
}

void put_rest(const Job& job, Settings* s) {
  const config::Recipe& r = job.recipe;
  OrderedJson& y = s->yaml;
  y["sequence_len"] = r.data.seq_len;
  y["excess_length_strategy"] = r.train.method.kind == K::kReward ? "drop" : "truncate";
  const bool packs = r.data.packing && !r.train.method.is_preference() && !r.hardware.cpu_lane();
  y["sample_packing"] = packs;
  if (packs) y["eval_sample_packing"] = true;
  if (r.data.packing && r.hardware.cpu_lane())
    s->differs.push_back(
        "data.packing: a row is one document there, for want of flash attention; a step holds fewer tokens");
  y["pad_to_sequence_len"] = false;
  y["shuffle_merged_datasets"] = r.data.shuffle;
  if (!r.data.shuffle) y["curriculum_sampling"] = true;
  y["seed"] = r.meta.seed;
  if (r.train.neftune_noise_alpha) y["neftune_noise_alpha"] = *r.train.neftune_noise_alpha;
  y["bf16"] = r.train.precision == config::Precision::kBFloat16;
  y["fp16"] = r.train.precision == config::Precision::kFloat16;
  y["tf32"] = false;
  y["attn_implementation"] = r.hardware.cpu_lane() ? "sdpa" : config::text_of(r.model.attn_implementation);
  y["gradient_checkpointing"] = r.train.gradient_checkpointing;
  y["logging_steps"] = 1;
  if (r.train.save_every) {
    y["save_strategy"] = "steps";
    y["save_steps"] = *r.train.save_every;
  } else {
    y["save_strategy"] = "no";
  }
  y["save_total_limit"] = r.train.keep_last;
  if (evaluates(job)) {
    y["eval_strategy"] = "steps";
    y["eval_steps"] = *r.train.eval_every;
  }
  y["output_dir"] = job.out + "/out";
  y["dataset_prepared_path"] = job.out + "/prepared";
  for (const auto tracker : r.train.report_to) y["use_" + std::string(config::text_of(tracker))] = true;
  if (r.train.fsdp.enabled) {
    y["fsdp_version"] = 2;
    y["fsdp_config"] = {{"auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
                        {"state_dict_type", "FULL_STATE_DICT"},
                        {"reshard_after_forward", true}};
  }
}

// orpo and reward models read one request and its two answers, under a system message if there is one.
OrderedJson single_pair(const data::Example& e, bool texts) {
  const Turns turns = turns_of(e), other = turns_of(*e.rejected);
  const size_t system = turns.prompt[0]["role"] == "system" ? 1 : 0;
  if (turns.prompt.size() != system + 1 || turns.answer.size() != 1 || other.answer.size() != 1)
    fail_missing("data: a pair of more than a request and its answers: axolotl does not read it for this method");
  OrderedJson row;
  if (system) row["system"] = turns.prompt[0]["content"];
  const OrderedJson& asked = turns.prompt[system];
  if (texts) {
    if (!system) row["system"] = "";
    row["input"] = asked["content"];
    row["chosen"] = turns.answer[0]["content"];
    row["rejected"] = other.answer[0]["content"];
  } else {
    row["chosen"] = OrderedJson::array({asked, turns.answer[0]});
    row["rejected"] = OrderedJson::array({asked, other.answer[0]});
  }
  return row;
}

}  // namespace

Settings axolotl_settings(const Job& job) {
  const config::Recipe& r = job.recipe;
  refuse_own(job, kTitle,
             {"use_dora", "init_lora_weights", "modules_to_save", "layers_to_transform", "rank_pattern",
              "alpha_pattern", "neftune_noise_alpha"});
  need_method(job, kTitle, {K::kFull, K::kLora, K::kQLora, K::kCpt, K::kDpo, K::kOrpo, K::kKto, K::kReward});
  refuse(job, kTitle, {"eight_bit", "mxfp4", "muon", "router_aux_loss"});
  Settings s;
  put_model(job, s.yaml);
  if (r.model.tokenizer) s.yaml["tokenizer_config"] = *r.model.tokenizer;
  put_method(job, &s);
  s.yaml["datasets"] = OrderedJson::array({data_set(job, "train.jsonl")});
  if (evaluates(job) && r.data.eval_fraction == 0)
    s.yaml["test_datasets"] = OrderedJson::array({data_set(job, "test.jsonl")});
  else
    s.yaml["val_set_size"] = r.data.eval_fraction;
  put_schedule(job, &s);
  put_rest(job, &s);
  if (!r.train.method.lora && r.train.precision != config::Precision::kFloat32)
    s.differs.push_back(fmt::format("weights: held and updated in {} there; here they have an fp32 master",
                                    config::text_of(r.train.precision)));
  note_data(job, &s);
  if (r.data.shuffle) s.differs.push_back("order: rows are shuffled by another generator, from the same seed");
  list_stages(job, &s);
  s.command = "axolotl train " + job.out + "/axolotl.yaml";
  return s;
}

OrderedJson axolotl_row(const data::Example& e, const config::Recipe& recipe) {
  switch (form_of(e)) {
    case Form::kTokens: {
      OrderedJson row = trl_row(e, recipe);
      row["attention_mask"] = std::vector<int>(e.ids.size(), 1);
      return row;
    }
    case Form::kCompletion:
      return {{"segments",
               OrderedJson::array({{{"label", false}, {"text", e.text}}, {{"label", true}, {"text", e.completion}}})}};
    case Form::kChat: {
      OrderedJson row{{"messages", *e.messages}};
      if (e.tools) row["tools"] = *e.tools;
      return row;
    }
    case Form::kPair:
      if (recipe.train.method.kind == K::kOrpo || recipe.train.method.kind == K::kReward)
        return single_pair(e, recipe.train.method.kind == K::kReward);
      return trl_row(e, recipe);
    default:
      return trl_row(e, recipe);
  }
}

}  // namespace mxt::exporting
