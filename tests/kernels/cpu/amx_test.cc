// amx_panel()'s loops over a model of the tile registers, as Intel's manual describes these, where no processor has
// them; on one that has, the instructions against the model, to the bit.
#include "kernels/cpu/gemm/amx.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/types.h"
#include "kernels/cpu/gemm/amx-inl.h"

namespace mxt::kernels::cpu {
namespace {

struct Register {
  int64_t rows = 0, bytes = 0;
  uint8_t data[16][64];
};

struct Model {
  static inline Register r[8];
  static inline bool configured = false;
  static void configure(int64_t rows, int64_t steps) {
    auto shape = [](int i, int64_t n, int64_t bytes) {
      r[i].rows = n, r[i].bytes = bytes, std::memset(r[i].data, 0, sizeof(r[i].data));
    };
    for (int i = 0; i < 4; ++i) shape(i, rows, 64);
    shape(4, rows, steps * 4);
    for (int i = 5; i < 8; ++i) shape(i, steps, 64);
    configured = true;
  }
  static void release() { configured = false; }
  template <int kR>
  static void zero() {
    ASSERT_TRUE(configured);
    std::memset(r[kR].data, 0, sizeof(r[kR].data));
  }
  template <int kR>
  static void load(const void* p, int64_t stride) {
    ASSERT_TRUE(configured);
    std::memset(r[kR].data, 0, sizeof(r[kR].data));
    for (int64_t i = 0; i < r[kR].rows; ++i)
      std::memcpy(r[kR].data[i], static_cast<const char*>(p) + i * stride, static_cast<size_t>(r[kR].bytes));
  }
  template <int kR>
  static void store(void* p, int64_t stride) {
    ASSERT_TRUE(configured);
    for (int64_t i = 0; i < r[kR].rows; ++i)
      std::memcpy(static_cast<char*>(p) + i * stride, r[kR].data[i], static_cast<size_t>(r[kR].bytes));
  }
  template <int kC, int kA, int kB>
  static void multiply() {
    ASSERT_EQ(r[kA].bytes / 4, r[kB].rows);
    ASSERT_EQ(r[kA].rows, r[kC].rows);
    for (int64_t m = 0; m < r[kC].rows; ++m)
      for (int64_t n = 0; n < 16; ++n) {
        float even = 0, odd = 0, c;
        for (int64_t k = 0; k < r[kB].rows; ++k) {
          uint16_t a[2], b[2];
          std::memcpy(a, r[kA].data[m] + k * 4, 4), std::memcpy(b, r[kB].data[k] + n * 4, 4);
          even = std::fma(bf16_to_float(a[0]), bf16_to_float(b[0]), even);
          odd = std::fma(bf16_to_float(a[1]), bf16_to_float(b[1]), odd);
        }
        std::memcpy(&c, r[kC].data[m] + n * 4, 4);
        c += even + odd;
        std::memcpy(r[kC].data[m] + n * 4, &c, 4);
      }
  }
};

void expect_products(void (*panel)(const PanelCall&), bool whole_call) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  for (const int64_t m : {1, 3, 16, 17, 32, 64, 71})
    for (const int64_t n : {1, 16, 24, 40, 64})
      for (const int64_t steps : {1, 5, 16, 24, 32, 33, 64})
        for (const bool in : {false, true})
          for (const bool out : {false, true}) {
            const int64_t width = panel_width(n), row = steps + 3, ldc = 80;
            std::vector<uint16_t> a(static_cast<size_t>(m * row * 2), 0x7fc0),
                b(static_cast<size_t>(steps * width * 2));
            for (int64_t i = 0; i < m; ++i)
              for (int64_t k = 0; k < 2 * steps; ++k)
                a[static_cast<size_t>(i * row * 2 + k)] = float_to_bf16(normal(rng));
            for (int64_t s = 0; s < steps; ++s)
              for (int64_t j = 0; j < 2 * n; ++j)
                b[static_cast<size_t>(s * width * 2 + j)] = float_to_bf16(normal(rng));
            std::vector<float> partial(static_cast<size_t>(m * kPanel + 16)), c(static_cast<size_t>(m * ldc), NAN);
            float* sums = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(partial.data()) + 63) / 64 * 64);
            for (int64_t i = 0; i < m * kPanel; ++i) sums[i] = normal(rng);
            const std::vector<float> before(sums, sums + m * kPanel);
            PanelCall p;
            p.a = a.data(), p.a_row = row * 4, p.a_step = 4, p.b = b.data(), p.m = m, p.n = n, p.steps = steps;
            p.partial = sums, p.from_partial = in, p.to_partial = out, p.c = c.data(), p.ldc = ldc;
            if (whole_call && !out) p.alpha = 0.25f;
            panel(p);
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j) {
                double want = in ? before[static_cast<size_t>(i * kPanel + j)] : 0, size = std::abs(want);
                for (int64_t k = 0; k < 2 * steps; ++k) {
                  const double x = static_cast<double>(bf16_to_float(a[static_cast<size_t>(i * row * 2 + k)])) *
                                   bf16_to_float(b[static_cast<size_t>((k / 2 * width + j) * 2 + k % 2)]);
                  want += x, size += std::abs(x);
                }
                const float got = out ? sums[i * kPanel + j] : c[static_cast<size_t>(i * ldc + j)];
                ASSERT_NEAR(got, want * static_cast<double>(p.alpha), 4e-7 * size)
                    << fmt::format("m {} n {} steps {} at {},{}", m, n, steps, i, j);
              }
            for (int64_t i = 0; i < m && !out; ++i)  // beyond the last vector of columns nothing is touched
              for (int64_t j = width; j < ldc; ++j) ASSERT_TRUE(std::isnan(c[static_cast<size_t>(i * ldc + j)]));
          }
}

TEST(Amx, LoopsOverAModelOfTheRegisters) { expect_products(amx_panel_with<Model>, false); }

TEST(Amx, Instructions) {
  if (!amx_here()) GTEST_SKIP() << "this processor has no AMX with bf16";
  expect_products(amx_panel, true);
}

TEST(Amx, ZerosAtTheEndOfASumChangeNothing) {
  std::mt19937 rng(6);
  std::normal_distribution<float> normal;
  constexpr int64_t kM = 20, kN = 48;
  for (const int64_t steps : {1, 7, 15, 17, 31}) {
    std::vector<uint16_t> a(kM * 64), b(32 * kN * 2);
    for (int64_t i = 0; i < kM; ++i)
      for (int64_t k = 0; k < 2 * steps; ++k) a[static_cast<size_t>(i * 64 + k)] = float_to_bf16(normal(rng));
    for (auto& v : b) v = float_to_bf16(normal(rng));
    PanelCall p;
    p.a = a.data(), p.a_row = 128, p.a_step = 4, p.b = b.data(), p.m = kM, p.n = kN, p.ldc = kN;
    auto product = [&](int64_t n, void (*panel)(const PanelCall&)) {
      std::vector<float> c(kM * kN);
      p.steps = n, p.c = c.data();
      panel(p);
      return c;
    };
    EXPECT_EQ(product(steps, amx_panel_with<Model>), product(32, amx_panel_with<Model>));
    if (amx_here()) {
      EXPECT_EQ(product(steps, amx_panel), product(32, amx_panel));
      EXPECT_EQ(product(steps, amx_panel), product(steps, amx_panel_with<Model>));
    }
  }
}

// What stands in for tiles where there are few rows, against the model and the instructions, to the bit.
TEST(Amx, SumsOfFewRowsAreThoseOfTiles) {
  if (!avx512_micro(Unit::kBf16Pair)) GTEST_SKIP() << "this processor has no AVX-512 with bf16";
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-30, 0);
  const auto value = [&] { return float_to_bf16(std::ldexp(normal(rng), exponent(rng))); };
  for (const int64_t n : {1, 16, 24, 40, 64})
    for (const int64_t steps : {1, 5, 16, 24, 33, 128})
      for (const bool in : {false, true}) {
        constexpr int64_t kM = 2;
        const int64_t width = panel_width(n), row = 2 * steps + 6;
        std::vector<uint16_t> a(static_cast<size_t>(kM * row)), packed(static_cast<size_t>(2 * steps * width + 32));
        uint16_t* b = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64) % 64 / 2;
        for (auto& v : a) v = value();
        for (int64_t i = 0; i < 2 * steps * width; ++i) b[i] = value();
        alignas(64) float before[kM * kPanel], want[kM * kPanel], got[kM * kPanel];
        for (float& v : before) v = normal(rng);
        PanelCall p;
        p.a = a.data(), p.a_row = row * 2, p.a_step = 4, p.b = b, p.n = n, p.steps = steps;
        p.from_partial = in, p.to_partial = true;
        for (p.m = 1; p.m <= kM; ++p.m) {
          std::memcpy(want, before, sizeof(before)), p.partial = want;
          amx_panel_with<Model>(p);
          std::memcpy(got, before, sizeof(before)), p.partial = got;
          avx512_tile_sums(p, got);
          for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < n; ++j) ASSERT_EQ(got[i * kPanel + j], want[i * kPanel + j]) << n << " " << steps;
          if (!amx_here()) continue;
          std::memcpy(want, before, sizeof(before)), p.partial = want;
          amx_panel(p);
          for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < n; ++j) ASSERT_EQ(got[i * kPanel + j], want[i * kPanel + j]) << n << " " << steps;
        }
      }
}

// Denormals count as zero, before and after: against the instructions alone, since the model rounds to them.
TEST(Amx, DenormalsAreZeroInBoth) {
  if (!amx_here()) GTEST_SKIP() << "this processor has no AMX with bf16";
  alignas(64) float want[kPanel], got[kPanel];
  alignas(64) uint16_t b[16 * 2 * 64];
  uint16_t a[32];
  std::mt19937 rng(8);
  for (int round = 0; round < 20; ++round) {
    for (auto& v : a) v = static_cast<uint16_t>(rng() % 0x2200 | (rng() & 0x8000));
    for (auto& v : b) v = static_cast<uint16_t>(rng() % 0x2200 | (rng() & 0x8000));
    PanelCall p;
    p.a = a, p.a_row = 64, p.a_step = 4, p.b = b, p.n = 64, p.steps = 16, p.m = 1, p.to_partial = true;
    p.partial = want, amx_panel(p);
    p.partial = got, avx512_tile_sums(p, got);
    ASSERT_EQ(std::memcmp(got, want, sizeof(got)), 0) << round;
  }
}

}  // namespace
}  // namespace mxt::kernels::cpu
