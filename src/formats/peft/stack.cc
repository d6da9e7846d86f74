// Adapters of single experts as PEFT holds those of a stack (LoraConfig.target_parameters).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "formats/peft.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kMark = ".experts.", kParts[] = {"gate_proj", "up_proj", "down_proj"};

// A layer's experts' modules: by part, then by expert.
struct Layer {
  std::map<int64_t, const AdapterTensor*> parts[3];
};

// "model.layers.2.mlp.experts.5.up_proj" → "model.layers.2.mlp.experts", 5, 1; false for another module.
bool split_expert(const std::string& module, std::string* stem, int64_t* expert, size_t* part) {
  const size_t at = module.find(kMark);
  if (at == std::string::npos) return false;
  const size_t number = at + kMark.size(), dot = module.find('.', number);
  if (dot == std::string::npos || dot == number) return false;
  for (*part = 0; *part < 3 && module.compare(dot + 1, std::string::npos, kParts[*part]) != 0;) ++*part;
  if (*part == 3 || module.find_first_not_of("0123456789", number) != dot) return false;
  *stem = module.substr(0, number - 1);
  *expert = std::stoll(module.substr(number, dot - number));
  return true;
}

// Ranks and alphas go by the parameter's name; what holds for the first is said of all.
template <typename T>
void say(std::vector<std::pair<std::string, T>>& pattern, T value, T now, const std::string& parameter,
         std::set<std::string>& general) {
  if (value == now) return;
  const std::string last = parameter.substr(parameter.rfind('.') + 1);
  pattern.insert(pattern.begin(), {general.insert(last).second ? last : parameter, value});
}

// One stack: matrices [rank·experts, in] with an expert's rows together, and [out, rank·experts], the expert fastest.
AdapterTensor stack_of(const Layer& layer, std::span<const size_t> parts, const std::vector<double>& scales,
                       bool turned, std::list<std::vector<float>>& values, int64_t* rank) {
  const AdapterTensor& any =
      *(layer.parts[parts[0]].empty() ? layer.parts[parts.back()] : layer.parts[parts[0]]).begin()->second;
  const auto experts = static_cast<int64_t>(std::max(layer.parts[parts[0]].size(), layer.parts[parts.back()].size()));
  *rank = 0;
  for (const size_t p : parts)
    if (!layer.parts[p].empty()) *rank += layer.parts[p].begin()->second->rank;
  AdapterTensor t;
  t.stack = true;
  t.rank = *rank * experts, t.in = any.in, t.out = any.out * static_cast<int64_t>(parts.size());
  auto& a = values.emplace_back(static_cast<size_t>(t.rank * t.in));
  auto& b = values.emplace_back(static_cast<size_t>(t.out * t.rank));
  int64_t first = 0;  // of the part's rank
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto part = static_cast<int64_t>(i), step = turned ? static_cast<int64_t>(parts.size()) : 1,
               row = turned ? part : part * any.out;
    int64_t r = 0;
    for (const auto& [e, m] : layer.parts[parts[i]]) {
      MXT_ASSERT(e < experts && m->in == t.in && m->out == any.out && m->magnitude == nullptr);
      r = m->rank;
      std::copy_n(m->a, r * m->in, a.data() + (e * *rank + first) * t.in);
      for (int64_t o = 0; o < m->out; ++o)
        for (int64_t j = 0; j < r; ++j)
          b[static_cast<size_t>((row + o * step) * t.rank + (first + j) * experts + e)] =
              static_cast<float>(scales[i]) * m->b[o * r + j];
    }
    first += r;
  }
  t.a = a.data(), t.b = b.data();
  return t;
}

bool is_part(std::string_view module) {
  return std::find(std::begin(kParts), std::end(kParts), module.substr(module.rfind('.') + 1)) != std::end(kParts);
}

}  // namespace

void name_beside_experts(AdapterConfig& config, std::span<const AdapterTensor> modules) {
  bool experts = false;
  for (const AdapterTensor& m : modules) {
    if (!is_part(m.module) || m.magnitude) continue;  // a parameter has no magnitudes there
    std::string stem;
    int64_t expert = 0;
    size_t part = 0;
    if (split_expert(m.module, &stem, &expert, &part)) {
      experts = true;
      continue;
    }
    const std::string parameter = m.module + ".weight";  // by which ranks and alphas then go
    if (config.rank(parameter) != m.rank) config.rank_pattern.insert(config.rank_pattern.begin(), {parameter, m.rank});
    if (const double alpha = config.alpha(m.module); config.alpha(parameter) != alpha)
      config.alpha_pattern.insert(config.alpha_pattern.begin(), {parameter, alpha});
    config.target_parameters.push_back(parameter);
  }
  // The names are the experts' alone now.
  if (!experts && !config.target_parameters.empty()) std::erase_if(config.target_modules, is_part);
}

void stack_experts(AdapterConfig& config, std::vector<AdapterTensor>& modules, std::list<std::vector<float>>& values,
                   bool turned) {
  std::map<std::string, Layer> layers;
  std::vector<AdapterTensor> out;
  std::set<std::string> targets;
  for (const AdapterTensor& m : modules) {
    std::string stem;
    int64_t expert = 0;
    size_t part = 0;
    if (split_expert(m.module, &stem, &expert, &part)) {
      layers[stem].parts[part][expert] = &m;
      continue;
    }
    out.push_back(m);
    if (config.wraps_weight_of(m.module)) continue;
    // PEFT makes stacks of experts of these names too: of other modules the whole name is said.
    targets.insert(is_part(m.module) ? m.module : m.module.substr(m.module.rfind('.') + 1));
  }
  if (layers.empty()) return;
  std::set<std::string> parameters(config.target_parameters.begin(), config.target_parameters.end()), general_rank,
      general_alpha;
  for (const auto& [stem, layer] : layers) {
    const bool up = !layer.parts[0].empty() || !layer.parts[1].empty(), down = !layer.parts[2].empty();
    const auto add = [&](std::span<const size_t> parts, const char* name, bool inner) {
      const std::string parameter = stem + "." + name;
      const AdapterTensor& one =
          *(layer.parts[parts[0]].empty() ? layer.parts[parts.back()] : layer.parts[parts[0]]).begin()->second;
      const double scaling = config.scaling(one.module);
      std::vector<double> scales;
      for (const size_t p : parts)
        scales.push_back(layer.parts[p].empty() || scaling == 0
                             ? 1.0
                             : config.scaling(layer.parts[p].begin()->second->module) / scaling);
      int64_t rank = 0;
      AdapterTensor t = stack_of(layer, parts, scales, turned, values, &rank);
      t.module = stem + (inner ? ".base_layer" : "");
      const double n = static_cast<double>(rank), alpha = scaling * (config.use_rslora ? std::sqrt(n) : n);
      say(config.rank_pattern, rank, config.rank(parameter), parameter, general_rank);
      if (std::abs(config.alpha(parameter) - alpha) > 1e-9 * alpha)
        say(config.alpha_pattern, alpha, config.alpha(parameter), parameter, general_alpha);
      parameters.insert(config.layers_to_transform.empty() ? std::string("mlp.experts.") + name : parameter);
      out.push_back(t);
    };
    constexpr size_t kUp[] = {0, 1}, kDown[] = {2};
    if (up) add(kUp, "gate_up_proj", down);
    if (down) add(kDown, "down_proj", false);
  }
  config.target_modules.assign(targets.begin(), targets.end());
  config.target_is_pattern = false;
  config.target_parameters.assign(parameters.begin(), parameters.end());
  modules = std::move(out);
}

}  // namespace mxt::formats
