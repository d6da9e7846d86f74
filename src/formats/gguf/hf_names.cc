#include <algorithm>
#include <charconv>
#include <cmath>
#include <mutex>
#include <set>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "formats/family.h"
#include "formats/gguf_hf.h"

namespace mxt::formats {
namespace {

using Layout = GgufForm::Layout;
using Turn = WeightName::Turn;

// "blk.12.attn_q.weight" → 12, "attn_q.weight". False where it is not of a block.
bool split_block(std::string_view name, int64_t* layer, std::string_view* rest) {
  if (!name.starts_with("blk.")) return false;
  name.remove_prefix(4);
  const auto r = std::from_chars(name.data(), name.data() + name.size(), *layer);
  if (r.ec != std::errc() || r.ptr == name.data() + name.size() || *r.ptr != '.') return false;
  *rest = name.substr(static_cast<size_t>(r.ptr - name.data()) + 1);
  return true;
}

// A module and what of it: ".weight", ".bias", or nothing for names that are whole.
struct Named {
  const WeightName* name = nullptr;
  std::string_view suffix;
  explicit operator bool() const { return name != nullptr; }
};

Named find_named(std::span<const WeightName> names, std::string_view full, std::string_view WeightName::* side) {
  for (const WeightName& n : names) {
    const std::string_view stem = n.*side;
    if (!full.starts_with(stem)) continue;
    const std::string_view suffix = full.substr(stem.size());
    if (n.whole ? suffix.empty() : suffix == ".weight" || suffix == ".bias") return {&n, suffix};
  }
  return {};
}

// Experts' biases are gpt-oss's alone.
Named find_experts(const Family& f, std::string_view full, std::string_view WeightName::* side) {
  const Named n = find_named(f.gguf_experts, full, side);
  return n && n.suffix == ".bias" && !f.turned_experts ? Named{} : n;
}

Named find_gguf(std::string_view gguf, const Family& f, bool* experts) {
  int64_t layer = 0;
  std::string_view rest;
  *experts = false;
  if (!split_block(gguf, &layer, &rest)) return find_named(f.gguf_top, gguf, &WeightName::gguf);
  if (const Named n = find_experts(f, rest, &WeightName::gguf)) {
    *experts = true;
    return n;
  }
  return find_named(f.gguf_block, rest, &WeightName::gguf);
}

// The shape that the config asks for, in Hugging Face's layout.
std::vector<int64_t> shape_of(const Named& n, bool conv1d, const ModelConfig& c) {
  const WeightName& w = *n.name;
  if (n.suffix == ".bias") return {size_of(conv1d && w.cols != Extent::kNone ? w.cols : w.rows, c)};
  if (w.cols == Extent::kNone) return {size_of(w.rows, c)};
  if (w.taps) return {size_of(w.rows, c), 1, size_of(w.cols, c)};
  return {size_of(w.rows, c), size_of(w.cols, c)};
}

GgufForm form_of(const Named& n, bool in_block, const ModelConfig& c) {
  const WeightName& w = *n.name;
  GgufForm f;
  f.more = w.plus_one && n.suffix == ".weight" ? 1.0f : 0.0f;
  f.decay = w.decay;
  if (in_block && c.family->conv1d && n.suffix == ".weight" && w.cols != Extent::kNone) f.layout = Layout::kTransposed;
  const bool pairs = w.turn == Turn::kQueryPairs || w.turn == Turn::kKeyPairs;
  if (pairs && c.family->gguf_pairs) {
    f.layout = Layout::kRopePairs;
    f.unit = c.head_dim / 2;
  }
  if (w.turn == Turn::kNone || pairs || c.linear_key_heads == c.linear_value_heads) return f;
  f.layout = w.turn == Turn::kValueColumns ? Layout::kValueColumns : Layout::kValueHeads;
  f.groups = c.linear_key_heads;
  f.each = c.linear_value_heads / c.linear_key_heads;
  f.unit = w.turn == Turn::kValueNumbers ? 1 : c.linear_value_head_dim;
  f.start = w.turn == Turn::kQkvHeads ? 2 * c.linear_key_heads * c.linear_key_head_dim : 0;
  return f;
}

GgufView make_view(const Gguf& g, const GgufTensor& t, std::string name, const Named& n, const ModelConfig& c,
                   bool in_block) {
  GgufView v;
  v.name = std::move(name);
  v.shape = t.shape();
  v.tensor = &t;
  v.form = form_of(n, in_block, c);
  if (v.form.layout == Layout::kTransposed && v.shape.size() == 2) std::swap(v.shape[0], v.shape[1]);
  const auto want = shape_of(n, in_block && c.family->conv1d, c);
  // Sides of 1 are Hugging Face's alone: a convolution's channels, a gate's only row.
  if (n.name->taps && v.shape.size() == 2) v.shape.insert(v.shape.begin() + 1, 1);
  if (want.size() == 2 && want[0] == 1 && v.shape.size() == 1) v.shape.insert(v.shape.begin(), 1);
  if (want != v.shape)
    fail_input("{}: tensor \"{}\" has shape [{}], but the model's sizes ask for [{}]: the file is damaged", g.path(),
               t.name, fmt::join(v.shape, ", "), fmt::join(want, ", "));
  return v;
}

void add_experts(const Gguf& g, const GgufTensor& t, int64_t layer, const Named& part, const ModelConfig& c,
                 std::vector<GgufView>& out) {
  const auto shape = t.shape();
  const std::vector<int64_t> want = shape_of(part, false, c);
  if (shape.size() != want.size() + 1 || shape[0] != c.num_experts)
    fail_input("{}: tensor \"{}\" does not hold the weights of {} experts", g.path(), t.name, c.num_experts);
  const std::vector<int64_t> have(shape.begin() + 1, shape.end());
  if (have != want)
    fail_input("{}: tensor \"{}\" has experts of shape [{}], but the model's sizes ask for [{}]: the file is damaged",
               g.path(), t.name, fmt::join(have, ", "), fmt::join(want, ", "));
  for (int64_t e = 0; e < shape[0]; ++e) {
    GgufView v;
    v.name = fmt::format("{}{}.mlp.experts.{}.{}{}", c.family->blocks, layer, e, part.name->hf, part.suffix);
    v.shape = want;
    v.tensor = &t;
    v.first_row = want.size() == 1 ? e : e * want[0];
    out.push_back(std::move(v));
  }
}

// Once a file, however often it is opened.
void say_guessing(const std::string& path, int64_t tensors) {
  static std::mutex mutex;
  static std::set<std::string> said;
  std::lock_guard lock(mutex);
  if (said.insert(path).second)
    log::warn(
        "{}: {} of its tensors guess further tokens (mtp) and are not used: the model computes the same without them",
        path, tensors);
}

}  // namespace

void check_gguf_family(const ModelConfig& c) {
  if (c.family->gguf.empty())
    fail_missing("GGUF files of model type \"{}\" are not built in: those of architectures {} are", c.model_type,
                 known_gguf_architectures());
}

int64_t GgufForm::in_file(int64_t r) const {
  if (layout == Layout::kRopePairs) return r / (2 * unit) * (2 * unit) + r % unit * 2 + r / unit % 2;
  if ((layout != Layout::kValueHeads && layout != Layout::kValueColumns) || r < start) return r;
  const int64_t head = (r - start) / unit;
  return start + (head % each * groups + head / each) * unit + (r - start) % unit;
}

int64_t GgufForm::in_hf(int64_t r) const {
  if (layout == Layout::kRopePairs) return r / (2 * unit) * (2 * unit) + r % 2 * unit + r % (2 * unit) / 2;
  if ((layout != Layout::kValueHeads && layout != Layout::kValueColumns) || r < start) return r;
  const int64_t head = (r - start) / unit;
  return start + (head % groups * each + head / groups) * unit + (r - start) % unit;
}

std::vector<GgufView> gguf_hf_views(const Gguf& g, const ModelConfig& c) {
  check_gguf_family(c);
  const Family& f = *c.family;
  std::vector<GgufView> out;
  const int64_t ahead = g.integer(fmt::format("{}.nextn_predict_layers", f.gguf)).value_or(0);
  int64_t guessing = 0;
  for (const GgufTensor& t : g.tensors()) {
    // Stated in the config: model_config_from_gguf.
    if (t.name == "rope_freqs.weight" ||
        std::find(f.gguf_beside.begin(), f.gguf_beside.end(), t.name) != f.gguf_beside.end())
      continue;
    int64_t layer = 0;
    std::string_view rest;
    Named n;
    if (split_block(t.name, &layer, &rest)) {
      if (layer >= c.num_layers && layer < c.num_layers + ahead) {
        ++guessing;
        continue;
      }
      if (layer < 0 || layer >= c.num_layers)
        fail_input("{}: tensor \"{}\" is of a layer that the model of {} layers does not have", g.path(), t.name,
                   c.num_layers);
      if (const Named e = find_experts(f, rest, &WeightName::gguf)) {
        add_experts(g, t, layer, e, c, out);
        continue;
      }
      n = find_named(f.gguf_block, rest, &WeightName::gguf);
      if (n)
        out.push_back(make_view(g, t, fmt::format("{}{}.{}{}", f.blocks, layer, n.name->hf, n.suffix), n, c, true));
    } else {
      n = find_named(f.gguf_top, t.name, &WeightName::gguf);
      if (n && n.name->gguf == "output" && c.tie_embeddings) continue;  // a copy of the embedding
      if (n) out.push_back(make_view(g, t, fmt::format("{}{}", n.name->hf, n.suffix), n, c, false));
    }
    if (!n) fail_missing("{}: tensor \"{}\" is not known for models of type {}", g.path(), t.name, c.model_type);
  }
  if (guessing > 0) say_guessing(g.path(), guessing);
  return out;
}

void read_gguf_view(const Gguf& g, const GgufView& v, int64_t begin, int64_t end, float* out) {
  const GgufTensor& t = *v.tensor;
  const GgufForm& f = v.form;
  const int64_t columns = t.columns();
  // A vector is one row of the file, but its elements are the rows of the view.
  if (v.shape.size() < 2) {
    std::vector<float> all(static_cast<size_t>(columns));
    g.dequantize(t, all.data(), v.first_row, v.first_row + 1);
    for (int64_t r = begin; r < end; ++r) {
      float x = all[static_cast<size_t>(f.in_file(r))] - f.more;
      if (f.decay && !(x < 0)) fail_input("{}: tensor \"{}\" holds {}: a decay below 0 is wanted", g.path(), t.name, x);
      out[r - begin] = f.decay ? std::log(-x) : x;
    }
    return;
  }
  if (f.layout == Layout::kPlain) {
    g.dequantize(t, out, v.first_row + begin, v.first_row + end);
  } else if (f.layout == Layout::kRopePairs || f.layout == Layout::kValueHeads) {
    parallel_for(begin, end, 16, [&](int64_t b, int64_t e) {
      for (int64_t r = b; r < e; ++r) g.dequantize(t, out + (r - begin) * columns, f.in_file(r), f.in_file(r) + 1);
    });
  } else if (f.layout == Layout::kValueColumns) {
    parallel_for(begin, end, 16, [&](int64_t b, int64_t e) {
      std::vector<float> row(static_cast<size_t>(columns));
      for (int64_t r = b; r < e; ++r) {
        g.dequantize(t, row.data(), r, r + 1);
        for (int64_t k = 0; k < columns; ++k) out[(r - begin) * columns + k] = row[static_cast<size_t>(f.in_file(k))];
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

GgufForm gguf_form(std::string_view gguf, const ModelConfig& c) {
  bool experts = false;
  const Named n = find_gguf(gguf, *c.family, &experts);
  return n && !experts ? form_of(n, gguf.starts_with("blk."), c) : GgufForm{};
}

std::vector<int64_t> gguf_hf_shape(std::string_view gguf, const ModelConfig& c) {
  bool experts = false;
  const Named n = find_gguf(gguf, *c.family, &experts);
  return n ? shape_of(n, !experts && gguf.starts_with("blk.") && c.family->conv1d, c) : std::vector<int64_t>{};
}

namespace {

// Of a name as the family itself spells it.
std::string own_tensor_name(std::string_view hf, const Family& f, int64_t* expert) {
  if (const Named n = find_named(f.gguf_top, hf, &WeightName::hf)) return fmt::format("{}{}", n.name->gguf, n.suffix);
  if (!hf.starts_with(f.blocks)) return "";
  const std::string_view rest = hf.substr(f.blocks.size());
  const size_t next = rest.find('.');
  if (next == std::string_view::npos) return "";
  const std::string_view layer = rest.substr(0, next), full = rest.substr(next + 1);
  if (const Named n = find_named(f.gguf_block, full, &WeightName::hf))
    return fmt::format("blk.{}.{}{}", layer, n.name->gguf, n.suffix);
  constexpr std::string_view kExperts = "mlp.experts.";
  if (!full.starts_with(kExperts)) return "";
  const char *at = full.data() + kExperts.size(), *end = full.data() + full.size();
  int64_t number = -1;
  const auto r = std::from_chars(at, end, number);
  if (r.ec != std::errc() || r.ptr == end || *r.ptr != '.') return "";
  const Named n = find_experts(f, std::string_view(r.ptr + 1, end), &WeightName::hf);
  if (!n) return "";
  if (expert) *expert = number;
  return fmt::format("blk.{}.{}{}", layer, n.name->gguf, n.suffix);
}

}  // namespace

std::string gguf_tensor_name(std::string_view hf, const ModelConfig& c, int64_t* expert) {
  check_gguf_family(c);
  const Family& f = *c.family;
  if (expert) *expert = -1;
  std::string out = own_tensor_name(hf, f, expert);
  for (const std::string_view other : f.other_prefixes)
    if (out.empty() && hf.starts_with(other))
      out = own_tensor_name(fmt::format("{}{}", f.prefix, hf.substr(other.size())), f, expert);
  if (out.empty()) out = own_tensor_name(fmt::format("{}{}", f.prefix, hf), f, expert);  // a bare model's
  return out;
}

}  // namespace mxt::formats
