#include "kernels/plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mxt::kernels {
namespace {

KernelPlan sample() {
  KernelPlan p;
  p.device = {"cpu", "AMD EPYC", "AVX3", "", {{"onednn", "2.6.3"}, {"highway", "1.0.3"}}, 2};
  p.shapes = {{"hidden", 576}, {"tokens", 1024}};
  p.choices = {{"gemm nt bf16 m1024 n960 k576", "panels"}, {"attention bf16 h9 kv3 d64 t1024", "tiles"}};
  p.candidates = {{"gemm nt bf16 m1024 n960 k576", {{"panels", 1210.5, 12.25}, {"onednn", 1300, 80}}}};
  p.env = {{"OMP_PROC_BIND", "close"}};
  p.measured = true;
  p.budget_s = 41.5;
  return p;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string message_of(const std::string& text) {
  try {
    plan_from_json(text, "p.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kBadInput);
    return e.what();
  }
  return "read";
}

TEST(Plan, SurvivesItsFile) {
  KernelPlan p = sample();
  p.source = "p.json";
  EXPECT_EQ(plan_from_json(to_json(p), "p.json"), p);
  EXPECT_EQ(to_json(plan_from_json(to_json(p), "p.json")), to_json(p));
  EXPECT_EQ(plan_from_json(to_json(KernelPlan{}), KernelPlan{}.source), KernelPlan{});
}

TEST(Plan, RefusesWhatItDoesNotKnowAndNamesIt) {
  const std::string good = to_json(sample());
  EXPECT_NE(message_of(replaced(good, "\"measured\"", "\"mesured\"")).find("\"mesured\""), std::string::npos);
  EXPECT_NE(message_of(replaced(good, "\"driver\": \"\",", "")).find("\"device.driver\" is missing"),
            std::string::npos);
  EXPECT_NE(message_of(replaced(good, "\"threads\": 2", "\"threads\": 0")).find("\"device.threads\""),
            std::string::npos);
  EXPECT_NE(
      message_of(replaced(good, "\"threads\": 2", "\"threads\": 99999999999999999999")).find("\"device.threads\""),
      std::string::npos);
  EXPECT_NE(message_of(replaced(good, "1210.5", "-1")).find("candidates.gemm nt bf16 m1024 n960 k576[0].median_us"),
            std::string::npos);
  EXPECT_NE(message_of(replaced(good, "\"panels\"", "7")).find("must be a string, is 7"), std::string::npos);
  EXPECT_NE(message_of(replaced(good, "\"schema_version\": 1", "\"schema_version\": 2")).find("this build reads 1"),
            std::string::npos);
  EXPECT_NE(message_of(replaced(good, "\"measured\": true", "\"measured\": 1")).find("\"measured\""),
            std::string::npos);
  EXPECT_NE(message_of("[]").find("must be an object"), std::string::npos);
  EXPECT_NE(message_of("{").find("p.json:1:"), std::string::npos);
}

TEST(Plan, ChoicesHoldNoTimings) {
  KernelPlan a = sample(), b = sample();
  b.candidates.clear();
  b.budget_s = 3;
  b.env.clear();
  b.measured = false;
  EXPECT_EQ(plan_choices(a), plan_choices(b));
  b.choices.begin()->second = "other";
  EXPECT_NE(plan_choices(a), plan_choices(b));
  b = sample();
  b.device.arch = "AVX2";
  EXPECT_NE(plan_choices(a), plan_choices(b));
}

TEST(Plan, ComparisonNamesEachDifference) {
  const KernelPlan p = sample();
  EXPECT_TRUE(compare(p, p.device, p.shapes).empty());
  DeviceIdentity here = p.device;
  here.threads = 1;  // fewer threads: same results, only slower
  EXPECT_TRUE(compare(p, here, p.shapes).empty());
  here.threads = 8;
  here.arch = "AVX2";
  here.libraries = {{"onednn", "3.0.0"}};
  const auto lines = compare(p, here, {{"hidden", 576}, {"tokens", 2048}});
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0], "device arch: the plan was made for AVX3, here it is AVX2");
  EXPECT_EQ(lines[1], "library highway: the plan was made for 1.0.3, here it is absent");
  EXPECT_EQ(lines[2], "library onednn: the plan was made for 2.6.3, here it is 3.0.0");
  EXPECT_EQ(lines[3], "threads: the plan was made for 2, here are 8; run with --threads 2");
  EXPECT_EQ(lines[4], "shape tokens: the plan was made for 1024, here it is 2048");
}

TEST(Plan, KeysSayWhatDecidesTheSpeed) {
  Gemm g;
  g.a = {nullptr, 1024, 576, 576, DType::kBF16};
  g.b = {nullptr, 960, 576, 576, DType::kBF16};
  g.c = {nullptr, 1024, 960, 960, DType::kBF16};
  g.trans_b = true;
  EXPECT_EQ(gemm_key(g), "gemm nt bf16 m1024 n960 k576");
  Gemm w;  // weight gradient: dW = dyᵀ x, added in F32
  w.a = {nullptr, 1024, 960, 960, DType::kBF16};
  w.b = {nullptr, 1024, 576, 576, DType::kBF16};
  w.c = {nullptr, 960, 576, 576, DType::kF32};
  w.trans_a = w.accumulate = true;
  EXPECT_EQ(gemm_key(w), "gemm tn bf16 m960 n576 k1024 out f32 acc");
  Attention a;
  a.q = {nullptr, 1024, 576, 960, DType::kBF16};
  a.heads = 9, a.kv_heads = 3, a.head_dim = 64;
  EXPECT_EQ(attention_key(a), "attention bf16 h9 kv3 d64 t1024");
  AttentionGrad b;
  b.q = a.q;
  b.heads = 9, b.kv_heads = 3, b.head_dim = 64, b.window = 512;
  EXPECT_EQ(attention_key(b), "attention_grad bf16 h9 kv3 d64 t1024 w512");
}

TEST(Plan, ChosenIndexOrTheDefaultOrAnError) {
  const KernelPlan p = sample();
  EXPECT_EQ(chosen(p, "gemm nt bf16 m1024 n960 k576", {"onednn", "panels"}), 1);
  EXPECT_EQ(chosen(p, "gemm nt bf16 m1 n1 k1", {"onednn", "panels"}), 0);
  EXPECT_THROW(chosen(p, "gemm nt bf16 m1024 n960 k576", {"onednn"}), Error);
}

}  // namespace
}  // namespace mxt::kernels
