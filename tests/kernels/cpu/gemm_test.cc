// Every candidate of the CPU's gemm against the reference, over ordinary, thin and odd shapes; and bit equality over
// thread counts, tilings and batch sizes.
#include "kernels/cpu/gemm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/threads.h"
#include "kernels/cpu/gemm/panels.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels {
namespace {

struct Case {
  int64_t m, n, k;
  bool trans_a = false, trans_b = true, accumulate = false, bias = false;
  float alpha = 1;
};

// A matrix inside a wider buffer: what lies outside must be neither read into the result nor written.
struct Buffer {
  std::vector<uint8_t> bytes;
  Mat mat;
  Buffer(int64_t rows, int64_t cols, int64_t ld, DType t, uint32_t seed) {
    bytes.resize(static_cast<size_t>(rows * ld) * size_of(t));
    mat = {bytes.data(), rows, cols, ld, t};
    std::mt19937 rng(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < rows * ld; ++i) {
      const float v = i % ld < cols ? uniform(rng) : NAN;
      if (t == DType::kF32)
        static_cast<float*>(mat.p)[i] = v;
      else
        static_cast<uint16_t*>(mat.p)[i] = float_to_bf16(v);
    }
  }
  Buffer(const Buffer& o) : bytes(o.bytes), mat(o.mat) { mat.p = bytes.data(); }
  float at(int64_t r, int64_t c) const {
    return mat.type == DType::kF32 ? static_cast<const float*>(mat.p)[r * mat.ld + c]
                                   : bf16_to_float(static_cast<const uint16_t*>(mat.p)[r * mat.ld + c]);
  }
};

struct Problem {
  Buffer a, b, c, bias;
  Case s;
  Problem(const Case& s_, DType ab, DType ct)
      : a(s_.trans_a ? s_.k : s_.m, s_.trans_a ? s_.m : s_.k, (s_.trans_a ? s_.m : s_.k) + 6, ab, 1),
        b(s_.trans_b ? s_.n : s_.k, s_.trans_b ? s_.k : s_.n, (s_.trans_b ? s_.k : s_.n) + 10, ab, 2),
        c(s_.m, s_.n, s_.n + 14, ct, 3),
        bias(1, s_.n, s_.n, ab, 4),
        s(s_) {}
  Gemm call(Buffer& out, int algo) const {
    Gemm g;
    g.a = a.mat, g.b = b.mat, g.c = out.mat;
    g.trans_a = s.trans_a, g.trans_b = s.trans_b, g.accumulate = s.accumulate, g.alpha = s.alpha;
    if (s.bias) g.bias = bias.mat.p, g.bias_type = bias.mat.type;
    g.algo = algo;
    return g;
  }
  Buffer run(int algo, int threads) const {
    Buffer out(c);
    set_num_threads(threads);
    const Gemm g = call(out, algo);
    std::vector<uint8_t> memory(cpu::gemm_scratch(g) + 64);
    const size_t off = (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    cpu::gemm(g, {memory.data() + off, memory.size() - 64});
    return out;
  }
  Buffer reference() const {
    Buffer out(c);
    reference::gemm(call(out, 0));
    return out;
  }
};

std::vector<Case> shapes() {
  std::vector<Case> all{{1, 1, 1},      {1, 576, 576},  {4, 192, 576},   {8, 70, 130},   {33, 65, 17},
                        {96, 96, 96},   {130, 48, 576}, {256, 192, 64},  {100, 576, 16}, {64, 300, 1536},
                        {7, 129, 3},    {24, 64, 4100}, {200, 1000, 40}, {16, 2050, 48}, {101, 1030, 1030},
                        {10900, 3, 257}};  // rows of a transposed A beyond what 64 tasks keep
  std::vector<Case> out;
  for (const auto& s : all)
    for (int flags = 0; flags < 8; ++flags) {
      Case c = s;
      c.trans_a = flags & 1, c.trans_b = flags & 2, c.accumulate = flags & 4;
      c.bias = !c.accumulate && (s.m % 2 == 0);
      c.alpha = s.n % 3 == 0 ? 2.0f : 1.0f;
      out.push_back(c);
    }
  return out;
}

std::vector<std::pair<DType, DType>> types() {
  return {{DType::kF32, DType::kF32}, {DType::kBF16, DType::kBF16}, {DType::kBF16, DType::kF32}};
}

std::string describe(const Case& s, DType ab, DType c, const std::string& algo) {
  return fmt::format("{} m {} n {} k {} ta {} tb {} acc {} bias {} alpha {} {} {}", algo, s.m, s.n, s.k, s.trans_a,
                     s.trans_b, s.accumulate, s.bias, s.alpha, name_of(ab), name_of(c));
}

void expect_near(const Buffer& got, const Buffer& want, const Problem& p, DType ct, DType ab, const std::string& name) {
  const Case& s = p.s;
  const double rounding =
      ct == DType::kBF16 ? 1.0 / 120 : 1e-6;  // two roundings may differ by one unit in the last place
  const double sum_error = 4e-7 * std::sqrt(static_cast<double>(s.k)) * 8 + 1e-6;
  for (int64_t r = 0; r < s.m; ++r) {
    for (int64_t c = 0; c < s.n; ++c) {
      const double w = want.at(r, c), tol = rounding * std::abs(w) + sum_error * s.alpha;
      if (!(std::abs(got.at(r, c) - w) <= tol)) {
        FAIL() << describe(s, ab, ct, name) << " at " << r << ", " << c << ": " << got.at(r, c) << ", not " << w;
      }
    }
    for (int64_t c = s.n; c < got.mat.ld; ++c)
      if (!std::isnan(got.at(r, c))) FAIL() << describe(s, ab, ct, name) << " wrote past row " << r;
  }
}

TEST(CpuGemm, EveryCandidateAgreesWithTheReference) {
  const auto names = cpu::gemm_algorithms();
  for (auto [ab, ct] : types())
    for (const auto& s : shapes()) {
      const Problem p(s, ab, ct);
      const Buffer want = p.reference();
      for (size_t algo = 0; algo < names.size(); ++algo) {
        const Buffer got = p.run(static_cast<int>(algo), 2);
        expect_near(got, want, p, ct, ab, names[algo]);
      }
    }
}

// A token's row must not change with the tokens that share its batch, nor a column with its neighbours.
TEST(CpuGemm, PanelsGivesAnElementTheSameBitsInAnyProduct) {
  for (auto [ab, ct] : types())
    for (const auto& s :
         std::vector<Case>{{300, 200, 1100}, {300, 200, 4100, false, false}, {131, 70, 577}, {200, 130, 3000, true}}) {
      const Problem p(s, ab, ct);
      Buffer want(p.c);
      Gemm all = p.call(want, 1);
      cpu::gemm(all, {});
      for (auto [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{{1, 200}, {5, 64}, {97, 33}}) {
        Buffer got(p.c);
        Gemm part = p.call(got, 1);
        const int64_t row = s.m - rows, n = std::min(cols, s.n), col = s.n - n;
        const auto move = [](auto& m, int64_t r, int64_t c) {
          m.p = static_cast<char*>(const_cast<void*>(static_cast<const void*>(m.p))) +
                static_cast<size_t>(r * m.ld + c) * size_of(m.type);
        };
        s.trans_a ? move(part.a, 0, row) : move(part.a, row, 0);
        s.trans_b ? move(part.b, col, 0) : move(part.b, 0, col);
        move(part.c, row, col);
        (s.trans_a ? part.a.cols : part.a.rows) = rows, (s.trans_b ? part.b.rows : part.b.cols) = n;
        part.c.rows = rows, part.c.cols = n;
        cpu::gemm(part, {});
        for (int64_t r = row; r < s.m; ++r)
          for (int64_t c = col; c < s.n; ++c)
            ASSERT_EQ(got.at(r, c), want.at(r, c))
                << describe(s, ab, ct, "panels") << " rows " << rows << " cols " << n;
      }
    }
}

// A weight packed once gives the bits that packing it for each product gives, and nothing is written past it.
TEST(CpuGemm, AWeightPackedBeforeChangesNoBit) {
  auto cases = shapes();
  for (const auto& s : std::vector<Case>{{300, 200, 1100}, {300, 3072, 576}, {60, 200, 4100, false, false}})
    cases.push_back(s);
  for (auto [ab, ct] : types())
    for (const auto& s : cases) {
      const Problem p(s, ab, ct);
      const Buffer want = p.run(1, 1);
      for (const int threads : {1, 2}) {
        set_num_threads(threads);
        Buffer got(p.c);
        Gemm g = p.call(got, 1);
        const size_t bytes = cpu::panels_packed_bytes(g);
        std::vector<uint8_t> memory(bytes + 128, 0xa5);
        uint8_t* packed = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
        cpu::panels_pack(g, packed);
        EXPECT_EQ(packed[bytes], 0xa5);
        g.b_packed = packed;
        cpu::gemm(g, {});
        ASSERT_EQ(got.bytes, want.bytes) << describe(s, ab, ct, "packed") << " threads " << threads;
      }
    }
}

// A matrix times its own transpose, of which half is computed: the bits of the product with a copy of it.
TEST(CpuGemm, AProductWithItselfGivesTheBitsOfAnyProduct) {
  for (auto [ab, ct] : types())
    for (const int64_t m : {1, 97, 130, 301})
      for (const int64_t k : {129, 1024})
        for (const bool tall : {false, true}) {
          const Case s{m, m, k, tall, !tall, false, false, 0.75f};
          const Problem p(s, ab, ct);
          for (const int threads : {1, 2}) {
            set_num_threads(threads);
            Buffer want(p.c), got(p.c), copy(p.a);
            Gemm g = p.call(want, 1);
            g.b = copy.mat;
            cpu::gemm(g, {});
            g = p.call(got, 1);
            g.b = g.a;
            cpu::gemm(g, {});
            ASSERT_EQ(got.bytes, want.bytes) << describe(s, ab, ct, "panels") << " threads " << threads;
          }
        }
}

// The fp32 kernel that every processor runs, on each instruction set this one offers.
TEST(CpuGemm, ThePortableKernelAgreesWithTheReferenceOnEveryTarget) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (auto [ab, ct] : types())
      for (const auto& s : shapes()) {
        if (s.m * s.n * s.k > 4000000) continue;
        const Problem p(s, ab, ct);
        const Buffer want = p.reference();
        Buffer got(p.c);
        cpu::panels_gemm(p.call(got, 1), true);
        expect_near(got, want, p, ct, ab, fmt::format("portable {}", hwy::TargetName(target)));
      }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(CpuGemm, BitsDoNotDependOnTheNumberOfThreads) {
  const auto names = cpu::gemm_algorithms();
  std::vector<Case> cases;
  for (const auto& s : shapes())
    if (s.accumulate == (s.trans_a == s.trans_b)) cases.push_back(s);
  for (const auto& s : std::vector<Case>{{576, 16, 4096, true, false, true},
                                         {16, 576, 4096, true, false, true},
                                         {48, 576, 1024, true, false, true},
                                         {1536, 16, 1024, true, false, false},
                                         {16, 16, 9000, true, false, false},
                                         {4, 64, 9000, false, true, false},
                                         {1024, 48, 576},
                                         {1024, 576, 16, false, true, true},
                                         {300, 600, 300}})
    cases.push_back(s);
  for (auto [ab, ct] : types())
    for (const auto& s : cases) {
      const Problem p(s, ab, ct);
      for (size_t algo = 1; algo < names.size(); ++algo) {  // "auto" is one of the others
        const Buffer one = p.run(static_cast<int>(algo), 1);
        for (int threads : {2, 3})
          ASSERT_EQ(p.run(static_cast<int>(algo), threads).bytes, one.bytes)
              << describe(s, ab, ct, names[algo]) << " with " << threads << " threads";
      }
    }
  set_num_threads(2);
}

}  // namespace
}  // namespace mxt::kernels
