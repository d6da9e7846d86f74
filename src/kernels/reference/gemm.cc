#include <algorithm>
#include <cmath>

#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::reference {

void gemm(const Gemm& g) {
  const int64_t m = g.c.rows, n = g.c.cols, k = g.trans_a ? g.a.rows : g.a.cols;
  for (int64_t i = 0; i < m; ++i) {
    if (g.row_absmax) std::fill_n(g.row_absmax + i * g.row_parts, g.row_parts, 0.0f);
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += (g.trans_a ? get(g.a, l, i) : get(g.a, i, l)) * (g.trans_b ? get(g.b, j, l) : get(g.b, l, j));
      sum *= static_cast<double>(g.alpha);
      if (g.a_scale) sum *= static_cast<double>(g.a_scale[i]);
      if (g.b_scale) sum *= static_cast<double>(g.b_scale[j]);
      for (int64_t l = 0; l < g.tail_a.cols; ++l)
        sum += get(g.tail_a, i, l) * (g.tail_trans_b ? get(g.tail_b, j, l) : get(g.tail_b, l, j));
      if (g.accumulate) sum += get(ConstMat(g.c), i, j);
      sum += param(g.bias, g.bias_type, j, 0.0);
      if (g.relu2) sum = sum > 0 ? sum * sum : 0;
      if (g.relu2_of.cols > 0) sum *= 2 * std::sqrt(get(g.relu2_of, i, j));
      set(g.c, i, j, sum);
      if (!g.row_absmax) continue;
      float& largest = g.row_absmax[i * g.row_parts + j / (n / g.row_parts)];
      largest = std::max(largest, static_cast<float>(std::abs(get(ConstMat(g.c), i, j))));
    }
  }
}

void quantize(const Quantize& c) {
  for (int64_t t = 0; t < c.x.rows; ++t) {
    auto value = [&](int64_t i) { return static_cast<float>(get(c.x, t, i)) * (c.channel ? c.channel[i] : 1.0f); };
    float largest = 0;
    for (int64_t i = 0; i < c.x.cols; ++i) largest = std::max(largest, std::abs(value(i)));
    const float scale = f8e4m3_row_scale(largest);
    for (int64_t i = 0; i < c.x.cols; ++i) {
      const uint8_t held = float_to_f8e4m3(value(i) / scale);
      if (c.q.type == DType::kF8E4M3)
        static_cast<uint8_t*>(c.q.p)[t * c.q.ld + i] = held;
      else
        set(c.q, t, i,
            static_cast<double>(f8e4m3_to_float(held)) * static_cast<double>(scale) /
                static_cast<double>(c.channel ? c.channel[i] : 1.0f));
    }
    if (c.scale) c.scale[t] = scale;
  }
}

void rowwise_fp8_linear(const RowwiseFp8Linear& c) {
  for (int64_t t = 0; t < c.q.rows; ++t)
    for (int64_t r = 0; r < c.w.rows; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < c.q.cols; ++i) sum += get(c.q, t, i) * get(c.w, r, i);
      set(c.z, t, r, sum * static_cast<double>(c.scale[t]));
    }
}

void rowwise_fp8_linear_dw(const RowwiseFp8LinearDw& c) {
  for (int64_t r = 0; r < c.dz.cols; ++r)
    for (int64_t i = 0; i < c.q.cols; ++i) {
      float& dw = c.dw[r * c.q.cols + i];
      double sum = c.accumulate ? static_cast<double>(dw) : 0.0;
      for (int64_t t = 0; t < c.q.rows; ++t) sum += get(c.dz, t, r) * get(c.q, t, i) * static_cast<double>(c.scale[t]);
      dw = static_cast<float>(sum);
    }
}

// The largest of the scales of those rows of m that are not all zeros.
static float largest_scale(const ConstMat& m, const float* scale) {
  float all = 0;
  for (int64_t t = 0; t < m.rows; ++t)
    for (int64_t i = 0; i < m.cols; ++i)
      if (get(m, t, i) != 0) all = std::max(all, scale[t]);
  return all == 0 ? 1 : all;
}

void rowwise_fp8_transpose(const RowwiseFp8Transpose& c) {
  const float all = c.scale ? largest_scale(c.q, c.scale) : 1;
  for (int64_t i = 0; i < c.q.rows; ++i)
    for (int64_t j = 0; j < c.q.cols; ++j) {
      const uint8_t there = static_cast<const uint8_t*>(c.q.p)[i * c.q.ld + j];
      static_cast<uint8_t*>(c.out.p)[j * c.out.ld + i] =
          c.scale ? float_to_f8e4m3(f8e4m3_to_float(there) * (c.scale[i] / all)) : there;
    }
  for (int64_t j = 0; c.out_scale && j < c.out.rows; ++j) c.out_scale[j] = all;
}

void fp8_linear_dw(const Fp8LinearDw& c) {
  const int64_t tokens = c.x.rows, n = c.dy.cols, k = c.x.cols;
  // A column's numbers at the scale of all.
  const auto one_scale = [&](const ConstMat& m, const float* scale) {
    const float all = largest_scale(m, scale);
    std::vector<double> v(static_cast<size_t>(tokens * m.cols));
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < m.cols; ++i) {
        const auto there = static_cast<float>(get(m, t, i)) * (scale[t] / all);
        v[static_cast<size_t>(i * tokens + t)] =
            static_cast<double>(f8e4m3_to_float(float_to_f8e4m3(there))) * static_cast<double>(all);
      }
    return v;
  };
  const std::vector<double> dy = one_scale(c.dy, c.dy_scale), x = one_scale(c.x, c.x_scale);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < tokens; ++t)
        sum += dy[static_cast<size_t>(i * tokens + t)] * x[static_cast<size_t>(j * tokens + t)];
      float& dw = c.dw[i * k + j];
      dw = static_cast<float>((c.accumulate ? static_cast<double>(dw) : 0.0) +
                              sum / static_cast<double>(c.channel ? c.channel[i] : 1.0f));
    }
}

}  // namespace mxt::kernels::reference
