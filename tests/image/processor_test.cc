#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "image/golden.h"
#include "image/processor.h"
#include "image/resize.h"

namespace mxt::image {
namespace {

using test::bytes_of;
using test::kGolden;

TEST(Resize, AsPillowDoesToTheBit) {
  const Picture photo = read_picture(kGolden + "photo.png");
  for (const auto& [h, w] : {std::pair{64, 96}, {13, 20}, {37, 11}, {80, 53}, {37, 53}}) {
    const Picture p = resize_bicubic(photo, h, w);
    EXPECT_EQ(p.rgb, bytes_of(kGolden + fmt::format("resized_{}_{}.rgb", h, w))) << h << " x " << w;
  }
}

// Of Pillow 12.3: more than a hundred times as tall as wide, it resizes columns before rows.
TEST(Resize, TallPicturesAsPillowDoes) {
  struct Case {
    int64_t width, height, new_width, new_height;
    const char* sha256;
  };
  for (const Case& c : {Case{3, 400, 28, 112, "5cc882c551ae330b7779a7a2b703f8f6d4d81ec5723a29feaff9b04ac9934113"},
                        {3, 300, 28, 112, "d3cad6fdb29e07591109ff873bdced5889e9e3972af501da9ca1d5f16ae66d2b"},
                        {2, 500, 5, 499, "0c98ab3f4a0e6f879c572576f698d797c58a7393681bbb4d08f77c7cd3dba9b9"}}) {
    Picture p{c.height, c.width, {}};
    for (int64_t y = 0; y < c.height; ++y)
      for (int64_t x = 0; x < c.width; ++x)
        for (int64_t i = 0; i < 3; ++i) p.rgb.push_back(static_cast<uint8_t>(x * x * 7 + y * y * 13 + i * 31 + x * y));
    const Picture r = resize_bicubic(p, c.new_height, c.new_width);
    EXPECT_EQ(sha256_hex({reinterpret_cast<const char*>(r.rgb.data()), r.rgb.size()}), c.sha256)
        << c.width << " x " << c.height;
  }
}

TEST(Processor, SizesAsSmartResize) {
  const Json grids = read_json_file(kGolden + "grids.json");
  const Processor p;
  ASSERT_GE(grids["sizes"].size(), 100u);
  for (const auto& s : grids["sizes"]) {
    const Grid g = grid_of(p, s[0], s[1], "a.png");
    EXPECT_EQ(g.height * 16, s[2].get<int64_t>()) << s.dump();
    EXPECT_EQ(g.width * 16, s[3].get<int64_t>()) << s.dump();
    EXPECT_EQ(tokens_of(p, g), g.height * g.width / 4);
  }
  EXPECT_THROW(grid_of(p, 1, 100000, "thin.png"), Error);
  EXPECT_NO_THROW(grid_of(p, 10, 2000, "wide.png"));
}

TEST(Processor, PatchesAsTransformers) {
  Processor p;
  p.patch = 4;
  p.min_pixels = 600;
  p.max_pixels = 1600;
  const Json grids = read_json_file(kGolden + "grids.json");
  const Picture photo = read_picture(kGolden + "photo.png");
  const Grid g = grid_of(p, photo.height, photo.width, "photo.png");
  EXPECT_EQ(g.height, grids["grid"][1].get<int64_t>());
  EXPECT_EQ(g.width, grids["grid"][2].get<int64_t>());
  const std::vector<uint8_t> bytes = bytes_of(kGolden + "patches.f32");
  std::vector<float> want(bytes.size() / 4), got(static_cast<size_t>(g.patches() * p.patch_values()));
  std::memcpy(want.data(), bytes.data(), bytes.size());
  patches_of(p, g, fit(p, photo, "photo.png").rgb.data(), got.data());
  EXPECT_EQ(got, want);
}

TEST(Processor, ReadsItsFile) {
  const Processor d;
  Processor p =
      processor_from_json(Json::parse(R"({"size": {"longest_edge": 900, "shortest_edge": 100}, "patch_size": 14,
      "image_mean": [0.1, 0.2, 0.3], "image_processor_type": "Qwen2VLImageProcessorFast"})"),
                          "f.json", d);
  EXPECT_EQ(p.patch, 14);
  EXPECT_EQ(p.max_pixels, 900);
  EXPECT_EQ(p.min_pixels, 100);
  EXPECT_FLOAT_EQ(p.mean[2], 0.3f);
  EXPECT_EQ(p.std[0], 0.5f);
  EXPECT_EQ(processor_from_json(Json::parse(R"({"min_pixels": 7, "max_pixels": 9})"), "f.json", d).max_pixels, 9);
  for (const char* bad :
       {R"({"patch_size": 0})", R"({"patch_size": "a"})", R"({"size": 3})", R"({"image_std": [1, 0, 1]})",
        R"({"min_pixels": 10, "max_pixels": 9})", R"({"rescale_factor": "x"})", "[]"})
    EXPECT_THROW(processor_from_json(Json::parse(bad), "f.json", d), Error) << bad;
  try {
    processor_from_json(Json::parse(R"({"image_processor_type": "CLIPImageProcessor"})"), "f.json", d);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kMissing);
  }
}

}  // namespace
}  // namespace mxt::image
