#include <algorithm>
#include <cmath>

#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::reference {

// With z = c·tanh(x/c) (z = x without softcap): nll = lse(z) − z[label], d nll/dx = (softmax(z) − onehot)·(1 − (z/c)²).
void cross_entropy(const CrossEntropy& c) {
  const int64_t vocab = c.logits.cols;
  const double cap = static_cast<double>(c.softcap);
  std::vector<double> z(static_cast<size_t>(vocab));
  auto put = [&](int64_t r, auto value) {
    if (c.held.q.p == nullptr) {
      for (int64_t i = 0; i < vocab; ++i) set(c.logits, r, i, value(i));
      return;
    }
    double largest = 0;
    for (int64_t i = 0; i < vocab; ++i) largest = std::max(largest, std::abs(value(i)));
    const float scale = f8e4m3_row_scale(static_cast<float>(largest));
    c.held.scale[r] = scale;
    for (int64_t i = 0; i < vocab; ++i)
      static_cast<uint8_t*>(c.held.q.p)[r * c.held.q.ld + i] =
          float_to_f8e4m3(static_cast<float>(value(i) / static_cast<double>(scale)));
  };
  for (int64_t r = 0; r < c.logits.rows; ++r) {
    const int32_t label = c.labels[r];
    if (label == -100) {
      c.nll[r] = 0;
      if (c.entropy) c.entropy[r] = 0;
      if (c.gradient) put(r, [](int64_t) { return 0.0; });
      if (c.at_label) c.at_label[r] = 0;
      continue;
    }
    MXT_ASSERT(label >= 0 && label < vocab);
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < vocab; ++i) {
      const double x = get(ConstMat(c.logits), r, i);
      z[static_cast<size_t>(i)] = cap > 0 ? cap * std::tanh(x / cap) : x;
      top = std::max(top, z[static_cast<size_t>(i)]);
    }
    for (double x : z) sum += std::exp(x - top);
    const double lse = top + std::log(sum), weight = c.weights ? static_cast<double>(c.weights[r]) : 1.0;
    c.nll[r] = static_cast<float>(lse - z[static_cast<size_t>(label)]);
    if (c.entropy) {
      double mean = 0;
      for (double x : z) mean += x == -INFINITY ? 0.0 : std::exp(x - lse) * x;
      c.entropy[r] = static_cast<float>(lse - mean);
    }
    if (!c.gradient) continue;
    const auto derivative = [&](int64_t i) {
      const double x = z[static_cast<size_t>(i)], slope = cap > 0 ? 1.0 - (x / cap) * (x / cap) : 1.0;
      if (c.softmax) return i == label ? 0.0 : std::exp(x - lse);
      return weight * (std::exp(x - lse) - (i == label ? 1.0 : 0.0)) * slope;
    };
    if (c.at_label) c.at_label[r] = static_cast<float>(derivative(label));
    put(r, [&](int64_t i) { return c.at_label && i == label ? 0.0 : derivative(i); });
  }
}

void label_grad(const LabelGrad& g) {
  for (int64_t i = 0; i < g.dh.rows; ++i) {
    const int32_t label = g.labels[i];
    const double weight = label == -100 ? 0.0 : g.weights ? static_cast<double>(g.weights[i]) : 1.0;
    if (g.at_label) {
      for (int64_t j = 0; j < g.dh.cols; ++j)
        set(g.dh, i, j,
            label == -100 ? 0.0 : get(ConstMat(g.dh), i, j) + static_cast<double>(g.at_label[i]) * get(g.w, label, j));
      continue;
    }
    const double of_label = std::expm1(-static_cast<double>(g.nll[i]));
    for (int64_t j = 0; j < g.dh.cols; ++j)
      set(g.dh, i, j, weight == 0 ? 0.0 : weight * (get(ConstMat(g.dh), i, j) + of_label * get(g.w, label, j)));
  }
}

void adamw(const AdamW& a) {
  const double t = static_cast<double>(a.step);
  const double correction1 = 1.0 - std::pow(a.beta1, t), correction2 = std::sqrt(1.0 - std::pow(a.beta2, t));
  for (const OptTensor& x : a.tensors) {
    const double lr = static_cast<double>(x.lr), decay = 1.0 - lr * static_cast<double>(x.weight_decay);
    for (int64_t i = 0; i < x.n; ++i) {
      const double g = static_cast<double>(x.grad[i]) * static_cast<double>(a.whole_grad_scale());
      const double m = a.beta1 * static_cast<double>(x.m[i]) + (1.0 - a.beta1) * g;
      const double v = a.beta2 * static_cast<double>(x.v[i]) + (1.0 - a.beta2) * g * g;
      const double denom = std::sqrt(v) / correction2 + static_cast<double>(a.eps);
      x.m[i] = static_cast<float>(m);
      x.v[i] = static_cast<float>(v);
      x.master[i] = static_cast<float>(static_cast<double>(x.master[i]) * decay - lr / correction1 * m / denom);
      if (x.copy) x.copy[i] = float_to_bf16(x.master[i]);
    }
  }
}

double squared_norm(const SquaredNorm& s) {
  double sum = 0;
  for (size_t t = 0; t < s.grads.size(); ++t)
    for (int64_t i = 0; i < s.sizes[t]; ++i)
      sum += static_cast<double>(s.grads[t][i]) * static_cast<double>(s.grads[t][i]);
  return sum;
}

}  // namespace mxt::kernels::reference
