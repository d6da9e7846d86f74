#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/rows.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

void narrow(const float* from, uint16_t* to, int64_t n) {
  for_each(n, [&](int64_t i, auto part) HWY_ATTR { store(load(from + i, part), to + i, part); });
}
void widen(const uint16_t* from, float* to, int64_t n) {
  for_each(n, [&](int64_t i, auto part) HWY_ATTR { store(load(from + i, part), to + i, part); });
}
void add_f32(const float* from, float* to, int64_t n) {
  for_each(n, [&](int64_t i, auto part)
                  HWY_ATTR { store(hn::Add(load(to + i, part), load(from + i, part)), to + i, part); });
}
void add_bf16(const uint16_t* from, float* to, int64_t n) {
  for_each(n, [&](int64_t i, auto part)
                  HWY_ATTR { store(hn::Add(load(to + i, part), load(from + i, part)), to + i, part); });
}
template <typename T>
void times(const T* from, float scale, T* to, int64_t n) {
  const V s = splat(scale);
  for_each(n, [&](int64_t i, auto part) HWY_ATTR { store(hn::Mul(load(from + i, part), s), to + i, part); });
}
void times_f32(const float* from, float scale, float* to, int64_t n) { times(from, scale, to, n); }
void times_bf16(const uint16_t* from, float scale, uint16_t* to, int64_t n) { times(from, scale, to, n); }

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
namespace {

HWY_EXPORT(narrow);
HWY_EXPORT(widen);
HWY_EXPORT(add_f32);
HWY_EXPORT(add_bf16);
HWY_EXPORT(times_f32);
HWY_EXPORT(times_bf16);

const char* row_of(const ConstMat& m, int64_t r) {
  return static_cast<const char*>(m.p) + static_cast<size_t>(r * m.ld) * size_of(m.type);
}
char* row_of(const Mat& m, int64_t r) {
  return static_cast<char*>(m.p) + static_cast<size_t>(r * m.ld) * size_of(m.type);
}

void copy_row(const ConstMat& from, int64_t r, const Mat& to, int64_t t) {
  const char* x = row_of(from, r);
  char* y = row_of(to, t);
  if (from.type == to.type) {
    std::memcpy(y, x, static_cast<size_t>(from.cols) * size_of(from.type));
  } else if (to.type == DType::kBF16) {
    HWY_DYNAMIC_DISPATCH(narrow)(reinterpret_cast<const float*>(x), reinterpret_cast<uint16_t*>(y), from.cols);
  } else {
    HWY_DYNAMIC_DISPATCH(widen)(reinterpret_cast<const uint16_t*>(x), reinterpret_cast<float*>(y), from.cols);
  }
}

void zero_rows(const Mat& m) {
  const size_t bytes = static_cast<size_t>(m.cols) * size_of(m.type);
  parallel_for(0, m.rows, rows_per_piece(m.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::memset(row_of(m, r), 0, bytes);
  });
}

}  // namespace

void convert(const float* from, uint16_t* to, int64_t n) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(narrow);
  parallel_for(0, n, 2 * kGrain, [&](int64_t b, int64_t e) { kernel(from + b, to + b, e - b); });
}
void convert(const uint16_t* from, float* to, int64_t n) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(widen);
  parallel_for(0, n, 2 * kGrain, [&](int64_t b, int64_t e) { kernel(from + b, to + b, e - b); });
}

void embedding(const Embedding& e) {
  MXT_ASSERT(e.y.type != DType::kF64 && e.table.type != DType::kF64);
  parallel_for(0, e.y.rows, rows_per_piece(e.y.cols), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) copy_row(e.table, e.ids[t], e.y, t);
  });
}

// Tokens are sorted by id once (stable, so ascending t within an id); each distinct row then belongs to one piece.
void embedding_grad(const EmbeddingGrad& e) {
  MXT_ASSERT(e.dy.type != DType::kF64 && e.by == nullptr);  // factors are a head's that trains in E4M3
  if (!e.accumulate) zero_rows(e.dtable);
  const auto tokens = static_cast<size_t>(e.dy.rows);
  std::vector<int32_t> order(tokens);
  std::iota(order.begin(), order.end(), 0);
  const auto to = [&](int32_t token) { return e.row_of(e.ids[token]); };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return to(a) < to(b); });
  size_t first = 0;
  while (first < tokens && to(order[first]) < 0) ++first;
  std::vector<int64_t> starts;
  for (size_t i = first; i < tokens; ++i)
    if (i == first || e.ids[order[i]] != e.ids[order[i - 1]]) starts.push_back(static_cast<int64_t>(i));
  starts.push_back(e.dy.rows);
  const auto runs = static_cast<int64_t>(starts.size()) - 1;
  const bool f32 = e.dy.type == DType::kF32;
  parallel_for(0, runs, rows_per_piece(e.dy.cols), [&](int64_t begin, int64_t end) {
    for (int64_t i = starts[static_cast<size_t>(begin)]; i < starts[static_cast<size_t>(end)]; ++i) {
      const int32_t t = order[static_cast<size_t>(i)];
      auto* row = reinterpret_cast<float*>(row_of(e.dtable, e.ids[t]));
      const char* dy = row_of(e.dy, t);
      f32 ? HWY_DYNAMIC_DISPATCH(add_f32)(reinterpret_cast<const float*>(dy), row, e.dy.cols)
          : HWY_DYNAMIC_DISPATCH(add_bf16)(reinterpret_cast<const uint16_t*>(dy), row, e.dy.cols);
    }
  });
}

void copy(const Copy& c) {
  if (c.scale == 1 && c.x.p == c.y.p) return;
  MXT_ASSERT(c.scale == 1 || c.y.type != DType::kF64);
  parallel_for(0, c.y.rows, rows_per_piece(c.y.cols), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const char* x = row_of(c.x, t);
      char* y = row_of(c.y, t);
      if (c.scale == 1)
        copy_row(c.x, t, c.y, t);
      else if (c.y.type == DType::kF32)
        HWY_DYNAMIC_DISPATCH(times_f32)(reinterpret_cast<const float*>(x), c.scale, reinterpret_cast<float*>(y),
                                        c.y.cols);
      else
        HWY_DYNAMIC_DISPATCH(times_bf16)
      (reinterpret_cast<const uint16_t*>(x), c.scale, reinterpret_cast<uint16_t*>(y), c.y.cols);
    }
  });
}

void gather_rows(const GatherRows& g) {
  parallel_for(0, g.y.rows, rows_per_piece(g.y.cols), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) copy_row(g.x, g.rows[t], g.y, t);
  });
}

void scatter_rows(const ScatterRows& s) {
  if (s.zero) zero_rows(s.y);
  parallel_for(0, s.x.rows, rows_per_piece(s.x.cols), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) copy_row(s.x, t, s.y, s.rows[t]);
  });
}

void mean_pool(const MeanPool& m) {
  parallel_for(0, m.y.rows, 1, [&](int64_t d, int64_t) {
    const int64_t begin = m.cu_seqlens[d], end = m.cu_seqlens[d + 1];
    auto* y = reinterpret_cast<float*>(row_of(m.y, d));
    std::fill(y, y + m.y.cols, 0.0f);
    for (int64_t t = begin; t < end; ++t) {
      const char* x = row_of(m.x, t);
      m.x.type == DType::kF32 ? HWY_DYNAMIC_DISPATCH(add_f32)(reinterpret_cast<const float*>(x), y, m.y.cols)
                              : HWY_DYNAMIC_DISPATCH(add_bf16)(reinterpret_cast<const uint16_t*>(x), y, m.y.cols);
    }
    for (int64_t i = 0; i < m.y.cols; ++i) y[i] /= static_cast<float>(end - begin);
  });
}

// The better target is the lower bit. What the compiler may use anywhere (NEON on arm64) is there wherever the program
// runs.
const char* vector_target() {
  const int64_t usable = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
  return hwy::TargetName(usable & -usable);
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
