#include <cmath>

#include "base/philox.h"
#include "kernels/adapters.h"
#include "kernels/reference/element.h"

namespace mxt::kernels::reference {

void dora_gain(const DoraGain& d) {
  const double s = static_cast<double>(d.scale);
  for (int64_t i = 0; i < d.rows; ++i) {
    if (d.w.p == nullptr) {
      d.gain[i] = d.norm[i] = 1;
      continue;
    }
    double squared = 0;
    for (int64_t k = 0; k < d.w.cols; ++k) squared += get(d.w, i, k) * get(d.w, i, k);
    for (int64_t r = 0; r < d.q.cols; ++r) {
      double row = 2 * get(d.p, i, r);
      for (int64_t c = 0; c < d.q.cols; ++c) row += s * get(d.q, r, c) * get(d.b, i, c);
      squared += s * get(d.b, i, r) * row;
    }
    const double norm = std::sqrt(squared);
    d.norm[i] = static_cast<float>(norm);
    d.gain[i] = static_cast<float>(static_cast<double>(d.m[i]) / norm);
  }
}

void dora_scale(const DoraScale& d) {
  for (int64_t t = 0; t < d.u.rows; ++t)
    for (int64_t i = 0; i < d.u.cols; ++i)
      set(d.y, t, i, static_cast<double>(d.gain[i]) * get(d.u, t, i) + param(d.bias, d.bias_type, i, 0.0));
}

void dora_scale_grad(const DoraScaleGrad& d) {
  std::vector<double> dm(static_cast<size_t>(d.u.cols));
  for (int64_t t = 0; t < d.u.rows; ++t)
    for (int64_t i = 0; i < d.u.cols; ++i) {
      const double dy = get(d.dy, t, i);
      dm[static_cast<size_t>(i)] += dy * get(d.u, t, i) / static_cast<double>(d.norm[i]);
      set(d.du, t, i, static_cast<double>(d.gain[i]) * dy);
    }
  add_into(d.dm, dm, d.accumulate);
}

void embedding_noise(const EmbeddingNoise& e) {
  for (int64_t doc = 0; doc < e.documents; ++doc) {
    const int64_t first = e.cu_seqlens[doc], last = e.cu_seqlens[doc + 1];
    const double most = static_cast<double>(e.alpha) / std::sqrt(static_cast<double>((last - first) * e.x.cols));
    for (int64_t t = first; t < last; ++t)
      for (int64_t i = 0; i < e.x.cols; ++i) {
        const auto element = static_cast<uint64_t>((e.first_row + t) * e.x.cols + i);
        const uint32_t word = philox4x32(e.seed, e.stream, element / 4)[element % 4];
        set(e.y, t, i, get(e.x, t, i) + most * static_cast<double>(noise_of(word)));
      }
  }
}

}  // namespace mxt::kernels::reference
