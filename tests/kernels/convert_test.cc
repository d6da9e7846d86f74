#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/api.h"
#include "kernels/cpu/pointwise.h"

namespace mxt::kernels {
namespace {

// Every bf16 value, its neighbours in float, and the midpoints between two of them.
std::vector<float> hard_cases() {
  std::vector<float> out;
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      out.push_back(std::bit_cast<float>(high << 16 | low));
  return out;
}

TEST(Convert, RoundsToNearestEvenOnEveryInstructionSet) {
  const std::vector<float> x = hard_cases();
  const auto n = static_cast<int64_t>(x.size());
  for (int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_NEON}, int64_t{HWY_SCALAR}}) {
    if (!(HWY_TARGETS & target)) continue;  // arm64 has no plain code: NEON is always there
    if (target != HWY_SCALAR && !(hwy::SupportedTargets() & target)) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_STREQ(cpu::vector_target(), hwy::TargetName(target));
    std::vector<uint16_t> bf16(x.size());
    std::vector<float> back(x.size());
    cpu::convert(x.data(), bf16.data(), n);
    cpu::convert(bf16.data(), back.data(), n);
    hwy::SetSupportedTargetsForTest(0);
    size_t wrong = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      wrong += bf16[i] != float_to_bf16(x[i]);
      const float expected = bf16_to_float(bf16[i]);
      wrong += std::memcmp(&back[i], &expected, sizeof(float)) != 0;
    }
    EXPECT_EQ(wrong, 0u);
  }
}

TEST(Features, NameTheProcessorAndItsLibraries) {
  const CpuFeatures f = cpu_features();
  EXPECT_FALSE(f.model.empty());
  EXPECT_EQ(f.onednn_version.substr(0, 2), "2.");
  EXPECT_FALSE(f.onednn_isa.empty());
  EXPECT_TRUE(f.avx512 || f.vector_target != "AVX3");
  EXPECT_TRUE(f.avx2 || f.vector_target != "AVX2");
}

}  // namespace
}  // namespace mxt::kernels
