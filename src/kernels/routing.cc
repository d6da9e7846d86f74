#include "kernels/routing.h"

#include <algorithm>
#include <limits>

namespace mxt::kernels {

void top_k(const float* values, int64_t n, int64_t k, int32_t* chosen) {
  auto value = [&](int64_t i) { return values[i] == values[i] ? values[i] : -std::numeric_limits<float>::infinity(); };
  int64_t have = 0;
  for (int64_t i = 0; i < n; ++i) {  // insertion: k is small
    if (have == k && !(value(i) > value(chosen[k - 1]))) continue;
    int64_t at = have < k ? have++ : k - 1;
    for (; at > 0 && value(i) > value(chosen[at - 1]); --at) chosen[at] = chosen[at - 1];
    chosen[at] = static_cast<int32_t>(i);
  }
}

void sort_routed_rows(const int32_t* expert, int64_t slots, int64_t experts, int32_t* row, int32_t* slot,
                      int32_t* first) {
  std::fill_n(first, experts + 1, 0);
  for (int64_t s = 0; s < slots; ++s) ++first[expert[s] + 1];
  for (int64_t e = 0; e < experts; ++e) first[e + 1] += first[e];
  for (int64_t s = 0; s < slots; ++s) {  // first[e] runs through e's rows, and stands at e + 1's first afterwards
    row[s] = first[expert[s]]++;
    slot[row[s]] = static_cast<int32_t>(s);
  }
  for (int64_t e = experts; e > 0; --e) first[e] = first[e - 1];
  first[0] = 0;
}

namespace {

template <typename M>
M rows_of(M m, int64_t first, int64_t count) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(m.p)>>, const std::byte, std::byte>;
  if (m.p) m.p = static_cast<Byte*>(m.p) + static_cast<size_t>(first * m.ld) * size_of(m.type);
  m.rows = count;
  return m;
}

}  // namespace

Gemm gemm_of_expert(const GroupedGemm& g, int64_t e) {
  const int64_t from = g.first[e], count = g.first[e + 1] - from;
  Gemm out;
  out.a = rows_of(g.a, from, count);
  out.alpha = g.alpha;
  out.accumulate = g.accumulate;
  out.algo = g.algo;
  if (g.kind == Grouped::kWeight) {
    out.b = rows_of(g.b, from, count);
    out.c = rows_of(g.c, e * g.a.cols, g.a.cols);
    out.trans_a = true;
    return out;
  }
  const int64_t height = g.b.rows / g.experts;
  out.b = rows_of(g.b, e * height, height);
  out.c = rows_of(g.c, from, count);
  out.trans_b = g.kind == Grouped::kForward;
  return out;
}

}  // namespace mxt::kernels
