#include <array>
#include <cmath>

#include "data/synth/tasks.h"
#include "image/picture.h"

namespace mxt::data {
namespace {

constexpr int kSide = 64;  // pixels of a picture

struct Colour {
  std::string_view name;
  std::array<uint8_t, 3> rgb;
};
constexpr std::array<Colour, 6> kColours = {{{"red", {208, 32, 32}},
                                             {"green", {32, 144, 48}},
                                             {"blue", {32, 64, 208}},
                                             {"yellow", {232, 208, 24}},
                                             {"purple", {136, 40, 160}},
                                             {"black", {16, 16, 16}}}};
constexpr std::array<std::string_view, 4> kShapes = {"circle", "square", "triangle", "cross"};

// Whether a point, from the middle in units of the half size, lies in the shape.
bool inside(size_t shape, double x, double y) {
  switch (shape) {
    case 0:
      return x * x + y * y <= 1;
    case 1:
      return std::abs(x) <= 0.85 && std::abs(y) <= 0.85;
    case 2:  // upright
      return y <= 0.85 && std::abs(x) <= (y + 1) / 1.85;
    default:
      return (std::abs(x) <= 0.3 && std::abs(y) <= 1) || (std::abs(y) <= 0.3 && std::abs(x) <= 1);
  }
}

}  // namespace

SynthRow draw_shapes(Draws& draws) {
  const Colour& colour = kColours[draws.deal("colour", kColours.size())];
  const size_t shape = draws.deal("shape", kShapes.size());
  int half, x, y;
  // Pictures are dealt to the splits by size and place.
  do {
    half = 16 + static_cast<int>(draws.below(13));
    const auto place = [&] {
      return half + static_cast<int>(draws.below(static_cast<uint64_t>(kSide - 2 * half + 1)));
    };
    x = place(), y = place();
  } while (((half + x + 3 * y) % 8 == 5) != (draws.split() == Split::kTest));
  std::array<uint8_t, 3> ground;
  for (uint8_t& c : ground) c = static_cast<uint8_t>(216 + draws.below(40));
  image::Picture p{kSide, kSide, std::vector<uint8_t>(3 * kSide * kSide)};
  for (int row = 0; row < kSide; ++row)
    for (int column = 0; column < kSide; ++column)
      for (size_t c = 0; c < 3; ++c)
        p.rgb[static_cast<size_t>(3 * (row * kSide + column)) + c] =
            inside(shape, (column + 0.5 - x) / half, (row + 0.5 - y) / half) ? colour.rgb[c] : ground[c];
  constexpr std::array<std::string_view, 4> kWays = {"What is in the picture?", "Which shape, and which colour?",
                                                     "Name the shape and its colour.", "What do you see?"};
  return {.user = std::string(kWays[draws.deal("way of shapes", kWays.size())]),
          .answer = std::string(colour.name) + " " + std::string(kShapes[shape]),
          .picture = image::data_uri(p)};
}

}  // namespace mxt::data
