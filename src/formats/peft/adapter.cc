#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "formats/classifier.h"
#include "formats/family.h"
#include "formats/peft.h"
#include "formats/vision.h"
#include "formats/weight_source.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kVocabulary[] = {"embed_tokens", "lm_head", "wte", "embed_in", "embed_out"};

struct Part {
  std::string module;
  bool is_b = false, embedding = false, magnitude = false;
  std::string replaces;  // instead: the tensor of the base whose place it takes
};

std::string_view without_prefix(std::string_view s) {
  if (s.starts_with(kPrefix)) s.remove_prefix(kPrefix.size());
  return s;
}

// "X.base_layer.weight", "X.modules_to_save.default.weight", "X.weight" → "X.weight".
std::string replaced_name(std::string_view s) {
  const size_t leaf = s.rfind('.');
  std::string name(s);
  for (const std::string_view mark : {".base_layer.", ".modules_to_save.", ".original_module."})
    if (const size_t at = s.find(mark); at != std::string_view::npos) {
      // A module that holds others keeps their names behind the adapter's.
      const std::string_view inside = s.substr(at + mark.size());
      constexpr std::string_view kName = "default.";
      name = std::string(s.substr(0, at)) +
             std::string(inside.starts_with(kName) ? s.substr(at + mark.size() + kName.size() - 1) : s.substr(leaf));
    }
  return name;
}

// Whether PEFT saves this tensor whole for one of modules_to_save: it, or a module that it stands in, ends with the
// name, in whatever letters it begins.
bool is_saved(std::string_view tensor, const std::string& name) {
  for (size_t dot = tensor.find('.'); dot != std::string_view::npos; dot = tensor.find('.', dot + 1))
    if (tensor.substr(0, dot).ends_with(name)) return true;
  return false;
}

// What PEFT saves of a base whose embeddings it was told to save, or whose vocabulary it saw grow.
bool is_vocabulary(std::string_view tensor) {
  return std::any_of(std::begin(kVocabulary), std::end(kVocabulary), [&](std::string_view m) {
    return tensor == std::string(m) + ".weight" || tensor.ends_with("." + std::string(m) + ".weight");
  });
}

// The same adapter is opened for more than one purpose.
void warn_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(line).second) log::warn("{}", line);
}

// LoraConfig's members that are read here, or change nothing of what an adapter computes.
constexpr std::string_view kKnown[] = {"task_type",
                                       "peft_type",
                                       "auto_mapping",
                                       "peft_version",
                                       "base_model_name_or_path",
                                       "revision",
                                       "inference_mode",
                                       "r",
                                       "target_modules",
                                       "exclude_modules",
                                       "lora_alpha",
                                       "lora_dropout",
                                       "fan_in_fan_out",
                                       "bias",
                                       "use_rslora",
                                       "modules_to_save",
                                       "init_lora_weights",
                                       "layers_to_transform",
                                       "layers_pattern",
                                       "rank_pattern",
                                       "alpha_pattern",
                                       "megatron_core",
                                       "loftq_config",
                                       "eva_config",
                                       "corda_config",
                                       "lora_ga_config",
                                       "use_dora",
                                       "qalora_group_size",
                                       "runtime_config",
                                       "target_parameters",
                                       "ensure_weight_tying"};

void say_unknown(const OrderedJson& config, const std::string& source) {
  for (const auto& [key, value] : config.items()) {
    const bool off = value.is_null() || value == OrderedJson(false) || (value.is_structured() && value.empty());
    if (!off && std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown))
      warn_once(fmt::format("{}: \"{}\" is not known here: the adapter is read without it", source, key));
  }
}

// NaN or infinity among float32, bfloat16 or float16 values.
bool all_finite(const void* values, DType type, size_t count) {
  std::vector<float> v(count);
  convert(values, type, v.data(), DType::kF32, count);
  return std::all_of(v.begin(), v.end(), [](float x) { return std::isfinite(x); });
}

// "base_model.model.X.lora_A[.default].weight" → X, A; of an embedding "X.lora_embedding_A[.default]". What else a file
// holds takes a place in the base, where its configuration says so; anything beyond is refused by name: a tensor that
// is not understood would change the model in silence.
Part part_of(const std::string& name, const AdapterConfig& config, const std::string& source) {
  const std::string_view s = without_prefix(name);
  constexpr std::string_view kMagnitude = ".lora_magnitude_vector";  // [.default][.weight]
  if (const size_t at = s.rfind(kMagnitude); config.use_dora && at != std::string_view::npos && at > 0)
    return {std::string(s.substr(0, at)), false, false, true, {}};
  for (const bool is_b : {false, true}) {
    const std::string_view mark = is_b ? ".lora_B." : ".lora_A.",
                           table = is_b ? ".lora_embedding_B" : ".lora_embedding_A";
    if (const size_t at = s.rfind(table); at != std::string_view::npos && at > 0) {
      const std::string_view tail = s.substr(at + table.size());
      if (tail.empty() || (tail[0] == '.' && tail.find('.', 1) == std::string_view::npos))
        return {std::string(s.substr(0, at)), is_b, true, false, {}};
    }
    const size_t at = s.rfind(mark);
    if (at == std::string_view::npos || at == 0) continue;
    const std::string_view tail = s.substr(at + mark.size());
    const bool plain = tail == "weight";
    const bool named = tail.ends_with(".weight") && tail.find('.') == tail.size() - 7 && tail.size() > 7;
    if (plain || named) return {std::string(s.substr(0, at)), is_b, false, false, {}};
  }
  const std::string to = replaced_name(s);
  const bool kept_base = s.find(".base_layer.weight") != std::string_view::npos;
  if (to.ends_with("bias") || kept_base || is_vocabulary(to) ||  // as PEFT counts biases: dt_bias is one
      std::any_of(config.modules_to_save.begin(), config.modules_to_save.end(),
                  [&](const std::string& name) { return is_saved(to, name); }))
    return {{}, false, false, false, to};
  fail_missing(
      "{}: tensor \"{}\" is no LoRA matrix, of no module in modules_to_save and no bias: nothing else is built in "
      "for adapters",
      source, name);
}

// Keys of rank_pattern and alpha_pattern that are no module's: PEFT passes over them, and so do we, but not in silence.
void say_unmatched(const AdapterConfig& config, const std::vector<Adapter::Module>& modules,
                   const std::string& source) {
  const auto said = [&](const std::string& pattern, const std::string& key, auto takes_effect) {
    if (std::none_of(modules.begin(), modules.end(), takes_effect))
      warn_once(fmt::format("{}: {} has \"{}\", which matches no module of this adapter: it changes nothing", source,
                            pattern, key));
  };
  for (const auto& [key, value] : config.rank_pattern) {
    AdapterConfig alone;
    alone.r = value == 1 ? 2 : 1;  // another rank than the key's
    alone.rank_pattern = {{key, value}};
    said("rank_pattern", key, [&](const Adapter::Module& m) { return alone.rank(m.name) == value; });
  }
  for (const auto& [key, value] : config.alpha_pattern) {
    AdapterConfig alone;
    alone.lora_alpha = value + 1;
    alone.alpha_pattern = {{key, value}};
    said("alpha_pattern", key, [&](const Adapter::Module& m) { return alone.alpha(m.name) == value; });
  }
}

}  // namespace

// Whether gate's rows of a stack's B read the first half of its rank alone, and up's the second.
bool Adapter::in_blocks(const Module& m, int64_t rank, int64_t experts, bool turned) const {
  if (rank % 2 != 0) return false;
  const auto all = file_.bytes(m.b);
  const size_t half = static_cast<size_t>(rank / 2 * experts) * size_of(m.b.type);
  const int64_t rows = m.b.shape[0];
  for (int64_t o = 0; o < rows; ++o) {
    const bool up = turned ? o % 2 == 1 : o >= rows / 2;
    const auto other = all.subspan((2 * static_cast<size_t>(o) + (up ? 0 : 1)) * half, half);
    if (std::any_of(other.begin(), other.end(), [](std::byte b) { return b != std::byte{0}; })) return false;
  }
  return true;
}

// Stacks of experts become modules of each expert; `stacks`: the parameters' names, which patterns of ranks go by.
void Adapter::unstack(std::map<std::string, Module>& modules, std::vector<std::string>* stacks, bool turned) {
  constexpr std::string_view kStack = ".experts", kInner = ".experts.base_layer";
  const auto targets = [&](std::string_view parameter) {
    return std::ranges::any_of(config_.target_parameters, [&](const std::string& t) { return t.ends_with(parameter); });
  };
  std::map<std::string, Module> out;
  const auto put = [&](const std::string& name, Module m) {
    if (!out.emplace(name, std::move(m)).second) fail_input("{}: holds \"{}\" both stacked and alone", weights(), name);
  };
  for (auto& [name, m] : modules) {
    const bool inner = name.ends_with(kInner);
    if (config_.target_parameters.empty() || (!inner && !name.ends_with(kStack))) {
      put(name, std::move(m));
      continue;
    }
    const std::string stem = inner ? name.substr(0, name.size() - (kInner.size() - kStack.size())) : name;
    // The first of the two is wrapped by the second.
    const bool both = targets("gate_up_proj") && targets("down_proj");
    if (both && !modules.contains(inner ? stem : stem + ".base_layer"))
      fail_input("{}: has one of {}'s two matrices, adapter_config.json names both: the file is incomplete", weights(),
                 stem);
    const bool gate_up = inner || !targets("down_proj");
    const std::string parameter = stem + (gate_up ? ".gate_up_proj" : ".down_proj");
    stacks->push_back(parameter);
    const int64_t rank = config_.rank(parameter);
    const auto& a = m.a.shape;
    const auto& b = m.b.shape;
    const int64_t parts = gate_up ? 2 : 1, experts = a.empty() ? 0 : a[0] / rank;
    if (a.empty() || b.empty() || a[0] % rank != 0 || b[1] != a[0] || b[0] % parts != 0 || m.embedding ||
        !m.magnitude.name.empty() || (experts_ != 0 && experts != experts_) || experts > 4096)
      fail_input("{}: \"{}\" is no adapter of rank {} of stacked experts as PEFT holds one", weights(), name, rank);
    experts_ = experts;
    const bool apart = gate_up && in_blocks(m, rank, experts, turned);
    const int64_t own = apart ? rank / 2 : rank;
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t part = 0; part < parts; ++part) {
        Module one;
        one.name = fmt::format("{}.{}.{}", stem, e, !gate_up ? "down_proj" : part == 0 ? "gate_proj" : "up_proj");
        one.rank = own, one.in = a[1], one.out = b[0] / parts;
        one.scaling = config_.scaling_for(config_.alpha(parameter), rank);
        one.a = m.a, one.b = m.b;
        one.a.shape = {own, one.in}, one.b.shape = {one.out, own};
        one.a.name = one.name + ".lora_A", one.b.name = one.name + ".lora_B";
        slices_[one.a.name] = {m.a.name, e, experts, false, 0, 1, rank, apart ? part * own : 0};
        slices_[one.b.name] = {m.b.name,
                               e,
                               experts,
                               true,
                               turned ? part : part * one.out,
                               turned ? parts : 1,
                               rank,
                               apart ? part * own : 0};
        put(one.name, one);
      }
  }
  modules = std::move(out);
}

std::string own_name(const Family& f, std::string_view name) {
  if (!name.starts_with(f.blocks))
    for (const std::string_view other : f.other_prefixes)
      if (name.starts_with(other) && name.substr(other.size()).starts_with("layers."))
        return std::string(f.prefix) + std::string(name.substr(other.size()));
  return std::string(name);
}

Adapter Adapter::open(const std::string& folder, const Family* base) {
  Adapter a;
  a.folder_ = folder;
  const std::string config = folder + "/adapter_config.json", weights = a.weights();
  std::error_code ec;
  if (!fs::exists(config, ec)) fail_input("{}: no such file: {} is not a PEFT adapter folder", config, folder);
  if (!fs::exists(weights, ec))
    fail_input("{}: no such file{}", weights,
               fs::exists(folder + "/adapter_model.bin", ec)
                   ? ": adapter_model.bin is a pickle, which can run code: convert it"
                   : "");
  const OrderedJson written = parse_ordered_json(read_file(config), config);
  a.config_ = parse_adapter_config(written, config);
  say_unknown(written, config);
  a.file_ = Safetensors::open(weights);

  std::map<std::string, Module> modules;
  for (const TensorInfo& t : a.file_.tensors()) {
    const Part p = part_of(t.name, a.config_, weights);
    if (!p.replaces.empty()) {
      if (t.type != DType::kF32 && t.type != DType::kBF16 && t.type != DType::kF16)
        fail_input("{}: tensor \"{}\" is {}: F32, BF16 and F16 are read", weights, t.name, name_of(t.type));
      if (!a.replaced_.emplace(p.replaces, t).second)
        fail_input("{}: \"{}\" stands twice for {}", weights, t.name, p.replaces);
      continue;
    }
    Module& m = modules[p.module];
    m.embedding = m.embedding || p.embedding;
    TensorInfo& slot = p.magnitude ? m.magnitude : p.is_b ? m.b : m.a;
    if (!slot.name.empty()) fail_input("{}: \"{}\" and \"{}\" are the same matrix", weights, slot.name, t.name);
    if (t.shape.size() != (p.magnitude ? 1u : 2u) || t.count() < 1)
      fail_input("{}: tensor \"{}\" is no {}", weights, t.name, p.magnitude ? "vector" : "matrix");
    if (t.type != DType::kF32 && t.type != DType::kBF16 && t.type != DType::kF16)
      fail_input("{}: tensor \"{}\" is {}: F32, BF16 and F16 are read", weights, t.name, name_of(t.type));
    slot = t;
  }
  if (modules.empty() && a.replaced_.empty()) fail_input("{}: holds no LoRA matrices", weights);
  for (const std::string& name : a.config_.modules_to_save) {
    // PEFT names both heads of every task that classifies, of which a model has one.
    if (name == "classifier" || name == "score") continue;
    if (std::none_of(a.replaced_.begin(), a.replaced_.end(), [&](const auto& t) { return is_saved(t.first, name); }))
      fail_input("{}: modules_to_save names \"{}\", and {} has no tensor of it: the file is incomplete", config, name,
                 weights);
  }
  // (PEFT takes the last number of a name for its layer: of experts' modules whatever the file holds counts.)
  AdapterConfig of_experts = a.config_;
  of_experts.layers_to_transform.clear();
  std::vector<std::string> parameters;  // that PEFT wraps, whose names patterns go by
  a.unstack(modules, &parameters, base && base->turned_experts);
  for (auto& [name, m] : modules) {
    if (a.slices_.contains(m.a.name)) {
      a.modules_.push_back(std::move(m));
      continue;
    }
    m.name = name;
    if (m.a.name.empty() || m.b.name.empty())
      fail_input("{}: module \"{}\" has only one of lora_A and lora_B: the file is incomplete", weights, name);
    if (!(name.find(".experts.") != std::string::npos ? of_experts : a.config_).selects(name))
      fail_input(
          "{}: holds matrices of \"{}\", which adapter_config.json does not select (target_modules, "
          "layers_to_transform): they do not belong together",
          weights, name);
    m.rank = m.a.shape[0];
    m.in = m.a.shape[1];
    m.out = m.b.shape[0];
    if (m.b.shape[1] != m.rank)
      fail_input("{}: module \"{}\": lora_A has rank {} and lora_B {}", weights, name, m.rank, m.b.shape[1]);
    std::string key = name;
    if (a.config_.wraps_weight_of(name)) parameters.push_back(key += ".weight");
    if (const int64_t want = a.config_.rank(key); want != m.rank)
      fail_input("{}: module \"{}\" has rank {} but adapter_config.json says {}: they do not belong together", weights,
                 name, m.rank, want);
    if (a.config_.use_dora != !m.magnitude.name.empty() || (a.config_.use_dora && m.magnitude.shape[0] != m.out))
      fail_input(
          "{}: module \"{}\" has {}, and adapter_config.json says use_dora: the file is incomplete", weights, name,
          m.magnitude.name.empty() ? "no magnitudes (lora_magnitude_vector)" : "magnitudes of another number of rows");
    if (a.config_.use_dora && m.embedding)
      fail_missing("{}: \"{}\" is an embedding with use_dora, which is not built in: merge the adapter with PEFT",
                   weights, name);
    m.scaling = a.config_.scaling(key);
    a.modules_.push_back(std::move(m));
  }
  if (base) {
    for (Module& m : a.modules_) m.name = own_name(*base, m.name);
    std::sort(a.modules_.begin(), a.modules_.end(), [](const Module& x, const Module& y) { return x.name < y.name; });
    std::map<std::string, TensorInfo> replaced;
    for (auto& [name, t] : a.replaced_) replaced.emplace(own_name(*base, name), std::move(t));
    a.replaced_ = std::move(replaced);
  }
  std::vector<Module> named = a.modules_;
  for (const std::string& s : parameters) named.emplace_back().name = s;
  say_unmatched(a.config_, named, config);
  return a;
}

const Adapter::Module* Adapter::find(std::string_view module) const {
  const auto it = std::lower_bound(modules_.begin(), modules_.end(), module,
                                   [](const Module& m, std::string_view s) { return m.name < s; });
  return it != modules_.end() && it->name == module ? &*it : nullptr;
}

std::string Adapter::beyond_layers() const {
  for (const Module& m : modules_)
    if (m.embedding || !m.magnitude.name.empty() || m.name == "lm_head" || m.name.ends_with(".lm_head") ||
        m.name == "embed_out")
      return m.name;
  for (const auto& [name, t] : replaced_)
    if (name != kScoreWeight) return name;
  return "";
}

void Adapter::read(const TensorInfo& t, DType to, void* out) const {
  const auto give = [&](const void* values, DType type, size_t count) {
    if (!all_finite(values, type, count))
      fail_input("{}: \"{}\" holds NaN or infinity: the adapter is broken", weights(), t.name);
    convert(values, type, out, to, count);
  };
  if (const auto at = slices_.find(t.name); at != slices_.end()) {
    const Slice& s = at->second;
    const TensorInfo& stack = file_.at(s.stack);
    const auto all = file_.bytes(stack);
    const size_t width = size_of(stack.type), n = static_cast<size_t>(t.count());
    std::vector<uint64_t> mine((n * width + 7) / 8);
    auto* to_bytes = reinterpret_cast<std::byte*>(mine.data());
    if (!s.is_b) {
      std::memcpy(to_bytes, all.data() + static_cast<size_t>((s.expert * s.of + s.first) * t.shape[1]) * width,
                  n * width);
    } else {
      const int64_t rank = t.shape[1];
      for (int64_t i = 0; i < t.count(); ++i) {
        const int64_t from = (s.row + i / rank * s.step) * stack.shape[1] + (s.first + i % rank) * s.experts + s.expert;
        std::memcpy(to_bytes + static_cast<size_t>(i) * width, all.data() + static_cast<size_t>(from) * width, width);
      }
    }
    return give(mine.data(), stack.type, n);
  }
  const auto bytes = file_.bytes(t);
  std::vector<uint64_t> aligned((bytes.size() + 7) / 8);  // the file need not align its tensors
  std::memcpy(aligned.data(), bytes.data(), bytes.size());
  give(aligned.data(), t.type, static_cast<size_t>(t.count()));
}

bool holds_transposed(const ModelConfig& c, std::string_view module) {
  const auto& known = c.family->lora_modules;
  return c.family->conv1d && std::find(known.begin(), known.end(), module.substr(module.rfind('.') + 1)) != known.end();
}

// As the file spells it, which may be of another class than its configuration; "" where it has no such tensor.
static std::string name_in(const WeightSource& base, const std::string& name) {
  if (base.has(name)) return name;
  const Family& f = *base.config().family;
  if (name.starts_with(f.prefix))
    for (const std::string_view other : f.other_prefixes)
      if (const std::string spelled = std::string(other) + name.substr(f.prefix.size()); base.has(spelled))
        return spelled;
  return "";
}

void Adapter::check_base(const WeightSource& base) const {
  if (experts_ != 0 && experts_ != base.config().num_experts)
    fail_input("{}: adapts {} experts of a layer, {} has {}: it was made for another base", weights(), experts_,
               base.path(), base.config().num_experts);
  // Over a whole model PEFT adapts the tower along and, with bias: all, saves its biases; a family that is used for its
  // text alone never reads either.
  const bool blind = !vision_of(base.config());
  std::vector<std::string> left;
  const auto leaves_out = [&](const std::string& name) {
    const bool leaves = blind && sees_pictures(name);
    if (leaves) left.push_back(name);
    return leaves;
  };
  for (const Module& m : modules_) {
    const std::string weight = name_in(base, m.name + ".weight");
    if (weight.empty() && leaves_out(m.name)) continue;
    if (weight.empty())
      fail_input("{}: adapts \"{}\", which {} does not have: it was made for another base{}", weights(), m.name,
                 base.path(),
                 config_.base_model_name_or_path.empty() ? "" : " (" + config_.base_model_name_or_path + ")");
    std::vector<int64_t> want{m.out, m.in};
    if (m.embedding || holds_transposed(base.config(), m.name)) std::swap(want[0], want[1]);
    const auto shape = base.shape(weight);
    if (shape != want)
      fail_input("{}: adapts \"{}\" as {} × {}, but {} has it as {} × {}: it was made for another base", weights(),
                 m.name, m.out, m.in, base.path(), shape.empty() ? 0 : shape[0], shape.size() < 2 ? 1 : shape[1]);
  }
  for (const auto& [own, t] : replaced_) {
    const std::string name = name_in(base, own);
    if (name.empty() && leaves_out(own)) continue;
    if (name.empty())
      fail_input("{}: holds \"{}\", which {} does not have: it was made for another base", weights(), own, base.path());
    if (t.shape != base.shape(name))
      fail_input(
          "{}: holds \"{}\" in another shape than {} has it: its vocabulary was made larger, or it is of another "
          "base: merge it with PEFT",
          weights(), own, base.path());
  }
  if (left.empty()) return;
  if (left.size() == modules_.size() + replaced_.size())
    fail_input("{}: adapts what sees pictures alone ({}), which {} is used without here: merge it with PEFT", folder_,
               left.front(), base.path());
  log::warn(
      "{}: {} of its parts are of what sees pictures ({}{}), which this model is used without: they are left out; PEFT "
      "merges them",
      folder_, left.size(), left.front(), left.size() > 1 ? ", …" : "");
}

void write_adapter(const std::string& folder, AdapterConfig config, std::span<const AdapterTensor> modules, DType type,
                   std::span<const AdapterWhole> wholes) {
  MXT_ASSERT(!modules.empty() && (type == DType::kF32 || type == DType::kBF16 || type == DType::kF16));
  make_folders(folder);
  struct Values {
    std::vector<int64_t> shape;
    const float* values;
  };
  std::map<std::string, Values> tensors;  // by PEFT's name
  std::map<std::string, const AdapterTensor*> by_name;
  for (const AdapterTensor& m : modules) MXT_ASSERT(by_name.emplace(m.module, &m).second);
  for (const auto& [name, m] : by_name) {
    if (!m->stack && config.rank(name) != m->rank)
      config.rank_pattern.insert(config.rank_pattern.begin(), {name, m->rank});
    const std::string at = std::string(kPrefix) + name, of = m->embedding ? ".lora_embedding_" : ".lora_",
                      end = m->embedding ? "" : ".weight";
    tensors[at + of + "A" + end] = {{m->rank, m->in}, m->a};
    tensors[at + of + "B" + end] = {{m->out, m->rank}, m->b};
    if (m->magnitude) tensors[at + ".lora_magnitude_vector"] = {{m->out}, m->magnitude};
  }
  for (const AdapterWhole& w : wholes) {  // a bias beside matrices is the wrapped layer's
    const size_t leaf = w.name.rfind('.');
    const bool wrapped = w.name.ends_with(".bias") && by_name.contains(w.name.substr(0, leaf));
    const std::string name = wrapped ? w.name.substr(0, leaf) + ".base_layer" + w.name.substr(leaf) : w.name;
    tensors[std::string(kPrefix) + name] = {w.shape, w.values.data()};
  }
  std::vector<TensorSpec> specs;
  for (const auto& [name, t] : tensors) specs.push_back({name, type, t.shape});
  SafetensorsWriter out(folder + "/adapter_model.safetensors", specs);
  std::vector<char> buffer;
  for (const auto& [name, t] : tensors) {
    size_t count = 1;
    for (const int64_t n : t.shape) count *= static_cast<size_t>(n);
    buffer.resize(count * size_of(type));
    convert(t.values, DType::kF32, buffer.data(), type, count);
    out.append(buffer.data(), buffer.size());
  }
  out.commit();
  write_file_atomic(folder + "/adapter_config.json", to_json(config).dump(2) + "\n");
}

}  // namespace mxt::formats
