#include "kernels/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm/workspace.h"
#include "kernels/cpu/pointwise/work.h"
#include "kernels/routing.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/experts/experts.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

template <typename T>
void route_rows_of(const Route& r, int64_t begin, int64_t end) {
  const int64_t experts = r.logits.cols, k = r.weights.cols;
  for (int64_t t = begin; t < end; ++t) {
    const T* logits = row_at<T>(r.logits, t);
    float* p = row_at<float>(r.probabilities, t);
    float largest = -HUGE_VALF;
    for (int64_t e = 0; e < experts; ++e) largest = std::max(largest, p[e] = as_float(logits[e]));
    int32_t* chosen = r.expert + t * k;
    top_k(p, experts, k, chosen);
    const V top = splat(largest);
    Sum sum = reduce<Sum>(experts, [&](int64_t i, auto part, Sum& a) HWY_ATTR {
      const V e = exp_bounded(hn::Sub(load(p + i, part), top));
      store(e, p + i, part);
      a.v = hn::Add(a.v, keep(e, part));
    });
    const V scale = splat(1.0f / sum.total());
    for_each(experts, [&](int64_t i, auto part) HWY_ATTR { store(hn::Mul(load(p + i, part), scale), p + i, part); });
    float whole = 0;
    for (int64_t j = 0; j < k; ++j) whole += p[chosen[j]];
    T* w = row_at<T>(r.weights, t);
    for (int64_t j = 0; j < k; ++j) put(r.renormalize ? p[chosen[j]] / whole : p[chosen[j]], w + j);
  }
}

// Formula: reference/experts.cc.
template <typename T>
void route_grad_rows_of(const RouteGrad& r, int64_t begin, int64_t end) {
  const int64_t experts = r.dlogits.cols, k = r.dweights.p ? r.dweights.cols : 0;
  float* dp = temporary(Slot::kPartial, experts);
  int64_t document = 0;
  for (int64_t t = begin; t < end; ++t) {
    const float* p = row_at<float>(r.probabilities, t);
    while (document < r.balance.rows && t >= r.runs[document + 1]) ++document;
    if (document < r.balance.rows) {
      std::copy_n(row_at<float>(r.balance, document), experts, dp);
    } else {
      std::fill_n(dp, experts, 0.0f);
    }
    if (k > 0) {
      const int32_t* chosen = r.expert + t * k;
      const float* dw = row_at<float>(r.dweights, t);
      float whole = 1, mean = 0;
      if (r.renormalize) {
        whole = 0;
        for (int64_t j = 0; j < k; ++j) whole += p[chosen[j]];
        for (int64_t j = 0; j < k; ++j) mean += p[chosen[j]] / whole * dw[j];
      }
      for (int64_t j = 0; j < k; ++j) dp[chosen[j]] += (dw[j] - mean) / whole;
    }
    const Sum dot = reduce<Sum>(experts, [&](int64_t i, auto part, Sum& a) HWY_ATTR {
      a.v = hn::MulAdd(load(p + i, part), load(dp + i, part), a.v);
    });
    const V sum = splat(dot.total());
    T* out = row_at<T>(r.dlogits, t);
    for_each(experts, [&](int64_t i, auto part) HWY_ATTR {
      store(hn::Mul(load(p + i, part), hn::Sub(load(dp + i, part), sum)), out + i, part);
    });
  }
}

template <typename T>
void gather_rows_of(const ExpertGather& g, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t t = g.slot[r] / g.k;
    const T* x = row_at<T>(g.x, t);
    T* y = row_at<T>(g.y, r);
    if (!g.weights.p) {
      std::memcpy(y, x, static_cast<size_t>(g.y.cols) * sizeof(T));
      continue;
    }
    const V w = splat(as_float(row_at<T>(g.weights, t)[g.slot[r] % g.k]));
    for_each(g.y.cols, [&](int64_t i, auto part) HWY_ATTR { store(hn::Mul(load(x + i, part), w), y + i, part); });
  }
}

template <typename T>
void sum_rows_of(const ExpertSum& s, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    T* y = row_at<T>(s.y, t);
    const int32_t* rows = s.row + t * s.k;
    const T* w = s.weights.p ? row_at<T>(s.weights, t) : nullptr;
    const T* more = s.add.p ? row_at<T>(s.add, t) : nullptr;
    for_each(s.y.cols, [&](int64_t i, auto part) HWY_ATTR {
      V sum = hn::Zero(F32());
      for (int64_t j = 0; j < s.k; ++j) {
        const V x = load(row_at<T>(s.x, rows[j]) + i, part);
        sum = w ? hn::MulAdd(splat(as_float(w[j])), x, sum) : hn::Add(sum, x);
      }
      if (more) sum = hn::Add(sum, load(more + i, part));
      store(sum, y + i, part);
    });
  }
}

template <typename T>
void dots_rows_of(const ExpertDots& d, int64_t begin, int64_t end) {
  const int64_t k = d.dweights.cols;
  for (int64_t t = begin; t < end; ++t) {
    const T* dy = row_at<T>(d.dy, t);
    for (int64_t j = 0; j < k; ++j) {
      const T* x = row_at<T>(d.x, d.row[t * k + j]);
      const Sum dot = reduce<Sum>(d.dy.cols, [&](int64_t i, auto part, Sum& a) HWY_ATTR {
        a.v = hn::MulAdd(load(dy + i, part), load(x + i, part), a.v);
      });
      row_at<float>(d.dweights, t)[j] = dot.total();
    }
  }
}

// What a document's tokens add to the row of an expert's sums, tokens in order.
void load_documents(const RouteLoad& l, int64_t begin, int64_t end) {
  const int64_t experts = l.count.cols;
  for (int64_t d = begin; d < end; ++d) {
    float *count = row_at<float>(l.count, d), *mass = row_at<float>(l.mass, d);
    if (!l.accumulate) std::fill_n(count, experts, 0.0f), std::fill_n(mass, experts, 0.0f);
    for (int64_t t = l.runs[d]; t < l.runs[d + 1]; ++t) {
      const float* p = row_at<float>(l.probabilities, t);
      for_each(experts, [&](int64_t i, auto part)
                            HWY_ATTR { store(hn::Add(load(mass + i, part), load(p + i, part)), mass + i, part); });
      for (int64_t j = 0; j < l.k; ++j) count[l.expert[t * l.k + j]] += 1;
    }
  }
}

MXT_BOTH_TYPES(route_rows, Route, c.logits)
MXT_BOTH_TYPES(route_grad_rows, RouteGrad, c.dlogits)
MXT_BOTH_TYPES(gather_rows, ExpertGather, c.y)
MXT_BOTH_TYPES(sum_rows, ExpertSum, c.y)
MXT_BOTH_TYPES(dots_rows, ExpertDots, c.dy)

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {

HWY_EXPORT(route_rows);
HWY_EXPORT(route_grad_rows);
HWY_EXPORT(gather_rows);
HWY_EXPORT(sum_rows);
HWY_EXPORT(dots_rows);
HWY_EXPORT(load_documents);

void route(const Route& r) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(route_rows);
  const int64_t tokens = r.logits.rows, k = r.weights.cols;
  parallel_for(0, tokens, rows_per_piece(4 * r.logits.cols), [&](int64_t b, int64_t e) { kernel(r, b, e); });
  sort_routed_rows(r.expert, tokens * k, r.logits.cols, r.row, r.slot, r.first);
}

void route_grad(const RouteGrad& r) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(route_grad_rows);
  parallel_for(0, r.dlogits.rows, rows_per_piece(r.dlogits.cols), [&](int64_t b, int64_t e) { kernel(r, b, e); });
}

void expert_gather(const ExpertGather& g) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(gather_rows);
  parallel_for(0, g.y.rows, rows_per_piece(g.y.cols), [&](int64_t b, int64_t e) { kernel(g, b, e); });
}

void expert_sum(const ExpertSum& s) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(sum_rows);
  parallel_for(0, s.y.rows, rows_per_piece(s.y.cols * s.k), [&](int64_t b, int64_t e) { kernel(s, b, e); });
}

void expert_dots(const ExpertDots& d) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(dots_rows);
  const int64_t grain = rows_per_piece(d.dy.cols * d.dweights.cols);
  parallel_for(0, d.dy.rows, grain, [&](int64_t b, int64_t e) { kernel(d, b, e); });
}

// Few rows an expert: experts are shared out; many: each product is. A product's bits are the same either way.
void grouped_gemm(const GroupedGemm& g) {
  constexpr int64_t kMany = 256;
  auto experts = [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) gemm(gemm_of_expert(g, e));
  };
  if (g.first[g.experts] >= kMany * g.experts) return experts(0, g.experts);
  parallel_for(0, g.experts, 1, experts);
}

// Threads that share out experts have a product each in hand.
size_t grouped_gemm_memory(const GroupedGemm&) { return static_cast<size_t>(num_threads() - 1) * kSharedWorkspace; }

void route_load(const RouteLoad& l) {
  parallel_for(0, l.count.rows, 1, [&](int64_t b, int64_t e) { HWY_DYNAMIC_DISPATCH(load_documents)(l, b, e); });
}

void balance_loss(const BalanceLoss& b) {
  const int64_t experts = b.count.cols;
  for (int64_t d = 0; d < b.count.rows; ++d) {
    auto row = [&](const ConstMat& m) { return static_cast<const float*>(m.p) + d * m.ld; };
    float* out = static_cast<float*>(b.balance.p) + d * b.balance.ld;
    const float n = static_cast<float>(b.layers * (b.runs[d + 1] - b.runs[d]));
    const float over = n > 0 ? 1 / n : 0, all = static_cast<float>(experts);
    double loss = 0;
    for (int64_t e = 0; e < experts; ++e) {
      const float f = row(b.count)[e] * over;
      loss += static_cast<double>(f) * static_cast<double>(row(b.mass)[e] * over);
      out[e] = b.coefficient * *b.scale * all * f * over;
    }
    static_cast<float*>(b.loss.p)[d * b.loss.ld] = static_cast<float>(loss * static_cast<double>(all));
  }
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
