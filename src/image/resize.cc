#include "image/resize.h"

#include <algorithm>
#include <cmath>

namespace mxt::image {
namespace {

constexpr int kBits = 32 - 8 - 2;

double bicubic(double x) {  // Keys, a = -0.5
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// What one output pixel is made of: `weights` of input pixels from `first` on.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

std::vector<Taps> taps_of(int64_t in, int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out), wide = std::max(scale, 1.0),
               support = 2 * wide;
  std::vector<Taps> all(static_cast<size_t>(out));
  std::vector<double> k;
  for (int64_t i = 0; i < out; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0),
                  last = std::min(static_cast<int64_t>(center + support + 0.5), in);
    k.clear();
    double sum = 0;
    for (int64_t x = first; x < last; ++x) {
      k.push_back(bicubic((static_cast<double>(x) - center + 0.5) * (1.0 / wide)));
      sum += k.back();
    }
    Taps& t = all[static_cast<size_t>(i)];
    t.first = first;
    for (const double w : k) {
      const double fixed = (sum != 0 ? w / sum : w) * (1 << kBits);
      t.weights.push_back(static_cast<int32_t>(w < 0 ? fixed - 0.5 : fixed + 0.5));
    }
  }
  return all;
}

uint8_t rounded(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

// Along one axis: pixel i of `out` lies `step` bytes after the one before it, in `lines` lines `stride` apart.
struct Axis {
  int64_t lines, in_stride, out_stride, step;
};
void pass(const std::vector<Taps>& taps, const uint8_t* in, uint8_t* out, const Axis& a) {
  for (int64_t line = 0; line < a.lines; ++line)
    for (size_t i = 0; i < taps.size(); ++i) {
      const Taps& t = taps[i];
      const uint8_t* from = in + line * a.in_stride + t.first * a.step;
      int32_t sum[3] = {1 << (kBits - 1), 1 << (kBits - 1), 1 << (kBits - 1)};
      for (const int32_t w : t.weights) {
        for (int c = 0; c < 3; ++c) sum[c] += from[c] * w;
        from += a.step;
      }
      uint8_t* to = out + line * a.out_stride + static_cast<int64_t>(i) * a.step;
      for (int c = 0; c < 3; ++c) to[c] = rounded(sum[c]);
    }
}

Picture across(const Picture& p, int64_t width) {
  if (width == p.width) return p;
  Picture out{p.height, width, std::vector<uint8_t>(static_cast<size_t>(3 * p.height * width))};
  pass(taps_of(p.width, width), p.rgb.data(), out.rgb.data(), {p.height, 3 * p.width, 3 * width, 3});
  return out;
}

Picture down(const Picture& p, int64_t height) {
  if (height == p.height) return p;
  Picture out{height, p.width, std::vector<uint8_t>(static_cast<size_t>(3 * height * p.width))};
  pass(taps_of(p.height, height), p.rgb.data(), out.rgb.data(), {p.width, 3, 3, 3 * p.width});
  return out;
}

}  // namespace

Picture resize_bicubic(const Picture& p, int64_t height, int64_t width) {
  // As Pillow: each pass rounds to bytes, and rows come first where a picture is more than a hundred times as tall as
  // wide.
  if (p.height > 100 * p.width && height < p.height) return across(down(p, height), width);
  return down(across(p, width), height);
}

}  // namespace mxt::image
