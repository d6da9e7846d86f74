#include "data/semantic/semdedup.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/threads.h"
#include "data/semantic/kmeans.h"
#include "data/semantic/vectors.h"

namespace mxt::data {
namespace {

constexpr int kIterations = 10;
constexpr size_t kSamplePerCluster = 128;  // rows that centroids are found from; more change them little
constexpr size_t kRowsAtATime = 64;        // rows that are compared at a time

int32_t squared(const int16_t* x, size_t stride) {
  int32_t sum = 0;
  for (size_t k = 0; k < stride; ++k) sum += x[k] * x[k];
  return sum;
}

}  // namespace

SemDedup::SemDedup(const config::SemDedup& settings, size_t width, const std::string& folder)
    : settings_(settings), width_(width), stride_(row_stride(width)), wide_(width), row_(stride_), rows_(folder) {}

bool SemDedup::add(uint64_t key, std::span<const float> embedding) {
  MXT_ASSERT(embedding.size() == width_ && keys_.size() < UINT32_MAX);
  std::copy(embedding.begin(), embedding.end(), wide_.begin());
  if (!round_unit(wide_, row_.data())) return false;
  keys_.push_back(key);
  rows_.append(row_.data(), stride_ * sizeof(int16_t));
  return true;
}

SemanticCopies SemDedup::find() {
  const size_t n = keys_.size();
  SemanticCopies out;
  out.stays.resize(n);
  std::iota(out.stays.begin(), out.stays.end(), uint32_t{0});
  out.similarity.assign(n, 1.0f);
  rows_.finish();
  if (n == 0) return out;

  // Keys are hashes: their order is one of chance, and the same however the rows came.
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), uint32_t{0});
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return std::pair(keys_[a], a) < std::pair(keys_[b], b); });
  const auto wanted = settings_.clusters ? static_cast<size_t>(*settings_.clusters)
                                         : static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(n))));
  const size_t k = std::min(n, wanted);
  std::vector<KMeans::Nearest> nearest(n);
  {
    const size_t sampled = std::min(n, k * kSamplePerCluster);
    std::vector<int16_t> sample(sampled * stride_);
    for (size_t i = 0; i < sampled; ++i) read_row(order[i], sample.data() + i * stride_);
    const KMeans means(sample, stride_, k, kIterations);
    constexpr size_t kPiece = 8192;
    sample.resize(kPiece * stride_);
    for (size_t b = 0; b < n; b += kPiece) {
      const size_t count = std::min(kPiece, n - b);
      rows_.read(b * stride_ * sizeof(int16_t), count * stride_ * sizeof(int16_t), sample.data());
      means.assign(std::span(sample).first(count * stride_), std::span(nearest).subspan(b, count));
    }
  }

  const bool far = settings_.keep == config::Keep::kFarthest;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const auto &x = nearest[a], &y = nearest[b];
    if (x.cluster != y.cluster) return x.cluster < y.cluster;
    if (x.product != y.product) return far ? x.product < y.product : x.product > y.product;
    return std::pair(keys_[a], a) < std::pair(keys_[b], b);
  });
  std::vector<std::pair<size_t, size_t>> clusters;  // [begin, end) of `order`
  for (size_t b = 0, e = 0; b < n; b = e) {
    while (e < n && nearest[order[e]].cluster == nearest[order[b]].cluster) ++e;
    clusters.emplace_back(b, e);
  }
  std::sort(clusters.begin(), clusters.end(),  // large ones first, so that threads end together
            [](const auto& a, const auto& b) {
              return std::pair(b.second - b.first, a.first) < std::pair(a.second - a.first, b.first);
            });
  parallel_for(0, static_cast<int64_t>(clusters.size()), 1, [&](int64_t i, int64_t) {
    const auto [b, e] = clusters[static_cast<size_t>(i)];
    thin(std::span(order).subspan(b, e - b), &out);
  });

  out.clusters = static_cast<int64_t>(clusters.size());
  out.largest_cluster = static_cast<int64_t>(clusters[0].second - clusters[0].first);
  std::vector<uint32_t> group(n, 0);
  for (size_t i = 0; i < n; ++i) ++group[out.stays[i]];
  for (uint32_t rows_of_group : group) {
    out.groups += rows_of_group > 1;
    if (rows_of_group > 1) out.largest_group = std::max<int64_t>(out.largest_group, rows_of_group);
  }
  return out;
}

void SemDedup::read_row(size_t row, int16_t* to) const {
  rows_.read(row * stride_ * sizeof(int16_t), stride_ * sizeof(int16_t), to);
}

// The members of one cluster, those that would rather stay first.
void SemDedup::thin(std::span<const uint32_t> members, SemanticCopies* out) const {
  constexpr size_t kPanel = Panels::kPanel;
  Panels kept(stride_), own(stride_);
  std::vector<uint32_t> kept_rows;
  std::vector<int32_t> kept_squares;
  std::vector<int16_t> block(kRowsAtATime * stride_);
  std::array<int32_t, kRowsAtATime * kPanel> products;
  std::array<int32_t, kRowsAtATime * kRowsAtATime> inside;
  std::array<int32_t, kRowsAtATime> squares;
  struct Best {
    double cosine;
    uint32_t row;
  };
  std::array<Best, kRowsAtATime> best;
  // Few pairs are near the threshold: the rest is told by the product alone (lengths are kUnit within a thousandth).
  const double threshold = settings_.threshold;
  const auto low = static_cast<int32_t>(kUnitSquared * (threshold - 0.002));
  const auto look = [&](size_t r, int32_t product, int32_t square, uint32_t row) {
    if (product < low || square == 0 || squares[r] == 0) return;
    const double cosine = product / std::sqrt(static_cast<double>(square) * squares[r]);
    if (cosine >= threshold && cosine > best[r].cosine) best[r] = {cosine, row};
  };
  for (size_t at = 0; at < members.size(); at += kRowsAtATime) {
    const size_t count = std::min(kRowsAtATime, members.size() - at);
    own.clear();
    for (size_t r = 0; r < count; ++r) {
      read_row(members[at + r], block.data() + r * stride_);
      squares[r] = squared(block.data() + r * stride_, stride_);
      own.add(block.data() + r * stride_);
      best[r] = {-2, members[at + r]};
    }
    for (size_t p = 0; p < kept.panels(); ++p) {
      kept.products(block.data(), count, p, products.data());
      const size_t columns = std::min(kPanel, kept.size() - p * kPanel);
      for (size_t r = 0; r < count; ++r)
        for (size_t c = 0; c < columns; ++c)
          look(r, products[r * kPanel + c], kept_squares[p * kPanel + c], kept_rows[p * kPanel + c]);
    }
    for (size_t p = 0; p < own.panels(); ++p) {
      own.products(block.data(), count, p, products.data());
      for (size_t r = 0; r < count; ++r)
        std::copy_n(products.data() + r * kPanel, kPanel, inside.data() + r * kRowsAtATime + p * kPanel);
    }
    for (size_t r = 0; r < count; ++r) {
      for (size_t q = 0; q < r; ++q)
        if (out->stays[members[at + q]] == members[at + q])
          look(r, inside[r * kRowsAtATime + q], squares[q], members[at + q]);
      if (best[r].row != members[at + r]) {
        out->stays[members[at + r]] = best[r].row;
        out->similarity[members[at + r]] = static_cast<float>(best[r].cosine);
        continue;
      }
      kept.add(block.data() + r * stride_);
      kept_rows.push_back(members[at + r]);
      kept_squares.push_back(squares[r]);
    }
  }
}

}  // namespace mxt::data
