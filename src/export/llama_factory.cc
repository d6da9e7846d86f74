// LLaMA-Factory's YAML (llamafactory/hparams as of 0.9.5) and the dataset_info.json that it looks its rows up in:
// `llamafactory-cli train FILE`.
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "export/hugging_face.h"
#include "export/limits.h"
#include "export/rows.h"
#include "export/trainers.h"

namespace mxt::exporting {
namespace {

using K = config::MethodKind;
constexpr std::string_view kTitle = "LLaMA-Factory";

// Its name of rows that are conversations: roles and contents as OpenAI has them, calls under a role of their own.
OrderedJson tags() {
  return {{"role_tag", "role"},           {"content_tag", "content"},  {"user_tag", "user"},
          {"assistant_tag", "assistant"}, {"observation_tag", "tool"}, {"function_tag", "function_call"},
          {"system_tag", "system"}};
}

OrderedJson data_set(const Job& job, const std::string& file) {
  OrderedJson d, columns;
  if (job.rows.hub_id.empty()) {
    d["file_name"] = "data/" + file;
  } else {
    d["hf_hub_url"] = job.rows.hub_id;
    if (job.recipe.data.hf_config) d["subset"] = *job.recipe.data.hf_config;
    d["split"] = job.recipe.data.split;
  }
  const bool pair = job.rows.form == Form::kPair;
  if (job.rows.chat) {
    d["formatting"] = "sharegpt";
    columns["messages"] = pair && !job.rows.hub_id.empty() ? "prompt" : "messages";
    if (job.rows.tools) columns["tools"] = "tools";
    d["tags"] = tags();
  } else {
    d["formatting"] = "alpaca";
    columns["prompt"] = job.rows.form == Form::kText ? "text" : "prompt";
    if (job.rows.form != Form::kText && !pair) columns["response"] = "completion";
  }
  if (pair) {
    d["ranking"] = true;
    columns["chosen"] = "chosen";
    columns["rejected"] = "rejected";
  }
  if (job.rows.form == Form::kLabelled) columns["kto_tag"] = "label";
  d["columns"] = columns;
  return d;
}

void put_method(const Job& job, Settings* s) {
  OrderedJson& y = s->yaml;
  const config::Method& m = job.recipe.train.method;
  switch (m.kind) {
    case K::kDpo:
    case K::kOrpo:
      need_form(job, kTitle, {Form::kPair});
      y["stage"] = "dpo";
      y["pref_beta"] = m.beta;
      y["pref_loss"] = m.kind == K::kOrpo ? "orpo" : config::text_of(m.loss);
      y["pref_ftx"] = 0.0;
      if (m.loss == config::PreferenceLoss::kSimpo) y["simpo_gamma"] = m.simpo_gamma;
      return;
    case K::kKto:
      need_form(job, kTitle, {Form::kLabelled});
      y["stage"] = "kto";
      y["pref_beta"] = m.beta;
      y["kto_chosen_weight"] = m.desirable_weight;
      y["kto_rejected_weight"] = m.undesirable_weight;
      return;
    case K::kReward:
      need_form(job, kTitle, {Form::kPair});
      if (m.center_rewards != 0) cannot(job, kTitle, "train.method.center_rewards", "center rewards");
      y["stage"] = "rm";
      s->differs.push_back("pairs longer than data.seq_len are cut there, left out here");
      return;
    default:
      need_form(job, kTitle, {Form::kText, Form::kCompletion, Form::kChat});
      y["stage"] = job.rows.form == Form::kText ? "pt" : "sft";
      if (job.rows.form != Form::kText) y["train_on_prompt"] = job.recipe.data.train_on == config::TrainOn::kAll;
  }
}

void put_adapter(const Job& job, OrderedJson& y) {
  const auto& lora = job.recipe.train.method.lora;
  y["finetuning_type"] = lora ? "lora" : "full";
  if (!lora) return;
  std::string targets;
  for (const auto& t : lora->target_modules) targets += (targets.empty() ? "" : ",") + t;
  y["lora_rank"] = lora->r;
  y["lora_alpha"] = lora->alpha;
  y["lora_dropout"] = lora->dropout;
  y["lora_target"] = is_all_linear(*lora) ? "all" : targets;
  y["use_rslora"] = lora->use_rslora;
  if (lora->lora_plus != 1) y["loraplus_lr_ratio"] = lora->lora_plus;
  if (lora->init_adapter) y["adapter_name_or_path"] = *lora->init_adapter;
  if (lora->use_dora) y["use_dora"] = true;
  if (!lora->modules_to_save.empty()) y["additional_target"] = fmt::format("{}", fmt::join(lora->modules_to_save, ","));
  if (lora->init_lora_weights == config::LoraInit::kPissa) {
    const K kind = job.recipe.train.method.kind;
    if (kind == K::kQLora || kind == K::kDpo || kind == K::kKto)
      cannot(job, kTitle, "train.method.init_lora_weights",
             "begin by singular values under " + std::string(config::text_of(kind)));
    y["pissa_init"] = true;
    y["pissa_iter"] = -1;       // the singular values themselves, not an approximation
    y["pissa_convert"] = true;  // saved for the base as it was, as here
  }
  if (job.recipe.train.method.kind != K::kQLora) return;
  y["quantization_bit"] = 4;
  y["quantization_method"] = "bnb";
  y["quantization_type"] = "nf4";
  y["double_quantization"] = job.recipe.train.method.double_quant;
}

// A call stands in a message of its own, as its JSON.
OrderedJson messages_of(const OrderedJson& all) {
  OrderedJson out = OrderedJson::array();
  for (const auto& m : all) {
    OrderedJson message{{"role", m["role"] == "developer" ? OrderedJson("system") : m["role"]}, {"content", ""}};
    if (const auto calls = m.find("tool_calls"); calls != m.end() && !calls->is_null() && !calls->empty()) {
      OrderedJson list = OrderedJson::array();
      for (const auto& c : *calls) list.push_back(c.contains("function") ? c["function"] : c);
      message["role"] = "function_call";
      message["content"] = json_text(list);
    } else if (const auto text = m.find("content"); text != m.end() && !text->is_null()) {
      message["content"] = text->is_string() ? *text : OrderedJson(json_text(*text));
    }
    out.push_back(message);
  }
  return out;
}

}  // namespace

Settings llama_factory_settings(const Job& job) {
  const config::Recipe& r = job.recipe;
  refuse_own(job, kTitle, {"use_dora", "init_lora_weights", "modules_to_save", "neftune_noise_alpha"});
  need_method(job, kTitle, {K::kFull, K::kLora, K::kQLora, K::kCpt, K::kDpo, K::kOrpo, K::kKto, K::kReward});
  refuse(job, kTitle, {"eight_bit", "mxfp4", "muon", "chat_template", "tokenizer"});
  // Unless bf16 or fp16 is asked for it takes the narrowest type that the card has, of the weights too.
  if (r.train.precision == config::Precision::kFloat32 && !r.hardware.cpu_lane())
    cannot(job, kTitle, "train.precision", "train in float32 on a GPU");
  Settings s;
  OrderedJson& y = s.yaml;
  y["model_name_or_path"] = job.base.name;
  if (!job.base.revision.empty()) y["model_revision"] = job.base.revision;
  y["trust_remote_code"] = false;
  y["flash_attn"] =
      !r.hardware.cpu_lane() && r.model.attn_implementation == config::AttnImplementation::kFlashAttention2 ? "fa2"
                                                                                                            : "sdpa";
  if (r.train.method.router_aux_loss) y["moe_aux_loss_coef"] = *r.train.method.router_aux_loss;
  y["do_train"] = true;
  put_method(job, &s);
  put_adapter(job, y);
  y["dataset"] = "train";
  if (evaluates(job) && r.data.eval_fraction == 0) y["eval_dataset"] = "test";
  y["dataset_dir"] = job.out;
  // Texts are no turns of a conversation.
  if (!job.rows.chat) y["template"] = "empty";
  // Its packed texts are one text cut into blocks, with attention from one document to another.
  const bool texts = y["stage"] == "pt",
             packs = r.data.packing && !r.hardware.cpu_lane() && !r.train.method.is_preference() && !texts;
  // Of a packed row it takes a token away itself.
  y["cutoff_len"] = r.data.seq_len + (packs ? 1 : 0);
  y["packing"] = packs;
  if (packs) y["neat_packing"] = true;
  if (r.data.packing && (texts || r.hardware.cpu_lane()))
    s.differs.push_back(
        fmt::format("data.packing: a row is one document there, {}; a step holds fewer tokens",
                    r.hardware.cpu_lane() ? "for want of flash attention" : "since packed texts would see each other"));
  if (r.data.max_samples && !job.rows.hub_id.empty()) y["max_samples"] = *r.data.max_samples;
  if (r.data.eval_fraction > 0) y["val_size"] = r.data.eval_fraction;
  y["disable_shuffling"] = !r.data.shuffle;
  y["disable_gradient_checkpointing"] = !r.train.gradient_checkpointing;
  put_training_arguments(job, kTitle, &s);
  if (r.hardware.cpu_lane()) y["pure_bf16"] = false;
  note_data(job, &s);
  if (r.data.shuffle) s.differs.push_back("order: rows are shuffled by another generator, from the same seed");
  list_stages(job, &s);
  OrderedJson info;
  info["train"] = data_set(job, "train.jsonl");
  if (job.rows.held_out) info["test"] = data_set(job, "test.jsonl");
  s.files.emplace_back("dataset_info.json", info.dump(2) + "\n");
  s.command = "llamafactory-cli train " + job.out + "/llama_factory.yaml";
  return s;
}

OrderedJson llama_factory_row(const data::Example& e, const config::Recipe& recipe) {
  if (e.kind != data::Example::Kind::kChat) return trl_row(e, recipe);
  OrderedJson row;
  if (e.rejected) {
    const Turns turns = turns_of(e), other = turns_of(*e.rejected);
    row["messages"] = messages_of(turns.prompt);
    row["chosen"] = messages_of(turns.answer).back();
    row["rejected"] = messages_of(other.answer).back();
  } else {
    row["messages"] = messages_of(*e.messages);
    if (e.mark != 0) row["label"] = e.mark > 0;
  }
  if (e.tools) row["tools"] = json_text(*e.tools);
  return row;
}

}  // namespace mxt::exporting
