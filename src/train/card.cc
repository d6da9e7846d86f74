#include "train/card.h"

#include <algorithm>
#include <optional>

#include "graph/memory.h"
#include "graph/op_info.h"
#include "graph/passes.h"
#include "train/sampler.h"

namespace mxt::train {
namespace {

// What a pass takes on a card, without asking one: parameters, arena and head exactly, kernels' workspace from above.
int64_t card_bytes(const Setup& s) {
  const graph::Graph& g = s.training_graph();
  const int64_t chunk = std::min(s.options.head_chunk, s.max_tokens), width = static_cast<int64_t>(size_of(s.type));
  const int64_t softmax = s.options.base == graph::Storage::kFp8 ? chunk * s.model.vocab_size : 0;
  const int64_t head = chunk * (s.model.vocab_size + 2 * s.model.hidden_size) * width + softmax,
                workspace = int64_t{4} << 30, context = int64_t{1} << 30;
  const runtime::ParamBytes params = param_bytes(s, g);
  return params.total() - params.offloaded(s.offload) + (samples(s.recipe) ? sampler_cache_bytes(s) : 0) +
         graph::plan_memory(g, graph::steps_of(g), s.max_tokens, {}).bytes + head + workspace + context;
}

// What the weights cost a pass, in operations (graph::Recomputable): read forward and for the input's gradient, at
// about 200 operations a byte; those in codes are read, written and read in the graph's type.
double weights_cost(const Setup& s) {
  constexpr double kOpsPerByte = 200;
  const graph::Graph& g = s.training_graph();
  double bytes = 0;
  for (const graph::Param& p : g.params) {
    const auto width = static_cast<double>(size_of(g.value(p.value).type));
    const double each = p.held == graph::Storage::kCoded ? 1 + 2 * width : p.held == graph::Storage::kFp8 ? 1 : width;
    bytes += 2 * each * static_cast<double>(p.rows * p.cols);
  }
  return kOpsPerByte * bytes;
}

struct Cut {
  int64_t rows = 0;
  graph::Recompute recompute;
  double cost = 0;  // of a token, beyond what every pass does
};

class Cutter {
 public:
  Cutter(Setup& s, int64_t least) : s_(s), least_(least) {}

  bool without_recompute() {
    for (int64_t rows = s_.recipe.train.batch.per_device; rows > 0; --rows)
      if (allowed(rows) && fits(rows, graph::Recompute::kNone)) return true;
    return false;
  }

  bool with_recompute() {
    std::optional<Cut> best;
    std::vector<graph::Recomputable> order;
    for (int64_t rows = s_.recipe.train.batch.per_device; rows > 0; --rows) {
      if (!allowed(rows)) continue;
      Cut cut{rows, {}};
      bool found = false;
      cut.recompute = fewest(s_, [&](graph::Recompute r) { return fits(rows, r); }, &found);
      if (!found) continue;
      if (order.empty()) order = s_.recompute_order();
      set_pass(s_, rows, cut.recompute);
      cut.cost = weights_cost(s_) / static_cast<double>(s_.max_tokens);
      for (size_t i = 0; i < order.size() && static_cast<int64_t>(i) < cut.recompute.tensors; ++i)
        cut.cost += order[i].cost;
      if (!best || cut.cost < best->cost) best = cut;
    }
    if (best) set_pass(s_, best->rows, best->recompute);
    return best.has_value();
  }

 private:
  bool allowed(int64_t rows) const {
    constexpr int64_t kMost = 16384;
    const int64_t all = s_.recipe.train.batch.per_device;
    if (const auto& said = s_.recipe.train.micro_batch) return rows == std::min(*said, all);
    return all % rows == 0 && (rows == 1 || s_.pass_tokens(rows) <= kMost) &&
           (rows == all || s_.pass_tokens(rows) >= least_);
  }
  bool fits(int64_t rows, graph::Recompute r) {
    set_pass(s_, rows, r);
    return card_bytes(s_) <= s_.recipe.hardware.expected_hbm_gb * 1'000'000'000;
  }
  Setup& s_;
  int64_t least_;
};

}  // namespace

void set_pass(Setup& s, int64_t rows, graph::Recompute recompute) {
  s.micro_batch = rows;
  s.max_tokens = s.pass_tokens(rows);
  s.options.recompute = recompute;
  // PiSSA takes the base apart along adapters that stand apart.
  const bool pissa = s.has_lora && s.recipe.train.method.lora->init_lora_weights == config::LoraInit::kPissa;
  s.options.join_lora =
      s.backend->thin_products_cost && s.has_lora && !pissa && s.lora.dropout == 0 && s.joins(recompute);
}

graph::Recompute fewest(const Setup& s, const std::function<bool(graph::Recompute)>& fits, bool* found) {
  *found = fits(graph::Recompute::kLayer);
  if (!*found) return graph::Recompute::kLayer;
  const auto all = static_cast<int64_t>(s.recompute_order().size());
  int64_t few = 0, many = all;
  while (many - few > std::max<int64_t>(1, all / 50)) {
    const int64_t half = (few + many) / 2;
    (fits({half}) ? many : few) = half;
  }
  return many == all ? graph::Recompute::kLayer : graph::Recompute{many};
}

void choose_for_card(Setup& s) {
  constexpr int64_t kEnough = 4096;
  const bool permitted = s.recipe.train.gradient_checkpointing;
  for (const auto offload : {runtime::Offload::kNone, runtime::Offload::kOptimizer})
    for (const int64_t least : {kEnough, int64_t{0}}) {
      s.offload = offload;
      Cutter cutter(s, least);
      if (cutter.without_recompute() || (permitted && cutter.with_recompute())) return;
    }
  set_pass(s, 1, permitted ? graph::Recompute::kLayer : graph::Recompute::kNone);
}

}  // namespace mxt::train
