#include <cmath>

#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::reference {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// The gate of token t and group g before the sigmoid.
template <typename G>
double gate_of(const G& c, int64_t t, int64_t g) {
  double z = 0;
  for (int64_t k = 0; k < c.w.cols; ++k) z += get(c.w, g, k) * get(c.s, t, k);
  return sigmoid(z);
}

}  // namespace

void mix(const Mix& m) {
  const double a = param(m.a, m.wtype, 0, 1.0), b = static_cast<double>(m.sign) * get(m.b, m.wtype, 0);
  for (int64_t t = 0; t < m.y.rows; ++t)
    for (int64_t i = 0; i < m.y.cols; ++i) set(m.y, t, i, a * get(m.x, t, i) + b * get(m.z, t, i));
}

void mix_grad(const MixGrad& m) {
  const double a = param(m.a, m.wtype, 0, 1.0), sign = static_cast<double>(m.sign), b = sign * get(m.b, m.wtype, 0);
  std::vector<double> da(1), db(1);
  for (int64_t t = 0; t < m.dy.rows; ++t)
    for (int64_t i = 0; i < m.dy.cols; ++i) {
      const double dy = get(m.dy, t, i);
      da[0] += dy * get(m.x, t, i);
      db[0] += sign * dy * get(m.z, t, i);
      if (m.dx.p) set(m.dx, t, i, a * dy);
      set(m.dz, t, i, b * dy + (m.sum.p ? get(m.sum, t, i) : 0.0));
    }
  add_into(m.da, da, m.accumulate);
  add_into(m.db, db, m.accumulate);
}

void gate(const Gate& c) {
  const int64_t width = c.u.cols / c.w.rows;
  const double by = static_cast<double>(c.by) * param(c.lambda, c.wtype, 0, 1.0);
  std::vector<double> gates(static_cast<size_t>(c.w.rows));
  for (int64_t t = 0; t < c.y.rows; ++t) {
    // Before anything is written: y may be x, and s too.
    for (int64_t g = 0; g < c.w.rows; ++g) gates[static_cast<size_t>(g)] = gate_of(c, t, g);
    for (int64_t i = 0; i < c.y.cols; ++i) {
      double y = get(c.x, t, i);
      const int64_t j = i - c.col;
      if (j >= 0 && j < c.u.cols && !(c.positions && c.positions[t] == 0))
        y += by * gates[static_cast<size_t>(j / width)] * get(c.u, t, j);
      set(c.y, t, i, y);
    }
  }
}

// With σ the gate and p = Σ_j dy·u of a group: du = by·λ·σ·dy, dz = by·λ·σ(1−σ)·p, ds = Σ_g dz·w, dw = dz·s, dλ =
// by·σ·p.
void gate_grad(const GateGrad& c) {
  const int64_t groups = c.w.rows, taps = c.w.cols, width = c.u.cols / groups;
  const double by = static_cast<double>(c.by), lambda = param(c.lambda, c.wtype, 0, 1.0);
  std::vector<double> dw(static_cast<size_t>(groups * taps)), dlambda(1);
  for (int64_t t = 0; t < c.dy.rows; ++t) {
    std::vector<double> ds(static_cast<size_t>(c.s.cols));
    const bool left = c.positions && c.positions[t] == 0;
    for (int64_t g = 0; g < groups; ++g) {
      const double gate = left ? 0 : gate_of(c, t, g);
      double p = 0;
      for (int64_t j = g * width; j < (g + 1) * width; ++j) {
        const double dy = get(c.dy, t, c.col + j);
        p += dy * get(c.u, t, j);
        set(c.du, t, j, by * lambda * gate * dy);
      }
      const double dz = by * lambda * gate * (1 - gate) * p;
      dlambda[0] += by * gate * p;
      for (int64_t k = 0; k < taps; ++k) {
        dw[static_cast<size_t>(g * taps + k)] += dz * get(c.s, t, k);
        ds[static_cast<size_t>(k)] += dz * get(c.w, g, k);
      }
    }
    for (int64_t i = 0; i < c.s.cols; ++i) set(c.ds, t, i, ds[static_cast<size_t>(i)]);
  }
  add_into(c.dw, dw, c.accumulate);
  add_into(c.dlambda, dlambda, c.accumulate);
}

}  // namespace mxt::kernels::reference
