#include <cmath>

#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::reference {
namespace {

// One head's values, rotated by `angle` of token t; `sign` −1 turns back (the transposed rotation, for gradients).
template <typename R>
void rotate(const R& r, int64_t t, double sign, std::vector<double>& x) {
  const int64_t half = r.rotary / 2;
  for (int64_t i = 0; i < half; ++i) {
    const int64_t at = r.positions[t] * half + i;
    const double c = static_cast<double>(r.cos[at]), s = sign * static_cast<double>(r.sin[at]);
    double &a = x[static_cast<size_t>(i)], &b = x[static_cast<size_t>(i + half)];
    const double rotated = a * c - b * s;
    b = b * c + a * s;
    a = rotated;
  }
}

}  // namespace

void qk_norm_rope(const QkNormRope& r) {
  const int64_t d = r.head_dim, qk = r.heads + r.kv_heads;
  std::vector<double> x(static_cast<size_t>(d));
  for (int64_t t = 0; t < r.qkv.rows; ++t) {
    for (int64_t h = 0; h < qk; ++h) {
      const void* w = h < r.heads ? r.q_w : r.k_w;
      double squares = 0, rstd = 1;
      for (int64_t i = 0; i < d; ++i) {
        const double v = x[static_cast<size_t>(i)] = get(r.qkv, t, h * d + i);
        squares += v * v;
      }
      if (w) rstd = 1.0 / std::sqrt(squares / static_cast<double>(d) + static_cast<double>(r.eps));
      for (int64_t i = 0; i < d; ++i) x[static_cast<size_t>(i)] *= rstd * param(w, r.wtype, i, 1.0);
      if (r.rstd && (r.q_w || r.k_w)) r.rstd[t * qk + h] = static_cast<float>(rstd);
      rotate(r, t, 1.0, x);
      for (int64_t i = 0; i < d; ++i) set(r.out, t, h * d + i, x[static_cast<size_t>(i)]);
    }
    for (int64_t i = qk * d; i < r.qkv.cols; ++i) set(r.out, t, i, get(r.qkv, t, i));
  }
}

// Turn the gradient back, then the RMSNorm gradient of each normalised head.
void qk_norm_rope_grad(const QkNormRopeGrad& r) {
  const int64_t d = r.head_dim, qk = r.heads + r.kv_heads;
  std::vector<double> g(static_cast<size_t>(d)), dq_w(static_cast<size_t>(d)), dk_w(static_cast<size_t>(d));
  for (int64_t t = 0; t < r.dout.rows; ++t) {
    for (int64_t h = 0; h < qk; ++h) {
      const void* w = h < r.heads ? r.q_w : r.k_w;
      for (int64_t i = 0; i < d; ++i) g[static_cast<size_t>(i)] = get(r.dout, t, h * d + i);
      rotate(r, t, -1.0, g);
      if (w) {
        std::vector<double>& dw = h < r.heads ? dq_w : dk_w;
        const double rstd = static_cast<double>(r.rstd[t * qk + h]);
        double dot = 0;
        for (int64_t i = 0; i < d; ++i) {
          const double xhat = get(r.qkv, t, h * d + i) * rstd;
          dw[static_cast<size_t>(i)] += g[static_cast<size_t>(i)] * xhat;
          g[static_cast<size_t>(i)] *= get(w, r.wtype, i);
          dot += g[static_cast<size_t>(i)] * xhat;
        }
        for (int64_t i = 0; i < d; ++i) {
          const double xhat = get(r.qkv, t, h * d + i) * rstd;
          g[static_cast<size_t>(i)] = rstd * (g[static_cast<size_t>(i)] - xhat * dot / static_cast<double>(d));
        }
      }
      for (int64_t i = 0; i < d; ++i) set(r.dqkv, t, h * d + i, g[static_cast<size_t>(i)]);
    }
    for (int64_t i = qk * d; i < r.dout.cols; ++i) set(r.dqkv, t, i, get(r.dout, t, i));
  }
  add_into(r.dq_w, dq_w, r.accumulate);
  add_into(r.dk_w, dk_w, r.accumulate);
}

}  // namespace mxt::kernels::reference
