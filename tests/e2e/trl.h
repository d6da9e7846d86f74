// What the tests that hold whole trajectories against TRL share.
#pragma once

#include <algorithm>
#include <cmath>

#include "e2e/cli.h"

namespace mxt::trl {

// A golden model with the end token of TRL's tokenizer.
inline std::string model_of(const std::string& name, const cli::Folder& f) {
  const std::string from = cli::golden(name), to = f / "model";
  make_folders(to);
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  OrderedJson config = parse_ordered_json(read_file(from + "/config.json"), from);
  config["eos_token_id"] = 1;
  write_file_atomic(to + "/config.json", config.dump());
  return to;
}

// Twelve steps over given rollouts with the settings of tools/golden/{grpo,rloo}.py; `method` without its braces.
inline std::string rollouts_recipe(const std::string& model, const std::string& rows, std::string method, bool lora,
                                   const std::string& extra) {
  if (lora)
    method += fmt::format(
        ", lora: {{r: 4, alpha: 8, target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj], "
        "init_adapter: \"{}/adapter\"}}",
        model);
  return fmt::format(R"(meta: {{project: test, run_name: rollouts}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{0}", torch_dtype: float32}}
data: {{source: local, path: "{1}", seq_len: 64, shuffle: false}}
train:
  method: {{{2}}}
  rollouts: {{path: "{1}"}}
  precision: float32
  optimizer: {{lr: 1.0e-3, betas: [0.9, 0.95], weight_decay: 0.1, grad_clip: 1.0}}
  schedule: {{type: linear, warmup_ratio: 0, max_steps: 12}}
  batch: {{per_device: 3, grad_accum: 2}}
{3})",
                     model, rows, method, extra);
}

// Every value that TRL logged, to 1e-4 of it, or of `least` where it is smaller.
inline void expect_steps(const std::string& metrics, const Json& want, double least) {
  const auto got = cli::lines(metrics);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    for (const auto& [key, value] : want[i].items()) {
      const std::string ours = key == "learning_rate" ? "lr" : key;
      ASSERT_TRUE(got[i].contains(ours)) << ours;
      const double x = got[i][ours], y = value;
      EXPECT_NEAR(x, y, 1e-4 * std::max(std::abs(y), least)) << key << " of step " << i + 1;
    }
}

}  // namespace mxt::trl
