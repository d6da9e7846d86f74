// The loops of amx_panel() over a set of tile registers: the processor's, or a test's model of them.
//
// T::configure(rows, steps)   shapes: registers 0 to 3 hold `rows` × 16 floats, 4 `rows` × `steps` pairs, 5 to 7
// `steps` × 16 pairs T::load<R>(p, stride), T::store<R>(p, stride), T::zero<R>()   rows `stride` bytes apart
// T::multiply<C, A, B>()      C += A · B
// T::release()
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "kernels/cpu/gemm/micro.h"

namespace mxt::kernels::cpu {

inline constexpr int64_t kTileRows = 16, kTileSteps = 16;

// Rows [row, row + rows) and steps [begin, end) of them, `depth` a time, against kTiles vectors of columns.
template <typename T, int kTiles>
void amx_rows(const PanelCall& p, int64_t row, int64_t begin, int64_t end, int64_t depth, float* out, int64_t ld) {
  const float* from = begin == 0 ? (p.from_partial ? p.partial : nullptr) : out;
  const int64_t from_ld = begin == 0 ? kPanel : ld;
  auto each = [](auto f) {
    f.template operator()<0>();
    if constexpr (kTiles > 1) f.template operator()<1>();
    if constexpr (kTiles > 2) f.template operator()<2>();
    if constexpr (kTiles > 3) f.template operator()<3>();
  };
  each([&]<int kTile>() {
    if (from)
      T::template load<kTile>(from + row * from_ld + kTile * 16, from_ld * 4);
    else
      T::template zero<kTile>();
  });
  const char* a = static_cast<const char*>(p.a) + row * p.a_row;
  for (int64_t s = begin; s < end; s += depth) {
    T::template load<4>(a + s * 4, p.a_row);
    const char* b = static_cast<const char*>(p.b) + s * kTiles * 64;
    each([&]<int kTile>() {
      constexpr int kB = 5 + kTile % 3;
      T::template load<kB>(b + kTile * 64, kTiles * 64);
      T::template multiply<kTile, 4, kB>();
    });
  }
  each([&]<int kTile>() { T::template store<kTile>(out + row * ld + kTile * 16, ld * 4); });
}

template <typename T>
void amx_panel_with(const PanelCall& p) {
  MXT_ASSERT(p.a_step == 4 && (p.to_partial || (!p.bias && !p.c_bf16 && !p.accumulate)));
  float* out = p.to_partial ? p.partial : static_cast<float*>(p.c);
  const int64_t ld = p.to_partial ? kPanel : p.ldc, whole = p.steps / kTileSteps * kTileSteps;
  int64_t rows_now = 0, depth_now = 0;
  // Whole blocks of steps, then what is left: a shorter block has tiles of another shape.
  for (int64_t begin = 0; begin < p.steps;) {
    const int64_t end = begin < whole ? whole : p.steps, depth = begin < whole ? kTileSteps : p.steps - whole;
    for (int64_t row = 0; row < p.m; row += kTileRows) {
      const int64_t rows = std::min(kTileRows, p.m - row);
      if (rows != rows_now || depth != depth_now) T::configure(rows, depth), rows_now = rows, depth_now = depth;
      switch (panel_width(p.n) / 16) {
        case 1:
          amx_rows<T, 1>(p, row, begin, end, depth, out, ld);
          break;
        case 2:
          amx_rows<T, 2>(p, row, begin, end, depth, out, ld);
          break;
        case 3:
          amx_rows<T, 3>(p, row, begin, end, depth, out, ld);
          break;
        default:
          amx_rows<T, 4>(p, row, begin, end, depth, out, ld);
      }
    }
    begin = end;
  }
  T::release();
}

}  // namespace mxt::kernels::cpu
