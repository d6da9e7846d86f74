#include <cmath>

#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::reference {

void norm(const Norm& n) {
  const int64_t width = n.x.cols;
  const double inv_width = 1.0 / static_cast<double>(width);
  for (int64_t t = 0; t < n.x.rows; ++t) {
    ConstMat x = n.x;
    if (n.r.p) {
      for (int64_t i = 0; i < width; ++i) set(n.h, t, i, get(n.x, t, i) + get(n.r, t, i));
      x = n.h;  // the rounded sum
    }
    double mean = 0, var = 0;
    if (n.layer_norm) {
      for (int64_t i = 0; i < width; ++i) mean += get(x, t, i);
      mean *= inv_width;
    }
    for (int64_t i = 0; i < width; ++i) var += (get(x, t, i) - mean) * (get(x, t, i) - mean);
    const double rstd = 1.0 / std::sqrt(var * inv_width + static_cast<double>(n.eps));
    for (int64_t i = 0; i < width; ++i)
      set(n.y, t, i, (get(x, t, i) - mean) * rstd * param(n.w, n.wtype, i, 1.0) + param(n.b, n.wtype, i, 0.0));
    if (n.mean && n.layer_norm) n.mean[t] = static_cast<float>(mean);
    if (n.rstd) n.rstd[t] = static_cast<float>(rstd);
  }
}

// With x̂ = (x − mean)·rstd and g = dy·w:
//   RMSNorm    dx = rstd·(g − x̂·mean(g·x̂))
//   LayerNorm  dx = rstd·(g − mean(g) − x̂·mean(g·x̂))
//   dw = Σ_t dy·x̂, db = Σ_t dy.
void norm_grad(const NormGrad& n) {
  const int64_t width = n.x.cols;
  const double inv_width = 1.0 / static_cast<double>(width);
  std::vector<double> dw(static_cast<size_t>(width)), db(static_cast<size_t>(width));
  for (int64_t t = 0; t < n.x.rows; ++t) {
    const double mean = n.layer_norm ? static_cast<double>(n.mean[t]) : 0.0, rstd = static_cast<double>(n.rstd[t]);
    double sum_g = 0, sum_gx = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double dy = get(n.dy, t, i), xhat = (get(n.x, t, i) - mean) * rstd;
      const double g = dy * param(n.w, n.wtype, i, 1.0);
      sum_g += g;
      sum_gx += g * xhat;
      dw[static_cast<size_t>(i)] += dy * xhat;
      db[static_cast<size_t>(i)] += dy;
    }
    if (!n.layer_norm) sum_g = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double xhat = (get(n.x, t, i) - mean) * rstd, g = get(n.dy, t, i) * param(n.w, n.wtype, i, 1.0);
      const double dx = rstd * (g - (sum_g + xhat * sum_gx) * inv_width);
      set(n.dx, t, i, dx + (n.dres.p ? get(n.dres, t, i) : 0.0));
    }
  }
  add_into(n.dw, dw, n.accumulate);
  add_into(n.db, db, n.accumulate);
}

}  // namespace mxt::kernels::reference
