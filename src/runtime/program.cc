#include "runtime/program.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "runtime/lower.h"

namespace mxt::runtime {

using namespace graph;

Program::Program(const Graph& g, const kernels::KernelPlan& plan, kernels::Ops& ops, const ProgramSettings& settings)
    : graph_(g), ops_(ops), settings_(settings) {
  if (settings_.max_documents == 0) settings_.max_documents = settings_.max_tokens;
  std::vector<ValueId> keep;
  for (const Op& op : g.ops)
    if (std::holds_alternative<HeadOp>(op.attrs)) keep.push_back(op.out[0]);
  memory_ = plan_memory(g, settings_.max_tokens, keep);
  bytes_.activations = memory_.bytes;
  bytes_.lower_bound = memory_.lower_bound;
  lowering_ = std::make_unique<Lowering>(*this, plan);
  lowering_->run();
}

Program::~Program() = default;

std::vector<Program::Tunable> Program::tunables() const { return tunables_; }

double Program::flops(int64_t tokens, int64_t document, int64_t targets) const {
  const double t = static_cast<double>(tokens);
  double total = 0;
  // What a pass needs: clones made for recomputation read values made in the backward part and are not counted.
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const Op& op = graph_.ops[i];
    const bool backward = graph_.forward_ops > 0 && static_cast<int32_t>(i) >= graph_.forward_ops;
    auto weights = [&](ValueId w) { return 2.0 * static_cast<double>(graph_.value(w).rows) * static_cast<double>(graph_.value(w).cols); };
    if (std::holds_alternative<LinearOp>(op.attrs) && !backward) total += t * weights(op.in[1]);
    if (std::holds_alternative<LinearDxOp>(op.attrs)) total += t * weights(op.in[1]);
    if (std::holds_alternative<LinearDwOp>(op.attrs)) {
      const Param& p = graph_.params[static_cast<size_t>(op.param)];
      total += t * 2.0 * static_cast<double>(p.rows) * static_cast<double>(p.cols);
    }
    auto lora = [&](const LoraBlock& b) { total += t * 2.0 * static_cast<double>(b.cols) * static_cast<double>(b.rank); };
    if (const auto* l = std::get_if<LoraAddOp>(&op.attrs); l && !backward)
      for (const auto& b : l->blocks) lora(b);
    if (const auto* l = std::get_if<LoraDzOp>(&op.attrs))
      for (const auto& b : l->blocks) lora(b);
    if (const auto* l = std::get_if<LoraDbOp>(&op.attrs)) lora(l->block);
    // Causal: half of the square; forward has two products of it, backward five.
    auto attention = [&](const AttentionOp& a, double products) {
      const double seen = a.window > 0 ? std::min<double>(static_cast<double>(document) / 2, static_cast<double>(a.window)) : static_cast<double>(document) / 2;
      total += t * products * 2.0 * seen * static_cast<double>(a.heads * a.head_dim);
    };
    if (const auto* x = std::get_if<AttentionOp>(&op.attrs); x && !backward) attention(*x, 2);
    if (const auto* x = std::get_if<AttentionGradOp>(&op.attrs)) attention(x->of, 5);
    if (const auto* h = std::get_if<HeadOp>(&op.attrs))
      total += static_cast<double>(targets) * weights(op.in[1]) * (1 + (h->gradient ? 1 : 0) + (op.param != kNone ? 1 : 0));
  }
  return total;
}

void Program::allocate(ParamStore& params) {
  MXT_ASSERT(params.matches(graph_));
  params_ = &params;
  arena_ = device::Buffer::host(static_cast<size_t>(bytes_.activations));
  head_ = device::Buffer::host(static_cast<size_t>(bytes_.logits));
  scratch_ = device::Buffer::host(static_cast<size_t>(bytes_.workspace));
  // For poisoned replay: which buffers die where.
  std::vector<int32_t> last(graph_.values.size(), -1);
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    for (ValueId v : graph_.ops[i].in) last[static_cast<size_t>(graph_.root(v))] = static_cast<int32_t>(i);
    for (ValueId v : graph_.ops[i].out) last[static_cast<size_t>(graph_.root(v))] = static_cast<int32_t>(i);
  }
  dead_after_.assign(graph_.ops.size(), {});
  for (size_t v = 0; v < last.size(); ++v)
    if (last[v] >= 0 && graph_.values[v].param == kNone && graph_.root(static_cast<ValueId>(v)) == static_cast<ValueId>(v) && graph_.root(static_cast<ValueId>(v)) != nll_)
      dead_after_[static_cast<size_t>(last[v])].push_back(static_cast<ValueId>(v));
}

void Program::run(const Batch& batch) {
  MXT_ASSERT(params_ != nullptr);
  MXT_ASSERT(batch.tokens > 0 && batch.tokens <= settings_.max_tokens);
  ops_.set_scratch(scratch_.data(), scratch_.size());
  const Frame frame{&batch, batch.tokens};
  size_t op = 0;
  for (const Launch& l : launches_) {
    if (poison_)
      for (; op < l.op; ++op)
        for (ValueId v : dead_after_[op])
          std::memset(arena_.bytes_at(static_cast<size_t>(memory_.offset[static_cast<size_t>(v)])), 0xff,
                      static_cast<size_t>(value_bytes(graph_, v, settings_.max_tokens)));
    l.run(frame);
  }
}

const float* Program::nll() const {
  MXT_ASSERT(nll_ != kNone);
  return reinterpret_cast<const float*>(arena_.bytes_at(static_cast<size_t>(memory_.offset[static_cast<size_t>(nll_)])));
}

}  // namespace mxt::runtime
