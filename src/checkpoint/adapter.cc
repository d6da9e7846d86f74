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
#include "base/philox.h"
#include "checkpoint/weights.h"
#include "formats/classifier.h"
#include "formats/peft.h"
#include "models/heads.h"

namespace mxt::checkpoint {
namespace {

struct Ends {
  bool is_a;
  std::string module;
};

// "model.layers.0.self_attn.q_proj.lora_A.weight" → A of that module.
Ends parse_name(const std::string& segment) {
  for (const bool a : {true, false}) {
    const std::string suffix = a ? ".lora_A.weight" : ".lora_B.weight";
    if (segment.ends_with(suffix)) return {a, segment.substr(0, segment.size() - suffix.size())};
  }
  MXT_ASSERT(!"not an adapter's segment");
}

float* values_of(const runtime::ParamSlot& slot, const graph::Param& p, const graph::Segment& s,
                 std::vector<float>* scratch) {
  if (slot.master) return slot.master + s.row * p.cols;
  scratch->resize(static_cast<size_t>(s.rows * p.cols));
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
          static_cast<std::byte*>(slot.weight) + static_cast<size_t>(s.row * p.cols) * size_of(type), type,
          static_cast<size_t>(s.rows * p.cols));
}

}  // namespace

void init_adapter(const graph::Graph& g, runtime::ParamStore& params, uint64_t seed) {
  std::vector<float> scratch;
  each_segment(g, [&](const graph::Param& p, const graph::Segment& s, const Ends& e) {
    const auto access = params.write(g.value(p.value).param);
    float* v = values_of(access.slot, p, s, &scratch);
    const int64_t n = s.rows * p.cols;
    uint64_t stream = 0;
    Blake3 h;
    h.update(s.name);
    const Digest d = h.digest();
    std::memcpy(&stream, d.data(), sizeof stream);
    Philox rng(seed, stream);
    const float bound = 1.0f / std::sqrt(static_cast<float>(p.cols));
    for (int64_t i = 0; i < n; ++i) v[i] = e.is_a ? (2 * rng.uniform() - 1) * bound : 0.0f;
    store(g, access.slot, p, s, v);
  });
  for (size_t i = 0; i < g.params.size(); ++i)
    if (g.params[i].adapter) params.sync_weights(static_cast<graph::ParamId>(i));
}

void save_adapter(const std::string& folder, const graph::Graph& g, const runtime::ParamStore& params,
                  const AdapterSettings& settings) {
  formats::AdapterConfig c;
  c.base_model_name_or_path = settings.base;
  c.revision = settings.revision;
  c.r = settings.rank;
  c.lora_alpha = settings.alpha;
  c.lora_dropout = settings.dropout;
  c.use_rslora = settings.rslora;
  c.fan_in_fan_out = settings.fan_in_fan_out;
  c.target_modules = settings.target_modules;
  struct Pair {
    std::vector<float> a, b;
    int64_t rank = 0, in = 0, out = 0;
  };
  std::map<std::string, Pair> modules;
  each_segment(g, [&](const graph::Param& p, const graph::Segment& s, const Ends& e) {
    Pair& m = modules[e.module];
    std::vector<float> v = read_segment(g, params, p, s);
    if (e.is_a) {
      m.rank = s.rows;
      m.in = p.cols;
      m.a = std::move(v);
    } else {
      m.out = s.rows;
      m.b = std::move(v);
    }
  });
  std::vector<formats::AdapterTensor> tensors;
  for (const auto& [name, m] : modules) {
    formats::AdapterTensor t;
    t.module = name;
    t.rank = m.rank;
    t.in = m.in;
    t.out = m.out;
    t.a = m.a.data();
    t.b = m.b.data();
    tensors.push_back(t);
  }
  std::vector<std::vector<float>> values;
  std::vector<formats::WholeTensor> whole;  // what trains whole beside the matrices
  for (const graph::Param& p : g.params) {
    if (!models::is_head(p)) continue;
    c.task_type = "SEQ_CLS";
    values.push_back(read_segment(g, params, p, p.segments.at(0)));
    whole.push_back({p.segments[0].name, {p.rows, p.cols}, values.back().data()});
  }
  formats::write_adapter(folder, c, tensors, DType::kF32, whole);
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

}  // namespace

// Beside a base that others use too, and in training, adapters are of the layers' linear modules.
static void refuse_beyond_layers(const formats::Adapter& adapter, const std::string& folder) {
  if (const std::string name = adapter.beyond_layers(); !name.empty())
    fail_missing(
        "{}: adapts \"{}\" (the head, embeddings, a bias or a whole module): chat, score, eval and merge use such an "
        "adapter; to serve it or to train on, merge it first: mindxtrain merge --model BASE --adapter {} --output DIR",
        folder, name, folder);
}

models::LoraPlan adapter_plan(const std::string& folder) {
  auto adapter = std::make_shared<const formats::Adapter>(formats::Adapter::open(folder));
  refuse_beyond_layers(*adapter, folder);
  auto kinds = std::make_shared<std::set<std::string, std::less<>>>();  // what it has of some layer
  for (const auto& m : adapter->modules()) kinds->emplace(within_layer(m.name));
  models::LoraPlan plan;
  plan.target = [adapter, kinds, folder](const std::string& module) -> std::optional<models::LoraTarget> {
    const auto* m = adapter->find(module);
    if (!m && adapter->config().selects(module) && kinds->contains(within_layer(module)))
      fail_input("{}: the adapter has no weights for {}, which its target_modules select: it was made for another base",
                 folder, module);
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
        adapter.folder());
  if (given->second.shape != std::vector<int64_t>{p->rows, p->cols})
    fail_input("{}: {} has shape [{}], this model wants [{}, {}]: the adapter was made for another base",
               adapter.folder(), given->first, fmt::join(given->second.shape, ", "), p->rows, p->cols);
  std::vector<float> scratch;
  const auto access = params.write(g.value(p->value).param);
  float* v = values_of(access.slot, *p, p->segments.at(0), &scratch);
  adapter.read(given->second, DType::kF32, v);
  store(g, access.slot, *p, p->segments[0], v);
}

void load_adapter(const std::string& folder, const graph::Graph& g, runtime::ParamStore& params,
                  const models::LoraPlan* plan) {
  const formats::Adapter adapter = formats::Adapter::open(folder);
  refuse_beyond_layers(adapter, folder);
  std::vector<float> scratch;
  std::map<std::string, int> used;
  each_segment(g, [&](const graph::Param& p, const graph::Segment& s, const Ends& e) {
    const auto* m = adapter.find(e.module);
    if (!m) fail_input("{}: the adapter has no weights for {}, which this run trains", folder, e.module);
    const auto& t = e.is_a ? m->a : m->b;
    if (t.shape != std::vector<int64_t>{s.rows, p.cols})
      fail_input(
          "{}: {} has shape [{}], this model and recipe want [{}, {}]: the adapter was made for another base or rank",
          folder, t.name, fmt::join(t.shape, ", "), s.rows, p.cols);
    if (const auto target = plan ? plan->target(e.module) : std::nullopt) {
      const auto rank = static_cast<double>(target->rank);
      const double scaling = target->alpha / (target->rslora ? std::sqrt(rank) : rank);
      if (std::abs(scaling - m->scaling) > 1e-6 * m->scaling)
        fail_input(
            "{}: the adapter scales {} by {:.6g}, this recipe by {:.6g}, so training would not start from it: write "
            "alpha: {:g} and use_rslora: {} under train.method",
            folder, e.module, m->scaling, scaling, adapter.config().alpha(e.module), adapter.config().use_rslora);
    }
    const auto access = params.write(g.value(p.value).param);
    float* v = values_of(access.slot, p, s, &scratch);
    adapter.read(t, DType::kF32, v);
    store(g, access.slot, p, s, v);
    ++used[e.module];
  });
  load_head(adapter, g, params);
  for (const auto& m : adapter.modules())
    if (!used.contains(m.name))
      fail_input(
          "{}: the adapter has weights for {}, which this model has not (or this run does not train): it was made for "
          "another base",
          folder, m.name);
  for (size_t i = 0; i < g.params.size(); ++i)
    if (g.params[i].adapter || models::is_head(g.params[i])) params.sync_weights(static_cast<graph::ParamId>(i));
}

}  // namespace mxt::checkpoint
