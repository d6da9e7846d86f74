#include "image/processor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "image/resize.h"

namespace mxt::image {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 28;

struct Reader {
  const Json& j;
  std::string_view file;
  const Json* find(const char* key) const {
    const auto at = j.find(key);
    return at == j.end() || at->is_null() ? nullptr : &*at;
  }
  void whole(const char* key, int64_t low, int64_t high, int64_t& to) const {
    const Json* v = find(key);
    if (v == nullptr) return;
    if (!v->is_number_integer() || v->get<double>() < static_cast<double>(low) ||
        v->get<double>() > static_cast<double>(high))
      fail_input("{}: \"{}\" must be a whole number from {} to {}", file, key, low, high);
    to = v->get<int64_t>();
  }
  void three(const char* key, float* to) const {
    const Json* v = find(key);
    if (v == nullptr) return;
    if (!v->is_array() || v->size() != 3 || !std::ranges::all_of(*v, [](const auto& x) { return x.is_number(); }))
      fail_input("{}: \"{}\" must be three numbers", file, key);
    for (size_t c = 0; c < 3; ++c) to[c] = (*v)[c].get<float>();
  }
  void on(const char* key) const {
    const Json* v = find(key);
    if (v && (!v->is_boolean() || !v->get<bool>()))
      fail_missing("{}: \"{}\": {} is not built in: pictures are converted to RGB, resized, rescaled and normalised",
                   file, key, v->dump());
  }
};

// Python's round(): to the nearest, half to even.
int64_t nearest(double x) { return static_cast<int64_t>(std::nearbyint(x)); }

}  // namespace

std::string Processor::print() const {
  return fmt::format("patch {} merge {} frames {} pixels {}..{} rescale {} mean {} {} {} std {} {} {}", patch, merge,
                     frames, min_pixels, max_pixels, rescale, mean[0], mean[1], mean[2], std[0], std[1], std[2]);
}

Processor processor_from_json(const Json& j, std::string_view file, const Processor& defaults) {
  if (!j.is_object()) fail_input("{}: must be an object", file);
  Processor p = defaults;
  const Reader r{j, file};
  if (const Json* kind = r.find("image_processor_type");
      kind && (!kind->is_string() || !kind->get<std::string>().starts_with("Qwen2VLImageProcessor")))
    fail_missing("{}: \"image_processor_type\": {} is not built in: Qwen2VLImageProcessor is", file, kind->dump());
  for (const char* key : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"}) r.on(key);
  if (const Json* v = r.find("resample"); v && !(v->is_number_integer() && v->get<int>() == 3))
    fail_missing("{}: \"resample\": {} is not built in: 3, bicubic, is", file, v->dump());
  r.whole("patch_size", 1, 256, p.patch);
  r.whole("merge_size", 1, 16, p.merge);
  r.whole("temporal_patch_size", 1, 16, p.frames);
  if (const Json* size = r.find("size")) {
    if (!size->is_object()) fail_input("{}: \"size\" must be an object", file);
    const Reader s{*size, file};
    s.whole("shortest_edge", 1, kMostPixels, p.min_pixels);
    s.whole("longest_edge", 1, kMostPixels, p.max_pixels);
  }
  r.whole("min_pixels", 1, kMostPixels, p.min_pixels);
  r.whole("max_pixels", 1, kMostPixels, p.max_pixels);
  if (p.min_pixels > p.max_pixels)
    fail_input("{}: pictures of at least {} and at most {} pixels cannot be", file, p.min_pixels, p.max_pixels);
  r.three("image_mean", p.mean);
  r.three("image_std", p.std);
  for (const float s : p.std)
    if (!(s > 0)) fail_input("{}: \"image_std\" must be above 0", file);
  if (const Json* v = r.find("rescale_factor")) {
    if (!v->is_number()) fail_input("{}: \"rescale_factor\" must be a number", file);
    p.rescale = v->get<double>();
  }
  return p;
}

OrderedJson processor_to_json(const Processor& p, OrderedJson file) {
  if (!file.contains("image_processor_type")) file["image_processor_type"] = "Qwen2VLImageProcessor";
  file["patch_size"] = p.patch;
  file["merge_size"] = p.merge;
  file["temporal_patch_size"] = p.frames;
  file.erase("min_pixels"), file.erase("max_pixels");
  file["size"] = {{"shortest_edge", p.min_pixels}, {"longest_edge", p.max_pixels}};
  file["rescale_factor"] = p.rescale;
  const auto three = [](const float* v) {  // in the digits that they were read with
    OrderedJson out = OrderedJson::array();
    for (size_t c = 0; c < 3; ++c) out.push_back(parse_ordered_json(fmt::format("{}", v[c]), "a mean"));
    return out;
  };
  file["image_mean"] = three(p.mean);
  file["image_std"] = three(p.std);
  return file;
}

Processor read_processor(const std::string& folder, const Processor& defaults) {
  for (const char* name : {"preprocessor_config.json", "processor_config.json"}) {
    const std::string path = folder + "/" + name;
    if (!std::filesystem::is_regular_file(path)) continue;
    const Json j = read_json_file(path);
    if (!j.is_object()) fail_input("{}: must be an object", path);
    if (const auto inner = j.find("image_processor"); inner != j.end())
      return processor_from_json(*inner, path, defaults);
    if (j.contains("image_processor_type") || j.contains("patch_size")) return processor_from_json(j, path, defaults);
  }
  return defaults;
}

Grid grid_of(const Processor& p, int64_t height, int64_t width, std::string_view name) {
  const int64_t f = p.patch * p.merge;
  const double h = static_cast<double>(height), w = static_cast<double>(width), unit = static_cast<double>(f);
  if (std::max(h, w) / std::min(h, w) > 200)
    fail_input("{}: {} x {} pixels: one side may be at most 200 times the other", name, width, height);
  const auto whole = [&](double units) { return static_cast<int64_t>(units) * f; };
  int64_t oh = nearest(h / unit) * f, ow = nearest(w / unit) * f;
  if (oh * ow > p.max_pixels) {
    const double by = std::sqrt(h * w / static_cast<double>(p.max_pixels));
    oh = std::max(f, whole(std::floor(h / by / unit)));
    ow = std::max(f, whole(std::floor(w / by / unit)));
  } else if (oh * ow < p.min_pixels) {
    const double by = std::sqrt(static_cast<double>(p.min_pixels) / (h * w));
    oh = whole(std::ceil(h * by / unit));
    ow = whole(std::ceil(w * by / unit));
  }
  return {oh / p.patch, ow / p.patch};
}

Picture fit(const Processor& p, const Picture& picture, std::string_view name) {
  const Grid g = grid_of(p, picture.height, picture.width, name);
  return resize_bicubic(picture, g.height * p.patch, g.width * p.patch);
}

void patches_of(const Processor& p, Grid grid, const uint8_t* rgb, float* out) {
  // As NumPy does: the product in double, rounded to float, then the rest in float.
  float value[3][256];
  for (int c = 0; c < 3; ++c)
    for (int v = 0; v < 256; ++v)
      value[c][v] = (static_cast<float>(static_cast<double>(v) * p.rescale) - p.mean[c]) / p.std[c];
  const int64_t width = grid.width * p.patch;
  for (int64_t i = 0; i < grid.patches(); ++i) {
    const int64_t block = i / (p.merge * p.merge), in = i % (p.merge * p.merge), blocks = grid.width / p.merge;
    const int64_t row = block / blocks * p.merge + in / p.merge, col = block % blocks * p.merge + in % p.merge;
    for (int c = 0; c < 3; ++c)
      for (int64_t frame = 0; frame < p.frames; ++frame)
        for (int64_t y = 0; y < p.patch; ++y) {
          const uint8_t* from = rgb + 3 * ((row * p.patch + y) * width + col * p.patch) + c;
          for (int64_t x = 0; x < p.patch; ++x) *out++ = value[c][from[3 * x]];
        }
  }
}

}  // namespace mxt::image
