#include <algorithm>
#include <charconv>
#include <cstring>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/threads.h"
#include "formats/family.h"
#include "formats/gguf_hf.h"

namespace mxt::formats {
namespace {

using Layout = GgufView::Layout;

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

const WeightName* find_name(std::span<const WeightName> names, std::string_view gguf) {
  for (const WeightName& n : names)
    if (n.gguf == gguf) return &n;
  return nullptr;
}

// The shape that the config asks for, in Hugging Face's layout.
std::vector<int64_t> shape_of(const WeightName& n, bool bias, bool conv1d, const ModelConfig& c) {
  if (bias) return {size_of(conv1d && n.cols != Extent::kNone ? n.cols : n.rows, c)};
  if (n.cols == Extent::kNone) return {size_of(n.rows, c)};
  return {size_of(n.rows, c), size_of(n.cols, c)};
}

GgufView make_view(const Gguf& g, const GgufTensor& t, std::string name, const WeightName& n, const ModelConfig& c,
                   bool in_block) {
  GgufView v;
  v.name = std::move(name);
  v.shape = t.shape();
  v.tensor = &t;
  v.less = n.plus_one && v.name.ends_with(".weight") ? 1.0f : 0.0f;
  const bool conv1d = in_block && c.family->conv1d;
  if (conv1d && v.shape.size() == 2) {
    v.layout = Layout::kTransposed;
    std::swap(v.shape[0], v.shape[1]);
  }
  if (c.family->gguf_pairs && n.turn != WeightName::Turn::kNone) {
    v.layout = Layout::kRopePairs;
    v.heads = n.turn == WeightName::Turn::kQueryPairs ? c.num_heads : c.num_kv_heads;
  }
  const auto want = shape_of(n, v.name.ends_with(".bias"), conv1d, c);
  if (want != v.shape)
    fail_input("{}: tensor \"{}\" has shape [{}], but the model's sizes ask for [{}]: the file is damaged", g.path(),
               t.name, fmt::join(v.shape, ", "), fmt::join(want, ", "));
  return v;
}

void add_experts(const Gguf& g, const GgufTensor& t, int64_t layer, const WeightName& part, const ModelConfig& c,
                 std::vector<GgufView>& out) {
  const auto shape = t.shape();
  if (shape.size() != 3 || shape[0] != c.num_experts)
    fail_input("{}: tensor \"{}\" does not hold the weights of {} experts", g.path(), t.name, c.num_experts);
  const std::vector<int64_t> want{size_of(part.rows, c), size_of(part.cols, c)};
  if (shape[1] != want[0] || shape[2] != want[1])
    fail_input(
        "{}: tensor \"{}\" has experts of shape [{}, {}], but the model's sizes ask for [{}]: the file is damaged",
        g.path(), t.name, shape[1], shape[2], fmt::join(want, ", "));
  for (int64_t e = 0; e < shape[0]; ++e) {
    GgufView v;
    v.name = fmt::format("{}{}.mlp.experts.{}.{}.weight", c.family->blocks, layer, e, part.hf);
    v.shape = {shape[1], shape[2]};
    v.tensor = &t;
    v.first_row = e * shape[1];
    out.push_back(std::move(v));
  }
}

}  // namespace

void check_gguf_family(const ModelConfig& c) {
  if (c.family->gguf.empty())
    fail_missing("GGUF files of model type \"{}\" are not built in: those of architectures {} are", c.model_type,
                 known_gguf_architectures());
}

std::vector<GgufView> gguf_hf_views(const Gguf& g, const ModelConfig& c) {
  check_gguf_family(c);
  const Family& f = *c.family;
  std::vector<GgufView> out;
  for (const GgufTensor& t : g.tensors()) {
    // Stated in the config: model_config_from_gguf.
    if (t.name == "rope_freqs.weight" ||
        std::find(f.gguf_beside.begin(), f.gguf_beside.end(), t.name) != f.gguf_beside.end())
      continue;
    int64_t layer = 0;
    std::string_view stem, suffix;
    const WeightName* n = nullptr;
    if (split_block(t.name, &layer, &stem, &suffix)) {
      if (layer < 0 || layer >= c.num_layers)
        fail_input("{}: tensor \"{}\" is of a layer that the model of {} layers does not have", g.path(), t.name,
                   c.num_layers);
      if (const WeightName* e = find_name(f.gguf_experts, stem); e && suffix == ".weight") {
        add_experts(g, t, layer, *e, c, out);
        continue;
      }
      n = find_name(f.gguf_block, stem);
      if (n) out.push_back(make_view(g, t, fmt::format("{}{}.{}{}", f.blocks, layer, n->hf, suffix), *n, c, true));
    } else if (const size_t dot = t.name.rfind('.'); dot != std::string::npos) {
      n = find_name(f.gguf_top, std::string_view(t.name).substr(0, dot));
      if (n && n->gguf == "output" && c.tie_embeddings) continue;  // a copy of the embedding
      if (n) out.push_back(make_view(g, t, std::string(n->hf) + t.name.substr(dot), *n, c, false));
    }
    if (!n) fail_missing("{}: tensor \"{}\" is not known for models of type {}", g.path(), t.name, c.model_type);
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
      out[r - begin] = all[static_cast<size_t>(from)] - v.less;
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

bool gguf_holds_plus_one(std::string_view gguf, const ModelConfig& c) {
  int64_t layer = 0;
  std::string_view stem, suffix;
  const bool block = split_block(gguf, &layer, &stem, &suffix);
  const WeightName* n =
      block ? find_name(c.family->gguf_block, stem) : find_name(c.family->gguf_top, gguf.substr(0, gguf.rfind('.')));
  return n && n->plus_one && gguf.ends_with(".weight");
}

std::string gguf_tensor_name(std::string_view hf, const ModelConfig& c) {
  check_gguf_family(c);
  const Family& f = *c.family;
  const size_t dot = hf.rfind('.');
  if (dot == std::string_view::npos) return "";
  const std::string_view stem = hf.substr(0, dot), suffix = hf.substr(dot);
  for (const WeightName& n : f.gguf_top)
    if (n.hf == stem) return std::string(n.gguf) + std::string(suffix);
  if (!stem.starts_with(f.blocks)) return "";
  const std::string_view rest = stem.substr(f.blocks.size());
  const size_t next = rest.find('.');
  if (next == std::string_view::npos) return "";
  for (const WeightName& n : f.gguf_block)
    if (n.hf == rest.substr(next + 1)) return fmt::format("blk.{}.{}{}", rest.substr(0, next), n.gguf, suffix);
  return "";
}

}  // namespace mxt::formats
