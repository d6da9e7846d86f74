// The recipe's choices as C++ enums. The spelling in YAML stands beside each enum, in the enum's order; a leading '+'
// marks a spelling that is ours and not the original schema's (it is not part of the spelling).
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace mxt::config {

template <typename... T>
constexpr auto spellings(T... t) {
  return std::array<std::string_view, sizeof...(T)>{t...};
}

// kCuda: any other NVIDIA card since Ampere.
enum class GpuName {
  kMi300x,
  kMi325x,
  kMi350x,
  kMi355x,
  kH100,
  kH200,
  kCpu,
  kRtx3090,
  kRtx4090,
  kRtx5090,
  kRtx6000Ada,
  kL4,
  kL40s,
  kA100,
  kB200,
  kCuda,
};
constexpr auto enum_names(GpuName) {
  return spellings("mi300x", "mi325x", "mi350x", "mi355x", "+h100", "+h200", "+cpu", "+rtx3090", "+rtx4090", "+rtx5090",
                   "+rtx6000ada", "+l4", "+l40s", "+a100", "+b200", "+cuda");
}

enum class Arch { kGfx942, kGfx950, kSm90, kNone, kSm80, kSm86, kSm89, kSm100, kSm120 };
constexpr auto enum_names(Arch) {
  return spellings("gfx942", "gfx950", "+sm_90", "+none", "+sm_80", "+sm_86", "+sm_89", "+sm_100", "+sm_120");
}

enum class Policy { kAotOnly };
constexpr auto enum_names(Policy) { return spellings("aot_only"); }

enum class AttnImplementation { kFlashAttention2, kSdpa, kEager };
constexpr auto enum_names(AttnImplementation) { return spellings("flash_attention_2", "sdpa", "eager"); }

// How numbers are held (model.torch_dtype) or computed with (train.precision).
enum class Precision { kBFloat16, kFloat16, kFloat32, kFp8E4M3, kMxfp4 };
constexpr auto enum_names(Precision) { return spellings("bfloat16", "float16", "float32", "fp8_e4m3", "mxfp4"); }

enum class Init { kPretrained, kRandom };
constexpr auto enum_names(Init) { return spellings("+pretrained", "+random"); }

// Parts of a model that can be kept as they are.
enum class ModelPart { kVision };
constexpr auto enum_names(ModelPart) { return spellings("+vision"); }

enum class DataSource { kHf, kLocal, kLighthouse, kMindxDreams, kSynth, kMixture };
constexpr auto enum_names(DataSource) {
  return spellings("hf", "local", "lighthouse", "mindx_dreams", "+synth", "+mixture");
}

enum class MixtureStop { kFirstExhausted, kAllExhausted, kOnce };
constexpr auto enum_names(MixtureStop) { return spellings("+first_exhausted", "+all_exhausted", "+once"); }

enum class Sampling { kDocuments, kRandomWindows };
constexpr auto enum_names(Sampling) { return spellings("+documents", "+random_windows"); }

// Which tokens of a conversation are trained.
enum class TrainOn { kAssistant, kAll };
constexpr auto enum_names(TrainOn) { return spellings("+assistant", "+all"); }

// Who writes the tools of a conversation: the model's template, or the system message as text (data/tools.h).
enum class ToolsIn { kTemplate, kSystem };
constexpr auto enum_names(ToolsIn) { return spellings("+template", "+system"); }

// How an answer is compared with the row's own: letter by letter, or by the number that it ends in.
enum class Match { kExact, kAnswer };
constexpr auto enum_names(Match) { return spellings("+exact", "+answer"); }

enum class SynthTask {
  kToolCalls,
  kToolCallsMadeUp,
  kToolPreference,
  kToolHabits,
  kToolUse,
  kArithmetic,
  kAddition,
  kSums,
  kSpelling,
  kSorting,
  kShapes
};
constexpr auto enum_names(SynthTask) {
  return spellings("+tool_calls", "+tool_calls_made_up", "+tool_preference", "+tool_habits", "+tool_use", "+arithmetic",
                   "+addition", "+sums", "+spelling", "+sorting", "+shapes");
}

enum class Backend { kAxolotl, kUnsloth, kTorchtune, kPrimus, kTrlCpu, kNative, kTrl };
constexpr auto enum_names(Backend) {
  return spellings("axolotl", "unsloth", "torchtune", "primus", "trl_cpu", "+native", "+trl");
}

// Where a run's curves go while it trains (track/track.h).
enum class Tracker { kTensorboard, kWandb, kTrackio, kMlflow };
constexpr auto enum_names(Tracker) { return spellings("+tensorboard", "+wandb", "+trackio", "+mlflow"); }

enum class MethodKind { kFull, kLora, kQLora, kDpo, kOrpo, kGrpo, kGspo, kKto, kCpt, kPpo, kPretrain, kReward, kRloo };
constexpr auto enum_names(MethodKind) {
  return spellings("full", "lora", "qlora", "dpo", "orpo", "grpo", "gspo", "kto", "cpt", "+ppo", "+pretrain", "+reward",
                   "+rloo");
}

// What DPO makes of the two answers' log-probabilities (train/methods/dpo.cc).
enum class PreferenceLoss { kSigmoid, kHinge, kIpo, kSimpo };
constexpr auto enum_names(PreferenceLoss) { return spellings("+sigmoid", "+hinge", "+ipo", "+simpo"); }

// How GRPO's token losses become one, and what a group's rewards are divided by (train/methods/grpo.cc).
enum class GrpoLoss { kDapo, kGrpo, kBnpo, kDrGrpo };
constexpr auto enum_names(GrpoLoss) { return spellings("+dapo", "+grpo", "+bnpo", "+dr_grpo"); }
enum class ScaleRewards { kGroup, kBatch, kNone };
constexpr auto enum_names(ScaleRewards) { return spellings("+group", "+batch", "+none"); }

// How documents become rows (data/encode/pack.h), and how far attention and the loss reach in one.
enum class Pack { kWhole, kBosCrop, kBestFit };
constexpr auto enum_names(Pack) { return spellings("+whole", "+bos_crop", "+best_fit"); }
enum class Boundaries { kDocument, kRow };
constexpr auto enum_names(Boundaries) { return spellings("+document", "+row"); }

// What a shingle of MinHash is made of.
enum class ShingleUnit { kWords, kCharacters };
constexpr auto enum_names(ShingleUnit) { return spellings("+words", "+characters"); }

// Which of the copies in a cluster stays.
enum class Keep { kFarthest, kNearest };
constexpr auto enum_names(Keep) { return spellings("+farthest", "+nearest"); }

// What `data.filter.redact` replaces.
enum class Redact { kEmail, kPhone, kKey };
constexpr auto enum_names(Redact) { return spellings("+email", "+phone", "+key"); }

enum class QuantType { kNf4, kMxfp4, kAsStored };
constexpr auto enum_names(QuantType) { return spellings("+nf4", "+mxfp4", "+as_stored"); }

// How adapters begin: A uniform and B zero, or both from the base's largest singular values (checkpoint/pissa.h).
enum class LoraInit { kDefault, kPissa };
constexpr auto enum_names(LoraInit) { return spellings("+default", "+pissa"); }

// Which biases train beside adapters: none, those of modules that have one, or all.
enum class LoraBias { kNone, kLoraOnly, kAll };
constexpr auto enum_names(LoraBias) { return spellings("+none", "+lora_only", "+all"); }

// What an RL answer is worth: 1 where its final answer (the last number, or what stands in \boxed{}) equals the row's
// reference; 1 where the whole text equals it; or what a reward model says.
enum class Reward { kAnswer, kExact, kModel };
constexpr auto enum_names(Reward) { return spellings("+answer", "+exact", "+model"); }

// One reward of several (method.rewards).
enum class RewardKind { kAnswer, kExact, kRegex, kLength, kJsonSchema, kToolCall, kCode, kCommand, kHttp, kModel };
constexpr auto enum_names(RewardKind) {
  return spellings("+answer", "+exact", "+regex", "+length", "+json_schema", "+tool_call", "+code", "+command", "+http",
                   "+model");
}

// What answers a sampled answer's call (method.tools).
enum class RolloutToolKind { kCalculator, kLookup, kCommand };
constexpr auto enum_names(RolloutToolKind) { return spellings("+calculator", "+lookup", "+command"); }

enum class OptimizerName { kAdamwTorchFused, kAdamwTorch, kAdamw8bit, kLion, kAdafactor, kMuon };
constexpr auto enum_names(OptimizerName) {
  return spellings("adamw_torch_fused", "adamw_torch", "adamw_8bit", "lion", "adafactor", "+muon");
}

// Whose Muon: nanochat's (equalised rows, Polar Express, NorMuon, cautious decay), or as torch.optim.Muon.
enum class MuonVariant { kNanochat, kTorch };
constexpr auto enum_names(MuonVariant) { return spellings("+nanochat", "+torch"); }

// Muon's momentum and weight decay over the run.
enum class MuonSchedule { kNone, kPretrain, kSft };
constexpr auto enum_names(MuonSchedule) { return spellings("+none", "+pretrain", "+sft"); }

enum class ScheduleType { kCosine, kLinear, kConstant, kWsd };
constexpr auto enum_names(ScheduleType) { return spellings("cosine", "linear", "constant", "wsd"); }

enum class FlashBackend { kCk, kTriton, kAiter };
constexpr auto enum_names(FlashBackend) { return spellings("ck", "triton", "aiter"); }

enum class QuantScheme {
  kQuarkFp8,
  kQuarkMxfp4,
  kGptqRocm,
  kNone,
  kFp8Dynamic,
  kFp8Block,
  kMxfp4,
  kGgufF16,
  kGgufBf16,
  kGgufQ8_0,
  kGgufQ4_0,
  kGgufQ4KM,
  kBnbNf4,
  kBnbNf4Double
};
constexpr auto enum_names(QuantScheme) {
  return spellings("quark_fp8", "quark_mxfp4", "gptq_rocm", "none",  //
                   "+fp8_dynamic", "+fp8_block", "+mxfp4", "+gguf_f16", "+gguf_bf16", "+gguf_q8_0", "+gguf_q4_0",
                   "+gguf_q4_k_m", "+bnb_nf4", "+bnb_nf4_dq");
}

enum class ServeBackend { kVllmRocm, kSglang, kNative };
constexpr auto enum_names(ServeBackend) { return spellings("vllm-rocm", "sglang", "+native"); }

enum class ReasoningParser { kDeepseekR1, kQwen3, kNone };
constexpr auto enum_names(ReasoningParser) { return spellings("deepseek_r1", "qwen3", "none"); }

enum class ToolCallParser { kHermes, kQwen3Coder, kNone };
constexpr auto enum_names(ToolCallParser) { return spellings("hermes", "qwen3_coder", "none"); }

enum class X402Network { kAlgorand, kBase, kBaseSepolia };
constexpr auto enum_names(X402Network) { return spellings("algorand", "base", "base-sepolia"); }

enum class X402Scheme { kExact, kUpto };
constexpr auto enum_names(X402Scheme) { return spellings("exact", "upto"); }

enum class ReceiverVia { kParsecWallet, kCoinbaseFacilitator };
constexpr auto enum_names(ReceiverVia) { return spellings("parsec_wallet", "coinbase_facilitator"); }

enum class ReceiptField {
  kRocmVersion,
  kGfxArch,
  kContainerDigest,
  kAllGitShas,
  kYamlHash,
  kDatasetCids,
  kEvalReport,
  kEnergyKwh
};
constexpr auto enum_names(ReceiptField) {
  return spellings("rocm_version", "gfx_arch", "container_digest", "all_git_shas", "yaml_hash", "dataset_cids",
                   "eval_report", "energy_kwh");
}

template <typename E>
concept NamedEnum = requires(E e) { enum_names(e); };

// The spelling in YAML, without the mark.
template <NamedEnum E>
constexpr std::string_view text_of(E e) {
  const std::string_view s = enum_names(e)[static_cast<size_t>(e)];
  return s.front() == '+' ? s.substr(1) : s;
}

// False where `text` is none of the spellings.
template <NamedEnum E>
constexpr bool enum_from_text(std::string_view text, E* out) {
  const auto names = enum_names(E{});
  for (size_t i = 0; i < names.size(); ++i)
    if (text_of(static_cast<E>(i)) == text) {
      *out = static_cast<E>(i);
      return true;
    }
  return false;
}

}  // namespace mxt::config
