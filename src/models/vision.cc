// The tower: patches to vectors, places read off a table, blocks of full attention within a picture, and mergers that
// make merge² patches one token. Some blocks' features are added to the first text layers (DeepStack, Meng et al.
// 2024), where the configuration says so.
#include "models/vision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "formats/family.h"

namespace mxt::models {

using namespace graph;

namespace {

constexpr float kEps = 1e-6f;

class Vision {
 public:
  Vision(Decoder& decoder, const formats::VisionConfig& config)
      : d(decoder), g(decoder.g), v(config), std(static_cast<float>(config.initializer_range)) {}

  // What becomes of the pictures' tokens: the embeddings first, then what each of the first layers is given.
  std::vector<ValueId> run() {
    const int64_t values = g.pictures.values;
    const ValueId pixels = picture_input(g, values);
    const ValueId seen = project(pixels, "patch", kRoot + "patch_embed.proj", values, v.width);
    d.param(d.g.ops.back().in[1]).tail = {v.channels, v.frames, v.patch, v.patch};
    const ValueId places = d.matrix("vision.places", v.width, {{kRoot + "pos_embed.weight", 0, v.positions}}, std);
    d.param(places).kind = ParamKind::kEmbedding;
    Stream s{add(g, seen, interpolate(g, places)), kNone};
    std::vector<ValueId> out{kNone};
    for (int64_t i = 0; i < v.depth; ++i) {
      block(s, i);
      const auto deep = std::find(v.deepstack.begin(), v.deepstack.end(), i);
      if (deep == v.deepstack.end()) continue;
      s = {add(g, s.h, s.branch), kNone};
      out.push_back(deepstack(s.h, deep - v.deepstack.begin()));
    }
    const std::string theirs = kRoot + "merger.";
    const ValueId y = layer_norm(s, "vision.merger.norm", theirs + "norm", v.width);
    out[0] = merge(regroup(g, y, {Dim::kPictureTokens, 1}, merged()), "merger.", theirs);
    return out;
  }

 private:
  int64_t merged() const { return v.width * v.merge * v.merge; }

  ValueId project(ValueId x, const std::string& ours, const std::string& theirs, int64_t in, int64_t out) {
    const ValueId w = d.matrix("vision." + ours, in, {{theirs + ".weight", 0, out}}, std);
    return linear(g, x, w, d.bias("vision." + ours + "_bias", {{theirs + ".bias", 0, out}}));
  }

  ValueId layer_norm(Stream& s, const std::string& ours, const std::string& theirs, int64_t n) {
    const NormOut o = norm(g, s.h, s.branch, d.norm_weight(ours, theirs + ".weight", n),
                           d.bias(ours + "_b", {{theirs + ".bias", 0, n}}), true, kEps);
    s = {o.h, kNone};
    return o.y;
  }

  void block(Stream& s, int64_t i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("{}blocks.{}.", kRoot, i);
    const int64_t head = v.width / v.heads;
    ValueId x = layer_norm(s, "vision." + ours + "norm1", theirs + "norm1", v.width);
    const ValueId qkv = project(x, ours + "qkv", theirs + "attn.qkv", v.width, 3 * v.width);
    QkNormRopeOp rope{v.heads, v.heads, head, head, kEps};
    rope.angles = Angles::kPatches;
    AttentionOp a{v.heads, v.heads, head, 0, 1.0f / std::sqrt(static_cast<float>(head)), static_cast<int>(i)};
    a.causal = false;
    a.pictures = true;
    s.branch = project(graph::attention(g, qk_norm_rope(g, qkv, rope), a), ours + "proj", theirs + "attn.proj", v.width,
                       v.width);
    x = layer_norm(s, "vision." + ours + "norm2", theirs + "norm2", v.width);
    const ValueId up = act(g, project(x, ours + "fc1", theirs + "mlp.linear_fc1", v.width, v.inner), activation());
    s.branch = project(up, ours + "fc2", theirs + "mlp.linear_fc2", v.inner, v.width);
  }

  ActKind activation() const {
    if (v.activation == "gelu_pytorch_tanh" || v.activation == "gelu_new") return ActKind::kGeluTanh;
    if (v.activation == "gelu") return ActKind::kGelu;
    fail_missing(
        "{} models with \"hidden_act\": \"{}\" in vision_config are not built in: gelu_pytorch_tanh and gelu are",
        d.c.model_type, v.activation);
  }

  // The norm stands before the gathering in the merger, after it here.
  ValueId deepstack(ValueId h, int64_t i) {
    const std::string ours = fmt::format("deepstack.{}.", i),
                      theirs = fmt::format("{}deepstack_merger_list.{}.", kRoot, i);
    Stream s{regroup(g, h, {Dim::kPictureTokens, 1}, merged()), kNone};
    return merge(layer_norm(s, "vision." + ours + "norm", theirs + "norm", merged()), ours, theirs);
  }

  ValueId merge(ValueId x, const std::string& ours, const std::string& theirs) {
    const ValueId up = act(g, project(x, ours + "fc1", theirs + "linear_fc1", merged(), merged()), ActKind::kGelu);
    return project(up, ours + "fc2", theirs + "linear_fc2", merged(), v.out_width);
  }

  static inline const std::string kRoot = "model.visual.";
  Decoder& d;
  Graph& g;
  const formats::VisionConfig& v;
  const float std;
};

// Of a configuration that does not say it.
std::vector<int64_t> usual_section(const formats::ModelConfig& c) {
  if (c.family->optional_vision) return {11, 11, 10};
  return {24, 20, 20};
}

// Frequency i turns with rows where i % 3 = 1, with columns where it is 2, as far as their sections reach; the rest
// with time.
std::vector<uint8_t> axes_of(const formats::ModelConfig& c) {
  std::vector<uint8_t> axes(static_cast<size_t>(c.rotary() / 2), 0);
  std::vector<int64_t> section = c.rope_scaling.mrope_section;
  if (section.empty()) section = usual_section(c);
  for (size_t i = 0; i < axes.size(); ++i)
    for (const size_t axis : {1u, 2u})
      if (i % 3 == axis && static_cast<int64_t>(i) < 3 * section[axis]) axes[i] = static_cast<uint8_t>(axis);
  return axes;
}

void add_params(Graph& g, const formats::ModelConfig& c, const BuildOptions& options, bool vision,
                Graph (*build)(const formats::ModelConfig&, const BuildOptions&)) {
  BuildOptions all = options;
  all.purpose = Purpose::kScore;
  const Graph whole = build(c, all);
  for (const Param& p : whole.params)
    if (p.name.starts_with("vision.") == vision) g.add_param(p, whole.value(p.value).type);
}

}  // namespace

std::vector<ValueId> pictures(Decoder& d, const formats::VisionConfig& v,
                              Graph (*whole)(const formats::ModelConfig&, const BuildOptions&)) {
  Graph& g = d.g;
  const BuildOptions& options = d.o;
  const int64_t width = d.c.hidden_size;
  const bool given = options.purpose == Purpose::kGenerate;  // features, which another pass made
  const auto levels = static_cast<int64_t>(v.deepstack.size()) + 1;
  g.pictures = {.merge = v.merge, .axes = axes_of(d.c)};
  if (given)
    g.pictures.features = levels * width;
  else
    g.pictures.values = v.channels * v.frames * v.patch * v.patch, g.pictures.side = v.side(),
    g.pictures.rotary = v.width / v.heads;
  d.ids = RowOf::kText;
  d.angles = Angles::kTokens;

  d.trains = options.train_base && options.train_vision;
  std::vector<ValueId> seen;
  if (options.purpose == Purpose::kPictures) g.pictures.axes.clear();
  if (!given) {
    const float offset = std::exchange(d.norm_offset, 0.0f);  // the tower's norms are plain, whatever the text's are
    seen = Vision(d, v).run();
    d.norm_offset = offset;
  }
  if (options.purpose == Purpose::kPictures) {
    g.features = seen;
    add_params(g, d.c, options, false, whole);
    return {};
  }
  for (int64_t i = 0; given && i < levels; ++i) seen.push_back(picture_input(g, width, {true, i * width}));
  if (given) add_params(g, d.c, options, true, whole);
  d.trains = options.train_base;
  return seen;
}

}  // namespace mxt::models
