#include "checkpoint/adapter.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/threads.h"
#include "checkpoint/pissa.h"
#include "checkpoint/weights.h"
#include "formats/classifier.h"
#include "formats/peft.h"
#include "formats/vision.h"
#include "models/heads.h"

namespace mxt::checkpoint {
namespace {

enum class Part { kA, kB, kMagnitude, kTableA, kTableB };
struct Ends {
  Part part;
  std::string module;
};

// "model.layers.0.self_attn.q_proj.lora_A.weight" → A of that module.
Ends parse_name(const std::string& segment) {
  static constexpr std::pair<std::string_view, Part> kEnds[] = {{".lora_A.weight", Part::kA},
                                                                {".lora_B.weight", Part::kB},
                                                                {".lora_magnitude_vector", Part::kMagnitude},
                                                                {".lora_embedding_A", Part::kTableA},
                                                                {".lora_embedding_B", Part::kTableB}};
  for (const auto& [suffix, part] : kEnds)
    if (segment.ends_with(suffix)) return {part, segment.substr(0, segment.size() - suffix.size())};
  MXT_ASSERT(!"not an adapter's segment");
}

// Elements of a segment, and where they begin in its parameter.
int64_t size_of_segment(const graph::Param& p, const graph::Segment& s) {
  return p.kind == graph::ParamKind::kDecay ? s.rows : s.rows * p.cols;
}
int64_t first_of(const graph::Param& p, const graph::Segment& s) {
  return p.kind == graph::ParamKind::kDecay ? s.row : s.row * p.cols;
}

float* values_of(const runtime::ParamSlot& slot, const graph::Param& p, const graph::Segment& s,
                 std::vector<float>* scratch) {
  if (slot.master) return slot.master + first_of(p, s);
  scratch->resize(static_cast<size_t>(size_of_segment(p, s)));
  return scratch->data();
}

template <typename F>
void each_segment(const graph::Graph& g, F&& f) {
  for (const graph::Param& p : g.params)
    if (p.adapter)
      for (const graph::Segment& s : p.segments) f(p, s, parse_name(s.name));
}

// Puts F32 values of a segment where the parameter computes from.
void store(const graph::Graph& g, const runtime::ParamSlot& slot, const graph::Param& p, const graph::Segment& s,
           const float* values) {
  if (slot.master) return;
  const DType type = g.value(p.value).type;
  convert(values, DType::kF32,
          static_cast<std::byte*>(slot.weight) + static_cast<size_t>(first_of(p, s)) * size_of(type), type,
          static_cast<size_t>(size_of_segment(p, s)));
}

// The lengths of the rows of a module's matrix as the model computes with it.
void row_lengths(const graph::Graph& g, const runtime::ParamStore& params, const std::string& module, float* out) {
  for (const graph::Param& p : g.params)
    for (const graph::Segment& s : p.segments) {
      if (p.adapter || s.name != module + ".weight") continue;
      const auto access = params.read(g.value(p.value).param);
      const DType type = g.value(p.value).type;
      parallel_for(0, s.rows, 16, [&](int64_t begin, int64_t end) {
        std::vector<float> row(static_cast<size_t>(p.cols));
        for (int64_t r = begin; r < end; ++r) {
          convert(static_cast<const std::byte*>(access.slot.weight) +
                      static_cast<size_t>((s.row + r) * p.cols) * size_of(type),
                  type, row.data(), DType::kF32, row.size());
          double squared = 0;
          for (const float x : row) squared += static_cast<double>(x) * static_cast<double>(x);
          out[r] = static_cast<float>(std::sqrt(squared));
        }
      });
      return;
    }
  MXT_ASSERT(!"a magnitude belongs to a matrix");
}

}  // namespace

void init_adapter(const graph::Graph& g, runtime::ParamStore& params, uint64_t seed) {
  std::vector<float> scratch;
  each_segment(g, [&](const graph::Param& p, const graph::Segment& s, const Ends& e) {
    const auto access = params.write(g.value(p.value).param);
    float* v = values_of(access.slot, p, s, &scratch);
    const int64_t n = size_of_segment(p, s);
    uint64_t stream = 0;
    Blake3 h;
    h.update(s.name);
    const Digest d = h.digest();
    std::memcpy(&stream, d.data(), sizeof stream);
    Philox rng(seed, stream);
    const float bound = 1.0f / std::sqrt(static_cast<float>(p.cols));
    for (int64_t i = 0; i < n; ++i)
      v[i] = e.part == Part::kA ? (2 * rng.uniform() - 1) * bound : e.part == Part::kTableB ? rng.normal() : 0.0f;
    if (e.part == Part::kMagnitude) row_lengths(g, params, e.module, v);
    store(g, access.slot, p, s, v);
  });
  for (size_t i = 0; i < g.params.size(); ++i)
    if (g.params[i].adapter) params.sync_weights(static_cast<graph::ParamId>(i));
}

namespace {

struct Trained {
  std::vector<float> a, b, magnitude;
  int64_t rank = 0, in = 0, out = 0;
  bool embedding = false;
};

// [A; A₀] and [B, −B₀].
void subtract(Trained& m, const PissaStart::Pair& start) {
  std::vector<float> b(2 * m.b.size());
  const auto rank = static_cast<size_t>(m.rank);
  for (size_t o = 0; o < static_cast<size_t>(m.out); ++o)
    for (size_t r = 0; r < rank; ++r) {
      b[o * 2 * rank + r] = m.b[o * rank + r];
      b[o * 2 * rank + rank + r] = -start.b[o * rank + r];
    }
  m.b = std::move(b);
  m.a.insert(m.a.end(), start.a.begin(), start.a.end());
  m.rank *= 2;
}

// What of the base trained beside the adapters.
std::vector<formats::AdapterWhole> trained_wholes(const graph::Graph& g, const runtime::ParamStore& params) {
  std::vector<formats::AdapterWhole> out;
  for (const graph::Param& p : g.params) {
    if (p.adapter || !p.trainable) continue;
    const bool vector = p.kind != graph::ParamKind::kMatrix && p.kind != graph::ParamKind::kEmbedding;
    for (const graph::Segment& s : p.segments) {
      if (s.frozen) continue;
      std::vector<int64_t> shape{s.rows};
      if (!vector) shape = s.transposed ? std::vector<int64_t>{p.cols, s.rows} : std::vector<int64_t>{s.rows, p.cols};
      out.push_back({s.name, std::move(shape), read_segment(g, params, p, s)});
    }
  }
  return out;
}

}  // namespace

void save_adapter(const std::string& folder, const graph::Graph& g, const runtime::ParamStore& params,
                  formats::AdapterConfig config, const PissaStart* start, ExpertForm experts) {
  std::map<std::string, Trained> modules;
  each_segment(g, [&](const graph::Param& p, const graph::Segment& s, const Ends& e) {
    Trained& m = modules[e.module];
    std::vector<float> v = read_segment(g, params, p, s);
    switch (e.part) {
      case Part::kA:
        m.rank = s.rows, m.in = p.cols, m.a = std::move(v);
        break;
      case Part::kTableA:
        m.rank = p.cols, m.in = s.rows, m.a = std::move(v), m.embedding = true;
        break;
      case Part::kMagnitude:
        m.magnitude = std::move(v);
        break;
      default:
        m.out = s.rows, m.b = std::move(v);
    }
  });
  if (start) {
    config.r *= 2, config.lora_alpha *= config.use_rslora ? std::sqrt(2.0) : 2.0;
    for (auto& [key, rank] : config.rank_pattern) rank *= 2;
    for (auto& [key, alpha] : config.alpha_pattern) alpha *= config.use_rslora ? std::sqrt(2.0) : 2.0;
  }
  std::vector<formats::AdapterTensor> tensors;
  for (auto& [name, m] : modules) {
    if (start) subtract(m, start->modules.at(name));
    formats::AdapterTensor t;
    t.module = name;
    t.rank = m.rank;
    t.in = m.in;
    t.out = m.out;
    t.a = m.a.data();
    t.b = m.b.data();
    t.embedding = m.embedding;
    if (!m.magnitude.empty()) t.magnitude = m.magnitude.data();
    tensors.push_back(t);
  }
  if (std::any_of(g.params.begin(), g.params.end(), models::is_head)) {
    config.task_type = "SEQ_CLS";
    config.modules_to_save.push_back("score");
  }
  if (experts.converted) formats::name_beside_experts(config, tensors);
  std::list<std::vector<float>> stacks;
  if (experts.stacked) formats::stack_experts(config, tensors, stacks, experts.turned);
  formats::write_adapter(folder, std::move(config), tensors, DType::kF32, trained_wholes(g, params));
}

namespace {

// "self_attn.q_proj" of "model.layers.3.self_attn.q_proj".
std::string_view within_layer(std::string_view module) {
  size_t from = 0;
  for (size_t at = 0; at < module.size();) {
    const size_t end = std::min(module.find('.', at), module.size());
    if (module.find_first_not_of("0123456789", at) >= end && end > at) from = std::min(end + 1, module.size());
    at = end + 1;
  }
  return module.substr(from);
}

// "model.layers.3.mlp.experts.*.up_proj" of "model.layers.3.mlp.experts.5.up_proj"; "" of another module.
std::string of_any_expert(std::string_view module) {
  constexpr std::string_view kMark = ".experts.";
  const size_t at = module.find(kMark);
  if (at == std::string_view::npos) return "";
  const size_t number = at + kMark.size(), end = module.find_first_not_of("0123456789", number);
  if (end == number || end == std::string_view::npos) return "";
  return std::string(module.substr(0, number)) + "*" + std::string(module.substr(end));
}

}  // namespace

// Beside a base that others use too, and in training, adapters are of the layers' linear modules.
static void refuse_beyond_layers(const formats::Adapter& adapter, const std::string& folder) {
  if (const std::string name = adapter.beyond_layers(); !name.empty())
    fail_missing(
        "{}: adapts \"{}\" (with magnitudes, the head, embeddings, a bias or a whole module): chat, score, eval, merge "
        "and a server of it alone use such an adapter; to serve it beside others or to train on, merge it first: "
        "mindxtrain merge --model BASE --adapter {} --out DIR",
        folder, name, folder);
}

models::LoraPlan adapter_plan(const std::string& folder, const formats::Family* base) {
  auto adapter = std::make_shared<const formats::Adapter>(formats::Adapter::open(folder, base));
  refuse_beyond_layers(*adapter, folder);
  auto kinds = std::make_shared<std::set<std::string, std::less<>>>();  // what it has of some layer, or some expert
  for (const auto& m : adapter->modules()) kinds->emplace(within_layer(m.name)), kinds->emplace(of_any_expert(m.name));
  models::LoraPlan plan;
  plan.target = [adapter, kinds](const std::string& module) -> std::optional<models::LoraTarget> {
    const auto* m = adapter->find(module);
    if (!m && adapter->config().selects(module) && kinds->contains(within_layer(module)))
      fail_input("{}: the adapter has no weights for {}, which its target_modules select: it was made for another base",
                 adapter->weights(), module);
    if (const std::string all = of_any_expert(module); !m && !all.empty() && kinds->contains(all))
      fail_input("{}: the adapter has weights for {}, and none for {}: it was made for another base",
                 adapter->weights(), all, module);
    if (!m) return std::nullopt;
    return models::LoraTarget{m->rank, m->scaling * static_cast<double>(m->rank), false};
  };
  return plan;
}

// The head of a reward model, where the adapter brings one.
static void load_head(const formats::Adapter& adapter, const graph::Graph& g, runtime::ParamStore& params) {
  const auto given = adapter.replaced().find(formats::kScoreWeight);
  if (given == adapter.replaced().end()) return;
  const auto p = std::find_if(g.params.begin(), g.params.end(), models::is_head);
  if (p == g.params.end())
    fail_input(
        "{}: is a reward model's adapter: it writes nothing, it scores (mindxtrain score --reward; "
        "train.method.rewards)",
        adapter.weights());
  if (given->second.shape != std::vector<int64_t>{p->rows, p->cols})
    fail_input("{}: {} has shape [{}], this model wants [{}, {}]: the adapter was made for another base",
               adapter.weights(), given->first, fmt::join(given->second.shape, ", "), p->rows, p->cols);
  std::vector<float> scratch;
  const auto access = params.write(g.value(p->value).param);
  float* v = values_of(access.slot, *p, p->segments.at(0), &scratch);
  adapter.read(given->second, DType::kF32, v);
  store(g, access.slot, *p, p->segments[0], v);
}

namespace {

// What an adapter trained of the base, into the parameters that train here too.
void load_wholes(const formats::Adapter& adapter, const graph::Graph& g, runtime::ParamStore& params) {
  for (const auto& [name, tensor] : adapter.replaced()) {
    if (name == formats::kScoreWeight) continue;  // load_head()
    // PEFT keeps the base's own table beside an adapter of it.
    if (name.ends_with(".weight") && adapter.find(name.substr(0, name.size() - 7))) continue;
    bool found = false;
    for (const graph::Param& p : g.params)
      for (const graph::Segment& s : p.segments) {
        if (p.adapter || s.name != name) continue;
        if (!p.trainable || s.frozen)
          fail_input(
              "{}: the adapter has trained {}, which this run does not: name it under modules_to_save, or write "
              "its bias: {}",
              adapter.weights(), name, adapter.config().bias);
        found = true;
        const auto id = g.value(p.value).param;
        {
          const auto access = params.write(id);
          const int64_t at =
              p.kind == graph::ParamKind::kMatrix || p.kind == graph::ParamKind::kEmbedding ? s.row * p.cols : s.row;
          std::vector<float> v(static_cast<size_t>(tensor.count()));
          adapter.read(tensor, DType::kF32, v.data());
          MXT_ASSERT(access.slot.master && !s.transposed && at + tensor.count() <= p.rows * p.cols);
          std::copy(v.begin(), v.end(), access.slot.master + at);
        }
        params.sync_weights(id);
      }
    if (!found)
      fail_input("{}: the adapter has trained {}, which this model does not have: it was made for another base",
                 adapter.weights(), name);
  }
}

}  // namespace

namespace {

const formats::TensorInfo& tensor_of(const formats::Adapter::Module& m, Part part) {
  return part == Part::kMagnitude ? m.magnitude : part == Part::kA || part == Part::kTableA ? m.a : m.b;
}

void check_scaling(const formats::Adapter& adapter, const formats::Adapter::Module& m, const models::LoraPlan& plan) {
  const auto target = plan.target(m.name);
  if (!target) return;
  const auto rank = static_cast<double>(target->rank);
  const double scaling = target->alpha / (target->rslora ? std::sqrt(rank) : rank);
  if (std::abs(scaling - m.scaling) > 1e-6 * m.scaling)
    fail_input(
        "{}: the adapter scales {} by {:.6g}, this recipe by {:.6g}, so training would not start from it: write "
        "alpha: {:g} and use_rslora: {} under train.method",
        adapter.weights(), m.name, m.scaling, scaling, adapter.config().alpha(m.name), adapter.config().use_rslora);
}

bool has_tower(const graph::Graph& g) {
  return std::any_of(g.params.begin(), g.params.end(), [](const graph::Param& p) {
    return std::any_of(p.segments.begin(), p.segments.end(),
                       [](const graph::Segment& s) { return formats::sees_pictures(s.name); });
  });
}

// Of a whole model PEFT adapts the tower along, whose modules have the text's names. A text never meets those.
bool left_with_tower(const formats::Adapter& adapter, const graph::Graph& g, const std::set<std::string>& used) {
  if (used.empty() || has_tower(g)) return false;
  std::vector<std::string> left;
  for (const auto& m : adapter.modules())
    if (!used.contains(m.name) && formats::sees_pictures(m.name)) left.push_back(m.name);
  if (left.size() + used.size() != adapter.modules().size()) return false;
  if (!left.empty())
    log::warn(
        "{}: {} of its modules are of what sees pictures ({}{}), which this model is used without: they are left out; "
        "PEFT merges them",
        adapter.folder(), left.size(), left.front(), left.size() > 1 ? ", …" : "");
  return true;
}

void check(const formats::Adapter& adapter, const graph::Graph& g, const models::LoraPlan* plan) {
  const std::string &folder = adapter.folder(), file = adapter.weights();
  if (!plan) refuse_beyond_layers(adapter, folder);
  if (plan && plan->dora != adapter.config().use_dora)
    fail_input("{}/adapter_config.json: the adapter was trained with use_dora: {}: write the same under train.method",
               folder, adapter.config().use_dora);
  std::set<std::string> used;
  each_segment(g, [&](const graph::Param& p, const graph::Segment& s, const Ends& e) {
    const auto* m = adapter.find(e.module);
    if (!m) fail_input("{}: the adapter has no weights for {}, which this run trains", file, e.module);
    const auto& t = tensor_of(*m, e.part);
    const std::vector<int64_t> want = e.part == Part::kMagnitude ? std::vector<int64_t>{s.rows}
                                      : e.part == Part::kTableA  ? std::vector<int64_t>{p.cols, s.rows}
                                                                 : std::vector<int64_t>{s.rows, p.cols};
    if (t.shape != want)
      fail_input(
          "{}: {} has shape [{}], this model and recipe want [{}]: the adapter was made for another base or rank", file,
          t.name, fmt::join(t.shape, ", "), fmt::join(want, ", "));
    if (plan) check_scaling(adapter, *m, *plan);
    used.insert(e.module);
  });
  if (!plan && left_with_tower(adapter, g, used)) return;
  for (const auto& m : adapter.modules())
    if (!used.contains(m.name)) {
      if (!plan && has_tower(g) && formats::sees_pictures(m.name))
        fail_missing(
            "{}: adapts what sees pictures ({}), and adapters there are not built in: merge it with PEFT, or train one "
            "of the language model alone (PEFT: exclude_modules)",
            file, m.name);
      fail_input(
          "{}: the adapter has weights for {}, which this {}: it was made for another base{}", file, m.name,
          plan ? "run does not train (or the model has not)" : "model has not",
          plan ? fmt::format(", or name {} in train.method.target_modules, or merge it first: mindxtrain merge --model "
                             "BASE --adapter {} --out DIR",
                             m.name.substr(m.name.rfind('.') + 1), folder)
               : "");
    }
}

}  // namespace

void check_adapter(const std::string& folder, const graph::Graph& g, const models::LoraPlan& plan,
                   const formats::Family* base) {
  check(formats::Adapter::open(folder, base), g, &plan);
}

void load_adapter(const std::string& folder, const graph::Graph& g, runtime::ParamStore& params,
                  const models::LoraPlan* plan, const formats::Family* base) {
  const formats::Adapter adapter = formats::Adapter::open(folder, base);
  check(adapter, g, plan);
  std::vector<float> scratch;
  each_segment(g, [&](const graph::Param& p, const graph::Segment& s, const Ends& e) {
    const auto& t = tensor_of(*adapter.find(e.module), e.part);
    const auto access = params.write(g.value(p.value).param);
    float* v = values_of(access.slot, p, s, &scratch);
    adapter.read(t, DType::kF32, v);
    if (e.part == Part::kTableA) {
      const std::vector<float> turned(v, v + t.count());
      for (int64_t r = 0; r < s.rows; ++r)
        for (int64_t k = 0; k < p.cols; ++k) v[r * p.cols + k] = turned[static_cast<size_t>(k * s.rows + r)];
    }
    store(g, access.slot, p, s, v);
  });
  load_head(adapter, g, params);
  if (plan) load_wholes(adapter, g, params);
  for (size_t i = 0; i < g.params.size(); ++i)
    if (g.params[i].adapter || models::is_head(g.params[i])) params.sync_weights(static_cast<graph::ParamId>(i));
}

}  // namespace mxt::checkpoint
