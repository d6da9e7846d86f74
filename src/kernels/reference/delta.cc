#include "kernels/delta.h"

#include <cmath>
#include <vector>

#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::reference {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }
double silu_slope(double x) { return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))); }

bool fresh(const Carried& c, const int32_t* cu, int64_t d) { return !c.on || c.context[d] == cu[d + 1] - cu[d]; }

}  // namespace

void causal_conv(const CausalConv& c) {
  const int64_t width = c.w.cols, before = width - 1, channels = c.x.cols;
  for (int64_t d = 0; d < c.documents; ++d) {
    const int64_t begin = c.cu_seqlens[d], n = c.cu_seqlens[d + 1] - begin;
    const Mat state = c.carried.states
                          ? Mat{static_cast<std::byte*>(c.carried.states) +
                                    static_cast<size_t>(c.carried.slot[d] * before * channels) * size_of(c.x.type),
                                before, channels, channels, c.x.type}
                          : Mat{};
    std::vector<double> x(static_cast<size_t>((before + n) * channels));  // with what came before
    for (int64_t t = 0; t < before + n; ++t)
      for (int64_t i = 0; i < channels; ++i)
        x[static_cast<size_t>(t * channels + i)] = t >= before                         ? get(c.x, begin + t - before, i)
                                                   : fresh(c.carried, c.cu_seqlens, d) ? 0.0
                                                                                       : get(ConstMat(state), t, i);
    for (int64_t t = 0; t < n; ++t)
      for (int64_t i = 0; i < channels; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < width; ++k) sum += get(c.w, i, k) * x[static_cast<size_t>((t + k) * channels + i)];
        set(c.y, begin + t, i, sum * sigmoid(sum));
      }
    if (c.carried.on)
      for (int64_t t = 0; t < before; ++t)
        for (int64_t i = 0; i < channels; ++i) set(state, t, i, x[static_cast<size_t>((n + t) * channels + i)]);
  }
}

void causal_conv_grad(const CausalConvGrad& c) {
  const int64_t width = c.w.cols, before = width - 1, channels = c.x.cols;
  std::vector<double> dw(static_cast<size_t>(channels * width));
  for (int64_t d = 0; d < c.documents; ++d) {
    const int64_t begin = c.cu_seqlens[d], n = c.cu_seqlens[d + 1] - begin;
    for (int64_t i = 0; i < channels; ++i) {
      auto x = [&](int64_t t) { return t < 0 ? 0.0 : get(c.x, begin + t, i); };
      std::vector<double> dz(static_cast<size_t>(n));
      for (int64_t t = 0; t < n; ++t) {
        double z = 0;
        for (int64_t k = 0; k < width; ++k) z += get(c.w, i, k) * x(t - before + k);
        dz[static_cast<size_t>(t)] = get(c.dy, begin + t, i) * silu_slope(z);
        for (int64_t k = 0; k < width; ++k)
          dw[static_cast<size_t>(i * width + k)] += dz[static_cast<size_t>(t)] * x(t - before + k);
      }
      if (!c.dx.p) continue;
      for (int64_t t = 0; t < n; ++t) {
        double sum = 0;
        for (int64_t k = 0; k < width; ++k)
          if (t + before - k < n) sum += get(c.w, i, k) * dz[static_cast<size_t>(t + before - k)];
        set(c.dx, begin + t, i, sum);
      }
    }
  }
  add_into(c.dw, dw, c.accumulate);
}

namespace {

// One value head of one document in double: what the recurrence reads, token by token.
struct DeltaHead {
  int64_t n, kd, vd;
  std::vector<double> q, k, v, alpha, beta, q_inv, k_inv;

  template <typename G>
  DeltaHead(const G& g, int64_t d, int64_t head)
      : n(g.cu_seqlens[d + 1] - g.cu_seqlens[d]), kd(g.of.key_dim), vd(g.of.value_dim) {
    const int64_t begin = g.cu_seqlens[d], kh = head * g.of.key_heads / g.of.value_heads, keys = g.of.key_heads * kd;
    for (int64_t t = begin; t < begin + n; ++t) {
      double qq = 1e-6, kk = 1e-6;
      for (int64_t i = 0; i < kd; ++i) {
        qq += get(g.qkv, t, kh * kd + i) * get(g.qkv, t, kh * kd + i);
        kk += get(g.qkv, t, keys + kh * kd + i) * get(g.qkv, t, keys + kh * kd + i);
      }
      q_inv.push_back(1 / std::sqrt(qq)), k_inv.push_back(1 / std::sqrt(kk));
      for (int64_t i = 0; i < kd; ++i) {
        q.push_back(get(g.qkv, t, kh * kd + i) * q_inv.back() / std::sqrt(static_cast<double>(kd)));
        k.push_back(get(g.qkv, t, keys + kh * kd + i) * k_inv.back());
      }
      for (int64_t i = 0; i < vd; ++i) v.push_back(get(g.qkv, t, 2 * keys + head * vd + i));
      beta.push_back(sigmoid(get(g.ba, t, head)));
      alpha.push_back(std::exp(-std::exp(get(g.a_log, 0, head)) *
                               softplus(get(g.ba, t, g.of.value_heads + head) + get(g.dt_bias, 0, head))));
    }
  }
  const double* row(const std::vector<double>& m, int64_t t, int64_t width) const { return m.data() + t * width; }

  // S before token t to S after it; u = v − (αS)ᵀk.
  void step(int64_t t, std::vector<double>& s, std::vector<double>& u) const {
    const double *kt = row(k, t, kd), *vt = row(v, t, vd);
    for (double& x : s) x *= alpha[static_cast<size_t>(t)];
    for (int64_t j = 0; j < vd; ++j) {
      double read = 0;
      for (int64_t i = 0; i < kd; ++i) read += s[static_cast<size_t>(i * vd + j)] * kt[i];
      u[static_cast<size_t>(j)] = vt[j] - read;
    }
    for (int64_t i = 0; i < kd; ++i)
      for (int64_t j = 0; j < vd; ++j)
        s[static_cast<size_t>(i * vd + j)] += kt[i] * beta[static_cast<size_t>(t)] * u[static_cast<size_t>(j)];
  }
};

}  // namespace

void gated_delta(const GatedDelta& g) {
  const int64_t kd = g.of.key_dim, vd = g.of.value_dim;
  for (int64_t d = 0; d < g.documents; ++d)
    for (int64_t head = 0; head < g.of.value_heads; ++head) {
      const DeltaHead h(g, d, head);
      std::vector<double> s(static_cast<size_t>(kd * vd)), u(static_cast<size_t>(vd));
      float* state =
          g.carried.on ? static_cast<float*>(g.carried.states) + (g.carried.slot[d] * g.of.value_heads + head) * kd * vd
                       : nullptr;
      if (!fresh(g.carried, g.cu_seqlens, d))
        for (size_t i = 0; i < s.size(); ++i) s[i] = static_cast<double>(state[i]);
      for (int64_t t = 0; t < h.n; ++t) {
        h.step(t, s, u);
        for (int64_t j = 0; j < vd; ++j) {
          double o = 0;
          for (int64_t i = 0; i < kd; ++i) o += s[static_cast<size_t>(i * vd + j)] * h.row(h.q, t, kd)[i];
          set(g.out, g.cu_seqlens[d] + t, head * vd + j, o);
        }
      }
      if (state)
        for (size_t i = 0; i < s.size(); ++i) state[i] = static_cast<float>(s[i]);
    }
}

// With S' = αS₋, r = βu, u = v − S'ᵀk, S = S' + k·rᵀ, o = Sᵀq, and D the derivative by S:
//   D += q·doᵀ   dq = S·do   dr = Dᵀk   dk = D·r − S'·du   du = β·dr = dv   dβ = dr·u   D' = D − k·duᵀ
//   dα = ⟨D', S₋⟩   D₋ = α·D'
void gated_delta_grad(const GatedDeltaGrad& g) {
  const int64_t kd = g.of.key_dim, vd = g.of.value_dim, heads = g.of.value_heads, keys = g.of.key_heads * kd;
  std::vector<double> da_log(static_cast<size_t>(heads)), ddt(static_cast<size_t>(heads));
  for (int64_t d = 0; d < g.documents; ++d) {
    const int64_t begin = g.cu_seqlens[d], n = g.cu_seqlens[d + 1] - begin;
    std::vector<double> dq(static_cast<size_t>(n * keys)), dk(dq.size());
    for (int64_t head = 0; head < heads; ++head) {
      const DeltaHead h(g, d, head);
      const int64_t kh = head * g.of.key_heads / heads;
      std::vector<std::vector<double>> before;  // S before each token
      std::vector<double> s(static_cast<size_t>(kd * vd)), grad(s.size()), u(static_cast<size_t>(vd));
      for (int64_t t = 0; t < n; ++t) before.push_back(s), h.step(t, s, u);
      for (int64_t t = n; t-- > 0;) {
        const std::vector<double>& last = before[static_cast<size_t>(t)];
        s = last;
        h.step(t, s, u);
        const double *q = h.row(h.q, t, kd), *k = h.row(h.k, t, kd), alpha = h.alpha[static_cast<size_t>(t)],
                     beta = h.beta[static_cast<size_t>(t)];
        auto dout = [&](int64_t j) { return get(g.dout, begin + t, head * vd + j); };
        auto at = [&](int64_t i, int64_t j) { return static_cast<size_t>(i * vd + j); };
        for (int64_t i = 0; i < kd; ++i)
          for (int64_t j = 0; j < vd; ++j) {
            grad[at(i, j)] += q[i] * dout(j);
            dq[static_cast<size_t>(t * keys + kh * kd + i)] += s[at(i, j)] * dout(j);
          }
        std::vector<double> dr(static_cast<size_t>(vd));
        double dbeta = 0, dalpha = 0;
        for (int64_t j = 0; j < vd; ++j) {
          for (int64_t i = 0; i < kd; ++i) dr[static_cast<size_t>(j)] += grad[at(i, j)] * k[i];
          dbeta += dr[static_cast<size_t>(j)] * u[static_cast<size_t>(j)];
          set(g.dqkv, begin + t, 2 * keys + head * vd + j, beta * dr[static_cast<size_t>(j)]);
        }
        for (int64_t i = 0; i < kd; ++i)
          for (int64_t j = 0; j < vd; ++j) {
            const double du = beta * dr[static_cast<size_t>(j)];
            dk[static_cast<size_t>(t * keys + kh * kd + i)] +=
                grad[at(i, j)] * beta * u[static_cast<size_t>(j)] - alpha * last[at(i, j)] * du;
            grad[at(i, j)] -= k[i] * du;
            dalpha += grad[at(i, j)] * last[at(i, j)];
            grad[at(i, j)] *= alpha;
          }
        // log α = −exp(a_log)·softplus(x), x = a + dt_bias
        const double x = get(g.ba, begin + t, heads + head) + get(g.dt_bias, 0, head),
                     rate = -std::exp(get(g.a_log, 0, head)), dlog = alpha * dalpha;
        set(g.dba, begin + t, head, dbeta * beta * (1 - beta));
        set(g.dba, begin + t, heads + head, dlog * rate * sigmoid(x));
        da_log[static_cast<size_t>(head)] += dlog * rate * softplus(x);
        ddt[static_cast<size_t>(head)] += dlog * rate * sigmoid(x);
      }
    }
    // x̂ = x·inv: dx = inv·(dx̂ − x̂·(x̂·dx̂)), x̂ before q's scale.
    for (int64_t kh = 0; kh < g.of.key_heads; ++kh) {
      const DeltaHead h(g, d, kh * heads / g.of.key_heads);
      const double scale = 1 / std::sqrt(static_cast<double>(kd));
      for (int64_t t = 0; t < n; ++t)
        for (int part = 0; part < 2; ++part) {
          const double* hat = h.row(part == 0 ? h.q : h.k, t, kd);
          const double* dhat = (part == 0 ? dq : dk).data() + t * keys + kh * kd;
          const double inv = (part == 0 ? h.q_inv : h.k_inv)[static_cast<size_t>(t)], by = part == 0 ? scale : 1;
          double dot = 0;
          for (int64_t i = 0; i < kd; ++i) dot += hat[i] / by * dhat[i] * by;
          for (int64_t i = 0; i < kd; ++i)
            set(g.dqkv, begin + t, part * keys + kh * kd + i, inv * (dhat[i] * by - hat[i] / by * dot));
        }
    }
  }
  add_into(g.da_log, da_log, g.accumulate);
  add_into(g.ddt_bias, ddt, g.accumulate);
}

void gated_norm(const GatedNorm& g) {
  const int64_t dim = g.w.cols, heads = g.x.cols / dim;
  for (int64_t t = 0; t < g.x.rows; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      double sum = 0;
      for (int64_t i = 0; i < dim; ++i) sum += get(g.x, t, h * dim + i) * get(g.x, t, h * dim + i);
      const double rstd = 1 / std::sqrt(sum / static_cast<double>(dim) + static_cast<double>(g.eps));
      if (g.rstd) g.rstd[t * heads + h] = static_cast<float>(rstd);
      for (int64_t i = 0; i < dim; ++i) {
        const double z = get(g.gate, t, h * dim + i);
        set(g.y, t, h * dim + i, get(g.x, t, h * dim + i) * rstd * get(g.w, 0, i) * z * sigmoid(z));
      }
    }
}

void gated_norm_grad(const GatedNormGrad& g) {
  const int64_t dim = g.w.cols, heads = g.x.cols / dim;
  std::vector<double> dw(static_cast<size_t>(dim)), dn(static_cast<size_t>(dim));
  for (int64_t t = 0; t < g.x.rows; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const double rstd = static_cast<double>(g.rstd[t * heads + h]);
      auto n = [&](int64_t i) { return get(g.x, t, h * dim + i) * rstd; };
      double mean = 0;
      std::vector<double> dgate(static_cast<size_t>(dim));
      for (int64_t i = 0; i < dim; ++i) {
        const double z = get(g.gate, t, h * dim + i), s = z * sigmoid(z), dy = get(g.dy, t, h * dim + i);
        dn[static_cast<size_t>(i)] = dy * get(g.w, 0, i) * s;
        mean += dn[static_cast<size_t>(i)] * n(i) / static_cast<double>(dim);
        dw[static_cast<size_t>(i)] += dy * n(i) * s;
        dgate[static_cast<size_t>(i)] = dy * n(i) * get(g.w, 0, i) * silu_slope(z);
      }
      std::vector<double> dx(static_cast<size_t>(dim));
      for (int64_t i = 0; i < dim; ++i) dx[static_cast<size_t>(i)] = rstd * (dn[static_cast<size_t>(i)] - n(i) * mean);
      for (int64_t i = 0; i < dim; ++i) {
        set(g.dx, t, h * dim + i, dx[static_cast<size_t>(i)]);
        set(g.dgate, t, h * dim + i, dgate[static_cast<size_t>(i)]);
      }
    }
  add_into(g.dw, dw, g.accumulate);
}

void sigmoid_gate(const SigmoidGate& g) {
  for (int64_t t = 0; t < g.y.rows; ++t)
    for (int64_t i = 0; i < g.y.cols; ++i)
      set(g.y, t, i, get(g.x, t, i) * sigmoid(get(g.gate, t, g.gate.cols == 1 ? 0 : i)));
}

void sigmoid_gate_grad(const SigmoidGateGrad& g) {
  const bool one = g.gate.cols == 1;
  for (int64_t t = 0; t < g.dy.rows; ++t) {
    double sum = 0;
    for (int64_t i = 0; i < g.dy.cols; ++i) {
      const double s = sigmoid(get(g.gate, t, one ? 0 : i)), dy = get(g.dy, t, i);
      const double dgate = dy * get(g.x, t, i) * s * (1 - s);
      set(g.dx, t, i, dy * s);
      sum += dgate;
      if (!one) set(g.dgate, t, i, dgate);
    }
    if (one) set(g.dgate, t, 0, sum);
  }
}

void split_gates(const SplitGates& s) {
  const int64_t heads = s.gate.cols / s.dim;
  for (int64_t t = 0; t < s.all.rows; ++t)
    for (int64_t i = 0; i < s.all.cols; ++i) {
      const int64_t head = i / (2 * s.dim), within = i % (2 * s.dim);
      const bool gate = head < heads && within >= s.dim;
      const Mat& part = gate ? s.gate : s.plain;
      const int64_t at = head >= heads ? i - heads * s.dim : head * s.dim + within - (gate ? s.dim : 0);
      if (s.merge)
        set(s.all, t, i, get(ConstMat(part), t, at));
      else
        set(part, t, at, get(ConstMat(s.all), t, i));
    }
}

}  // namespace mxt::kernels::reference
