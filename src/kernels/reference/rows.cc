#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::reference {

void embedding(const Embedding& e) {
  for (int64_t t = 0; t < e.y.rows; ++t)
    for (int64_t i = 0; i < e.y.cols; ++i) set(e.y, t, i, get(e.table, e.ids[t], i));
}

// Added in float, token by token: the order that every backend keeps, so this one can be compared exactly.
void embedding_grad(const EmbeddingGrad& e) {
  auto* table = static_cast<float*>(e.dtable.p);
  if (!e.accumulate)
    for (int64_t r = 0; r < e.dtable.rows; ++r)
      for (int64_t i = 0; i < e.dtable.cols; ++i) table[r * e.dtable.ld + i] = 0.0f;
  for (int64_t t = 0; t < e.dy.rows; ++t)
    for (int64_t i = 0; i < e.dy.cols && e.row_of(e.ids[t]) >= 0; ++i)
      table[e.ids[t] * e.dtable.ld + i] += (e.by ? e.by[t] : 1.0f) * static_cast<float>(get(e.dy, t, i));
}

void copy(const Copy& c) {
  for (int64_t t = 0; t < c.y.rows; ++t)
    for (int64_t i = 0; i < c.y.cols; ++i) set(c.y, t, i, get(c.x, t, i) * static_cast<double>(c.scale));
}

void gather_rows(const GatherRows& g) {
  for (int64_t t = 0; t < g.y.rows; ++t)
    for (int64_t i = 0; i < g.y.cols; ++i) set(g.y, t, i, get(g.x, g.rows[t], i));
}

void scatter_rows(const ScatterRows& s) {
  for (int64_t t = 0; t < s.y.rows && s.zero; ++t)
    for (int64_t i = 0; i < s.y.cols; ++i) set(s.y, t, i, 0.0);
  for (int64_t t = 0; t < s.x.rows; ++t)
    for (int64_t i = 0; i < s.x.cols; ++i) set(s.y, s.rows[t], i, get(s.x, t, i));
}

void mean_pool(const MeanPool& m) {
  for (int64_t d = 0; d < m.y.rows; ++d)
    for (int64_t i = 0; i < m.y.cols; ++i) {
      double sum = 0;
      for (int64_t t = m.cu_seqlens[d]; t < m.cu_seqlens[d + 1]; ++t) sum += get(m.x, t, i);
      set(m.y, d, i, sum / (m.cu_seqlens[d + 1] - m.cu_seqlens[d]));
    }
}

}  // namespace mxt::kernels::reference
