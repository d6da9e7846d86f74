#include "data/semantic/kmeans.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/threads.h"

namespace mxt::data {

KMeans::KMeans(std::span<const int16_t> rows, size_t stride, size_t k, int iterations)
    : stride_(stride), panels_(stride) {
  const size_t n = rows.size() / stride;
  MXT_ASSERT(k >= 1 && k <= n);
  std::vector<int16_t> centroids(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(k * stride));
  const auto pack = [&] {
    panels_.clear();
    for (size_t c = 0; c < k; ++c) panels_.add(centroids.data() + c * stride);
  };
  pack();
  std::vector<Nearest> now(n), before;
  for (int i = 0; i < iterations; ++i) {
    assign(rows, now);
    const bool same = std::equal(now.begin(), now.end(), before.begin(), before.end(),
                                 [](const Nearest& a, const Nearest& b) { return a.cluster == b.cluster; });
    if (same) break;
    std::vector<size_t> begin(k + 1, 0), members(n);
    for (const Nearest& x : now) ++begin[x.cluster + 1];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<size_t> at(begin.begin(), begin.end() - 1);
    for (size_t r = 0; r < n; ++r) members[at[now[r].cluster]++] = r;
    std::vector<size_t> empty;
    for (size_t c = 0; c < k; ++c)
      if (begin[c] == begin[c + 1]) empty.push_back(c);
    parallel_for(0, static_cast<int64_t>(k), 1, [&](int64_t c0, int64_t) {
      const auto c = static_cast<size_t>(c0);
      std::vector<int64_t> sum(stride, 0);
      for (size_t m = begin[c]; m < begin[c + 1]; ++m)
        for (size_t e = 0; e < stride; ++e) sum[e] += rows[members[m] * stride + e];
      const std::vector<double> mean(sum.begin(), sum.end());  // its length does not matter
      if (begin[c] < begin[c + 1]) round_unit(mean, centroids.data() + c * stride);
    });
    if (!empty.empty()) {
      std::vector<size_t> far(n);
      std::iota(far.begin(), far.end(), size_t{0});
      std::partial_sort(far.begin(), far.begin() + static_cast<ptrdiff_t>(empty.size()), far.end(),
                        [&](size_t a, size_t b) {
                          return now[a].product != now[b].product ? now[a].product < now[b].product : a < b;
                        });
      for (size_t j = 0; j < empty.size(); ++j)
        std::copy_n(rows.data() + far[j] * stride, stride, centroids.data() + empty[j] * stride);
    }
    pack();
    before = now;
  }
}

void KMeans::assign(std::span<const int16_t> rows, std::span<Nearest> out) const {
  constexpr int64_t kRows = 32;
  parallel_for(0, static_cast<int64_t>(out.size()), kRows, [&](int64_t b, int64_t e) {
    const auto first = static_cast<size_t>(b), count = static_cast<size_t>(e - b);
    int32_t products[kRows * Panels::kPanel];
    for (size_t r = 0; r < count; ++r) out[first + r] = {0, INT32_MIN};
    for (size_t p = 0; p < panels_.panels(); ++p) {
      panels_.products(rows.data() + first * stride_, count, p, products);
      const size_t columns = std::min(Panels::kPanel, panels_.size() - p * Panels::kPanel);
      for (size_t r = 0; r < count; ++r)
        for (size_t c = 0; c < columns; ++c)
          if (const int32_t x = products[r * Panels::kPanel + c]; x > out[first + r].product)
            out[first + r] = {static_cast<uint32_t>(p * Panels::kPanel + c), x};
    }
  });
}

}  // namespace mxt::data
