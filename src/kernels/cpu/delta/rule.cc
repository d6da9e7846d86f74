// The gated delta rule as its recurrence: on a processor its operations a token (three passes over the state) are no
// more than those of the chunked form. A task is a key head of a document, with the value heads that read it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/threads.h"
#include "kernels/cpu/delta.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/delta/rule.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kChunk = kDeltaChunk;

// Memory of a thread, kept from call to call.
struct Rule {
  std::vector<float> q, k, q_inv, k_inv;          // [n, key_dim] normalised, [n]
  std::vector<float> alpha, beta, v, u, out;      // [n]; [n, value_dim]
  std::vector<float> state, grad, marks, within;  // [key_dim, value_dim]; one a chunk; one a token of a chunk
  std::vector<float> dq, dk, dr, dout;            // [n, key_dim]; [value_dim]
};
Rule& memory() {
  thread_local Rule rule;
  return rule;
}
void at_least(std::vector<float>& v, int64_t n) {
  if (v.size() < static_cast<size_t>(n)) v.resize(static_cast<size_t>(n));
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double softplus_of(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

// x/√(Σx² + 1e-6)·scale, and the root's inverse.
template <typename T>
HWY_INLINE float normalise(const T* x, int64_t n, float scale, float* out) {
  const Sum squares = reduce<Sum>(n, [&](int64_t i, auto part, Sum& a) HWY_ATTR {
    const V v = load(x + i, part);
    a.v = hn::MulAdd(v, v, a.v);
  });
  const float inv = 1.0f / std::sqrt(squares.total() + 1e-6f);
  const V by = splat(inv * scale);
  for_each(n, [&](int64_t i, auto part) HWY_ATTR { store(hn::Mul(load(x + i, part), by), out + i, part); });
  return inv;
}

template <typename T, typename G>
void read_keys(const G& g, int64_t from, int64_t n, int64_t key_head, Rule& r) {
  const int64_t kd = g.of.key_dim, keys = g.of.key_heads * kd;
  const float scale = 1.0f / std::sqrt(static_cast<float>(kd));
  at_least(r.q, n * kd), at_least(r.k, n * kd), at_least(r.q_inv, n), at_least(r.k_inv, n);
  for (int64_t t = 0; t < n; ++t) {
    const T* x = row_at<T>(g.qkv, from + t) + key_head * kd;
    r.q_inv[static_cast<size_t>(t)] = normalise(x, kd, scale, r.q.data() + t * kd);
    r.k_inv[static_cast<size_t>(t)] = normalise(x + keys, kd, 1.0f, r.k.data() + t * kd);
  }
}

template <typename T, typename G>
void read_head(const G& g, int64_t from, int64_t n, int64_t head, Rule& r) {
  const int64_t vd = g.of.value_dim, at = 2 * g.of.key_heads * g.of.key_dim + head * vd;
  at_least(r.v, n * vd), at_least(r.u, n * vd), at_least(r.alpha, n), at_least(r.beta, n);
  const double rate = std::exp(static_cast<double>(static_cast<const float*>(g.a_log.p)[head])),
               bias = static_cast<double>(static_cast<const float*>(g.dt_bias.p)[head]);
  for (int64_t t = 0; t < n; ++t) {
    const T *x = row_at<T>(g.qkv, from + t) + at, *ba = row_at<T>(g.ba, from + t);
    for_each(vd, [&](int64_t i, auto part) HWY_ATTR { store(load(x + i, part), r.v.data() + t * vd + i, part); });
    const double a = static_cast<double>(as_float(ba[g.of.value_heads + head]));
    r.beta[static_cast<size_t>(t)] = static_cast<float>(sigmoid_of(static_cast<double>(as_float(ba[head]))));
    r.alpha[static_cast<size_t>(t)] = static_cast<float>(std::exp(-rate * softplus_of(a + bias)));
  }
}

// A run of a vector's columns of the state through token t: they do not meet those of other runs. u = v − (αS)ᵀk;
// returns the columns of o = Sᵀq.
template <typename P>
HWY_INLINE V advance(const Rule& r, int64_t t, int64_t kd, int64_t vd, float* s, float* u, int64_t j, P part) {
  const float *k = r.k.data() + t * kd, *q = r.q.data() + t * kd;
  const V alpha = splat(r.alpha[static_cast<size_t>(t)]);
  V read = hn::Zero(F32());
  for (int64_t i = 0; i < kd; ++i) {
    const V x = hn::Mul(alpha, load(s + i * vd + j, part));
    store(x, s + i * vd + j, part);
    read = hn::MulAdd(x, splat(k[i]), read);
  }
  const V rest = hn::Sub(load(r.v.data() + t * vd + j, part), read);
  store(rest, u + j, part);
  const V write = hn::Mul(splat(r.beta[static_cast<size_t>(t)]), rest);
  V o = hn::Zero(F32());
  for (int64_t i = 0; i < kd; ++i) {
    const V x = hn::MulAdd(splat(k[i]), write, load(s + i * vd + j, part));
    store(x, s + i * vd + j, part);
    o = hn::MulAdd(x, splat(q[i]), o);
  }
  return o;
}

template <typename T>
void delta_of(const GatedDelta& g, int64_t document, int64_t key_head) {
  Rule& r = memory();
  const int64_t from = g.cu_seqlens[document], n = g.cu_seqlens[document + 1] - from, kd = g.of.key_dim,
                vd = g.of.value_dim, group = g.of.value_heads / g.of.key_heads, size = kd * vd;
  if (n == 0) return;
  read_keys<T>(g, from, n, key_head, r);
  at_least(r.state, size);
  for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
    read_head<T>(g, from, n, head, r);
    float* s = r.state.data();
    if (g.carried.on)
      s = static_cast<float*>(g.carried.states) + (g.carried.slot[document] * g.of.value_heads + head) * size;
    if (!g.carried.on || g.carried.context[document] == n) std::fill_n(s, size, 0.0f);
    for_each(vd, [&](int64_t j, auto part) HWY_ATTR {  // a run of columns fits the first cache: all tokens at once
      for (int64_t t = 0; t < n; ++t)
        store(advance(r, t, kd, vd, s, r.u.data() + t * vd, j, part), row_at<T>(g.out, from + t) + head * vd + j, part);
    });
  }
}

// Formulas: reference/delta.cc. `s`: the state before the token. r.dr is the gradient of v afterwards.
struct Step {
  float dbeta, dalpha;
};
HWY_INLINE Step retreat(Rule& r, int64_t t, int64_t kd, int64_t vd, const float* s, const float* u) {
  const float *k = r.k.data() + t * kd, *q = r.q.data() + t * kd, *dout = r.dout.data();
  float *grad = r.grad.data(), *dr = r.dr.data(), *dq = r.dq.data() + t * kd, *dk = r.dk.data() + t * kd;
  const float alpha = r.alpha[static_cast<size_t>(t)], beta = r.beta[static_cast<size_t>(t)];
  const Sum write_out = reduce<Sum>(vd, [&](int64_t j, auto part, Sum& a) HWY_ATTR {
    a.v = hn::MulAdd(hn::Mul(splat(beta), load(u + j, part)), load(dout + j, part), a.v);
  });
  const float through = write_out.total();  // r·do
  std::fill_n(dr, vd, 0.0f);
  for (int64_t i = 0; i < kd; ++i) {
    float* d = grad + i * vd;
    const V qi = splat(q[i]), ki = splat(k[i]);
    const TwoSums sums = reduce<TwoSums>(vd, [&](int64_t j, auto part, TwoSums& a) HWY_ATTR {
      const V o = load(dout + j, part), x = hn::MulAdd(qi, o, load(d + j, part));
      store(x, d + j, part);
      store(hn::MulAdd(ki, x, load(dr + j, part)), dr + j, part);
      a.a.v = hn::MulAdd(load(s + i * vd + j, part), o, a.a.v);
      a.b.v = hn::MulAdd(x, load(u + j, part), a.b.v);
    });
    dq[i] += alpha * sums.a.total() + k[i] * through;
    dk[i] += beta * sums.b.total();
  }
  const Sum dbeta = reduce<Sum>(
      vd, [&](int64_t j, auto part, Sum& a) HWY_ATTR { a.v = hn::MulAdd(load(dr + j, part), load(u + j, part), a.v); });
  // dr becomes du = β·dr.
  for_each(vd, [&](int64_t j, auto part) HWY_ATTR { store(hn::Mul(load(dr + j, part), splat(beta)), dr + j, part); });
  float dalpha = 0;
  for (int64_t i = 0; i < kd; ++i) {
    float* d = grad + i * vd;
    const V ki = splat(k[i]), decay = splat(alpha);
    const TwoSums sums = reduce<TwoSums>(vd, [&](int64_t j, auto part, TwoSums& a) HWY_ATTR {
      const V du = load(dr + j, part), old = load(s + i * vd + j, part);
      const V x = hn::NegMulAdd(ki, du, load(d + j, part));
      a.a.v = hn::MulAdd(old, du, a.a.v);
      a.b.v = hn::MulAdd(x, old, a.b.v);
      store(hn::Mul(x, decay), d + j, part);
    });
    dk[i] -= alpha * sums.a.total();
    dalpha += sums.b.total();
  }
  return {dbeta.total(), dalpha};
}

// The gradient through normalise(): hat is its result, inv the inverse root.
template <typename T>
HWY_INLINE void normalise_grad(const float* hat, const float* dhat, int64_t n, float inv, float scale, T* out) {
  const Sum dot = reduce<Sum>(n, [&](int64_t i, auto part, Sum& a)
                                     HWY_ATTR { a.v = hn::MulAdd(load(hat + i, part), load(dhat + i, part), a.v); });
  // hat = scale·x̂: x̂·(x̂·(scale·dhat)) = hat·(hat·dhat)/scale
  const V by = splat(dot.total() / scale), all = splat(inv), s = splat(scale);
  for_each(n, [&](int64_t i, auto part) HWY_ATTR {
    const V d = hn::NegMulAdd(load(hat + i, part), by, hn::Mul(load(dhat + i, part), s));
    store(hn::Mul(d, all), out + i, part);
  });
}

// sums: Σ over the document's tokens of the gradients of a_log and dt_bias, [2, value_heads].
template <typename T>
void delta_grad_of(const GatedDeltaGrad& g, int64_t document, int64_t key_head, double* sums) {
  Rule& r = memory();
  const int64_t from = g.cu_seqlens[document], n = g.cu_seqlens[document + 1] - from, kd = g.of.key_dim,
                vd = g.of.value_dim, heads = g.of.value_heads, group = heads / g.of.key_heads, size = kd * vd,
                keys = g.of.key_heads * kd;
  read_keys<T>(g, from, n, key_head, r);
  at_least(r.state, size), at_least(r.grad, size), at_least(r.dr, vd), at_least(r.dout, vd);
  at_least(r.within, std::min(kChunk, n) * size), at_least(r.marks, (n + kChunk - 1) / kChunk * size);
  at_least(r.dq, n * kd), at_least(r.dk, n * kd);
  std::fill_n(r.dq.data(), n * kd, 0.0f);
  std::fill_n(r.dk.data(), n * kd, 0.0f);
  for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
    read_head<T>(g, from, n, head, r);
    float* s = r.state.data();
    std::fill_n(s, size, 0.0f);
    std::fill_n(r.grad.data(), size, 0.0f);
    const double rate = -std::exp(static_cast<double>(static_cast<const float*>(g.a_log.p)[head])),
                 bias = static_cast<double>(static_cast<const float*>(g.dt_bias.p)[head]);
    auto pass = [&](int64_t t) HWY_ATTR {
      for_each(vd, [&](int64_t j, auto part) HWY_ATTR { advance(r, t, kd, vd, s, r.u.data() + t * vd, j, part); });
    };
    for (int64_t t = 0; t < n; ++t) {
      if (t % kChunk == 0) std::copy_n(s, size, r.marks.data() + t / kChunk * size);
      pass(t);
    }
    double da_log = 0, ddt = 0;
    for (int64_t chunk = (n - 1) / kChunk; chunk >= 0; --chunk) {
      const int64_t first = chunk * kChunk, last = std::min(n, first + kChunk);
      std::copy_n(r.marks.data() + chunk * size, size, s);
      for (int64_t t = first; t < last; ++t) {
        std::copy_n(s, size, r.within.data() + (t - first) * size);
        pass(t);
      }
      for (int64_t t = last; t-- > first;) {
        const T* dout = row_at<T>(g.dout, from + t) + head * vd;
        for_each(vd, [&](int64_t j, auto part) HWY_ATTR { store(load(dout + j, part), r.dout.data() + j, part); });
        const Step d = retreat(r, t, kd, vd, r.within.data() + (t - first) * size, r.u.data() + t * vd);
        T *dv = row_at<T>(g.dqkv, from + t) + 2 * keys + head * vd, *dba = row_at<T>(g.dba, from + t);
        for_each(vd, [&](int64_t j, auto part) HWY_ATTR { store(load(r.dr.data() + j, part), dv + j, part); });
        const float beta = r.beta[static_cast<size_t>(t)];
        const double x = static_cast<double>(as_float(row_at<T>(g.ba, from + t)[heads + head])) + bias,
                     dlog = static_cast<double>(r.alpha[static_cast<size_t>(t)]) * static_cast<double>(d.dalpha);
        put(d.dbeta * beta * (1 - beta), dba + head);
        put(static_cast<float>(dlog * rate * sigmoid_of(x)), dba + heads + head);
        da_log += dlog * rate * softplus_of(x);
        ddt += dlog * rate * sigmoid_of(x);
      }
    }
    sums[head] = da_log, sums[heads + head] = ddt;
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(kd));
  for (int64_t t = 0; t < n; ++t) {
    T* to = row_at<T>(g.dqkv, from + t) + key_head * kd;
    normalise_grad(r.q.data() + t * kd, r.dq.data() + t * kd, kd, r.q_inv[static_cast<size_t>(t)], scale, to);
    normalise_grad(r.k.data() + t * kd, r.dk.data() + t * kd, kd, r.k_inv[static_cast<size_t>(t)], 1.0f, to + keys);
  }
}

void delta_task(const GatedDelta& g, int64_t document, int64_t key_head) {
  g.qkv.type == DType::kF32 ? delta_of<float>(g, document, key_head) : delta_of<uint16_t>(g, document, key_head);
}
void delta_grad_task(const GatedDeltaGrad& g, int64_t document, int64_t key_head, double* sums) {
  g.qkv.type == DType::kF32 ? delta_grad_of<float>(g, document, key_head, sums)
                            : delta_grad_of<uint16_t>(g, document, key_head, sums);
}

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {

HWY_EXPORT(delta_task);
HWY_EXPORT(delta_grad_task);

size_t gated_delta_grad_memory(const GatedDeltaGrad& g) {
  const int64_t n = g.longest_document > 0 ? g.longest_document : g.qkv.rows, size = g.of.key_dim * g.of.value_dim;
  const int64_t states = std::min(kDeltaChunk, n) + (n + kDeltaChunk - 1) / kDeltaChunk + 2;
  const int64_t floats = states * size + n * (4 * g.of.key_dim + 2 * g.of.value_dim + 4);
  return static_cast<size_t>(num_threads() * floats) * sizeof(float);
}

void gated_delta(const GatedDelta& g) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(delta_task);
  const int64_t heads = g.of.key_heads;
  parallel_for(0, g.documents * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) kernel(g, i / heads, i % heads);
  });
}

void gated_delta_grad(const GatedDeltaGrad& g) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(delta_grad_task);
  const int64_t heads = g.of.key_heads, values = g.of.value_heads;
  std::vector<double> sums(static_cast<size_t>(g.documents * 2 * values));
  parallel_for(0, g.documents * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (g.cu_seqlens[i / heads + 1] > g.cu_seqlens[i / heads])
        kernel(g, i / heads, i % heads, sums.data() + i / heads * 2 * values);
  });
  for (int64_t part = 0; part < 2; ++part) {
    float* to = part == 0 ? g.da_log : g.ddt_bias;
    if (!to) continue;
    for (int64_t h = 0; h < values; ++h) {
      double sum = g.accumulate ? static_cast<double>(to[h]) : 0.0;
      for (int64_t d = 0; d < g.documents; ++d) sum += sums[static_cast<size_t>((d * 2 + part) * values + h)];
      to[h] = static_cast<float>(sum);
    }
  }
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
