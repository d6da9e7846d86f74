#include "kernels/cpu/rows/rows.h"

#include <algorithm>
#include <vector>

#include "base/threads.h"
#include "base/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef MXT_ROWS_CALL
#define MXT_ROWS_CALL
namespace mxt::kernels::cpu {
struct RowsCall {
  const float* x = nullptr;  // [m][k]
  int64_t m = 0, k = 0, ldx = 0;
  const void* w = nullptr;  // first of n rows
  int64_t n = 0, ldw = 0;
  bool w_bf16 = false;
  float* out = nullptr;  // [m][ldo]
  int64_t ldo = 0;
};
}  // namespace mxt::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

HWY_INLINE V load(const float* p) { return hn::LoadU(D(), p); }
HWY_INLINE V load(const uint16_t* p) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, D>(), p))));
}
inline float load_one(const float* p) { return *p; }
inline float load_one(const uint16_t* p) { return bf16_to_float(*p); }

// kM rows of x against kN rows of w. What is left of k after whole vectors is added in order.
template <int kM, int kN, typename W>
HWY_ATTR void tile(const RowsCall& c, int64_t row, int64_t col) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), whole = c.k / lanes * lanes;
  const float* x = c.x + row * c.ldx;
  const W* w = static_cast<const W*>(c.w) + col * c.ldw;
  V sum[kM][kN];
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j) sum[i][j] = hn::Zero(d);
  for (int64_t k = 0; k < whole; k += lanes) {
    V b[kN];
    for (int j = 0; j < kN; ++j) b[j] = load(w + j * c.ldw + k);
    for (int i = 0; i < kM; ++i) {
      const V a = load(x + i * c.ldx + k);
      for (int j = 0; j < kN; ++j) sum[i][j] = hn::MulAdd(a, b[j], sum[i][j]);
    }
  }
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j) {
      float s = hn::GetLane(hn::SumOfLanes(d, sum[i][j]));
      for (int64_t k = whole; k < c.k; ++k) s += x[i * c.ldx + k] * load_one(w + j * c.ldw + k);
      c.out[(row + i) * c.ldo + col + j] = s;
    }
}

template <typename W>
HWY_ATTR void all(const RowsCall& c) {
  int64_t col = 0;
  if (c.m == 1) {
    for (; col + 8 <= c.n; col += 8) tile<1, 8, W>(c, 0, col);
    for (; col < c.n; ++col) tile<1, 1, W>(c, 0, col);
    return;
  }
  auto down = [&](auto cols) HWY_ATTR {
    constexpr int kN = decltype(cols)::value;
    int64_t row = 0;
    for (; row + 4 <= c.m; row += 4) tile<4, kN, W>(c, row, col);
    for (; row < c.m; ++row) tile<1, kN, W>(c, row, col);
  };
  for (; col + 3 <= c.n; col += 3) down(std::integral_constant<int, 3>());
  for (; col < c.n; ++col) down(std::integral_constant<int, 1>());
}

HWY_ATTR void run(const RowsCall& c) { c.w_bf16 ? all<uint16_t>(c) : all<float>(c); }

}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {

HWY_EXPORT(run);

F32Rows as_f32(const ConstMat& a) {
  if (a.type == DType::kF32) return {static_cast<const float*>(a.p), a.ld};
  thread_local std::vector<float> widened;
  widened.resize(static_cast<size_t>(a.rows * a.cols));
  float* to = widened.data();  // other threads write through it
  parallel_for(0, a.rows, 16, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i)
      convert(static_cast<const uint16_t*>(a.p) + i * a.ld, DType::kBF16, to + i * a.cols, DType::kF32,
              static_cast<size_t>(a.cols));
  });
  return {to, a.cols};
}

void rows_gemm(const Gemm& g) {
  const int64_t m = g.a.rows, n = g.c.cols, k = g.a.cols;
  const F32Rows rows = as_f32(g.a);
  const float* x = rows.p;
  const int64_t ldx = rows.ld;
  // Columns of the output a piece takes; rows in blocks whose x stays in the second cache. The cut changes no result.
  const int64_t step = std::clamp<int64_t>((int64_t{1} << 17) / std::max<int64_t>(1, m * k) / 24 * 24, 24, 768);
  parallel_for(0, n, step, [&](int64_t first, int64_t last) {
    constexpr int64_t kRows = 64;
    thread_local std::vector<float> out;
    const int64_t width = last - first;
    out.resize(static_cast<size_t>(kRows * width));
    for (int64_t row = 0; row < m; row += kRows) {
      RowsCall c;
      c.m = std::min(kRows, m - row), c.k = k, c.x = x + row * ldx, c.ldx = ldx;
      c.w = static_cast<const char*>(g.b.p) + static_cast<size_t>(first * g.b.ld) * size_of(g.b.type), c.n = width,
      c.ldw = g.b.ld;
      c.w_bf16 = g.b.type == DType::kBF16, c.out = out.data(), c.ldo = width;
      HWY_DYNAMIC_DISPATCH(run)(c);
      for (int64_t i = 0; i < c.m; ++i)
        for (int64_t j = 0; j < width; ++j) {
          float v = out[static_cast<size_t>(i * width + j)] * g.alpha;
          const int64_t col = first + j, at = (row + i) * g.c.ld + col;
          if (g.bias)
            v += g.bias_type == DType::kF32 ? static_cast<const float*>(g.bias)[col]
                                            : bf16_to_float(static_cast<const uint16_t*>(g.bias)[col]);
          if (g.c.type == DType::kF32) {
            float& to = static_cast<float*>(g.c.p)[at];
            to = g.accumulate ? to + v : v;
          } else {
            uint16_t& to = static_cast<uint16_t*>(g.c.p)[at];
            to = float_to_bf16(g.accumulate ? bf16_to_float(to) + v : v);
          }
        }
    }
  });
}

}  // namespace mxt::kernels::cpu
#endif
