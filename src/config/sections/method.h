// `train.method`: a union by `kind`. A kind reads only its own fields (declare/method.cc says which); the others keep
// the values below and mean nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/enums.h"

namespace mxt::config {

struct Lora {
  int64_t r = 16, alpha = 32;
  double dropout = 0;
  std::vector<std::string> target_modules = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                             "gate_proj", "up_proj", "down_proj"};
  double lora_plus = 1;     // B's learning rate over A's
  bool use_rslora = false;  // scaling alpha/sqrt(r) instead of alpha/r
  bool use_dora = false;    // magnitudes apart from directions (graph/passes/lora.cc)
  LoraInit init_lora_weights = LoraInit::kDefault;
  LoraBias bias = LoraBias::kNone;               // which biases of the base train
  std::vector<std::string> modules_to_save;      // trained whole: embed_tokens, lm_head
  std::vector<int64_t> layers_to_transform;      // empty = all
  std::map<std::string, int64_t> rank_pattern;   // endings of modules' names, or patterns, to a rank of their own
  std::map<std::string, int64_t> alpha_pattern;  // and to an alpha
  std::optional<std::string> init_adapter;       // PEFT folder to start from
  std::optional<bool> stack_experts;             // how it is saved; absent = as transformers holds the experts
};

// One of several rewards that are added up (train/rewards.h says what each is).
struct RewardPart {
  RewardKind kind = RewardKind::kAnswer;
  std::optional<std::string> name;  // in the metrics; absent = the kind
  double weight = 1;
  std::optional<std::string> pattern;             // regex
  std::optional<int64_t> min_tokens, max_tokens;  // length
  std::optional<std::string> schema;              // json_schema: a file
  std::vector<std::string> command;               // command
  std::optional<std::string> url;                 // http
  std::optional<std::string> model;               // model: a folder
  double timeout_seconds = 30;                    // code, command, http
  std::optional<double> error_value;              // of an answer that it fails on; absent = the run stops
};

// A tool that answers the calls of sampled answers (train/tools/tools.h says what each is).
struct RolloutTool {
  RolloutToolKind kind = RolloutToolKind::kCalculator;
  std::optional<std::string> name;   // as calls name it; absent = the kind
  std::optional<std::string> table;  // lookup: a JSON file
  std::vector<std::string> command;  // command
  double timeout_seconds = 10;       // command
};

struct Method {
  MethodKind kind = MethodKind::kLora;
  // The adapter that is trained: present for lora and qlora, and for another kind where the recipe has `lora: {…}`.
  // Absent = every weight is trained.
  std::optional<Lora> lora;

  // qlora: 4 = `quant_type`, 8 = FP8 storage. 0 for every other kind.
  int64_t quant_bits = 0;
  QuantType quant_type = QuantType::kNf4;
  bool double_quant = true;  // nf4: its scales are held in 8 bits

  double beta = 0.1;                                    // dpo orpo kto
  PreferenceLoss loss = PreferenceLoss::kSigmoid;       // dpo
  double simpo_gamma = 0.5;                             // dpo, loss simpo: the margin that is aimed at
  double center_rewards = 0;                            // reward
  double desirable_weight = 1, undesirable_weight = 1;  // kto
  bool precompute_ref_log_probs = true;                 // dpo kto: ahead of the first step, or in every step

  // grpo gspo rloo ppo
  int64_t num_generations = 4;
  double kl_coef = 0.04;               // grpo gspo rloo ppo
  double clip_range = 0.2;             // `epsilon` of grpo and gspo
  std::optional<double> epsilon_high;  // grpo, gspo: = epsilon where absent
  std::optional<double> delta;         // grpo, gspo: the largest ratio that counts; absent: any
  GrpoLoss loss_type = GrpoLoss::kDapo;
  ScaleRewards scale_rewards = ScaleRewards::kGroup;
  int64_t num_iterations = 1;  // optimizer steps on each batch of completions
  bool mask_truncated_completions = false;
  bool use_bias_correction_kl = true;
  bool share_prompts = true;
  int64_t max_new_tokens = 256;
  double temperature = 1, top_p = 1;
  Reward reward = Reward::kAnswer;
  std::optional<std::string> reward_model;
  std::vector<RewardPart> rewards;    // several, in place of `reward`
  std::vector<RolloutTool> tools;     // that answer the calls of sampled answers
  int64_t max_tool_turns = 4;         // turns of an answer that may call; the next one ends it
  int64_t max_result_tokens = 256;    // of a call's result; what is longer is cut
  bool normalize_advantages = false;  // rloo

  // ppo
  int64_t inner_epochs = 4;
  double gamma = 1, gae_lambda = 0.95, value_coef = 0.1;

  std::optional<double> router_aux_loss;  // mixtures of experts; absent: as the model's configuration says

  bool frozen_base() const { return lora.has_value(); }
  bool is_preference() const {
    return kind == MethodKind::kDpo || kind == MethodKind::kOrpo || kind == MethodKind::kKto ||
           kind == MethodKind::kReward;
  }
  // Whose answers are measured against the others to the same prompt.
  bool is_group() const { return kind == MethodKind::kGrpo || kind == MethodKind::kGspo || kind == MethodKind::kRloo; }
  bool is_rl() const { return is_group() || kind == MethodKind::kPpo; }
};

// The method with the defaults of its kind.
Method default_method(MethodKind kind);

}  // namespace mxt::config
