// vision_config: the part of a model that sees pictures.
#include <algorithm>
#include <cmath>

#include "formats/config/keys.h"
#include "formats/family.h"
#include "formats/vision.h"

namespace mxt::formats {

int64_t VisionConfig::side() const { return std::llround(std::floor(std::sqrt(static_cast<double>(positions)))); }

bool sees_pictures(std::string_view tensor) {
  constexpr std::string_view kParts[] = {"visual.", "vision_tower.", "multi_modal_projector."};
  return std::any_of(std::begin(kParts), std::end(kParts),
                     [&](std::string_view part) { return tensor.find(part) != std::string_view::npos; });
}

std::optional<VisionConfig> vision_of(const ModelConfig& c, std::string_view source) {
  if (!c.raw || !(c.family->vision || c.family->optional_vision)) return std::nullopt;
  if (c.family->optional_vision && !c.raw->contains("vision_config")) return std::nullopt;
  const Keys whole(*c.raw, source);
  const OrderedJson* section = whole.object("vision_config");
  static const OrderedJson kNothing = OrderedJson::object();
  const Keys k(section ? *section : kNothing, source);
  VisionConfig v;
  v.depth = k.integer({"depth", "num_hidden_layers"}, 27, 1, kMaxLayers);
  v.width = k.integer({"hidden_size"}, 1152, 1, kMaxWidth);
  v.inner = k.integer({"intermediate_size"}, 4304, 1, kMaxWidth);
  v.heads = k.integer({"num_heads", "num_attention_heads"}, 16, 1, kMaxCount);
  v.channels = k.integer({"in_channels"}, 3, 1, 64);
  v.patch = k.integer({"patch_size"}, 16, 1, 256);
  v.merge = k.integer({"spatial_merge_size"}, 2, 1, 16);
  v.frames = k.integer({"temporal_patch_size"}, 2, 1, 16);
  v.out_width = k.integer({"out_hidden_size"}, 3584, 1, kMaxWidth);
  v.positions = k.integer({"num_position_embeddings"}, 2304, 1, int64_t{1} << 24);
  constexpr double kTheta = 10000;  // of the tables that runtime/pictures.cc makes
  for (const OrderedJson* of : {section, k.object("rope_parameters")})
    if (const double theta = Keys(of ? *of : kNothing, source).number({"rope_theta"}, kTheta, 0, 1e15); theta != kTheta)
      fail_missing("{}: vision_config: \"rope_theta\" is {}: towers with another than {} are not built in", source,
                   theta, kTheta);
  v.activation = k.text({"hidden_act"}, "gelu_pytorch_tanh");
  v.initializer_range = k.number({"initializer_range"}, 0.02, 0, 100);
  const bool own = c.family->optional_vision;  // Qwen3.5: its class has no such key, and ids of its own
  if (!own)
    v.deepstack =
        k.find({"deepstack_visual_indexes"}) ? k.integers("deepstack_visual_indexes") : std::vector<int64_t>{8, 16, 24};
  v.image_token = whole.integer({"image_token_id"}, own ? 248056 : 151655, 0, kMaxTokens);
  v.video_token = whole.integer({"video_token_id"}, own ? 248057 : 151656, 0, kMaxTokens);
  v.start_token = whole.integer({"vision_start_token_id"}, own ? 248053 : 151652, 0, kMaxTokens);
  v.end_token = whole.integer({"vision_end_token_id"}, own ? 248054 : 151653, 0, kMaxTokens);

  if (v.width % v.heads != 0 || v.width / v.heads % 4 != 0)
    fail_input("{}: vision_config: {} heads of a width of {}: each needs a multiple of 4", source, v.heads, v.width);
  if (v.channels != 3) fail_input("{}: vision_config: \"in_channels\" is {}: pictures have 3", source, v.channels);
  if (v.side() * v.side() != v.positions)
    fail_input("{}: vision_config: \"num_position_embeddings\" is {}: the table must be square", source, v.positions);
  if (v.out_width != c.hidden_size)
    fail_input("{}: vision_config: \"out_hidden_size\" is {}, the text model's hidden_size {}", source, v.out_width,
               c.hidden_size);
  if (!std::is_sorted(v.deepstack.begin(), v.deepstack.end(), std::less_equal<>()) ||
      (!v.deepstack.empty() && (v.deepstack.front() < 0 || v.deepstack.back() >= v.depth)) ||
      static_cast<int64_t>(v.deepstack.size()) > c.num_layers)
    fail_input(
        "{}: vision_config: \"deepstack_visual_indexes\" must rise, lie below the tower's {} blocks and be at most "
        "as many as the text model's {} layers",
        source, v.depth, c.num_layers);
  if (v.image_token >= c.vocab_size)
    fail_input("{}: \"image_token_id\" is {}, the vocabulary has {} ids", source, v.image_token, c.vocab_size);
  return v;
}

}  // namespace mxt::formats
