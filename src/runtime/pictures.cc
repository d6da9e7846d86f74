#include "runtime/pictures.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "runtime/picture_staging.h"

namespace mxt::runtime {
namespace {

constexpr int64_t kCorners = 4;

template <typename T>
T* at(std::byte* base, size_t offset) {
  return reinterpret_cast<T*>(base + offset);
}

// Two neighbours of a place on one axis of the table, and what each counts; in float, as transformers does.
struct Taps {
  int32_t at[2];
  float weight[2];
};
Taps taps_of(int64_t index, int64_t size, int64_t side) {
  const float place =
      static_cast<float>(index) * static_cast<float>(side - 1) / static_cast<float>(std::max<int64_t>(size - 1, 1));
  const float floor = std::floor(place);
  Taps t;
  for (int i = 0; i < 2; ++i) {
    t.at[i] = static_cast<int32_t>(std::clamp<int64_t>(static_cast<int64_t>(floor) + i, 0, side - 1));
    t.weight[i] = std::max(0.0f, 1.0f - std::abs(place - floor - static_cast<float>(i)));
  }
  return t;
}

}  // namespace

int32_t positions_of(int64_t n, std::span<const PlacedPicture> pictures, int64_t merge, int32_t* time, int32_t* down,
                     int32_t* across) {
  int32_t next = 0;
  int64_t t = 0;
  const auto text_until = [&](int64_t end) {
    for (; t < end; ++t) time[t] = down[t] = across[t] = next++;
  };
  for (const PlacedPicture& p : pictures) {
    MXT_ASSERT(p.first >= t && p.first + p.tokens(merge) <= n);
    text_until(p.first);
    const auto rows = static_cast<int32_t>(p.rows / merge), columns = static_cast<int32_t>(p.columns / merge);
    for (int32_t r = 0; r < rows; ++r)
      for (int32_t c = 0; c < columns; ++c, ++t) time[t] = next, down[t] = next + r, across[t] = next + c;
    next += std::max(rows, columns);
  }
  text_until(n);
  return next;
}

PictureLayout::PictureLayout(const ProgramSettings& s, const graph::Pictures& p, int64_t rotary, DType type) {
  const int64_t tokens = s.max_tokens, patches = tokens * p.merge * p.merge, size = static_cast<int64_t>(size_of(type)),
                mixed = p.axes.empty() ? 0 : tokens * (rotary / 2), corners = p.side > 0 ? patches * kCorners : 0;
  size_t top = 0;
  const auto take = [&](int64_t n) {
    const size_t here = top;
    top += static_cast<size_t>(staged_bytes((n + 3) / 4));
    return here;
  };
  pixels = take(patches * p.values * size);
  features = take(tokens * p.features * size);
  documents = take(4 * (tokens + 1));
  rows = take(4 * tokens);
  text_ids = take(4 * tokens);
  count = take(4 * std::max(tokens, patches * kCorners));
  this->corners = take(4 * corners);
  corner_weights = take(corners * size);
  patch_cos = take(4 * patches * (p.rotary / 2));
  patch_sin = take(4 * patches * (p.rotary / 2));
  token_cos = take(4 * mixed);
  token_sin = take(4 * mixed);
  bytes = top;
}

int64_t picture_bytes(const ProgramSettings& s, const graph::Pictures& p, int64_t rotary, DType type) {
  return p.merge == 0 ? 0 : static_cast<int64_t>(PictureLayout(s, p, rotary, type).bytes);
}

PictureStaging::PictureStaging(const ProgramSettings& s, const graph::Graph& g)
    : g_(g), layout_(s, g.pictures, g.rotary, g.act_type), most_tokens_(s.max_tokens) {}

void PictureStaging::fill(const Batch& b, std::byte* base) {
  tokens(b, base);
  longest_ = 0;
  const int64_t merge2 = g_.pictures.merge * g_.pictures.merge;
  const int64_t n = std::max(b.tokens, b.pictures ? b.pictures->tokens * merge2 * kCorners : 0);
  auto* count = at<int32_t>(base, layout_.count);
  for (int64_t i = 0; i < n; ++i) count[i] = static_cast<int32_t>(i);
  if (b.pictures && b.pictures->tokens > 0) patches(*b.pictures, base);
}

// The row of the rotary tables that each frequency of each token takes.
void PictureStaging::tokens(const Batch& b, std::byte* base) const {
  auto* ids = at<int32_t>(base, layout_.text_ids);
  if (b.ids) std::memcpy(ids, b.ids, static_cast<size_t>(b.tokens) * sizeof(int32_t));
  auto* rows = at<int32_t>(base, layout_.rows);
  for (int64_t i = 0; b.pictures && i < b.pictures->tokens; ++i) {
    MXT_ASSERT(b.pictures->rows[i] >= 0 && b.pictures->rows[i] < b.tokens);
    ids[b.pictures->rows[i]] = -1;
    rows[i] = b.pictures->rows[i];
  }
  const std::vector<uint8_t>& axes = g_.pictures.axes;
  const auto half = static_cast<int64_t>(axes.size());
  auto *cos = at<float>(base, layout_.token_cos), *sin = at<float>(base, layout_.token_sin);
  for (int64_t t = 0; t < b.tokens; ++t)
    for (int64_t i = 0; i < half; ++i) {
      const int32_t position = b.axes ? b.axes[axes[static_cast<size_t>(i)] * b.tokens + t] : b.positions[t];
      MXT_ASSERT(position >= 0 && position < g_.max_positions);
      const auto from = static_cast<size_t>(position * half + i);
      cos[t * half + i] = g_.rope_cos[from];
      sin[t * half + i] = g_.rope_sin[from];
    }
}

void PictureStaging::patches(const PictureBatch& p, std::byte* base) {
  const graph::Pictures& of = g_.pictures;
  const int64_t merge2 = of.merge * of.merge;
  MXT_ASSERT(p.tokens <= most_tokens_);
  if (p.features) {
    MXT_ASSERT(of.features > 0);
    convert(p.features, DType::kF32, base + layout_.features, g_.act_type, static_cast<size_t>(p.tokens * of.features));
    return;
  }
  MXT_ASSERT(of.values > 0 && p.pixels && p.grids);
  convert(p.pixels, DType::kF32, base + layout_.pixels, g_.act_type,
          static_cast<size_t>(p.tokens * merge2 * of.values));
  const int64_t quarter = of.rotary / 4;
  std::vector<float> frequency(static_cast<size_t>(quarter));
  for (int64_t i = 0; i < quarter; ++i)
    frequency[static_cast<size_t>(i)] =
        1.0f / std::pow(10000.0f, static_cast<float>(2 * i) / static_cast<float>(of.rotary / 2));
  auto* documents = at<int32_t>(base, layout_.documents);
  auto* corners = at<int32_t>(base, layout_.corners);
  auto *cos = at<float>(base, layout_.patch_cos), *sin = at<float>(base, layout_.patch_sin);
  std::vector<float> weights;
  documents[0] = 0;
  int64_t patch = 0;
  for (int64_t k = 0; k < p.count; ++k) {
    const int64_t rows = p.grids[2 * k], columns = p.grids[2 * k + 1], blocks = columns / of.merge;
    for (int64_t i = 0; i < rows * columns; ++i, ++patch) {
      const int64_t block = i / merge2, in = i % merge2;
      const int64_t row = block / blocks * of.merge + in / of.merge, column = block % blocks * of.merge + in % of.merge;
      const Taps y = taps_of(row, rows, of.side), x = taps_of(column, columns, of.side);
      for (int c = 0; c < kCorners; ++c) {
        corners[kCorners * patch + c] = static_cast<int32_t>(y.at[c / 2] * of.side) + x.at[c % 2];
        weights.push_back(y.weight[c / 2] * x.weight[c % 2]);
      }
      for (int64_t j = 0; j < 2 * quarter; ++j) {
        const float place = static_cast<float>(j < quarter ? row : column);
        const double angle = place * frequency[static_cast<size_t>(j % quarter)];
        cos[patch * 2 * quarter + j] = static_cast<float>(std::cos(angle));
        sin[patch * 2 * quarter + j] = static_cast<float>(std::sin(angle));
      }
    }
    documents[k + 1] = static_cast<int32_t>(patch);
    longest_ = std::max(longest_, rows * columns);
  }
  MXT_ASSERT(patch == p.tokens * merge2);
  convert(weights.data(), DType::kF32, base + layout_.corner_weights, g_.act_type, weights.size());
}

}  // namespace mxt::runtime
