// A text's log-probabilities do not depend on what else is scored, nor on how many texts are in a pass.
#include "infer/scorer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "folders.h"
#include "kernels/api.h"

namespace mxt::infer {
namespace {

TEST(Scorer, ATextScoresAlikeAloneAndAmongOthers) {
  for (const char* name : {"qwen3_gqa", "gpt2", "qwen3_moe", "qwen3_5", "qwen3_5_moe", "gpt_oss"})
    for (const DType type : {DType::kF32, DType::kBF16}) {
      Model model(std::string(kSourceDir) + "/tests/golden/models/" + name, "", type, 0, kernels::cpu_ops());
      std::vector<std::vector<int32_t>> rows;
      uint32_t seed = 5;
      for (int64_t n : {1, 2, 31, 64, 17, 48, 3})
        for (rows.emplace_back(); static_cast<int64_t>(rows.back().size()) < std::min(n, model.positions());)
          rows.back().push_back(static_cast<int32_t>((seed = seed * 1664525u + 1013904223u) >> 8) %
                                static_cast<int32_t>(model.vocab()));
      Scorer wide(model, 4096), narrow(model, 1);
      const auto together = wide.score(rows), in_small_passes = narrow.score(rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto alone = wide.score({rows[i]})[0];
        ASSERT_EQ(alone.size(), rows[i].size());
        const size_t bytes = (alone.size() - 1) * sizeof(float);  // the first is NaN
        EXPECT_EQ(std::memcmp(alone.data() + 1, together[i].data() + 1, bytes), 0) << name << " row " << i;
        EXPECT_EQ(std::memcmp(alone.data() + 1, in_small_passes[i].data() + 1, bytes), 0) << name << " row " << i;
      }
    }
}

}  // namespace
}  // namespace mxt::infer
