#include "kernels/cpu/gemm/amx.h"

#include <hwy/base.h>

#include <cmath>

#include "base/types.h"
#include "kernels/cpu/gemm/amx-inl.h"

#if HWY_ARCH_X86_64 && defined(__linux__) && (HWY_COMPILER_GCC || HWY_COMPILER_CLANG)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "kernels/cpu/gemm/tile_registers.h"

namespace mxt::kernels::cpu {
namespace {

struct Registers : TileRegisters {
  static void configure(int64_t rows, int64_t steps) {
    Configuration c;
    for (int r = 0; r < 4; ++r) c.rows[r] = static_cast<uint8_t>(rows), c.columns[r] = 64;
    c.rows[4] = static_cast<uint8_t>(rows), c.columns[4] = static_cast<uint16_t>(steps * 4);
    for (int r = 5; r < 8; ++r) c.rows[r] = static_cast<uint8_t>(steps), c.columns[r] = 64;
    TileRegisters::configure(c);
  }
};

__attribute__((target("avx512f,prefer-vector-width=512"))) void scale(float* c, int64_t rows, int64_t ld,
                                                                      int64_t columns, float alpha) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i) c[r * ld + i] *= alpha;
}

bool processor_has_it() {
  unsigned a, b, c, d;
  if (!avx512_micro(Unit::kBf16Pair) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  if ((d & kBf16) == 0 || (d & kTile) == 0) return false;
  // The system saves tile registers (XCR0 bits 17 and 18) and gives them to a process that asks (Linux 5.16).
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (1u << 27)) == 0) return false;
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3u << 17;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return (low & kTileState) == kTileState && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// A hypervisor may claim more than it gives: 35 rows, 23 steps, 40 columns against plain sums.
bool gives_the_product() {
  constexpr int64_t kRows = 35, kSteps = 23, kColumns = 40, kWidth = 48;
  alignas(64) uint16_t a[kRows][2 * kSteps], b[kSteps][kWidth][2] = {};
  std::vector<float> c(kRows * kWidth);
  uint32_t seed = 1;
  auto next = [&] {
    return float_to_bf16(static_cast<float>((seed = seed * 1664525 + 1013904223) >> 16) / 65536 - 0.5f);
  };
  for (auto& row : a)
    for (auto& v : row) v = next();
  for (auto& step : b)
    for (int64_t n = 0; n < kColumns; ++n) step[n][0] = next(), step[n][1] = next();
  PanelCall p;
  p.a = a, p.a_row = sizeof(a[0]), p.a_step = 4, p.b = b, p.m = kRows, p.n = kColumns, p.steps = kSteps;
  p.c = c.data(), p.ldc = kWidth, p.alpha = 0.5f;
  amx_panel(p);
  for (int64_t m = 0; m < kRows; ++m)
    for (int64_t n = 0; n < kColumns; ++n) {
      double sum = 0;
      for (int64_t s = 0; s < kSteps; ++s)
        for (int64_t i = 0; i < 2; ++i)
          sum += static_cast<double>(bf16_to_float(a[m][2 * s + i])) * bf16_to_float(b[s][n][i]);
      if (!(std::abs(c[static_cast<size_t>(m * kWidth + n)] - sum / 2) < 1e-5)) return false;
    }
  return true;
}

// Some rows at a time: what the tiles leave is finished while it is in the first cache.
void run(const PanelCall& p) {
  MXT_ASSERT(!p.to_partial || p.steps % kTileSteps == 0);  // or the sum would depend on how k is cut
  const bool few = p.m <= kFewTileRows;
  if (p.to_partial) return few ? avx512_tile_sums(p, p.partial) : amx_panel_with<Registers>(p);
  constexpr int64_t kRows = 64;
  alignas(64) float sums[kRows * kPanel];
  PanelCall some;
  some.a_row = p.a_row, some.a_step = p.a_step, some.b = p.b, some.n = p.n, some.steps = p.steps;
  some.from_partial = p.from_partial, some.c = sums, some.ldc = kPanel;
  for (int64_t row = 0; row < p.m; row += kRows) {
    some.a = static_cast<const char*>(p.a) + row * p.a_row, some.m = std::min(kRows, p.m - row);
    some.partial = p.partial + (p.from_partial ? row * kPanel : 0);
    few ? avx512_tile_sums(some, sums) : amx_panel_with<Registers>(some);
    avx512_finish(p, sums, row, some.m);
  }
}

}  // namespace

void amx_panel(const PanelCall& p) {
  amx_panel_with<Registers>(p);
  if (!p.to_partial && p.alpha != 1) scale(static_cast<float*>(p.c), p.m, p.ldc, panel_width(p.n), p.alpha);
}

bool amx_here() {
  static const bool here = processor_has_it() && gives_the_product();
  return here;
}

const Micro* amx_micro() {
  if (!amx_here()) return nullptr;
  static const Micro micro = [] {
    Micro m = *avx512_micro(Unit::kBf16Pair);
    m.name = "amx", m.run = run, m.rows = 2 * kTileRows;
    return m;
  }();
  return &micro;
}

}  // namespace mxt::kernels::cpu

#else

namespace mxt::kernels::cpu {
bool amx_here() { return false; }
void amx_panel(const PanelCall&) { MXT_ASSERT(!"amx_panel: not on this machine"); }
const Micro* amx_micro() { return nullptr; }
}  // namespace mxt::kernels::cpu

#endif
