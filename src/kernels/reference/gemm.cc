#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::reference {

void gemm(const Gemm& g) {
  const int64_t m = g.c.rows, n = g.c.cols, k = g.trans_a ? g.a.rows : g.a.cols;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += (g.trans_a ? get(g.a, l, i) : get(g.a, i, l)) * (g.trans_b ? get(g.b, j, l) : get(g.b, l, j));
      sum *= static_cast<double>(g.alpha);
      if (g.accumulate) sum += get(ConstMat(g.c), i, j);
      sum += param(g.bias, g.bias_type, j, 0.0);
      set(g.c, i, j, sum);
    }
}

}  // namespace mxt::kernels::reference
