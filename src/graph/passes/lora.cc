#include <fmt/format.h>

#include <optional>

#include "base/error.h"
#include "graph/ops.h"
#include "graph/passes.h"

namespace mxt::graph {
namespace {

struct Targeted {
  const Segment* segment;
  std::string module;
  LoraSettings::Target t;
};

std::string module_of(const std::string& weight_name) {
  constexpr std::string_view kSuffix = ".weight";
  return weight_name.ends_with(kSuffix) ? weight_name.substr(0, weight_name.size() - kSuffix.size()) : weight_name;
}

// The adapter of experts' matrices, which lie one below the other with the same blocks in each: A and B lie likewise,
// an expert's A being those of its blocks. Returns y with the adapter's product added.
ValueId add_to_experts(Graph& g, const LoraSettings& s, const ExpertLinearOp& op, const std::vector<ValueId>& in,
                       ValueId y) {
  const Param base = g.param_of(in[1]);
  const auto experts = static_cast<size_t>(op.experts);
  MXT_ASSERT(base.segments.size() % experts == 0);
  const size_t parts = base.segments.size() / experts;
  const int64_t height = base.rows / op.experts;
  std::vector<LoraBlock> blocks;
  std::vector<size_t> which;  // of the parts
  int64_t ranks = 0;
  for (size_t part = 0; part < parts; ++part) {
    LoraSettings::Target first;
    const bool wanted = s.target(s.ctx, module_of(base.segments[part].name), &first);
    for (size_t e = 1; e < experts; ++e) {
      LoraSettings::Target t;
      const std::string module = module_of(base.segments[e * parts + part].name);
      if (s.target(s.ctx, module, &t) != wanted || (wanted && (t.rank != first.rank || t.scale != first.scale)))
        fail_input(
            "{} and {} get different adapters: the experts of a layer share theirs' rank and scale; an adapter that "
            "has "
            "none for some of them was made for another base",
            module_of(base.segments[part].name), module);
    }
    if (!wanted) continue;
    blocks.push_back({base.segments[part].row, base.segments[part].rows, ranks, first.rank, first.scale});
    which.push_back(part);
    ranks += first.rank;
  }
  if (blocks.empty()) return y;
  if (s.dora)
    fail_missing("use_dora on experts ({}) is not built in: leave them out of target_modules, or use_dora out",
                 module_of(base.segments[0].name));
  if (s.dropout > 0)
    fail_missing("lora_dropout {:g} on experts ({}) is not built in: set it to 0 or leave them out of target_modules",
                 static_cast<double>(s.dropout), module_of(base.segments[0].name));
  Param a;
  a.name = base.name + ".lora_A";
  a.rows = ranks * op.experts;
  a.cols = base.cols;
  a.trainable = a.adapter = true;
  std::vector<Param> bs(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    bs[i].name = fmt::format("{}.lora_B.{}", base.name, i);
    bs[i].rows = blocks[i].cols * op.experts;
    bs[i].cols = blocks[i].rank;
    bs[i].trainable = bs[i].adapter = true;
  }
  for (size_t e = 0; e < experts; ++e)
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Segment& segment = base.segments[e * parts + which[i]];
      const auto at = static_cast<int64_t>(e);
      MXT_ASSERT(segment.row == at * height + blocks[i].col && segment.rows == blocks[i].cols);
      a.segments.push_back({module_of(segment.name) + ".lora_A.weight", at * ranks + blocks[i].z_col, blocks[i].rank});
      bs[i].segments.push_back({module_of(segment.name) + ".lora_B.weight", at * blocks[i].cols, blocks[i].cols});
    }
  auto value = [&](Param p) { return g.params[static_cast<size_t>(g.add_param(std::move(p), g.act_type))].value; };
  const ValueId a_value = value(std::move(a));
  std::vector<ValueId> b_values;
  for (Param& b : bs) b_values.push_back(value(std::move(b)));
  const ValueId z = expert_linear(g, in[0], a_value, in[2], op.experts);
  return expert_lora_add(g, y, z, in[2], op.experts, b_values, blocks);
}

// DoRA: a vector as long as the rows that blocks reach, in F32 since around a row's length bf16 has few numbers.
ValueId add_magnitudes(Graph& g, ValueId w, ValueId a, ValueId u, const std::vector<Targeted>& targeted,
                       const std::vector<ValueId>& bs, const std::vector<LoraBlock>& blocks, ValueId bias) {
  Param m;
  m.name = g.param_of(w).name + ".lora_magnitude";
  m.kind = ParamKind::kDecay;
  m.trainable = m.adapter = true;
  for (const Targeted& t : targeted) {
    m.segments.push_back({t.module + ".lora_magnitude_vector", m.cols, t.segment->rows});
    m.cols += t.segment->rows;
  }
  const ParamId id = g.add_param(std::move(m), DType::kF32);
  return dora(g, u, w, a, g.params[static_cast<size_t>(id)].value, bs, blocks, bias);
}

// The one block of a table of vectors or of the head.
struct Whole {
  std::string module;
  LoraSettings::Target t;
};
std::optional<Whole> whole_target(const Graph& g, const LoraSettings& s, ValueId w) {
  const Param& base = g.param_of(w);
  if (base.segments.size() != 1) return std::nullopt;
  Whole out{module_of(base.segments[0].name), {}};
  if (!s.target(s.ctx, out.module, &out.t)) return std::nullopt;
  if (s.dora)
    fail_missing("use_dora on {} is not built in: leave it out of target_modules, or use_dora out", out.module);
  return out;
}

ValueId add_adapter_param(Graph& g, Param p, std::string segment, bool transposed = false) {
  p.trainable = p.adapter = true;
  p.segments.push_back({std::move(segment), 0, p.rows, transposed});
  return g.params[static_cast<size_t>(g.add_param(std::move(p), g.act_type))].value;
}

// y = table[id] gets scale·A[:, id]ᵀBᵀ: a second table of short vectors.
ValueId add_to_embedding(Graph& g, const LoraSettings& s, ValueId table, int64_t padding, ValueId y) {
  const auto target = whole_target(g, s, table);
  if (!target) return y;
  const Param base = g.param_of(table);
  Param a, b;
  a.name = base.name + ".lora_embedding_A";
  a.kind = ParamKind::kEmbedding;
  a.rows = base.rows, a.cols = target->t.rank;
  b.name = base.name + ".lora_embedding_B";
  b.rows = base.cols, b.cols = target->t.rank;
  const ValueId a_value = add_adapter_param(g, std::move(a), target->module + ".lora_embedding_A", true),
                b_value = add_adapter_param(g, std::move(b), target->module + ".lora_embedding_B");
  const ValueId z = embedding(g, a_value, RowOf::kId, padding);
  return lora_add(g, y, z, {b_value}, {{0, base.cols, 0, target->t.rank, target->t.scale}});
}

// The head's logits get scale·(h Aᵀ)Bᵀ inside its own operation, which stands at the end of the list.
void add_to_head(Graph& g, const LoraSettings& s, ValueId h, ValueId w) {
  const Param base = g.param_of(w);
  const auto target =
      base.kind == ParamKind::kEmbedding ? std::nullopt : whole_target(g, s, w);  // of a tied one: the table's
  if (!target) return;
  Param a, b;
  a.name = base.name + ".lora_A";
  a.rows = target->t.rank, a.cols = base.cols;
  b.name = base.name + ".lora_B";
  b.rows = base.rows, b.cols = target->t.rank;
  const ValueId a_value = add_adapter_param(g, std::move(a), target->module + ".lora_A.weight"),
                b_value = add_adapter_param(g, std::move(b), target->module + ".lora_B.weight");
  Op head = std::move(g.ops.back());
  g.ops.pop_back();
  auto* attrs = std::get_if<FusedLinearCrossEntropyOp>(&head.attrs);
  if (attrs == nullptr)
    fail_missing(
        "an adapter on the head ({}) is built in for supervised fine-tuning alone: leave it out of "
        "target_modules",
        target->module);
  const ValueId z = linear(g, dropout(g, h, s.dropout), a_value);
  attrs->adapter = target->t.scale;
  head.in.insert(head.in.end(), {z, b_value});
  if (attrs->gradient) head.out.push_back(g.add_value(kTokens, target->t.rank, g.act_type));
  g.ops.push_back(std::move(head));
}

}  // namespace

void add_lora(Graph& g, const LoraSettings& s) {
  MXT_ASSERT(g.forward_ops == 0);
  std::vector<Op> old = std::move(g.ops);
  g.ops.clear();
  std::vector<ValueId> now(g.values.size());  // what an old value is called after the rewrite
  for (size_t i = 0; i < now.size(); ++i) now[i] = static_cast<ValueId>(i);

  for (Op& op : old) {
    for (ValueId& v : op.in) v = now[static_cast<size_t>(v)];
    for (ValueId v : op.out) {
      ValueId& alias = g.values[static_cast<size_t>(v)].alias_of;
      if (alias != kNone) alias = now[static_cast<size_t>(alias)];
    }
    const bool is_linear = std::holds_alternative<LinearOp>(op.attrs);
    const std::vector<ValueId> in = op.in, out = op.out;
    const Attrs attrs = op.attrs;
    g.ops.push_back(std::move(op));
    if (const auto* experts = std::get_if<ExpertLinearOp>(&attrs))
      now[static_cast<size_t>(out[0])] = add_to_experts(g, s, *experts, in, out[0]);
    if (const auto* table = std::get_if<EmbeddingOp>(&attrs); table && table->row == RowOf::kId)
      now[static_cast<size_t>(out[0])] = add_to_embedding(g, s, in[0], table->padding, out[0]);
    if (std::holds_alternative<FusedLinearCrossEntropyOp>(attrs) || std::holds_alternative<TokenLogProbOp>(attrs) ||
        std::holds_alternative<LogitsOp>(attrs))
      add_to_head(g, s, in[0], in[1]);
    if (!is_linear) continue;

    const Param base = g.param_of(in[1]);
    std::vector<Targeted> targeted;
    int64_t ranks = 0;
    for (const Segment& seg : base.segments) {
      Targeted t{&seg, module_of(seg.name), {}};
      if (!s.target(s.ctx, t.module, &t.t)) continue;
      ranks += t.t.rank;
      targeted.push_back(std::move(t));
    }
    if (targeted.empty()) continue;

    Param a;
    a.name = base.name + ".lora_A";
    a.rows = ranks;
    a.cols = base.cols;
    a.trainable = a.adapter = true;
    std::vector<LoraBlock> blocks;
    int64_t z_col = 0;
    for (const Targeted& t : targeted) {
      a.segments.push_back({t.module + ".lora_A.weight", z_col, t.t.rank});
      blocks.push_back({t.segment->row, t.segment->rows, z_col, t.t.rank, t.t.scale});
      z_col += t.t.rank;
    }
    const ParamId a_id = g.add_param(std::move(a), g.act_type);
    std::vector<ValueId> bs;
    for (size_t i = 0; i < targeted.size(); ++i) {
      Param b;
      b.name = fmt::format("{}.lora_B.{}", base.name, i);
      b.rows = targeted[i].segment->rows;
      b.cols = targeted[i].t.rank;
      b.trainable = b.adapter = true;
      b.segments.push_back({targeted[i].module + ".lora_B.weight", 0, b.rows});
      bs.push_back(g.params[static_cast<size_t>(g.add_param(std::move(b), g.act_type))].value);
    }
    const ValueId a_value = g.params[static_cast<size_t>(a_id)].value;
    const bool with_bias = in.size() > 2;
    if (s.dora && with_bias) g.ops.back().in.pop_back();  // behind the magnitudes
    const ValueId x = dropout(g, in[0], s.dropout);
    const ValueId z = linear(g, x, a_value);
    ValueId y = lora_add(g, out[0], z, bs, blocks);
    if (s.dora) y = add_magnitudes(g, in[1], a_value, y, targeted, bs, blocks, with_bias ? in[2] : kNone);
    now[static_cast<size_t>(out[0])] = y;
  }
}

}  // namespace mxt::graph
