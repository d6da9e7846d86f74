#include "runtime/spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/call_visitor.h"

namespace mxt::runtime {
namespace {

// A place as an address: the buffer's number above, the offset below. Nothing is ever read there.
constexpr int kOffsetBits = 44;

struct PutPlaces : kernels::CallVisitor {
  const std::vector<Operand>& operands;
  size_t i = 0;
  explicit PutPlaces(const std::vector<Operand>& o) : operands(o) {}
  template <typename M>
  void mat(std::string_view, M& m, kernels::Use) {
    m.p = place(operands[i++].ref);
  }
  template <typename P>
  void array(std::string_view, P& p, DType, int64_t, kernels::Use) {
    p = static_cast<P>(place(operands[i++].ref));
  }
};

int64_t times(kernels::Use use) { return use == kernels::Use::kBoth ? 2 : 1; }

struct CountBytes : kernels::CallVisitor {
  int64_t bytes = 0;
  template <typename M>
  void mat(std::string_view, M& m, kernels::Use use) {
    if (m.p) bytes += times(use) * m.rows * m.cols * static_cast<int64_t>(size_of(m.type));
  }
  template <typename P>
  void array(std::string_view, P& p, DType type, int64_t elements, kernels::Use use) {
    if (p) bytes += times(use) * elements * static_cast<int64_t>(size_of(type));
  }
};

std::string rows_text(graph::Extent e, int64_t rows) {
  if (e.constant()) return std::to_string(rows);
  return e.factor == 1 ? std::string(name_of(e.dim)) : fmt::format("{}*{}", e.factor, name_of(e.dim));
}

struct Print : kernels::CallVisitor {
  const ProgramSpec& spec;
  const StepCall& call;
  std::string out;
  size_t i = 0;
  int accumulates = 0;
  Print(const ProgramSpec& s, const StepCall& c) : spec(s), call(c) {}
  static std::string_view how(kernels::Use use) {
    return use == kernels::Use::kRead ? "<" : use == kernels::Use::kWritten ? ">" : "<>";
  }
  std::string where(Ref r) const {
    return fmt::format("{}+{}", spec.buffers[static_cast<size_t>(r.buffer)].name, r.offset);
  }
  template <typename M>
  void mat(std::string_view name, M& m, kernels::Use use) {
    const Operand& o = call.operands[i++];
    if (o.ref.buffer < 0) return;
    out += fmt::format(" {}{}{}[{},{}]/{} {}", name, how(use), where(o.ref), rows_text(o.rows, m.rows), m.cols, m.ld,
                       name_of(m.type));
  }
  template <typename P>
  void array(std::string_view name, P&, DType type, int64_t elements, kernels::Use use) {
    const Operand& o = call.operands[i++];
    if (o.ref.buffer < 0) return;
    out += fmt::format(" {}{}{}", name, how(use), where(o.ref));
    if (elements > 0) out += fmt::format("[{}] {}", elements, name_of(type));
  }
  void adds(bool& a) {
    const bool first = call.overwrites_first >> accumulates++ & 1;
    out += first ? " overwrites-then-adds" : a ? " adds" : " overwrites";
  }
  void draws(float p, uint64_t&, uint64_t&, int64_t&) {
    if (p > 0) out += fmt::format(" dropout {} stream {}", p, call.stream);
  }
};

// What a call is given beside its operands and decides what it computes.
std::string settings_text(const kernels::Gemm& g) {
  std::string s = fmt::format(" {}{}", g.trans_a ? 't' : 'n', g.trans_b ? 't' : 'n');
  if (g.alpha != 1.0f) s += fmt::format(" alpha {}", g.alpha);
  if (g.relu2) s += " relu2";
  return s;
}
template <typename A>
  requires requires(const A& a) { a.longest; }
std::string settings_text(const A& a) {
  std::string s = fmt::format(" heads {}/{}x{} scale {}", a.heads, a.kv_heads, a.head_dim, a.scale);
  if (a.window > 0) s += fmt::format(" window {}", a.window);
  if (!a.causal) s += " both sides";
  return s;
}
std::string settings_text(const kernels::CachedAttention& a) {
  return fmt::format(" heads {}/{}x{} scale {} window {}", a.heads, a.kv_heads, a.head_dim, a.scale, a.window);
}
template <typename R>
  requires requires(const R& r) { r.rotary; }
std::string settings_text(const R& r) {
  std::string text = fmt::format(" heads {}/{}x{} rotary {}", r.heads, r.kv_heads, r.head_dim, r.rotary);
  if constexpr (requires { r.keep_dqkv; })
    if (!r.keep_dqkv) text += " dqkv not kept";
  return text;
}
std::string settings_text(const kernels::Norm& n) {
  return fmt::format(" {} eps {}{}", n.layer_norm ? "layer" : "rms", n.eps, n.keep_y ? "" : " y not kept");
}
std::string settings_text(const kernels::NormGrad& n) { return n.layer_norm ? " layer" : " rms"; }
std::string_view name_of(kernels::Activation a) {
  switch (a) {
    case kernels::Activation::kSwiGlu:
      return "swiglu";
    case kernels::Activation::kGeluTanh:
      return "gelu_tanh";
    case kernels::Activation::kGelu:
      return "gelu";
    case kernels::Activation::kRelu2:
      return "relu2";
    case kernels::Activation::kGeGlu:
      return "geglu";
  }
  assert_failed("an activation has a name", __FILE__, __LINE__);
}
std::string settings_text(const kernels::Act& a) {
  return fmt::format(" {}{}", name_of(a.kind), a.keep_y ? "" : " y not kept");
}
std::string settings_text(const kernels::ActGrad& a) {
  return fmt::format(" {}{}", name_of(a.kind), a.keep_dx ? "" : " dx not kept");
}
std::string settings_text(const kernels::ActLora& a) { return settings_text(a.act); }
std::string settings_text(const kernels::ActLoraGrad& a) { return settings_text(a.act); }
template <typename G>
  requires requires(const G& g) { g.limit; }
std::string settings_text(const G& g) {
  return fmt::format(" alpha {} limit {}", g.alpha, g.limit);
}
std::string settings_text(const kernels::CachedSinks& c) { return settings_text(c.of); }
std::string settings_text(const kernels::CrossEntropy& c) {
  return fmt::format("{}{}{}", c.gradient ? " gradient" : "", c.softmax ? " softmax" : "",
                     c.softcap > 0 ? fmt::format(" softcap {}", c.softcap) : "");
}
std::string settings_text(const kernels::GroupedGemm& g) {
  static constexpr std::string_view kKinds[] = {"forward", "input", "weight"};
  return fmt::format(" {} experts {} alpha {}", kKinds[static_cast<size_t>(g.kind)], g.experts, g.alpha);
}
std::string settings_text(const kernels::Route& r) {
  return fmt::format(" top {}{}", r.weights.cols, r.renormalize ? " renormalised" : "");
}
template <typename G>
  requires requires(const G& g) { g.of.key_heads; }
std::string settings_text(const G& g) {
  return fmt::format(" heads {}/{} of {}/{}", g.of.key_heads, g.of.value_heads, g.of.key_dim, g.of.value_dim);
}
std::string settings_text(const kernels::Decode& d) {
  return fmt::format(" {} [{},{}] from {},{}{}", name_of(d.matrix.coding), d.matrix.rows, d.matrix.cols, d.row, d.col,
                     d.through == DType::kF32 ? std::string() : fmt::format(" through {}", mxt::name_of(d.through)));
}
std::string settings_text(const kernels::DoraGain& d) {
  return d.rows > 0 ? fmt::format(" rows {} scale {}", d.rows, d.scale) : std::string();
}
std::string settings_text(const kernels::EmbeddingNoise& e) { return fmt::format(" alpha {}", e.alpha); }
std::string settings_text(const kernels::Copy& c) { return fmt::format(" scale {}", c.scale); }
std::string settings_text(const kernels::ScatterRows& s) { return s.zero ? " zero first" : ""; }
std::string settings_text(const kernels::RoundRows& r) {
  return fmt::format(" {} group {}", r.type == kernels::SmallType::kFp8 ? "fp8" : "mxfp4", r.group);
}
template <typename C>
  requires(
      !requires(const C& c) { c.longest; } && !requires(const C& c) { c.rotary; } &&
      !requires(const C& c) { c.of.key_heads; } && !requires(const C& c) { c.limit; })
std::string settings_text(const C&) {
  return {};
}

std::string algorithm_text(const kernels::AnyCall& call, const kernels::Ops& ops) {
  if (const auto* g = std::get_if<kernels::Gemm>(&call))
    return ":" + ops.gemm_algorithms().at(static_cast<size_t>(g->algo));
  if (const auto* g = std::get_if<kernels::GroupedGemm>(&call))
    return ":" + ops.gemm_algorithms().at(static_cast<size_t>(g->algo));
  const auto* a = std::get_if<kernels::Attention>(&call);
  const auto* d = std::get_if<kernels::AttentionGrad>(&call);
  if (a || d) return ":" + ops.attention_algorithms().at(static_cast<size_t>(a ? a->algo : d->algo));
  return {};
}

std::string when_text(uint16_t when) {
  static constexpr std::pair<When, std::string_view> kNames[] = {
      {kFirstPass, "first-pass"},         {kApart, "rows-apart"},           {kSomeLeftOut, "some-without-target"},
      {kNoTarget, "no-target"},           {kLogitsWanted, "logits-wanted"}, {kHiddenWanted, "hidden-wanted"},
      {kLogitsFetched, "logits-fetched"}, {kDrawsWanted, "draws-wanted"},   {kPicturesThere, "pictures-there"}};
  std::string s;
  for (const auto& [bit, name] : kNames)
    if (when & bit) s += fmt::format(" when {}", name);
  return s;
}

}  // namespace

std::string_view name_of(Source s) {
  static constexpr std::string_view kNames[] = {"arena",
                                                "head",
                                                "decoded",
                                                "zeros",
                                                "cos",
                                                "sin",
                                                "weight",
                                                "grad",
                                                "scale",
                                                "transposed",
                                                "joined",
                                                "packed",
                                                "packed_dx",
                                                "ids",
                                                "positions",
                                                "previous",
                                                "documents",
                                                "host_documents",
                                                "prefixes",
                                                "row_offsets",
                                                "balance_scale",
                                                "target_rows",
                                                "target_labels",
                                                "target_weights",
                                                "logit_rows",
                                                "draw_temperature",
                                                "draw_bits",
                                                "logits",
                                                "hidden",
                                                "drawn",
                                                "pooled",
                                                "queries",
                                                "context",
                                                "tables",
                                                "slots",
                                                "keys",
                                                "values",
                                                "state_slots",
                                                "convolutions",
                                                "states",
                                                "pixels",
                                                "features",
                                                "picture_documents",
                                                "host_picture_documents",
                                                "picture_rows",
                                                "text_ids",
                                                "count",
                                                "corners",
                                                "corner_weights",
                                                "patch_cos",
                                                "patch_sin",
                                                "token_cos",
                                                "token_sin",
                                                "window"};
  static_assert(std::size(kNames) == static_cast<size_t>(Source::kWindow) + 1);
  return kNames[static_cast<size_t>(s)];
}

bool reads_previous(const ProgramSpec& spec) {
  return std::any_of(spec.buffers.begin(), spec.buffers.end(),
                     [](const BufferSpec& b) { return b.source == Source::kPrevious; });
}

void* place(Ref r) {
  if (r.buffer < 0) return nullptr;
  MXT_ASSERT(r.offset >= 0 && r.offset < int64_t{1} << kOffsetBits && r.buffer < 1 << 19);
  const auto address = static_cast<uintptr_t>(r.buffer + 1) << kOffsetBits | static_cast<uintptr_t>(r.offset);
  return reinterpret_cast<void*>(address);
}

Ref ref_of(const void* placed) {
  const auto address = reinterpret_cast<uintptr_t>(placed);
  if (address == 0) return {};
  return {static_cast<BufferId>(address >> kOffsetBits) - 1,
          static_cast<int64_t>(address & ((uintptr_t{1} << kOffsetBits) - 1))};
}

kernels::AnyCall placed(const StepCall& c) {
  kernels::AnyCall call = c.call;
  PutPlaces put(c.operands);
  std::visit([&](auto& x) { kernels::operands(x, put); }, call);
  return call;
}

int64_t bytes_moved(const StepCall& c) {
  kernels::AnyCall call = placed(c);
  CountBytes count;
  std::visit([&](auto& x) { kernels::operands(x, count); }, call);
  return count.bytes;
}

std::string print(const ProgramSpec& spec, const kernels::Ops& ops) {
  const ProgramSettings& s = spec.settings;
  std::string out =
      fmt::format("program 1\nbackend {}\nat most {} tokens in {} documents{}{}\n", ops.name(), s.max_tokens,
                  s.max_documents, s.cached ? ", over a cache" : "", s.packed_weights ? ", packed weights" : "");
  for (const BufferSpec& b : spec.buffers)
    out += b.bytes > 0 ? fmt::format("buffer {} {} bytes\n", b.name, b.bytes) : fmt::format("buffer {}\n", b.name);
  size_t loop = 0;
  for (size_t i = 0; i < spec.calls.size(); ++i) {
    if (loop < spec.loops.size() && spec.loops[loop].first == i) {
      const Loop& l = spec.loops[loop];
      out += fmt::format("loop over {} in chunks of {}\n", name_of(l.over), l.chunk);
      for (const Window& w : l.windows) {
        const auto name = [&](BufferId id) { return spec.buffers[static_cast<size_t>(id)].name; };
        out += fmt::format("window {} = {}+{} + {} bytes a {}", name(w.window), name(w.of.buffer), w.of.offset,
                           w.row_bytes, w.by_place ? "row done" : "row");
        out += w.apart.buffer < 0 ? "\n" : fmt::format(", apart {}+{}\n", name(w.apart.buffer), w.apart.offset);
      }
    }
    const StepCall& c = spec.calls[i];
    kernels::AnyCall call = placed(c);
    Print p(spec, c);
    std::visit(
        [&](auto& x) {
          p.out = settings_text(x);
          kernels::operands(x, p);
        },
        call);
    out +=
        fmt::format("{} {}{}{}{} bytes {} operations {:.0f}\n", i, kernels::name_of(c.call),
                    algorithm_text(c.call, ops), p.out, when_text(c.when), bytes_moved(c), kernels::operations(c.call));
    if (loop < spec.loops.size() && spec.loops[loop].last == i + 1) out += "end\n", ++loop;
  }
  return out;
}

}  // namespace mxt::runtime
