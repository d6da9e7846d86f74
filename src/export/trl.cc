// TRL's commands: `trl sft|dpo|kto|grpo|rloo|reward --config FILE`, whose keys are the fields of its dataclasses
// (trl/scripts, trl/trainer/*_config.py as of 1.16). ORPO and PPO have no command there.
#include <nlohmann/json.hpp>

#include "export/hugging_face.h"
#include "export/limits.h"
#include "export/rows.h"
#include "export/trainers.h"

namespace mxt::exporting {
namespace {

using K = config::MethodKind;
constexpr std::string_view kTitle = "TRL";

std::string command_of(K kind) {
  switch (kind) {
    case K::kDpo:
      return "dpo";
    case K::kKto:
      return "kto";
    case K::kGrpo:
    case K::kGspo:
      return "grpo";
    case K::kRloo:
      return "rloo";
    case K::kReward:
      return "reward";
    default:
      return "sft";
  }
}

void put_model(const Job& job, OrderedJson& y) {
  const config::Recipe& r = job.recipe;
  y["model_name_or_path"] = job.base.name;
  if (!job.base.revision.empty()) y["model_revision"] = job.base.revision;
  y["dtype"] = weight_dtype(r);
  y["attn_implementation"] = r.hardware.cpu_lane() ? "sdpa" : config::text_of(r.model.attn_implementation);
  y["trust_remote_code"] = false;
  const auto& lora = r.train.method.lora;
  y["use_peft"] = lora.has_value();
  if (!lora) return;
  y["lora_r"] = lora->r;
  y["lora_alpha"] = lora->alpha;
  y["lora_dropout"] = lora->dropout;
  y["lora_target_modules"] = lora->target_modules;
  y["use_rslora"] = lora->use_rslora;
  if (lora->use_dora) y["use_dora"] = true;
  if (!lora->modules_to_save.empty()) y["lora_modules_to_save"] = lora->modules_to_save;
  if (r.train.method.kind == K::kReward) y["lora_task_type"] = "SEQ_CLS";
  if (r.train.method.kind != K::kQLora) return;
  y["load_in_4bit"] = true;
  y["bnb_4bit_quant_type"] = "nf4";
  y["use_bnb_nested_quant"] = r.train.method.double_quant;
}

void put_data(const Job& job, OrderedJson& y) {
  const config::Recipe& r = job.recipe;
  const bool split = r.data.eval_fraction > 0;
  if (split) {  // TRL splits a mixture alone
    OrderedJson set;
    set["path"] = job.rows.hub_id.empty() ? OrderedJson("json") : OrderedJson(job.rows.hub_id);
    if (job.rows.hub_id.empty()) set["data_files"] = job.rows.folder + "/train.jsonl";
    if (!job.rows.hub_id.empty() && r.data.hf_config) set["name"] = *r.data.hf_config;
    set["split"] = job.rows.hub_id.empty() ? "train" : r.data.split;
    y["datasets"] = OrderedJson::array({set});
    y["test_split_size"] = r.data.eval_fraction;
    return;
  }
  y["dataset_name"] = job.rows.hub_id.empty() ? job.rows.folder : job.rows.hub_id;
  if (!job.rows.hub_id.empty() && r.data.hf_config) y["dataset_config"] = *r.data.hf_config;
  y["dataset_train_split"] = job.rows.hub_id.empty() ? "train" : r.data.split;
  if (!job.rows.hub_id.empty() && job.recipe.data.streaming) y["dataset_streaming"] = false;
}

void put_sft(const Job& job, Settings* s) {
  const config::Recipe& r = job.recipe;
  OrderedJson& y = s->yaml;
  need_form(job, kTitle, {Form::kText, Form::kCompletion, Form::kChat, Form::kTokens});
  y["max_length"] = r.data.seq_len;
  const bool all = r.data.train_on == config::TrainOn::kAll;
  if (job.rows.form == Form::kChat) {
    y["assistant_only_loss"] = !all;
    if (!all)
      s->differs.push_back(
          "assistant_only_loss: TRL knows the marks of the templates of Qwen, Llama 3 and others; where it refuses the "
          "model's, --data PREPARED gives it ours");
  }
  if (job.rows.form == Form::kCompletion) y["completion_only_loss"] = !all;
  if (job.rows.form == Form::kText) {
    const auto text = r.data.columns.find("text");
    y["dataset_text_field"] = !job.rows.hub_id.empty() && text != r.data.columns.end() ? text->second : "text";
  }
  // Without a kernel that keeps documents apart, packed ones would see each other.
  const bool packs = r.data.packing && !r.hardware.cpu_lane() &&
                     r.model.attn_implementation == config::AttnImplementation::kFlashAttention2;
  y["packing"] = packs;
  y["packing_strategy"] = "bfd";
  if (r.data.packing && !packs)
    s->differs.push_back(
        "data.packing: a row is one document there, for want of flash attention; a step holds fewer tokens");
  y["loss_type"] = "nll";
}

void put_group(const Job& job, Settings* s) {
  const config::Method& m = job.recipe.train.method;
  OrderedJson& y = s->yaml;
  const bool model = m.rewards.empty() ? m.reward == config::Reward::kModel
                                       : m.rewards.size() == 1 && m.rewards[0].kind == config::RewardKind::kModel;
  if (!model)
    cannot(job, kTitle, m.rewards.empty() ? "train.method.reward" : "train.method.rewards",
           "take rewards that this program computes: only a reward model can be named there");
  y["reward_model_name_or_path"] = m.rewards.empty() ? *m.reward_model : *m.rewards[0].model;
  if (!m.rewards.empty() && m.rewards[0].weight != 1) y["reward_weights"] = OrderedJson::array({m.rewards[0].weight});
  y["num_generations"] = m.num_generations;
  y["max_completion_length"] = m.max_new_tokens;
  y["temperature"] = m.temperature;
  y["top_p"] = m.top_p;
  y["beta"] = m.kl_coef;
  y["epsilon"] = m.clip_range;
  y["epsilon_high"] = m.epsilon_high.value_or(m.clip_range);
  y["num_iterations"] = m.num_iterations;
  y["mask_truncated_completions"] = m.mask_truncated_completions;
  y["shuffle_dataset"] = job.recipe.data.shuffle;
  if (m.kind == K::kRloo) {
    y["normalize_advantages"] = m.normalize_advantages;
    return;
  }
  y["loss_type"] = config::text_of(m.loss_type);
  y["scale_rewards"] = config::text_of(m.scale_rewards);
  y["importance_sampling_level"] = m.kind == K::kGspo ? "sequence" : "token";
  if (m.delta) y["delta"] = *m.delta;
  y["use_bias_correction_kl"] = m.use_bias_correction_kl;
}

void put_method(const Job& job, Settings* s) {
  const config::Method& m = job.recipe.train.method;
  OrderedJson& y = s->yaml;
  switch (m.kind) {
    case K::kDpo:
      need_form(job, kTitle, {Form::kPair});
      if (m.loss == config::PreferenceLoss::kSimpo)
        cannot(job, kTitle, "train.method.loss", "train by simpo from its settings");
      y["beta"] = m.beta;
      y["loss_type"] = OrderedJson::array({config::text_of(m.loss)});
      y["label_smoothing"] = 0.0;
      y["max_length"] = job.recipe.data.seq_len;
      y["precompute_ref_log_probs"] = m.precompute_ref_log_probs;
      return;
    case K::kOrpo:
      need_form(job, kTitle, {Form::kPair});
      y["beta"] = m.beta;
      y["max_length"] = job.recipe.data.seq_len;
      return;
    case K::kKto:
      need_form(job, kTitle, {Form::kLabelled, Form::kPair});
      y["beta"] = m.beta;
      y["loss_type"] = "kto";
      y["desirable_weight"] = m.desirable_weight;
      y["undesirable_weight"] = m.undesirable_weight;
      // It takes each mismatched answer from the row's neighbour before training, and refuses another order after that.
      y["train_sampling_strategy"] = "sequential";
      y["max_length"] = job.recipe.data.seq_len;
      y["precompute_ref_log_probs"] = m.precompute_ref_log_probs;
      return;
    case K::kReward:
      need_form(job, kTitle, {Form::kPair});
      y["center_rewards_coefficient"] = m.center_rewards;
      y["max_length"] = job.recipe.data.seq_len;
      return;
    case K::kGrpo:
    case K::kGspo:
    case K::kRloo:
      need_form(job, kTitle, {Form::kReference});
      return put_group(job, s);
    default:
      return put_sft(job, s);
  }
}

}  // namespace

Settings trl_settings(const Job& job) {
  const config::Recipe& r = job.recipe;
  refuse_own(job, kTitle, {"use_dora", "modules_to_save", "neftune_noise_alpha"});
  if (!job.launched || r.train.method.kind != K::kOrpo)  // a trainer without a command
    need_method(job, kTitle,
                {K::kFull, K::kLora, K::kQLora, K::kCpt, K::kDpo, K::kKto, K::kReward, K::kGrpo, K::kGspo, K::kRloo});
  refuse(job, kTitle, {"lora_plus", "eight_bit", "mxfp4", "muon"});
  if (!job.launched) refuse(job, kTitle, {"init_adapter", "tokenizer"});
  Settings s;
  put_model(job, s.yaml);
  put_data(job, s.yaml);
  put_training_arguments(job, kTitle, &s);
  s.yaml["gradient_checkpointing"] = r.train.gradient_checkpointing;
  s.yaml["train_sampling_strategy"] = r.data.shuffle ? "random" : "sequential";
  if (r.model.chat_template) {
    if (command_of(r.train.method.kind) != "sft" && command_of(r.train.method.kind) != "reward")
      refuse(job, kTitle, {"chat_template"});
    s.yaml["chat_template_path"] = *r.model.chat_template;
  }
  if (r.train.method.router_aux_loss) s.yaml["router_aux_loss_coef"] = *r.train.method.router_aux_loss;
  put_method(job, &s);
  if (!r.train.env.empty()) s.yaml["env"] = r.train.env;
  note_data(job, &s);
  if (r.data.shuffle)
    s.differs.push_back(r.train.method.kind == K::kKto
                            ? "data.shuffle: TRL's KTO takes rows in the file's order, in every epoch"
                            : "order: rows are shuffled by another generator, from the same seed");
  list_stages(job, &s);
  s.command = "trl " + command_of(r.train.method.kind) + " --config " + job.out + "/trl.yaml";
  const int64_t processes = r.hardware.gpus * r.hardware.nodes;
  if (processes > 1) s.command += fmt::format(" --num_processes {}", processes);
  if (r.train.fsdp.enabled && processes > 1) s.command += " --accelerate_config fsdp2";
  return s;
}

}  // namespace mxt::exporting
