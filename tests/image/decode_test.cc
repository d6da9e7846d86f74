#include <gtest/gtest.h>
#include <zlib.h>

#include "base/base64.h"
#include "base/error.h"
#include "image/golden.h"
#include "image/picture.h"

namespace mxt::image {
namespace {

using test::bytes_of;
using test::kGolden;

std::string failure(std::span<const std::byte> file, std::string_view name) {
  try {
    decode(file, name);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kBadInput);
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    EXPECT_TRUE(std::string(e.what()).starts_with(std::string(name) + ": ")) << e.what();
    return e.what();
  }
  return "read";
}

std::string failure(const std::vector<uint8_t>& file, std::string_view name) {
  return failure(std::as_bytes(std::span(file)), name);
}
std::string failure(const std::string& file, std::string_view name) {
  return failure(std::as_bytes(std::span(file)), name);
}

TEST(Decode, AsPillowDoesToTheBit) {
  const Json sizes = read_json_file(kGolden + "sizes.json");
  ASSERT_GE(sizes.size(), 20u);
  for (const auto& [name, size] : sizes.items()) {
    const Picture p = read_picture(kGolden + name);
    EXPECT_EQ(p.height, size[0].get<int64_t>()) << name;
    EXPECT_EQ(p.width, size[1].get<int64_t>()) << name;
    EXPECT_EQ(p.rgb, bytes_of(kGolden + name + ".rgb")) << name;
  }
}

TEST(Decode, RefusesWhatItCannotShowAsItIs) {
  const std::pair<const char*, const char*> cases[] = {{"cmyk.jpg", "CMYK"},       {"deep.png", "16 bits"},
                                                       {"moving.png", "animated"}, {"moving.webp", "animated"},
                                                       {"moving.gif", "GIF"},      {"thin.png", "65500 a side"}};
  for (const auto& [name, says] : cases) {
    const std::string e = failure(bytes_of(kGolden + "bad/" + name), name);
    EXPECT_NE(e.find(says), std::string::npos) << e;
  }
  EXPECT_NE(failure(std::string("<?xml version=\"1.0\"?><svg xmlns=\"\"/>"), "a.svg").find("SVG"), std::string::npos);
  EXPECT_NE(failure(std::string("hello"), "a.png").find("no picture"), std::string::npos);
  EXPECT_NE(failure(std::string(), "a.png").find("empty"), std::string::npos);
  EXPECT_NE(failure(bytes_of(kGolden + "photo.jpg"), "photo.png").find("rename"), std::string::npos);
  EXPECT_THROW(read_picture(kGolden + "nothing.png"), Error);
  EXPECT_THROW(read_picture(kGolden), Error);
}

TEST(Decode, EveryTruncationIsSaid) {
  for (const char* name : {"photo.jpg", "fine.jpg", "photo.png", "lossy.webp", "alpha.webp"}) {
    const std::vector<uint8_t> whole = bytes_of(kGolden + name);
    for (size_t n = 1; n + 2 < whole.size(); n += 37)
      EXPECT_NE(failure(std::vector<uint8_t>(whole.begin(), whole.begin() + static_cast<int64_t>(n)), name), "read")
          << name << " cut to " << n;
  }
}

TEST(Decode, DamagedBytesNeverHarm) {
  for (const char* name : {"photo.jpg", "fine.jpg", "photo.png", "palette.png", "lossy.webp", "turned6.jpg"}) {
    const std::vector<uint8_t> whole = bytes_of(kGolden + name);
    for (size_t i = 0; i < whole.size(); i += 5) {
      std::vector<uint8_t> bad = whole;
      bad[i] ^= static_cast<uint8_t>(0x55 + i);
      failure(bad, name);  // read or refused, no more
    }
  }
}

// A header that promises 60,000 x 60,000 pixels costs nothing.
TEST(Decode, BombsAreRefusedByTheirHeader) {
  std::vector<uint8_t> png = bytes_of(kGolden + "photo.png");
  for (const size_t at : {16u, 20u}) png[at] = 0, png[at + 1] = 0, png[at + 2] = 0xea, png[at + 3] = 0x60;
  const uint32_t crc = static_cast<uint32_t>(::crc32(0, png.data() + 12, 17));
  for (size_t i = 0; i < 4; ++i) png[29 + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
  EXPECT_NE(failure(png, "bomb.png").find("60000 x 60000"), std::string::npos);
  Limits small;
  small.bytes = 100;
  EXPECT_THROW(read_picture(kGolden + "photo.png", small), Error);
  small = {};
  small.pixels = 1000;
  EXPECT_THROW(read_picture(kGolden + "photo.png", small), Error);
}

TEST(Decode, DataUris) {
  const std::vector<uint8_t> file = bytes_of(kGolden + "photo.png");
  const std::string uri =
      "data:image/png;base64," + to_base64({reinterpret_cast<const char*>(file.data()), file.size()});
  ASSERT_TRUE(is_data_uri(uri));
  const auto bytes = data_uri_bytes(uri, "row 1");
  EXPECT_EQ(decode(bytes, "row 1").rgb, bytes_of(kGolden + "photo.png.rgb"));
  for (const char* bad : {"data:image/png,abc", "data:text/html;base64,AAAA", "data:image/png;base64,!!!!", "data:"})
    EXPECT_THROW(data_uri_bytes(bad, "row 1"), Error) << bad;
}

}  // namespace
}  // namespace mxt::image
