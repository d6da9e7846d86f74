#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
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
