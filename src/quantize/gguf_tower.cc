// What sees pictures, as llama.cpp has it: a second .gguf of the architecture "clip" (its mmproj file), under the names
// and in the types that its converter gives them.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "formats/vision.h"
#include "image/processor.h"
#include "quantize/encode.h"
#include "quantize/internal.h"

namespace mxt::quantize {
namespace {

using config::QuantScheme;
using formats::GgmlType;
using formats::GgufValue;

constexpr std::string_view kRoot = "model.visual.";
constexpr std::string_view kPatches = "v.patch_embd.weight";

// Modules below kRoot, and llama.cpp's names of them; "{}" is a number.
struct ModuleName {
  std::string_view hf, gguf;
};
constexpr ModuleName kTop[] = {{"patch_embed.proj", "v.patch_embd"},
                               {"pos_embed", "v.position_embd"},
                               {"merger.norm", "v.post_ln"},
                               {"merger.linear_fc1", "mm.0"},
                               {"merger.linear_fc2", "mm.2"}};
constexpr ModuleName kBlock[] = {{"norm1", "ln1"},
                                 {"norm2", "ln2"},
                                 {"attn.qkv", "attn_qkv"},
                                 {"attn.proj", "attn_out"},
                                 {"mlp.linear_fc1", "ffn_up"},
                                 {"mlp.linear_fc2", "ffn_down"}};
constexpr ModuleName kMerger[] = {{"norm", "norm"}, {"linear_fc1", "fc1"}, {"linear_fc2", "fc2"}};

struct Item {
  std::string name, hf;
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> shape;  // of the file's tensor, PyTorch's order
};

class TowerWriter {
 public:
  TowerWriter(const formats::WeightSource& source, const formats::VisionConfig& v, QuantScheme scheme,
              const std::string& path)
      : source_(source),
        v_(v),
        path_(path),
        matrix_(scheme == QuantScheme::kGgufF16 ? GgmlType::kF16 : GgmlType::kBF16) {}

  uint64_t run(StopFlag stop) {
    if (v_.activation != "gelu_pytorch_tanh")
      fail_missing("a GGUF file cannot state the activation {} of what sees pictures: choose another scheme",
                   v_.activation);
    if (v_.frames != 2) fail_missing("a GGUF file cannot state patches of {} frames: choose another scheme", v_.frames);
    collect();
    formats::GgufWriter out(path_);
    write_keys(out);
    for (const Item& i : items_) out.declare(i.name, i.type, i.shape);
    for (const Item& i : items_) {
      check_stop(stop);
      write(i, out);
      source_.drop_pages();
    }
    out.commit();
    return fs::file_size(path_);
  }

 private:
  void write_keys(formats::GgufWriter& out) const {
    image::Processor shown;
    shown.patch = v_.patch, shown.merge = v_.merge, shown.frames = v_.frames;
    shown = image::read_processor(source_.path(), shown);
    const auto whole = [&](const char* key, int64_t n) { out.add(key, GgufValue::u32(static_cast<uint32_t>(n))); };
    const auto of_colours = [](const float(&x)[3]) { return GgufValue::f32s({x[0], x[1], x[2]}); };
    std::vector<uint64_t> taken(static_cast<size_t>(v_.depth));
    for (int64_t i : v_.deepstack) taken[static_cast<size_t>(i)] = 1;
    out.add("general.architecture", GgufValue::text("clip"));
    out.add("general.type", GgufValue::text("mmproj"));
    whole("general.file_type", matrix_ == GgmlType::kF16 ? 1 : 32);  // llama_ftype
    out.add("clip.has_vision_encoder", GgufValue::boolean(true));
    out.add("clip.projector_type", GgufValue::text("qwen3vl_merger"));
    out.add("clip.use_gelu", GgufValue::boolean(true));
    whole("clip.vision.projection_dim", v_.out_width);
    whole("clip.vision.image_size", v_.side() * v_.patch);
    whole("clip.vision.patch_size", v_.patch);
    whole("clip.vision.embedding_length", v_.width);
    whole("clip.vision.feed_forward_length", v_.inner);
    whole("clip.vision.block_count", v_.depth);
    whole("clip.vision.attention.head_count", v_.heads);
    whole("clip.vision.spatial_merge_size", v_.merge);
    out.add("clip.vision.attention.layer_norm_epsilon", GgufValue::f32(static_cast<float>(source_.config().norm_eps)));
    out.add("clip.vision.image_mean", of_colours(shown.mean));
    out.add("clip.vision.image_std", of_colours(shown.std));
    out.add("clip.vision.is_deepstack_layers",
            {formats::GgufValueType::kArray, formats::GgufValueType::kBool, std::move(taken)});
  }

  void collect() {
    for (const ModuleName& m : kTop) add(std::string(m.hf), std::string(m.gguf));
    for (int64_t b = 0; b < v_.depth; ++b)
      for (const ModuleName& m : kBlock)
        add(fmt::format("blocks.{}.{}", b, m.hf), fmt::format("v.blk.{}.{}", b, m.gguf));
    for (size_t i = 0; i < v_.deepstack.size(); ++i)
      for (const ModuleName& m : kMerger)
        add(fmt::format("deepstack_merger_list.{}.{}", i, m.hf),
            fmt::format("v.deepstack.{}.{}", v_.deepstack[i], m.gguf));
    for (const std::string& name : source_.names())
      if (name.starts_with(kRoot) &&
          std::none_of(items_.begin(), items_.end(), [&](const Item& i) { return i.hf == name; }))
        fail_missing("{}: GGUF has no name for tensor \"{}\" of a {} model", source_.path(), name,
                     source_.config().model_type);
  }

  void add(const std::string& module, const std::string& gguf) {
    for (const char* part : {"weight", "bias"}) {
      if (module == "pos_embed" && part[0] == 'b') continue;
      Item i;
      i.hf = fmt::format("{}{}.{}", kRoot, module, part);
      i.name = gguf + "." + part;
      if (!source_.has(i.hf)) fail_input("{}: tensor {} is missing", source_.path(), i.hf);
      i.shape = source_.shape(i.hf);
      if (i.name == kPatches) {
        add_patches(std::move(i));
        continue;
      }
      if (i.shape.size() == 2 && module != "pos_embed") i.type = matrix_;
      items_.push_back(std::move(i));
    }
  }

  // [width, channels, frames, patch, patch] as one tensor a frame.
  void add_patches(Item i) {
    const std::vector<int64_t> want = {v_.width, v_.channels, v_.frames, v_.patch, v_.patch};
    if (i.shape != want)
      fail_input("{}: tensor \"{}\" has shape [{}], the configuration says [{}]", source_.path(), i.hf,
                 fmt::join(i.shape, ", "), fmt::join(want, ", "));
    i.shape = {v_.width, v_.channels, v_.patch, v_.patch};
    if (matrix_ == GgmlType::kF16) i.type = matrix_;
    Item second = i;
    second.name += ".1";
    items_.push_back(std::move(i));
    items_.push_back(std::move(second));
  }

  void write(const Item& item, formats::GgufWriter& out) {
    const auto shape = source_.shape(item.hf);
    int64_t width = 1;
    for (size_t d = 1; d < shape.size(); ++d) width *= shape[d];
    if (shape.size() == 1) width = shape[0];
    const int64_t rows = shape.size() == 1 ? 1 : shape[0];
    by_rows(rows, width, 1, [&](int64_t b, int64_t e) {
      values_.resize(static_cast<size_t>((e - b) * width));
      if (shape.size() == 1)
        source_.read(item.hf, DType::kF32, values_.data(), 0, -1);
      else
        source_.read(item.hf, DType::kF32, values_.data(), b, e);
      const float most = largest(values_.data(), std::ssize(values_));
      if (!std::isfinite(most))
        fail_input("{}: tensor \"{}\" holds NaN or infinity: the model is damaged", source_.path(), item.hf);
      if (item.type == GgmlType::kF16 && most > 65504)
        fail_input("{}: tensor \"{}\" holds weights as large as {:g}, more than f16 can: gguf_bf16 holds them",
                   source_.path(), item.hf, most);
      if (shape.size() == 5) take_frame(item, e - b);
      // Rows of the file are the innermost side's.
      out.append(item.name, values_.data(), std::ssize(values_) / item.shape.back());
    });
  }

  void take_frame(const Item& item, int64_t rows) {
    const int64_t frame = item.name.ends_with(".1") ? 1 : 0, square = v_.patch * v_.patch;
    frame_.resize(values_.size() / static_cast<size_t>(v_.frames));
    for (int64_t r = 0; r < rows * v_.channels; ++r)
      std::copy_n(values_.data() + (r * v_.frames + frame) * square, square, frame_.data() + r * square);
    values_.swap(frame_);
  }

  const formats::WeightSource& source_;
  const formats::VisionConfig& v_;
  std::string path_;
  GgmlType matrix_;
  std::vector<Item> items_;
  std::vector<float> values_, frame_;
};

}  // namespace

bool has_tower(const formats::WeightSource& source) {
  return formats::vision_of(source.config()) && source.has(fmt::format("{}pos_embed.weight", kRoot));
}

uint64_t write_gguf_tower(const formats::WeightSource& source, QuantScheme scheme, const std::string& path,
                          StopFlag stop) {
  return TowerWriter(source, *formats::vision_of(source.config()), scheme, path).run(stop);
}

}  // namespace mxt::quantize
