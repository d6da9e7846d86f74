#include "config/rules.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "config/field.h"
#include "config/vocabulary.h"

namespace mxt::config {
namespace {

using Keys = std::vector<std::string_view>;

// Reports at the first of `keys` unless one of them is already known to be wrong.
class Rules {
 public:
  explicit Rules(Reader& reader) : reader_(reader) {}
  template <typename... A>
  void refuse(bool broken, const Keys& keys, fmt::format_string<A...> f, A&&... a) {
    if (!broken) return;
    for (std::string_view k : keys)
      if (reader_.has_issue_at(k)) return;
    reader_.issue(reader_.mark_of(keys[0]), std::string(keys[0]), fmt::format(f, std::forward<A>(a)...));
  }
  bool given(std::string_view key) const { return reader_.is_given(key); }

 private:
  Reader& reader_;
};

void check_hardware(const Recipe& r, Rules& rules) {
  const Hardware& h = r.hardware;
  const std::string_view name = text_of(h.name);
  rules.refuse(h.gfx_arch != arch_of(h.name), {"hardware.gfx_arch", "hardware.name"},
               "is {}, but {} is {}: correct one of the two, or leave this out", text_of(h.gfx_arch), name,
               text_of(arch_of(h.name)));
  const Keys gpus{"hardware.gpus", "hardware.name"};
  rules.refuse(is_mi300_class(h.name) && h.gpus != 0 && h.gpus != 1 && h.gpus != 8, gpus,
               "is {}: {} takes 1 or 8 (0 = the CPU lane), because xGMI bandwidth between subsets of its GPUs is "
               "asymmetric and starves FSDP in silence",
               h.gpus, name);
  rules.refuse(is_nvidia(h.gfx_arch) && h.gpus != 0 && h.gpus != 1 && h.gpus != 2 && h.gpus != 4 && h.gpus != 8, gpus,
               "is {}: {} takes 1, 2, 4 or 8 (0 = the CPU lane)", h.gpus, name);
  rules.refuse((is_mi300_class(h.name) || arch_of(h.name) == Arch::kSm90) && h.expected_hbm_gb < 64,
               {"hardware.expected_hbm_gb", "hardware.name"}, "is {}: {} has more: write 64 or more, or leave it out",
               h.expected_hbm_gb, name);
  rules.refuse(h.name == GpuName::kCpu && h.gpus != 0, gpus, "is {}: cpu has no GPU, write 0 or leave it out", h.gpus);
}

void check_numbers(const Recipe& r, Rules& rules) {
  const auto check = [&](Precision p, std::string_view key, const char* instead) {
    const Keys keys{key, "hardware.name", "hardware.gpus", "hardware.gfx_arch"};
    const bool broken = !device_computes(r.hardware, p);
    const std::string device = r.hardware.cpu_lane() ? "the CPU lane" : std::string(text_of(r.hardware.name));
    rules.refuse(broken && p == Precision::kMxfp4, keys,
                 "is mxfp4, which only gfx950 (mi350x, mi355x) computes with; {} does not: {}", device, instead);
    rules.refuse(broken && p == Precision::kFp8E4M3, keys, "is fp8_e4m3, which {} has no FP8 units for: {}", device,
                 instead);
  };
  check(r.train.precision, "train.precision", "write bfloat16");
  if (!rules.given("train.base_precision") || r.train.base_precision != Precision::kFp8E4M3) return;
  const Keys keys{"train.base_precision", "train.method"};
  rules.refuse(!r.train.method.frozen_base(), keys,
               "is for a frozen base under LoRA, and method {} trains every weight: remove it, or add lora: {{}}",
               text_of(r.train.method.kind));
  rules.refuse(r.train.method.kind == MethodKind::kQLora, keys,
               "is for lora; under qlora quant_bits says how the base is held: remove it");
  // The CPU lane, and NVIDIA's cards without FP8 units, hold the same numbers and multiply them in train.precision.
  if (!r.hardware.cpu_lane() && !is_nvidia(r.hardware.gfx_arch))
    check(Precision::kFp8E4M3, "train.base_precision", "write bfloat16 or leave it out");
}

void check_model(const Recipe& r, Rules& rules) {
  rules.refuse(r.model.trust_remote_code, {"model.trust_remote_code"},
               "is true: no code from a model folder is ever run; write false or leave it out");
  // A depth that is none gives no config either.
  rules.refuse(r.model.init == Init::kRandom && r.model.config.empty(),
               {"model.config", "model.init", "pretrain.depth", "pretrain"},
               "is missing: init random builds the model from it; give an HF config.json or its keys");
  rules.refuse(r.model.init == Init::kPretrained && !r.model.config.empty(), {"model.config", "model.init"},
               "is only for `init: random`: a pretrained model brings its own; remove it, or set model.init");
  rules.refuse(r.model.tokenizer == "train" && !learned_vocabulary(r), {"model.tokenizer"},
               "is train, which learns pretrain.vocab_size tokens, or model.config.vocab_size of a model from random "
               "weights: write one of them, or name a tokenizer");
  if (const auto v = learned_vocabulary(r); v && r.model.tokenizer == "train")
    rules.refuse(
        v->size < kLeastLearnedVocabulary, {v->setting, "model.tokenizer"},
        "is {}, and model.tokenizer train learns at least {} tokens: the 256 bytes and nanochat's special ones",
        v->size, kLeastLearnedVocabulary);
  rules.refuse(r.model.name.starts_with("recipe:") && r.model.init == Init::kRandom, {"model.init", "model.name"},
               "is random, and model.name is what another recipe trains: remove one of the two");
  rules.refuse(r.model.name.starts_with("recipe:") && r.model.revision, {"model.revision", "model.name"},
               "is of the Hub, and model.name is what another recipe trains: remove it");
}

void check_pretrain(const Recipe& r, Rules& rules) {
  if (!r.pretrain) return;
  rules.refuse(r.pretrain->window_pattern.find_first_not_of("SL") != std::string::npos, {"pretrain.window_pattern"},
               "is {}: write letters S (a quarter of the sequence) and L (all of it)", r.pretrain->window_pattern);
  // The random weights below an adapter would be kept nowhere.
  rules.refuse(r.train.method.frozen_base(), {"train.method", "pretrain"},
               "is {} with an adapter, and pretrain trains every weight of a new model: write kind: pretrain, or leave "
               "train.method out",
               text_of(r.train.method.kind));
}

void check_mixture(const Data& d, Rules& rules) {
  const bool mixture = d.source == DataSource::kMixture;
  rules.refuse(mixture && d.mixture.empty(), {"data.mixture", "data.source"},
               "is missing: source mixture needs a list of sources, as [{{path: a.jsonl, weight: 2}}]");
  rules.refuse(!mixture && !d.mixture.empty(), {"data.mixture", "data.source"},
               "is only for `source: mixture`, and source is {}: remove one of the two", text_of(d.source));
  for (size_t i = 0; i < d.mixture.size(); ++i) {
    const MixtureSource& m = d.mixture[i];
    const std::string at = fmt::format("data.mixture[{}]", i);
    const int named = m.path.has_value() + m.hf_id.has_value() + m.synth.has_value();
    rules.refuse(named != 1, {at, "data.mixture"}, "names {}: give path, hf_id or synth",
                 named > 1 ? "several sources" : "no rows");
    rules.refuse(m.optional && !m.path, {at + ".optional", at}, "is for a source with a path: remove it");
    rules.refuse(m.synth && m.synth->teacher, {at + ".synth.teacher", at},
                 "asks a teacher: its rows are no source of a mixture; use source synth");
    rules.refuse(d.mixture_stop == MixtureStop::kOnce && m.weight != 1, {at + ".weight", "data.mixture_stop"},
                 "is given, and mixture_stop is once: every row is taken once, remove one of the two");
  }
  const std::pair<bool, const char*> alone[] = {{d.path.has_value(), "path"},
                                                {d.hf_id.has_value(), "hf_id"},
                                                {d.max_samples.has_value(), "max_samples"},
                                                {!d.columns.empty(), "columns"}};
  for (const auto& [given, key] : alone)
    rules.refuse(mixture && given, {fmt::format("data.{}", key), "data.source"},
                 "is for one source: with `source: mixture` give it in data.mixture");
  rules.refuse(mixture && d.sql, {"data.sql", "data.source"}, "asks one source: it cannot be with `source: mixture`");
  rules.refuse(mixture && d.sampling == Sampling::kRandomWindows, {"data.sampling", "data.source"},
               "is random_windows, which reads one text: a mixture is of documents");
  rules.refuse(mixture && !d.shuffle, {"data.shuffle", "data.source"},
               "is false, and the seeded order is what mixes the sources of a mixture: remove it");
}

void check_data(const Recipe& r, Rules& rules) {
  const Data& d = r.data;
  const Pictures& p = d.pictures;
  rules.refuse(p.min_pixels && p.max_pixels && *p.min_pixels > *p.max_pixels,
               {"data.pictures.min_pixels", "data.pictures.max_pixels"}, "is {}, more than max_pixels ({})",
               p.min_pixels.value_or(0), p.max_pixels.value_or(0));
  using S = DataSource;
  const std::string_view source = text_of(d.source);
  rules.refuse(d.source == S::kHf && (!d.hf_id || d.hf_id->empty()), {"data.hf_id", "data.source"},
               "is missing: source hf needs the dataset's id");
  rules.refuse((d.source == S::kLocal || d.source == S::kMindxDreams) && !d.path, {"data.path", "data.source"},
               "is missing: source {} needs a file, folder or glob", source);
  rules.refuse(d.source == S::kLighthouse && !d.cid, {"data.cid", "data.source"},
               "is missing: source lighthouse needs a content id");
  check_mixture(d, rules);
  rules.refuse(d.source != S::kSynth && d.synth, {"data.synth", "data.source"},
               "is only for `source: synth`, and source is {}: remove one of the two", source);
  rules.refuse(d.synth && d.synth->task == SynthTask::kToolPreference && d.synth->turns > 1, {"data.synth.turns"},
               "is {}, and a row of tool_preference is one pair: remove it", d.synth ? d.synth->turns : 0);
  rules.refuse(d.synth && d.synth->task == SynthTask::kToolUse && d.synth->turns > 1, {"data.synth.turns"},
               "is {}, and a row of tool_use has tools of its own: remove it", d.synth ? d.synth->turns : 0);
  rules.refuse(d.synth && d.synth->task == SynthTask::kToolUse && rules.given("eval.generation"), {"eval.generation"},
               "compares texts, and rows of tool_use are answered by calls: write eval.harness.tasks: [tool_calls]");
  if (d.synth && d.synth->teacher) {
    const Teacher& t = *d.synth->teacher;
    rules.refuse(t.max_cost_usd && t.input_usd_per_1m == 0 && t.output_usd_per_1m == 0,
                 {"data.synth.teacher.max_cost_usd"},
                 "needs prices: set input_usd_per_1m and output_usd_per_1m, or use max_requests");
  }
  rules.refuse(d.eval_path && d.eval_fraction > 0, {"data.eval_fraction", "data.eval_path"},
               "and data.eval_path both name a held-out part: keep one");
  rules.refuse(d.filter && d.filter->min_chars && d.filter->max_chars && *d.filter->min_chars > *d.filter->max_chars,
               {"data.filter.min_chars", "data.filter.max_chars"}, "is more than max_chars: no row would be left");
  rules.refuse(r.eval && r.eval->bits_per_byte && d.eval_fraction == 0 && !d.eval_path && !d.synth,
               {"eval.bits_per_byte"}, "is of held-out rows, and there are none: set data.eval_fraction or eval_path");
  rules.refuse(d.filter && d.filter->decontaminate_eval && !r.eval, {"data.filter.decontaminate_eval"},
               "needs the eval section, whose tasks' documents it looks for: add it, or remove this");
  const Method& m = r.train.method;
  rules.refuse(d.loss_weights && (m.is_preference() || m.is_rl()), {"data.loss_weights", "train.method.kind"},
               "weighs the targets of conversations, and method {} has a loss of its own: remove it", text_of(m.kind));
  rules.refuse(d.loss_weights && d.train_on == TrainOn::kAll, {"data.loss_weights", "data.train_on"},
               "needs the assistant's turns, and train_on is all: remove one of the two");
  rules.refuse(d.sampling == Sampling::kRandomWindows && (m.is_preference() || m.is_rl()),
               {"data.sampling", "train.method"},
               "is random_windows, which cuts plain text anywhere, and method {} needs whole rows: write documents",
               text_of(m.kind));
}

void check_packing(const Recipe& r, Rules& rules) {
  const Data& d = r.data;
  const bool crop = d.pack != Pack::kWhole, row = d.boundaries == Boundaries::kRow;
  for (const auto& [asked, key] : {std::pair{crop, "data.pack"}, std::pair{row, "data.boundaries"}}) {
    rules.refuse(asked && !d.packing, {key, "data.packing"}, "is for packed rows, and data.packing is false");
    rules.refuse(asked && d.sampling == Sampling::kRandomWindows, {key, "data.sampling"},
                 "is for documents, and data.sampling is random_windows");
  }
  const Method& m = r.train.method;
  rules.refuse(d.pack == Pack::kBestFit && (m.is_preference() || m.is_rl()), {"data.pack", "train.method"},
               "is best_fit, and rows of {} hold one prompt each: remove it", text_of(m.kind));
}

// What each kind of a list of rewards needs, and that it has nothing of another's.
void check_rewards(const Method& m, Rules& rules) {
  rules.refuse(!m.rewards.empty() && rules.given("train.method.reward"),
               {"train.method.rewards", "train.method.reward"},
               "and train.method.reward both say what an answer is worth: keep one");
  rules.refuse(m.rewards.empty() && rules.given("train.method.rewards"), {"train.method.rewards"},
               "holds none: write at least one, or remove it");
  std::set<std::string> names;
  for (size_t i = 0; i < m.rewards.size(); ++i) {
    const RewardPart& part = m.rewards[i];
    const std::string at = fmt::format("train.method.rewards[{}]", i);
    const auto belongs = [&](const char* key, bool given, RewardKind kind, bool needed = true) {
      const bool mine = part.kind == kind;
      rules.refuse(mine && needed && !given, {at + "." + key, at}, "is missing: a reward of kind {} needs it",
                   text_of(part.kind));
      rules.refuse(!mine && given, {at + "." + key, at}, "is for kind {}, and this one is {}: remove it", text_of(kind),
                   text_of(part.kind));
    };
    belongs("pattern", part.pattern.has_value(), RewardKind::kRegex);
    belongs("schema", part.schema.has_value(), RewardKind::kJsonSchema);
    belongs("command", !part.command.empty(), RewardKind::kCommand);
    belongs("url", part.url.has_value(), RewardKind::kHttp);
    belongs("model", part.model.has_value(), RewardKind::kModel);
    belongs("max_tokens", part.max_tokens.has_value(), RewardKind::kLength);
    belongs("min_tokens", part.min_tokens.has_value(), RewardKind::kLength, false);
    rules.refuse(part.min_tokens && part.max_tokens && *part.min_tokens > *part.max_tokens,
                 {at + ".min_tokens", at + ".max_tokens"}, "is more than max_tokens ({}): no answer would have 1",
                 part.max_tokens.value_or(0));
    const std::string name = part.name.value_or(std::string(text_of(part.kind)));
    rules.refuse(!names.insert(name).second, {at + ".name", at}, "two rewards are called {}: give one another name",
                 name);
  }
}

void check_tools(const Method& m, Rules& rules) {
  std::set<std::string> names;
  for (size_t i = 0; i < m.tools.size(); ++i) {
    const RolloutTool& tool = m.tools[i];
    const std::string at = fmt::format("train.method.tools[{}]", i);
    const auto belongs = [&](const char* key, bool given, RolloutToolKind kind) {
      rules.refuse(tool.kind == kind && !given, {at + "." + key, at}, "is missing: a tool of kind {} needs it",
                   text_of(tool.kind));
      rules.refuse(tool.kind != kind && given, {at + "." + key, at}, "is for kind {}, and this one is {}: remove it",
                   text_of(kind), text_of(tool.kind));
    };
    belongs("table", tool.table.has_value(), RolloutToolKind::kLookup);
    belongs("command", !tool.command.empty(), RolloutToolKind::kCommand);
    const std::string name = tool.name.value_or(std::string(text_of(tool.kind)));
    rules.refuse(!names.insert(name).second, {at + ".name", at}, "two tools are called {}: give one another name",
                 name);
  }
  for (const char* key : {"train.method.max_tool_turns", "train.method.max_result_tokens"})
    rules.refuse(m.tools.empty() && rules.given(key), {key},
                 "is for train.method.tools, of which there are none: remove it");
}

// A module trains whole or gets an adapter: PEFT wraps it once, and reads a file of both as another model.
void check_whole_modules(const Method& m, Rules& rules) {
  if (!m.lora) return;
  const auto ends = [](std::string_view name, std::string_view end) {
    return name == end || (name.ends_with(end) && name[name.size() - end.size() - 1] == '.');
  };
  const std::string at =
      m.kind == MethodKind::kLora || m.kind == MethodKind::kQLora ? "train.method." : "train.method.lora.";
  for (const std::string& whole : m.lora->modules_to_save)
    for (const std::string& adapted : m.lora->target_modules)
      rules.refuse(ends(whole, adapted) || ends(adapted, whole), {at + "modules_to_save", at + "target_modules"},
                   "names {}, and target_modules names {}: a module trains whole or gets an adapter, keep one", whole,
                   adapted);
}

void check_train(const Recipe& r, Rules& rules) {
  const Train& t = r.train;
  const Method& m = t.method;
  rules.refuse(m.quant_bits == 8 && rules.given("train.method.quant_type"),
               {"train.method.quant_type", "train.method.quant_bits"},
               "is for 4 bits, and quant_bits is 8 (FP8): remove it");
  rules.refuse((m.quant_bits == 8 || m.quant_type != QuantType::kNf4) && rules.given("train.method.double_quant"),
               {"train.method.double_quant", "train.method.quant_type"}, "is for nf4: remove it");
  rules.refuse(m.lora && m.lora->init_lora_weights == LoraInit::kPissa && m.lora->init_adapter,
               {"train.method.init_lora_weights", "train.method.init_adapter"},
               "and init_adapter both say what the adapter begins as: keep one");
  check_whole_modules(m, rules);
  rules.refuse(rules.given("train.method.max_new_tokens") && rules.given("train.method.max_completion_length"),
               {"train.method.max_completion_length", "train.method.max_new_tokens"},
               "is another name of max_new_tokens, and both are given: keep one");
  rules.refuse(m.loss != PreferenceLoss::kSimpo && rules.given("train.method.simpo_gamma"),
               {"train.method.simpo_gamma", "train.method.loss"}, "is only for `loss: simpo`: remove one of the two");
  rules.refuse(m.is_rl() && m.reward == Reward::kModel && !m.reward_model, {"train.method.reward_model"},
               "is missing: reward model needs one");
  rules.refuse(m.is_rl() && m.reward != Reward::kModel && m.reward_model,
               {"train.method.reward_model", "train.method.reward"},
               "is given, and reward is {}: write reward: model, or remove it", text_of(m.reward));
  rules.refuse(m.delta && *m.delta <= 1 + m.epsilon_high.value_or(m.clip_range),
               {"train.method.delta", "train.method.epsilon_high", "train.method.epsilon"},
               "is {}, and ratios are clipped at {} already: give more, or remove it", m.delta.value_or(0),
               1 + m.epsilon_high.value_or(m.clip_range));
  check_rewards(m, rules);
  check_tools(m, rules);
  rules.refuse(t.rollouts.path && !m.is_rl(), {"train.rollouts.path", "train.method.kind"},
               "is for grpo, gspo, rloo and ppo, and the method is {}: remove it", text_of(m.kind));
  rules.refuse(m.is_rl() && t.eval_every, {"train.eval_every", "train.method.kind"},
               "is for a loss on held-out rows, and {} has none: remove it; the eval section asks the trained policy",
               text_of(m.kind));
  const bool scores = m.kind == MethodKind::kReward;
  rules.refuse(scores && r.eval, {"eval", "train.method.kind"},
               "asks for answers, and a reward model writes none: remove it; data.eval_fraction and train.eval_every "
               "give its loss on held-out pairs");
  rules.refuse(scores && r.quantize, {"quantize", "train.method.kind"}, "is not for reward models: remove it");
  rules.refuse(m.is_rl() && (t.batch.per_device * t.batch.grad_accum) % m.num_generations != 0,
               {"train.method.num_generations", "train.batch.per_device"},
               "is {}, and a step has {} answers (per_device * grad_accum): a step takes whole groups",
               m.num_generations, t.batch.per_device * t.batch.grad_accum);
  rules.refuse(m.kind == MethodKind::kKto && t.batch.per_device < 2, {"train.batch.per_device", "train.method.kind"},
               "is 1: kto pairs each answer with another prompt of its device batch: write 2 or more");
  rules.refuse(t.optimizer.name != OptimizerName::kMuon && t.optimizer.muon,
               {"train.optimizer.muon", "train.optimizer.name"}, "is only for `name: muon`: remove one of the two");
  const OptimizerName name = t.optimizer.name;
  rules.refuse(
      (name == OptimizerName::kLion || name == OptimizerName::kAdafactor) && t.optimizer.eps != Optimizer().eps,
      {"train.optimizer.eps", "train.optimizer.name"}, "means nothing to {}: remove it", text_of(name));
  rules.refuse(t.optimizer.muon && t.optimizer.muon->schedule != MuonSchedule::kNone &&
                   t.optimizer.muon->momentum != Muon().momentum,
               {"train.optimizer.muon.momentum", "train.optimizer.muon.schedule"},
               "is given, and `schedule` sets the momentum: remove one of the two");
  rules.refuse(t.schedule.decay_ratio && t.schedule.type != ScheduleType::kWsd,
               {"train.schedule.decay_ratio", "train.schedule.type"}, "is only for `type: wsd`, and type is {}",
               text_of(t.schedule.type));
  rules.refuse(t.micro_batch && *t.micro_batch > t.batch.per_device, {"train.micro_batch", "train.batch.per_device"},
               "is {}, more than batch.per_device ({}): a pass is a part of it", t.micro_batch.value_or(0),
               t.batch.per_device);
}

bool is_env_name(std::string_view s) {
  if (s.empty() || (s[0] >= '0' && s[0] <= '9')) return false;
  for (char c : s)
    if (!(c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) return false;
  return true;
}

// PYTORCH_ROCM_ARCH may list several, as "gfx942;gfx950".
bool lists(std::string_view value, std::string_view arch) {
  size_t from = 0;
  while (from <= value.size()) {
    const size_t end = std::min(value.find(';', from), value.size());
    if (value.substr(from, end - from) == arch) return true;
    from = end + 1;
  }
  return false;
}

// Names go into lists, file names and terminals.
void check_meta(const Recipe& r, Rules& rules) {
  for (const auto& [key, name] :
       {std::pair("meta.project", &r.meta.project), std::pair("meta.run_name", &r.meta.run_name)})
    rules.refuse(printable(*name) != *name, {key}, "holds control characters ({}): a name is plain text",
                 printable(*name));
}

void check_env(const Recipe& r, Rules& rules) {
  for (const auto& [name, value] : r.train.env) {
    const std::string key = "train.env." + name;
    rules.refuse(!is_env_name(name), {key}, "is no name of an environment variable: letters, digits and _ only");
  }
  if (!is_mi300_class(r.hardware.name)) return;
  for (const auto& [name, value] : mandatory_env(r.hardware.gfx_arch)) {
    const std::string key = "train.env." + name;
    const auto it = r.train.env.find(name);
    rules.refuse(it == r.train.env.end() || it->second.empty(), {key},
                 "is empty: this key is always set on {}; leave it out for its default {}", text_of(r.hardware.name),
                 value);
    if (name == "PYTORCH_ROCM_ARCH" && it != r.train.env.end())
      rules.refuse(!lists(it->second, value), {key, "hardware.gfx_arch", "hardware.name"},
                   "is {}, but hardware.gfx_arch is {}: leave it out, it follows gfx_arch", it->second, value);
  }
}

}  // namespace

bool device_computes(const Hardware& h, Precision p) {
  switch (p) {
    case Precision::kMxfp4:
      return !h.cpu_lane() && h.gfx_arch == Arch::kGfx950;
    case Precision::kFp8E4M3:
      return !h.cpu_lane() && h.gfx_arch != Arch::kNone && h.gfx_arch != Arch::kSm80 && h.gfx_arch != Arch::kSm86;
    default:
      return true;
  }
}

std::vector<std::pair<std::string, std::string>> mandatory_env(Arch gfx_arch) {
  return {{"PYTORCH_ROCM_ARCH", std::string(text_of(gfx_arch))},
          {"HSA_NO_SCRATCH_RECLAIM", "1"},
          {"HIP_FORCE_DEV_KERNARG", "1"},
          {"GPU_MAX_HW_QUEUES", "1"},
          {"NVTE_CK_USES_BWD_V3", "1"},
          {"NVTE_CK_IS_V3_ATOMIC_FP32", "1"},
          {"PRIMUS_TURBO_ATTN_V3_ATOMIC_FP32", "1"},
          {"NCCL_MIN_NCHANNELS", "112"}};
}

void fill_env(Recipe* r) {
  if (!is_mi300_class(r->hardware.name)) return;
  for (const auto& [name, value] : mandatory_env(r->hardware.gfx_arch)) r->train.env.emplace(name, value);
}

std::map<std::string, std::string> check_plan_env(const Recipe& r, const std::map<std::string, std::string>& plan_env) {
  std::map<std::string, std::string> out = r.train.env;
  for (const auto& [name, value] : r.train.env)
    if (!plan_env.contains(name))
      fail_input(
          "plan: environment: {} is missing: a plan may change values but never remove a key of the recipe's "
          "train.env; probe again, or add it (the recipe has {}={})",
          name, name, value);
  for (const auto& [name, value] : plan_env) {
    if (!is_env_name(name)) fail_input("plan: environment: `{}` is no name of an environment variable", name);
    if (is_mi300_class(r.hardware.name) && value.empty() && r.train.env.contains(name))
      fail_input("plan: environment: {} is empty: a plan may change its value, not remove it", name);
    out[name] = value;
  }
  return out;
}

void check_rules(const Recipe& r, Reader& reader) {
  Rules rules(reader);
  check_meta(r, rules);
  check_hardware(r, rules);
  check_numbers(r, rules);
  check_model(r, rules);
  check_pretrain(r, rules);
  check_data(r, rules);
  check_packing(r, rules);
  check_train(r, rules);
  check_env(r, rules);
}

}  // namespace mxt::config
