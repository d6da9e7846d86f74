#include "eval/gate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace mxt::eval {
namespace {

OrderedJson results(double acc, double perplexity, int docs = 100) {
  return {{"results",
           {{"t",
             {{"alias", "t"},
              {"sample_len", docs},
              {"acc,none", acc},
              {"acc_stderr,none", 0.1},
              {"perplexity,none", perplexity}}}}},
          {"higher_is_better", {{"t", {{"acc", true}, {"perplexity", false}}}}},
          {"n-shot", {{"t", 0}}}};
}

TEST(Gate, ADropBeyondTheThresholdFails) {
  EXPECT_TRUE(passed(compare_results(results(0.500, 10), results(0.495, 10), -1.0)));
  const auto rows = compare_results(results(0.500, 10), results(0.494, 10), -1.0);
  EXPECT_FALSE(passed(rows));
  EXPECT_NEAR(rows[0].change_pct, -1.2, 1e-9);
  EXPECT_NE(gate_table(rows, -1.0).find("FAILED"), std::string::npos);
}

TEST(Gate, KnowsWhichWayIsBetter) {
  EXPECT_FALSE(passed(compare_results(results(0.5, 10), results(0.5, 10.2), -1.0)));
  EXPECT_TRUE(passed(compare_results(results(0.5, 10), results(0.9, 5), -1.0)));
  EXPECT_FALSE(passed(compare_results(results(0.5, 10), results(0.504, 9), 1.0)));  // an improvement is asked for
}

TEST(Gate, ABaselineOfZeroAllowsNoFallAndNoDivision) {
  EXPECT_TRUE(passed(compare_results(results(0, 10), results(0, 10), -1.0)));
  EXPECT_TRUE(passed(compare_results(results(0, 10), results(0.1, 10), -1.0)));
}

TEST(Gate, AScoreThatIsNoNumberAnyMoreHasFallen) {
  for (const char* text : {"inf", "nan"}) {
    OrderedJson now = results(0.5, 10);
    now["results"]["t"]["perplexity,none"] = text;
    const auto rows = compare_results(results(0.5, 10), now, -1.0);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_FALSE(rows[0].failed);
    EXPECT_TRUE(rows[1].failed);
  }
}

TEST(Gate, RefusesWhatCannotBeCompared) {
  EXPECT_THROW(compare_results(results(0.5, 10, 50), results(0.5, 10, 100), -1.0), Error);
  OrderedJson shots = results(0.5, 10);
  shots["n-shot"]["t"] = 5;
  EXPECT_THROW(compare_results(shots, results(0.5, 10), -1.0), Error);
  EXPECT_THROW(compare_results(OrderedJson::object(), results(0.5, 10), -1.0), Error);
  OrderedJson other = {{"results", {{"u", {{"acc,none", 1.0}}}}}};
  EXPECT_THROW(compare_results(other, results(0.5, 10), -1.0), Error);
}

}  // namespace
}  // namespace mxt::eval
