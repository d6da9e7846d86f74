#include "config/unread.h"

#include "config/vocabulary.h"

namespace mxt::config {
namespace {

struct Unread {
  const char* key;
  bool unread;
  std::string why;
};

std::vector<Unread> optimizer_fields(const Train& t) {
  const Optimizer& o = t.optimizer;
  const bool adafactor = o.name == OptimizerName::kAdafactor, muon = o.name == OptimizerName::kMuon;
  // nanochat's groups have settings of their own; under an adapter every weight that trains is a matrix of a block.
  const bool groups = muon && o.muon && o.muon->variant == MuonVariant::kNanochat;
  const bool matrices =
      muon && t.method.lora && t.method.lora->modules_to_save.empty() && t.method.lora->bias == LoraBias::kNone;
  const std::string nanochat = "name muon, variant nanochat, has its own of every group",
                    adapter = "name muon trains an adapter's matrices by muon.lr alone";
  return {
      {"train.optimizer.betas", adafactor, "name adafactor has none"},
      {"train.optimizer.betas", groups, nanochat},
      {"train.optimizer.eps", groups, nanochat},
      {"train.optimizer.weight_decay", groups, nanochat + " and muon.weight_decay for the rest"},
      {"train.optimizer.lr", matrices, adapter},
      {"train.schedule.min_lr_ratio", t.schedule.type == ScheduleType::kConstant, "type constant never falls"},
      {"train.schedule.epochs", t.schedule.max_steps.has_value(), "max_steps says how long it trains"},
      {"train.schedule.warmup_ratio", t.schedule.warmup_steps.has_value(), "warmup_steps says how long it warms up"}};
}

// What this program decides whatever is asked; other trainers, which `export` writes for, read some of it.
std::vector<Unread> own_fields(const Recipe& r) {
  const Method& m = r.train.method;
  return {{"train.gradient_checkpointing", !r.train.gradient_checkpointing && r.train.backend == Backend::kNative,
           "the plan decides what is computed twice"},
          {"data.streaming", !r.data.streaming, "rows are read as they come"},
          {"autotune.budget_seconds", !r.autotune.enabled, "autotune.enabled is false"},
          {"data.train_on", r.data.train_on == TrainOn::kAll && (m.is_preference() || m.is_rl()),
           fmt::format("{} trains on answers", text_of(m.kind))},
          {"train.method.use_bias_correction_kl", m.is_group() && m.kl_coef == 0, "kl_coef is 0"},
          {"train.method.precompute_ref_log_probs",
           !m.precompute_ref_log_probs && m.kind == MethodKind::kDpo && m.loss == PreferenceLoss::kSimpo,
           "loss simpo has no reference"}};
}

// A policy is compared with itself, without noise (TRL: disable_dropout).
std::vector<Unread> adapter_fields(const Method& m) {
  const bool off = m.is_preference() && m.lora && m.lora->dropout > 0;
  return {{"train.method.lora.dropout", off,
           fmt::format("{} compares what the policy says without noise, and trains with 0", text_of(m.kind))}};
}

std::vector<Unread> precision_fields(const Recipe& r) {
  const bool whole = r.train.precision == Precision::kFloat32;
  const std::string why = "train.precision float32 holds every weight in float32";
  return {{"train.base_precision", whole && r.train.base_precision == Precision::kBFloat16, why},
          {"model.torch_dtype", whole && r.model.torch_dtype == Precision::kBFloat16, why},
          {"quantize.ptpc", r.quantize && r.quantize->scheme != QuantScheme::kQuarkFp8, "it is of scheme quark_fp8"}};
}

// Rollouts bring prompts, answers and what each is worth.
std::vector<Unread> rollout_fields(const Recipe& r) {
  const bool given = r.train.rollouts.path.has_value();
  const std::string why = "train.rollouts.path brings the prompts, the answers and their rewards";
  std::vector<Unread> out;
  for (const char* key : {"data.path", "train.method.reward", "train.method.reward_model", "train.method.rewards",
                          "train.method.top_p", "train.method.tools"})
    out.push_back({key, given, why});
  // Dr. GRPO divides by it, and shared prompts leave room for it.
  const bool sizes = r.train.method.loss_type == GrpoLoss::kDrGrpo || r.train.method.share_prompts;
  for (const char* key : {"train.method.max_new_tokens", "train.method.max_completion_length"})
    out.push_back({key, given && !sizes, why});
  return out;
}

std::vector<Unread> filter_fields(const Recipe& r) {
  if (!r.data.filter) return {};
  const Filter& f = *r.data.filter;
  const bool contaminated = f.decontaminate_eval || !f.decontaminate.empty();
  return {{"data.filter.min_language_part", f.languages.empty(), "data.filter.languages names none"},
          {"data.filter.drop_unknown_language", f.languages.empty(), "data.filter.languages names none"},
          {"data.filter.perplexity_model", !f.max_perplexity, "data.filter.max_perplexity is not set"},
          {"data.filter.decontaminate_ngram", !contaminated, "neither decontaminate nor decontaminate_eval is set"}};
}

std::vector<Unread> eval_fields(const Recipe& r) {
  if (!r.eval) return {};
  const bool baseline = !r.eval->regression.baseline.empty();
  return {{"eval.regression.threshold_pct", !baseline, "eval.regression.baseline names none"},
          {"eval.regression.baseline", r.eval->harness.tasks.empty(), "eval.harness.tasks names no task to compare"}};
}

}  // namespace

std::vector<std::string> unread_fields(const Recipe& r) {
  std::vector<std::string> out;
  for (const auto& fields : {optimizer_fields(r.train), own_fields(r), adapter_fields(r.train.method),
                             precision_fields(r), rollout_fields(r), filter_fields(r), eval_fields(r)})
    for (const Unread& u : fields)
      if (u.unread && r.is_given(u.key)) out.push_back(fmt::format("{}: not read, for {}: remove it", u.key, u.why));
  return out;
}

}  // namespace mxt::config
