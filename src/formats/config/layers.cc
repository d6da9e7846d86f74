// What every layer is made of, from layer_types, the windows' keys and those of experts.
#include <algorithm>

#include "formats/config/read.h"

namespace mxt::formats {
namespace {

using Mixer = LayerSpec::Mixer;

std::vector<std::string> stated_types(const Keys& k, const ModelConfig& c) {
  std::vector<std::string> out;
  const OrderedJson* types = k.find({"layer_types"});
  if (!types) return out;
  if (!types->is_array() || types->size() != static_cast<size_t>(c.num_layers))
    fail_input("{}: \"layer_types\" must list one type for each of the {} layers", k.source(), c.num_layers);
  for (const auto& t : *types) {
    if (!t.is_string()) fail_input("{}: \"layer_types\" must hold text", k.source());
    out.push_back(t.get<std::string>());
  }
  return out;
}

int64_t window_of(const Keys& k, const Family& f) {
  const bool switched = f.windows == Windows::kSwitch || f.windows == Windows::kSwitchAll;
  const bool windowed = switched ? k.boolean({"use_sliding_window"}, false) : f.windows != Windows::kNone;
  return windowed && !k.is_null("sliding_window") ? k.integer({"sliding_window"}, f.window, 0, kMaxTokens) : 0;
}

LayerSpec layer_of(const std::string& type, const Keys& k, const Family& f, int64_t window) {
  LayerSpec l;
  if (type == "linear_attention") {
    if (!f.linear_attention)
      fail_missing("{}: layer type \"{}\" is not built in for {} models", k.source(), type, f.model_type);
    l.mixer = Mixer::kGatedDelta;
  } else if (type == "sliding_attention") {
    if (window == 0)
      fail_input("{}: \"layer_types\" names sliding_attention, but no \"sliding_window\" is in use", k.source());
    l.window = window;
  } else if (type != "full_attention") {
    fail_missing("{}: layer type \"{}\" is not built in", k.source(), type);
  }
  if (type != "sliding_attention" && (f.windows == Windows::kAll || f.windows == Windows::kSwitchAll) && window > 0)
    fail_missing("{}: layer type \"{}\" is not built in for {} models: all their layers slide", k.source(), type,
                 f.model_type);
  return l;
}

// Where the file lists no types.
LayerSpec usual_layer(int64_t i, const Keys& k, const Family& f, int64_t window) {
  LayerSpec l;
  if (f.linear_attention) {
    if ((i + 1) % k.integer({"full_attention_interval"}, 4, 1, kMaxCount) != 0) l.mixer = Mixer::kGatedDelta;
  } else if (f.windows == Windows::kMost) {
    if ((i + 1) % k.integer({"sliding_window_pattern"}, f.window_pattern, 1, kMaxCount) != 0) l.window = window;
  } else if (f.windows == Windows::kAll || f.windows == Windows::kSwitchAll ||
             i >= k.integer({"max_window_layers"}, 28, 0, kMaxCount)) {
    l.window = window;
  }
  return l;
}

// Layer i is sparse where (i + 1) % decoder_sparse_step == 0 and mlp_only_layers does not name it.
void read_sparse_layers(const Keys& k, ModelConfig& c) {
  const int64_t step = k.integer({"decoder_sparse_step"}, 1, 1, kMaxCount);
  const std::vector<int64_t> dense = k.integers("mlp_only_layers");
  for (int64_t i = 0; i < c.num_layers; ++i)
    if (c.num_experts > 0 && (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end())
      c.layers[static_cast<size_t>(i)].mlp = LayerSpec::Mlp::kExperts;
}

}  // namespace

void read_layers(const Keys& k, const Family& f, ModelConfig& c) {
  const std::vector<std::string> types = stated_types(k, c);
  const int64_t window = window_of(k, f);
  for (int64_t i = 0; i < c.num_layers; ++i)
    c.layers.push_back(types.empty() ? usual_layer(i, k, f, window)
                                     : layer_of(types[static_cast<size_t>(i)], k, f, window));
  if (f.num_experts > 0) read_sparse_layers(k, c);
}

}  // namespace mxt::formats
