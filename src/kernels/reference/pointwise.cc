#include <cmath>
#include <numbers>

#include "base/philox.h"
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::reference {
namespace {

struct ValueAndSlope {
  double value, slope;
};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

ValueAndSlope silu(double x) {
  const double s = sigmoid(x);
  return {x * s, s * (1.0 + x * (1.0 - s))};
}

ValueAndSlope activation(Activation kind, double x) {
  switch (kind) {
    case Activation::kSwiGlu:
      return silu(x);
    case Activation::kGeGlu:
    case Activation::kGeluTanh: {
      const double c = std::sqrt(2.0 / std::numbers::pi), a = 0.044715;
      const double t = std::tanh(c * (x + a * x * x * x));
      return {0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * c * (1.0 + 3.0 * a * x * x)};
    }
    case Activation::kGelu: {
      const double cdf = 0.5 * std::erfc(-x / std::numbers::sqrt2);
      return {x * cdf, cdf + x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi)};
    }
    case Activation::kRelu2:
      return x > 0 ? ValueAndSlope{x * x, 2.0 * x} : ValueAndSlope{0.0, 0.0};
  }
  assert_failed("known activation", __FILE__, __LINE__);
}

}  // namespace

void act(const Act& a) {
  const int64_t width = a.y.cols;
  for (int64_t t = 0; t < a.y.rows; ++t)
    for (int64_t i = 0; i < width; ++i) {
      const double v = activation(a.kind, get(a.x, t, i)).value;
      set(a.y, t, i, gated(a.kind) ? v * get(a.x, t, width + i) : v);
    }
}

void act_grad(const ActGrad& a) {
  const int64_t width = a.dy.cols;
  for (int64_t t = 0; t < a.dy.rows; ++t)
    for (int64_t i = 0; i < width; ++i) {
      const double dy = get(a.dy, t, i);
      const ValueAndSlope f = activation(a.kind, get(a.x, t, i));
      if (gated(a.kind)) {
        const double up = get(a.x, t, width + i);
        set(a.dx, t, i, dy * up * f.slope);
        set(a.dx, t, width + i, dy * f.value);
      } else {
        set(a.dx, t, i, dy * f.slope);
      }
    }
}

void add(const Add& a) {
  for (int64_t t = 0; t < a.y.rows; ++t)
    for (int64_t i = 0; i < a.y.cols; ++i) set(a.y, t, i, get(a.a, t, i) + get(a.b, t, i));
}

void bias_grad(const BiasGrad& b) {
  std::vector<double> db(static_cast<size_t>(b.dy.cols));
  for (int64_t t = 0; t < b.dy.rows; ++t)
    for (int64_t i = 0; i < b.dy.cols; ++i) db[static_cast<size_t>(i)] += get(b.dy, t, i);
  add_into(b.db, db, b.accumulate);
}

void dropout(const Dropout& d) {
  const auto threshold = static_cast<uint64_t>(static_cast<double>(d.p) * 0x1p32);
  const double scale = 1.0 / (1.0 - static_cast<double>(d.p));
  for (int64_t t = 0; t < d.x.rows; ++t)
    for (int64_t i = 0; i < d.x.cols; ++i) {
      const auto element = static_cast<uint64_t>((d.first_row + t) * d.x.cols + i);
      const bool keep = philox4x32(d.seed, d.stream, element / 4)[element % 4] >= threshold;
      set(d.y, t, i, keep ? get(d.x, t, i) * scale : 0.0);
    }
}

}  // namespace mxt::kernels::reference
