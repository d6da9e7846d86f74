// The optimizers of optimizer_calls.h beside AdamW, in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::reference {
namespace {

void put(float* master, uint16_t* copy, int64_t i, double p) {
  master[i] = static_cast<float>(p);
  if (copy) copy[i] = float_to_bf16(master[i]);
}

// Values of one block held again: codes and the largest magnitude. As fp32 they are compared with the map.
void hold(const std::vector<double>& x, bool is_signed, uint8_t* codes, float* largest) {
  const float* map = dynamic_map(is_signed);
  double most = 0;
  for (double v : x) most = std::max(most, std::abs(v));
  *largest = static_cast<float>(most);
  for (size_t i = 0; i < x.size(); ++i) {
    const double v = *largest > 0 ? static_cast<double>(static_cast<float>(x[i]) / *largest) : 0.0;
    int best = 0;
    for (int c = 1; c < 256; ++c)
      if (std::abs(v - static_cast<double>(map[c])) < std::abs(v - static_cast<double>(map[best]))) best = c;
    codes[i] = static_cast<uint8_t>(best);
  }
}

}  // namespace

void adamw_8bit(const AdamW8bit& a) {
  const double t = static_cast<double>(a.step), scale = static_cast<double>(a.whole_grad_scale());
  const double correction1 = 1.0 - std::pow(a.beta1, t), correction2 = std::sqrt(1.0 - std::pow(a.beta2, t));
  for (const Opt8Tensor& x : a.tensors) {
    const double lr = static_cast<double>(x.lr), decay = 1.0 - lr * static_cast<double>(x.weight_decay);
    for (int64_t first = 0; first < x.n; first += kStateBlock) {
      const int64_t n = std::min(kStateBlock, x.n - first), block = first / kStateBlock;
      std::vector<double> m(static_cast<size_t>(n)), v(m.size());
      for (int64_t k = 0; k < n; ++k) {
        const int64_t i = first + k;
        const double g = static_cast<double>(x.grad[i]) * scale;
        const double m0 = static_cast<double>(dynamic_map(true)[x.m[i]] * x.m_largest[block]);
        const double v0 = static_cast<double>(dynamic_map(false)[x.v[i]] * x.v_largest[block]);
        const double mk = a.beta1 * m0 + (1.0 - a.beta1) * g, vk = a.beta2 * v0 + (1.0 - a.beta2) * g * g;
        m[static_cast<size_t>(k)] = mk, v[static_cast<size_t>(k)] = vk;
        put(x.master, x.copy, i,
            static_cast<double>(x.master[i]) * decay -
                lr / correction1 * mk / (std::sqrt(vk) / correction2 + static_cast<double>(a.eps)));
      }
      hold(m, true, x.m + first, x.m_largest + block);
      hold(v, false, x.v + first, x.v_largest + block);
    }
  }
}

void lion(const Lion& l) {
  const double scale = static_cast<double>(l.whole_grad_scale());
  for (const OptTensor& x : l.tensors) {
    const double lr = static_cast<double>(x.lr), decay = 1.0 - lr * static_cast<double>(x.weight_decay);
    for (int64_t i = 0; i < x.n; ++i) {
      const double g = static_cast<double>(x.grad[i]) * scale, m = static_cast<double>(x.m[i]);
      const double u = l.beta1 * m + (1.0 - l.beta1) * g;
      put(x.master, x.copy, i, static_cast<double>(x.master[i]) * decay - lr * ((u > 0) - (u < 0)));
      x.m[i] = static_cast<float>(l.beta2 * m + (1.0 - l.beta2) * g);
    }
  }
}

void adafactor(const Adafactor& a) {
  const double scale = static_cast<double>(a.whole_grad_scale()), beta = a.decay;
  for (const AdafactorTensor& x : a.tensors) {
    const int64_t n = x.rows * x.cols;
    if (n == 0) continue;
    auto g = [&](int64_t i) { return static_cast<double>(x.grad[i]) * scale; };
    auto square = [&](int64_t i) { return g(i) * g(i) + static_cast<double>(a.eps); };
    auto mix = [&](float* state, double mean) {
      *state = static_cast<float>(beta * static_cast<double>(*state) + (1.0 - beta) * mean);
    };
    double mean_row = 0;
    if (x.row) {
      for (int64_t r = 0; r < x.rows; ++r) {
        double sum = 0;
        for (int64_t c = 0; c < x.cols; ++c) sum += square(r * x.cols + c);
        mix(x.row + r, sum / static_cast<double>(x.cols));
        mean_row += static_cast<double>(x.row[r]) / static_cast<double>(x.rows);
      }
      for (int64_t c = 0; c < x.cols; ++c) {
        double sum = 0;
        for (int64_t r = 0; r < x.rows; ++r) sum += square(r * x.cols + c);
        mix(x.col + c, sum / static_cast<double>(x.rows));
      }
    } else {
      for (int64_t i = 0; i < n; ++i) mix(x.v + i, square(i));
    }
    auto update = [&](int64_t i) {
      if (!x.row) return g(i) / std::sqrt(static_cast<double>(x.v[i]));
      return g(i) / (std::sqrt(static_cast<double>(x.row[i / x.cols]) / mean_row) *
                     std::sqrt(static_cast<double>(x.col[i % x.cols])));
    };
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += update(i) * update(i);
    const double rate = static_cast<double>(x.lr) /
                        std::max(1.0, std::sqrt(squares / static_cast<double>(n)) / static_cast<double>(a.clip));
    const double decay = 1.0 - static_cast<double>(x.lr) * static_cast<double>(x.weight_decay);
    for (int64_t i = 0; i < n; ++i)
      put(x.master, x.copy, i, static_cast<double>(x.master[i]) * decay - rate * update(i));
  }
}

void muon_direction(const MuonDirection& m) {
  const double scale = static_cast<double>(m.whole_grad_scale()), mu = m.mu;
  const auto rows = static_cast<size_t>(m.x.rows);
  std::vector<double> of_row(rows, 0.0);
  double squares = 0;
  for (int64_t r = 0; r < m.x.rows; ++r)
    for (int64_t c = 0; c < m.x.cols; ++c) {
      const int64_t i = r * m.x.cols + c;
      const double g = static_cast<double>(m.grad[i]) * scale;
      m.momentum[i] = static_cast<float>(mu * static_cast<double>(m.momentum[i]) + (1.0 - mu) * g);
      set(m.x, r, c, (1.0 - mu) * g + mu * static_cast<double>(m.momentum[i]));
      const double u = get(ConstMat(m.x), r, c);
      of_row[static_cast<size_t>(r)] += u * u;
      squares += u * u;
    }
  std::vector<double> factor(rows, 1.0);
  double norm = std::sqrt(squares);
  if (m.equalise) {
    double after = 0;
    for (size_t r = 0; r < rows; ++r) {
      factor[r] = norm / std::sqrt(static_cast<double>(rows)) / std::max(std::sqrt(of_row[r]), 1e-6);
      after += factor[r] * factor[r] * of_row[r];
    }
    norm = std::sqrt(after);
  }
  const double eps = static_cast<double>(m.eps),
               divisor = m.equalise ? static_cast<double>(m.slack) * norm + eps : std::max(norm, eps);
  for (int64_t r = 0; r < m.x.rows; ++r)
    for (int64_t c = 0; c < m.x.cols; ++c)
      set(m.x, r, c, get(ConstMat(m.x), r, c) * factor[static_cast<size_t>(r)] / divisor);
}

void muon_update(const MuonUpdate& m) {
  const int64_t rows = m.x.rows, cols = m.x.cols;
  const bool by_row = rows >= cols;
  const auto kept = static_cast<size_t>(by_row ? rows : cols);
  std::vector<double> factor(kept, 1.0);
  if (m.second) {
    std::vector<double> sums(kept, 0.0);
    double all = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        const double x = get(m.x, r, c);
        sums[static_cast<size_t>(by_row ? r : c)] += x * x;
        all += x * x;
      }
    const double along = static_cast<double>(by_row ? cols : rows);
    const double first = std::sqrt(static_cast<double>(std::min(rows, cols))) / std::max(std::sqrt(all), 1e-6);
    double after = 0;
    for (size_t k = 0; k < kept; ++k) {
      const double mean = first * first * sums[k] / along;
      m.second[k] = static_cast<float>(m.beta2 * static_cast<double>(m.second[k]) + (1.0 - m.beta2) * mean);
      const double s = 1.0 / std::sqrt(std::max(static_cast<double>(m.second[k]), 1e-10));
      factor[k] = first * s;
      after += factor[k] * factor[k] * sums[k];
    }
    const double keep = first * std::sqrt(all) / std::max(std::sqrt(after), 1e-10);
    for (double& f : factor) f *= keep;
  }
  const double lr = static_cast<double>(m.lr), decay = lr * static_cast<double>(m.weight_decay);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = r * cols + c;
      const double u = get(m.x, r, c) * factor[static_cast<size_t>(by_row ? r : c)],
                   p = static_cast<double>(m.master[i]);
      put(m.master, m.copy, i, p - lr * u - (!m.cautious || u * p >= 0 ? decay * p : 0.0));
    }
}

}  // namespace mxt::kernels::reference
