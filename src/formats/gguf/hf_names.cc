#include <algorithm>
#include <charconv>
#include <cstring>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/threads.h"
#include "formats/gguf_hf.h"

namespace mxt::formats {
namespace {

using Layout = GgufView::Layout;

struct Name {
  std::string_view gguf, hf;
  Layout layout = Layout::kPlain;
  int which = 0;  // kRopePairs: 1 = query heads, 2 = key/value heads
};

// Inside a block: blk.N.<gguf>.weight ↔ model.layers.N.<hf>.weight.
constexpr Name kDecoderBlock[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj", Layout::kRopePairs, 1},
    {"attn_k", "self_attn.k_proj", Layout::kRopePairs, 2},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
};
constexpr Name kDecoderTop[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr Name kDecoderExperts[] = {
    {"ffn_gate_exps", "gate_proj"}, {"ffn_up_exps", "up_proj"}, {"ffn_down_exps", "down_proj"}};
constexpr Name kGpt2Block[] = {
    {"attn_norm", "ln_1"},
    {"attn_qkv", "attn.c_attn", Layout::kTransposed},
    {"attn_output", "attn.c_proj", Layout::kTransposed},
    {"ffn_norm", "ln_2"},
    {"ffn_up", "mlp.c_fc", Layout::kTransposed},
    {"ffn_down", "mlp.c_proj", Layout::kTransposed},
};
constexpr Name kGpt2Top[] = {{"token_embd", "transformer.wte"},
                             {"position_embd", "transformer.wpe"},
                             {"output_norm", "transformer.ln_f"},
                             {"output", "lm_head"}};

struct Table {
  std::span<const Name> block, top;
  std::string_view prefix;  // of a block in Hugging Face's names
  bool rope_pairs;
};

Table table_of(const ModelConfig& c) {
  if (c.model_type == "gpt2") return {kGpt2Block, kGpt2Top, "transformer.h.", false};
  if (c.model_type == "llama" || c.model_type == "mistral") return {kDecoderBlock, kDecoderTop, "model.layers.", true};
  if (c.model_type == "qwen2" || c.model_type == "qwen3" || c.model_type == "qwen3_moe")
    return {kDecoderBlock, kDecoderTop, "model.layers.", false};
  fail_missing("GGUF files of model type \"{}\" are not built in: llama, qwen2, qwen3, qwen3_moe and gpt2 are",
               c.model_type);
}

// "blk.12.attn_q.weight" → 12, "attn_q", ".weight". False where it is not of a block.
bool split_block(std::string_view name, int64_t* layer, std::string_view* stem, std::string_view* suffix) {
  if (!name.starts_with("blk.")) return false;
  name.remove_prefix(4);
  const auto r = std::from_chars(name.data(), name.data() + name.size(), *layer);
  if (r.ec != std::errc() || r.ptr == name.data() + name.size() || *r.ptr != '.') return false;
  name.remove_prefix(static_cast<size_t>(r.ptr - name.data()) + 1);
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  *stem = name.substr(0, dot);
  *suffix = name.substr(dot);
  return *suffix == ".weight" || *suffix == ".bias";
}

const Name* find_name(std::span<const Name> names, std::string_view gguf) {
  for (const Name& n : names)
    if (n.gguf == gguf) return &n;
  return nullptr;
}

GgufView make_view(const GgufTensor& t, std::string name, const Name& n, const ModelConfig& c, bool rope_pairs) {
  GgufView v;
  v.name = std::move(name);
  v.shape = t.shape();
  v.tensor = &t;
  v.layout = n.layout;
  if (v.layout == Layout::kTransposed && v.shape.size() == 2)
    std::swap(v.shape[0], v.shape[1]);
  else if (v.layout == Layout::kTransposed)
    v.layout = Layout::kPlain;  // a bias
  if (v.layout == Layout::kRopePairs) {
    v.heads = n.which == 1 ? c.num_heads : c.num_kv_heads;
    if (!rope_pairs) v.layout = Layout::kPlain;
  }
  return v;
}

void add_experts(const Gguf& g, const GgufTensor& t, int64_t layer, std::string_view part, const ModelConfig& c,
                 std::vector<GgufView>& out) {
  const auto shape = t.shape();
  if (shape.size() != 3 || shape[0] != c.num_experts)
    fail_input("{}: tensor \"{}\" does not hold the weights of {} experts", g.path(), t.name, c.num_experts);
  for (int64_t e = 0; e < shape[0]; ++e) {
    GgufView v;
    v.name = fmt::format("model.layers.{}.mlp.experts.{}.{}.weight", layer, e, part);
    v.shape = {shape[1], shape[2]};
    v.tensor = &t;
    v.first_row = e * shape[1];
    out.push_back(std::move(v));
  }
}

// The shape that the config asks for; empty = any.
std::vector<int64_t> expected_shape(std::string_view hf, const ModelConfig& c) {
  const int64_t d = c.hidden_size, q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim,
                f = c.intermediate_size;
  const auto ends = [&](std::string_view s) { return hf.ends_with(s); };
  if (ends("embed_tokens.weight") || ends("wte.weight") || ends("lm_head.weight")) return {c.vocab_size, d};
  if (ends("wpe.weight")) return {c.max_positions, d};
  if (ends("q_proj.weight")) return {q, d};
  if (ends("q_proj.bias")) return {q};
  if (ends("k_proj.weight") || ends("v_proj.weight")) return {kv, d};
  if (ends("k_proj.bias") || ends("v_proj.bias")) return {kv};
  if (ends("o_proj.weight")) return {d, q};
  if (ends("q_norm.weight") || ends("k_norm.weight")) return {c.head_dim};
  if (ends("layernorm.weight") || ends("norm.weight") || ends("ln_1.weight") || ends("ln_2.weight") ||
      ends("ln_f.weight"))
    return {d};
  if (hf.find(".experts.") != std::string_view::npos)
    return ends("down_proj.weight") ? std::vector<int64_t>{d, c.moe_intermediate_size}
                                    : std::vector<int64_t>{c.moe_intermediate_size, d};
  if (ends("mlp.gate.weight")) return {c.num_experts, d};
  if (ends("gate_proj.weight") || ends("up_proj.weight")) return {f, d};
  if (ends("down_proj.weight")) return {d, f};
  if (ends("attn.c_attn.weight")) return {d, 3 * d};
  if (ends("attn.c_proj.weight")) return {d, d};
  if (ends("mlp.c_fc.weight")) return {d, f};
  if (ends("mlp.c_proj.weight")) return {f, d};
  return {};
}

}  // namespace

std::vector<GgufView> gguf_hf_views(const Gguf& g, const ModelConfig& c) {
  const Table table = table_of(c);
  std::vector<GgufView> out;
  for (const GgufTensor& t : g.tensors()) {
    if (t.name == "rope_freqs.weight") continue;  // stated in the config: model_config_from_gguf
    int64_t layer = 0;
    std::string_view stem, suffix;
    const Name* n = nullptr;
    if (split_block(t.name, &layer, &stem, &suffix)) {
      if (layer < 0 || layer >= c.num_layers)
        fail_input("{}: tensor \"{}\" is of a layer that the model of {} layers does not have", g.path(), t.name,
                   c.num_layers);
      if (const Name* e = find_name(kDecoderExperts, stem); e && c.num_experts > 0 && suffix == ".weight") {
        add_experts(g, t, layer, e->hf, c, out);
        continue;
      }
      n = find_name(table.block, stem);
      if (n)
        out.push_back(
            make_view(t, fmt::format("{}{}.{}{}", table.prefix, layer, n->hf, suffix), *n, c, table.rope_pairs));
    } else if (const size_t dot = t.name.rfind('.'); dot != std::string::npos) {
      n = find_name(table.top, std::string_view(t.name).substr(0, dot));
      if (n && n->gguf == "output" && c.tie_embeddings) continue;  // a copy of the embedding
      if (n) out.push_back(make_view(t, std::string(n->hf) + t.name.substr(dot), *n, c, false));
    }
    if (!n) fail_missing("{}: tensor \"{}\" is not known for models of type {}", g.path(), t.name, c.model_type);
  }
  for (const GgufView& v : out) {
    const auto want = expected_shape(v.name, c);
    if (!want.empty() && want != v.shape)
      fail_input("{}: tensor \"{}\" has shape [{}], but the model's sizes ask for [{}]: the file is damaged", g.path(),
                 v.tensor->name, fmt::join(v.shape, ", "), fmt::join(want, ", "));
  }
  return out;
}

void read_gguf_view(const Gguf& g, const GgufView& v, int64_t begin, int64_t end, float* out) {
  const GgufTensor& t = *v.tensor;
  const bool vector = v.shape.size() < 2;
  // A vector is one row of the file, but its elements are the rows of the view.
  if (vector) {
    std::vector<float> all(static_cast<size_t>(t.columns()));
    g.dequantize(t, all.data());
    const int64_t half = v.layout == Layout::kRopePairs ? v.shape[0] / v.heads / 2 : 0;
    for (int64_t r = begin; r < end; ++r) {
      int64_t from = r;
      if (half > 0) from = r / (2 * half) * (2 * half) + r % half * 2 + r / half % 2;
      out[r - begin] = all[static_cast<size_t>(from)];
    }
    return;
  }
  const int64_t columns = t.columns();
  if (v.layout == Layout::kPlain) {
    g.dequantize(t, out, v.first_row + begin, v.first_row + end);
  } else if (v.layout == Layout::kRopePairs) {
    // Row (head, half h, j) stands at (head, j, h).
    const int64_t half = v.shape[0] / v.heads / 2;
    parallel_for(begin, end, 16, [&](int64_t b, int64_t e) {
      for (int64_t r = b; r < e; ++r) {
        const int64_t from = r / (2 * half) * (2 * half) + r % half * 2 + r / half % 2;
        g.dequantize(t, out + (r - begin) * columns, from, from + 1);
      }
    });
  } else {
    std::vector<float> all(static_cast<size_t>(t.rows() * columns));
    g.dequantize(t, all.data());
    const int64_t width = t.rows();
    parallel_for(begin, end, 16, [&](int64_t b, int64_t e) {
      for (int64_t r = b; r < e; ++r)
        for (int64_t k = 0; k < width; ++k) out[(r - begin) * width + k] = all[static_cast<size_t>(k * columns + r)];
    });
  }
}

std::string gguf_tensor_name(std::string_view hf, const ModelConfig& c) {
  const Table table = table_of(c);
  const size_t dot = hf.rfind('.');
  if (dot == std::string_view::npos) return "";
  const std::string_view stem = hf.substr(0, dot), suffix = hf.substr(dot);
  for (const Name& n : table.top)
    if (n.hf == stem) return std::string(n.gguf) + std::string(suffix);
  if (!stem.starts_with(table.prefix)) return "";
  const std::string_view rest = stem.substr(table.prefix.size());
  const size_t next = rest.find('.');
  if (next == std::string_view::npos) return "";
  for (const Name& n : table.block)
    if (n.hf == rest.substr(next + 1)) return fmt::format("blk.{}.{}{}", rest.substr(0, next), n.gguf, suffix);
  return "";
}

}  // namespace mxt::formats
