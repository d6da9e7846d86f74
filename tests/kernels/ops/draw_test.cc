#include "kernels/draw.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(Drawing);

TEST_P(Drawing, TakesTheTokenThatTheUniformNumberFallsOn) {
  {
    Trial t(GetParam());
    if (dynamic_cast<Drawer*>(&t.ops()) == nullptr) GTEST_SKIP() << "the host draws by itself there";
  }
  constexpr int64_t kRows = 9;
  for (const int64_t vocab : {1, 33, 1024, 1025, 5000, 151936})
    for (const float softcap : {0.0f, 15.0f})
      for (const float scale : {0.1f, 6.0f}) {
        SCOPED_TRACE(fmt::format("{} ids, softcap {}, logits of {}", vocab, softcap, scale));
        std::vector<float> temperature;
        std::vector<int32_t> bits;
        for (int64_t r = 0; r < kRows; ++r) {
          temperature.push_back(r % 3 == 0 ? 0.0f : r % 3 == 1 ? 1.0f : 0.6f);
          const auto u = philox4x32(11, static_cast<uint64_t>(vocab), static_cast<uint64_t>(r));
          for (int i = 0; i < 2; ++i) bits.push_back(static_cast<int32_t>(r == 4 ? 0u : r == 7 ? 0xf0000000u : u[i]));
        }
        const Op op = [&](Trial& t) {
          DrawTokens d;
          d.logits = t.input(kRows, vocab, DType::kF32, 5, scale);
          d.softcap = softcap;
          d.temperature = t.floats(temperature);
          d.bits = t.ints(bits);
          d.drawn = t.output("drawn", kRows, 2, DType::kF32);
          dynamic_cast<Drawer&>(t.ops()).draw_tokens(d);
        };
        expect_close(run(reference_backend(), op), run(GetParam(), op), {1e-5, 1e-5});
      }
}

TEST_P(Drawing, TellsOfLogitsThatAreNotFinite) {
  Trial t(GetParam());
  auto* drawer = dynamic_cast<Drawer*>(&t.ops());
  if (drawer == nullptr) GTEST_SKIP() << "the host draws by itself there";
  std::vector<float> logits(3 * 2000, 0.5f);
  logits[1999] = std::numeric_limits<float>::quiet_NaN();
  logits[2000 + 3] = std::numeric_limits<float>::infinity();
  DrawTokens d;
  d.logits = ConstMat(t.floats(logits), 3, 2000, 2000, DType::kF32);
  const std::vector<float> temperature(3, 1.0f);
  const std::vector<int32_t> bits(6, 77);
  d.temperature = t.floats(temperature);
  d.bits = t.ints(bits);
  d.drawn = t.output("drawn", 3, 2, DType::kF32);
  drawer->draw_tokens(d);
  const std::vector<Output> got = t.finish();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].values[0], -1);
  EXPECT_EQ(got[0].values[2], -1);
  EXPECT_GE(got[0].values[4], 0);
}

}  // namespace
}  // namespace mxt::kernels::test
