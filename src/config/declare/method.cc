// Declaration of train.method: which fields each kind has.
#include "config/field.h"

namespace mxt::config {
namespace {

const char* doc_of(MethodKind kind) {
  switch (kind) {
    case MethodKind::kFull:
      return "Supervised fine-tuning of every weight.";
    case MethodKind::kLora:
      return "Supervised fine-tuning of a low-rank adapter beside frozen weights.";
    case MethodKind::kQLora:
      return "LoRA beside a frozen base that is held in 4 or 8 bits.";
    case MethodKind::kDpo:
      return "Direct preference optimisation, on chosen and rejected answers.";
    case MethodKind::kOrpo:
      return "Odds-ratio preference optimisation: SFT and preference in one, no reference model.";
    case MethodKind::kGrpo:
      return "Group-relative policy optimisation, on prompts with a reward.";
    case MethodKind::kGspo:
      return "Group sequence policy optimisation, steadier on mixtures of experts.";
    case MethodKind::kKto:
      return "Kahneman-Tversky optimisation, on answers that are good or bad.";
    case MethodKind::kCpt:
      return "Continued pretraining on plain text.";
    case MethodKind::kPpo:
      return "Proximal policy optimisation (RLHF), with a value model.";
    case MethodKind::kPretrain:
      return "Pretraining from scratch on plain text.";
    case MethodKind::kRloo:
      return "REINFORCE with a leave-one-out baseline: an answer against the mean of the others to its prompt.";
    case MethodKind::kReward:
      return "A reward model: one score for a sequence, learnt from chosen and rejected answers.";
  }
  return "";
}

void declare_ratio(Declaration<Method>& d) {
  d.field("epsilon", &Method::clip_range,
          "Clipping of the probability ratio below 1 (and above, without epsilon_high).")
      .above(0)
      .plus();
  d.field("epsilon_high", &Method::epsilon_high, "Clipping above 1.").above(0).plus().default_is("epsilon");
  d.field("num_iterations", &Method::num_iterations, "Optimizer steps on each batch of answers.").range(1, 1024).plus();
}

void declare_group(Declaration<Method>& d) {
  d.field("num_generations", &Method::num_generations, "Answers sampled for each prompt.").range(2, 1024);
  d.field("loss_type", &Method::loss_type,
          "How token losses become one: over all tokens of the step (dapo), means of answers (grpo), over a device "
          "batch's tokens (bnpo), by the longest answer allowed (dr_grpo).")
      .plus();
  d.field("scale_rewards", &Method::scale_rewards,
          "What rewards are divided by: the deviation of their group, of the step, or nothing.")
      .plus();
  declare_ratio(d);
  d.field("delta", &Method::delta,
          "Largest probability ratio that counts where an answer was worse than its group (two-sided clipping).")
      .above(1)
      .later();
  d.field("use_bias_correction_kl", &Method::use_bias_correction_kl,
          "Multiply the divergence by the probability ratio, as TRL does by default.")
      .plus();
  d.field("mask_truncated_completions", &Method::mask_truncated_completions,
          "Answers without an end token are left out of the loss.")
      .plus();
}

void declare_rollouts(Declaration<Method>& d) {
  d.field("share_prompts", &Method::share_prompts,
          "A prompt is computed once for its answers in a pass, where device and model can (`plan` says so).")
      .later();
  d.field("max_new_tokens", &Method::max_new_tokens, "Longest sampled answer in tokens.").range(1, 1'048'576).plus();
  d.field("max_completion_length", &Method::max_new_tokens, "Another name of max_new_tokens.")
      .range(1, 1'048'576)
      .plus();
  d.field("temperature", &Method::temperature, "Temperature of the sampled answers.").above(0).plus();
  d.field("top_p", &Method::top_p, "Nucleus of the sampled answers.").above(0).max(1).plus();
  d.field("reward", &Method::reward,
          "answer = the last number or \\boxed{} equals the row's reference; exact = the whole text does; model = "
          "`reward_model` scores it.")
      .plus();
  d.field(
       "reward_model", &Method::reward_model,
       "Reward model: a folder, or `recipe:NAME` = what that recipe makes, which then runs first; required by `reward: "
       "model`.")
      .non_empty()
      .plus();
  d.field("rewards", &Method::rewards, "Several rewards, added up by their weights; in place of `reward`.").later();
  d.field("tools", &Method::tools,
          "Tools that answer the calls of sampled answers: a turn that calls is followed by the results, which are not "
          "trained on, and the next turn. Rows say in `tools` what the model is shown.")
      .later();
  d.field("max_tool_turns", &Method::max_tool_turns, "Turns of an answer whose calls are answered.")
      .range(1, 64)
      .later();
  d.field("max_result_tokens", &Method::max_result_tokens,
          "Longest result of a call in tokens; a longer one is cut. Results count in max_new_tokens.")
      .range(1, 65'536)
      .later();
}

void declare_router(Declaration<Method>& d) {
  d.field(
       "router_aux_loss", &Method::router_aux_loss,
       "Weight of the load-balancing loss of a mixture of experts, taken of each row and averaged over the rows of a "
       "step; 0 = none. Absent = as the model's config.json says (output_router_logits).")
      .min(0)
      .later();
}

void declare_reference(Declaration<Method>& d) {
  d.field("precompute_ref_log_probs", &Method::precompute_ref_log_probs,
          "The reference is asked once for every row, before the first step, and its answers are kept in a file; false "
          "= in every step, by its weights, which stay in memory (an adapter's alone, or the whole model's).")
      .later();
}

void declare_adapter(Declaration<Method>& d) {
  d.field("lora", &Method::lora, "Train an adapter with these settings. Absent = every weight.").plus();
}

}  // namespace

Method default_method(MethodKind kind) {
  Method m;
  m.kind = kind;
  if (kind == MethodKind::kLora || kind == MethodKind::kQLora) m.lora.emplace();
  if (kind == MethodKind::kQLora) {
    m.lora->target_modules = {"q_proj", "k_proj", "v_proj", "o_proj"};
    m.quant_bits = 4;
  }
  // A sequence's ratio is a mean over its tokens, so its clip is far narrower (Zheng et al. 2025, section 5.1).
  if (kind == MethodKind::kGspo) {
    m.clip_range = 3e-4;
    m.kl_coef = 0;
    m.loss_type = GrpoLoss::kGrpo;
  }
  if (kind == MethodKind::kRloo) m.kl_coef = 0.05;
  if (kind == MethodKind::kPpo) {
    m.kl_coef = 0.05;
    m.num_generations = 1;
  }
  return m;
}

Section declare(const Lora*) {
  Declaration<Lora> d("A low-rank adapter.");
  d.field("r", &Lora::r, "Rank.").range(1, 512);
  d.field("alpha", &Lora::alpha, "Scaling is alpha/r.").range(1, 1024);
  d.field("dropout", &Lora::dropout, "Dropout before A; dpo, orpo, kto and reward train with 0.").range(0, 1);
  d.field("target_modules", &Lora::target_modules,
          "Linear layers that get an adapter, by the end of their name; also lm_head and embed_tokens. all-linear: "
          "every linear layer but the head.")
      .or_word("all-linear")
      .non_empty();
  d.field("lora_plus", &Lora::lora_plus, "LoRA+: B's learning rate as a multiple of A's.").above(0).later();
  d.field("use_rslora", &Lora::use_rslora, "Scaling is alpha/sqrt(r).").plus();
  d.field("use_dora", &Lora::use_dora,
          "DoRA: the length of each row of an adapted matrix trains apart from its direction.")
      .later();
  d.field(
       "init_lora_weights", &Lora::init_lora_weights,
       "default = A uniform, B zero; pissa = both from the largest singular values of the base's matrix, which keeps "
       "the rest. The adapter is saved so that it belongs to the base itself, at twice the rank.")
      .later();
  d.field("bias", &Lora::bias,
          "Biases of the base that train too: none, those of modules with an adapter (lora_only), or all.")
      .later();
  d.field("modules_to_save", &Lora::modules_to_save,
          "Modules that train whole and are saved with the adapter: embed_tokens, lm_head.")
      .later();
  d.field("layers_to_transform", &Lora::layers_to_transform, "Layers that get an adapter, counted from 0.")
      .min(0)
      .later()
      .default_is("all");
  d.field("rank_pattern", &Lora::rank_pattern,
          "Ranks of their own, by the end of a module's name or a pattern for it, as `{layers.0.self_attn.q_proj: 4}`.")
      .range(1, 512)
      .later()
      .default_is("–");
  d.field("alpha_pattern", &Lora::alpha_pattern, "And alphas.").range(1, 1024).later().default_is("–");
  d.field("stack_experts", &Lora::stack_experts,
          "Experts' adapters are saved as PEFT's target_parameters, a layer's in one, or each by itself.")
      .later()
      .default_is(
          "stacked where PEFT reads nothing else: Qwen3.5, gpt-oss, gate_proj and up_proj without down_proj, or with a "
          "rank or alpha of their own");
  d.field("init_adapter", &Lora::init_adapter,
          "PEFT folder to start from; its alpha, rank and rsLoRA must scale as these settings do. `recipe:NAME` = what "
          "that "
          "recipe makes, which then runs first.")
      .non_empty()
      .plus();
  return d.take();
}

Section declare(const RewardPart*) {
  Declaration<RewardPart> d("One reward of several.");
  d.field("kind", &RewardPart::kind,
          "answer and exact as under `reward`; regex = 1 where the pattern is found; length = 1 between min_tokens and "
          "max_tokens, and less the further away; json_schema = 1 where the answer is JSON that the schema allows; "
          "tool_call = the share of a call that is the reference's (name, then each argument); code = 1 where the "
          "answer's Python "
          "passes the reference, which is its tests, in the sandbox; command = a program that reads "
          "{prompt, answer, reference} as JSON lines and writes a number for each; http = the same as a POST; "
          "model = a reward model.")
      .plus();
  d.field("name", &RewardPart::name, "Its name in the metrics.").non_empty().plus().default_is("its kind");
  d.field("weight", &RewardPart::weight, "What it is multiplied with.").plus();
  d.field("pattern", &RewardPart::pattern, "Regular expression of `regex`, in Python's syntax.").non_empty().plus();
  d.field("min_tokens", &RewardPart::min_tokens, "Shortest answer that `length` wants.").min(0).plus();
  d.field("max_tokens", &RewardPart::max_tokens, "Longest answer that `length` wants.").min(1).plus();
  d.field("schema", &RewardPart::schema, "File of the JSON schema of `json_schema`.").non_empty().plus();
  d.field("command", &RewardPart::command, "Program and arguments of `command`.").non_empty().plus();
  d.field("url", &RewardPart::url, "Endpoint of `http`.").non_empty().plus();
  d.field("model", &RewardPart::model, "Folder of `model`, or `recipe:NAME` as `init_adapter` has it.")
      .non_empty()
      .plus();
  d.field("timeout_seconds", &RewardPart::timeout_seconds,
          "Time that `command` and `http` have for a step's answers, and `code` for one.")
      .above(0)
      .plus();
  d.field("error_value", &RewardPart::error_value,
          "What an answer is worth where this reward fails or takes too long; absent = the run stops.")
      .plus();
  return d.take();
}

Section declare(const RolloutTool*) {
  Declaration<RolloutTool> d("A tool that answers the calls of sampled answers.");
  d.field(
       "kind", &RolloutTool::kind,
       "calculator = the value of the argument `expression`; lookup = what `table` has for the argument `key`; "
       "command = what a Python program writes, which runs in the sandbox and reads {name, arguments} as a JSON line.")
      .plus();
  d.field("name", &RolloutTool::name, "The function's name in calls.").non_empty().plus().default_is("its kind");
  d.field("table", &RolloutTool::table, "JSON file of `lookup`: an object.").non_empty().plus();
  d.field("command", &RolloutTool::command, "File of the Python program of `command`, and its arguments.")
      .non_empty()
      .plus();
  d.field("timeout_seconds", &RolloutTool::timeout_seconds, "Time that `command` has for a call.").above(0).plus();
  return d.take();
}

Section declare_method(MethodKind kind) {
  using K = MethodKind;
  Declaration<Method> d(doc_of(kind), default_method(kind));
  d.field("kind", &Method::kind, "Which method.");
  switch (kind) {
    case K::kFull:
    case K::kPretrain:
      declare_router(d);
      break;
    case K::kLora:
      d.embed(&Method::lora);
      declare_router(d);
      break;
    case K::kQLora:
      d.embed(&Method::lora);
      d.field("quant_bits", &Method::quant_bits, "Bits of the frozen base: 4 = `quant_type`, 8 = FP8.").one_of({4, 8});
      d.field("quant_type", &Method::quant_type,
              "Number type of 4 bits; as_stored = what the model's file holds (a GGUF's blocks, or a folder's codes).")
          .plus();
      d.field("double_quant", &Method::double_quant, "nf4: hold its scales in 8 bits.").later();
      declare_router(d);
      break;
    case K::kDpo:
      d.field("beta", &Method::beta, "Strength of the preference against staying near the reference.").above(0);
      d.field("loss", &Method::loss,
              "sigmoid is DPO; hinge, ipo and simpo (means over tokens, no reference) differ from it by a line.")
          .plus();
      d.field("simpo_gamma", &Method::simpo_gamma, "The margin that loss simpo aims at.").min(0).plus();
      declare_reference(d);
      declare_adapter(d);
      break;
    case K::kReward:
      d.field("center_rewards", &Method::center_rewards,
              "Weight of the squared sum of a pair's scores, which keeps them around 0; 0 = off.")
          .min(0)
          .plus();
      declare_adapter(d);
      break;
    case K::kOrpo:
      d.field("beta", &Method::beta, "Weight of the odds-ratio term beside the likelihood.").above(0);
      declare_adapter(d);
      break;
    case K::kKto:
      d.field("beta", &Method::beta, "Strength of the preference against staying near the reference.").above(0);
      d.field("desirable_weight", &Method::desirable_weight, "Weight of good answers.").above(0).plus();
      d.field("undesirable_weight", &Method::undesirable_weight, "Weight of bad answers.").above(0).plus();
      declare_reference(d);
      declare_adapter(d);
      break;
    case K::kGrpo:
      declare_group(d);
      d.field("kl_coef", &Method::kl_coef, "Weight of the divergence from the reference.").min(0);
      declare_rollouts(d);
      declare_adapter(d);
      break;
    case K::kGspo:
      declare_group(d);
      d.field("kl_coef", &Method::kl_coef, "Weight of the divergence from the reference.").min(0).plus();
      declare_rollouts(d);
      declare_adapter(d);
      break;
    case K::kRloo:
      d.field("num_generations", &Method::num_generations, "Answers sampled for each prompt.").range(2, 1024).plus();
      declare_ratio(d);
      d.field("normalize_advantages", &Method::normalize_advantages,
              "Center a step's advantages and divide them by their deviation.")
          .plus();
      d.field("kl_coef", &Method::kl_coef, "Weight of an answer's divergence from the reference, inside the reward.")
          .min(0)
          .plus();
      declare_rollouts(d);
      declare_adapter(d);
      break;
    case K::kPpo:
      d.field("num_generations", &Method::num_generations, "Answers sampled for each prompt.").range(1, 1024).plus();
      d.field("kl_coef", &Method::kl_coef, "Weight of the divergence from the reference, inside the reward.")
          .min(0)
          .plus();
      declare_rollouts(d);
      d.field("clip_range", &Method::clip_range,
              "Clipping of the probability ratio, and how far a value may move from what it was.")
          .above(0)
          .plus();
      d.field("inner_epochs", &Method::inner_epochs, "Passes over each batch of answers.").range(1, 100).plus();
      d.field("gamma", &Method::gamma, "Discount.").range(0, 1).plus();
      d.field("gae_lambda", &Method::gae_lambda, "Lambda of the advantage estimate.").range(0, 1).plus();
      d.field("value_coef", &Method::value_coef, "Weight of the value loss.").min(0).plus();
      declare_adapter(d);
      break;
    case K::kCpt:
      declare_adapter(d);
      declare_router(d);
      break;
  }
  return d.take();
}

}  // namespace mxt::config
