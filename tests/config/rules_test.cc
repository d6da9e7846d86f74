#include "base/error.h"
#include "config/support.h"

namespace mxt::config {
namespace {

std::string hardware(const std::string& h) { return "hardware: {" + h + "}\n"; }

TEST(Hardware, GpusOfMi300ClassAreOneOrEight) {
  for (const char* name : {"mi300x", "mi325x", "mi350x", "mi355x"}) {
    for (int gpus : {0, 1, 8}) EXPECT_EQ(lines_with(hardware(fmt::format("name: {}, gpus: {}", name, gpus))), "");
    for (int gpus : {2, 3, 4, 16, -1})
      expect_refused(hardware(fmt::format("name: {}, gpus: {}", name, gpus)), "hardware.gpus", "");
    expect_refused(hardware(fmt::format("name: {}, gpus: 2", name)), "hardware.gpus", "xGMI");
    expect_refused(hardware("gpus: 4"), "hardware.gpus", "asymmetric");
  }
}

TEST(Hardware, GpusOfHopperAndCpu) {
  for (const char* name : {"h100", "h200", "a100", "rtx4090", "cuda"}) {
    for (int gpus : {0, 1, 2, 4, 8}) EXPECT_EQ(lines_with(hardware(fmt::format("name: {}, gpus: {}", name, gpus))), "");
    for (int gpus : {3, 6, 16})
      expect_refused(hardware(fmt::format("name: {}, gpus: {}", name, gpus)), "hardware.gpus", "");
  }
  EXPECT_EQ(lines_with(hardware("name: cpu, gpus: 0")), "");
  expect_refused(hardware("name: cpu, gpus: 1"), "hardware.gpus", "no GPU");
}

TEST(Hardware, MemoryOfSmallerCards) {
  for (const char* name : {"mi300x", "h100", "h200"})
    expect_refused(hardware(fmt::format("name: {}, expected_hbm_gb: 63", name)), "hardware.expected_hbm_gb", "64");
  EXPECT_EQ(lines_with(hardware("name: rtx3090, expected_hbm_gb: 20")), "");
  EXPECT_EQ(lines_with(hardware("name: cuda, expected_hbm_gb: 12")), "");
}

TEST(Hardware, ArchThatContradictsTheNameIsRefused) {
  expect_refused(hardware("name: mi300x, gfx_arch: gfx950"), "hardware.gfx_arch", "mi300x is gfx942");
  expect_refused(hardware("name: mi355x, gfx_arch: gfx942"), "hardware.gfx_arch", "mi355x is gfx950");
  expect_refused(hardware("name: h100, gfx_arch: gfx942"), "hardware.gfx_arch", "sm_90");
  expect_refused(hardware("gfx_arch: sm_90"), "hardware.gfx_arch", "gfx942");
  EXPECT_EQ(lines_with(hardware("name: h200, gfx_arch: sm_90")), "");
  expect_refused(hardware("name: rtx4090, gfx_arch: sm_90"), "hardware.gfx_arch", "rtx4090 is sm_89");
  EXPECT_EQ(lines_with(hardware("name: rtx5090, gfx_arch: sm_120")), "");
}

TEST(Policy, IsAotOnly) {
  EXPECT_EQ(lines_with("autotune:\n  policy: jit\n"), "r.yaml:5:11: autotune.policy: is `jit`: must be aot_only");
}

TEST(Environment, EightKeysAreAlwaysThereOnMi300Class) {
  const auto full = minimal_with("").train.env;
  EXPECT_EQ(full, (std::map<std::string, std::string>{{"PYTORCH_ROCM_ARCH", "gfx942"},
                                                      {"HSA_NO_SCRATCH_RECLAIM", "1"},
                                                      {"HIP_FORCE_DEV_KERNARG", "1"},
                                                      {"GPU_MAX_HW_QUEUES", "1"},
                                                      {"NVTE_CK_USES_BWD_V3", "1"},
                                                      {"NVTE_CK_IS_V3_ATOMIC_FP32", "1"},
                                                      {"PRIMUS_TURBO_ATTN_V3_ATOMIC_FP32", "1"},
                                                      {"NCCL_MIN_NCHANNELS", "112"}}));
  const auto some = minimal_with("train: {env: {NCCL_MIN_NCHANNELS: \"64\", MY_KEY: x}}\n").train.env;
  EXPECT_EQ(some.size(), 9u);
  EXPECT_EQ(some.at("NCCL_MIN_NCHANNELS"), "64");
  EXPECT_EQ(minimal_with(hardware("name: mi355x")).train.env.at("PYTORCH_ROCM_ARCH"), "gfx950");
  EXPECT_EQ(minimal_with(hardware("gpus: 0")).train.env.size(), 8u);
  EXPECT_TRUE(minimal_with(hardware("name: h100")).train.env.empty());
  EXPECT_TRUE(minimal_with(hardware("name: cpu")).train.env.empty());
}

TEST(Environment, ValuesAreTextAndAgreeWithTheArch) {
  expect_refused("train: {env: {NCCL_MIN_NCHANNELS: 112}}\n", "train.env.NCCL_MIN_NCHANNELS", "quotes");
  expect_refused("train: {env: {NCCL_MIN_NCHANNELS: \"\"}}\n", "train.env.NCCL_MIN_NCHANNELS", "always set");
  expect_refused("train: {env: {NCCL_MIN_NCHANNELS: null}}\n", "train.env.NCCL_MIN_NCHANNELS", "is empty");
  expect_refused("train: {env: {PYTORCH_ROCM_ARCH: gfx950}}\n", "train.env.PYTORCH_ROCM_ARCH", "follows gfx_arch");
  EXPECT_EQ(lines_with("train: {env: {PYTORCH_ROCM_ARCH: \"gfx90a;gfx942\"}}\n"), "");
  expect_refused("train: {env: {\"A B\": x}}\n", "train.env.A B", "no name");
}

TEST(Environment, PlanMayOverrideButNeverRemove) {
  const Recipe r = minimal_with("");
  auto plan = r.train.env;
  plan["NCCL_MIN_NCHANNELS"] = "64";
  plan["RCCL_EXTRA"] = "1";
  const auto env = check_plan_env(r, plan);
  EXPECT_EQ(env.at("NCCL_MIN_NCHANNELS"), "64");
  EXPECT_EQ(env.at("RCCL_EXTRA"), "1");
  for (const auto& [key, value] : r.train.env) {
    auto less = plan;
    less.erase(key);
    try {
      check_plan_env(r, less);
      FAIL() << key;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kBadInput);
      EXPECT_NE(std::string(e.what()).find(key), std::string::npos);
    }
    less[key] = "";
    EXPECT_THROW(check_plan_env(r, less), Error);
  }
}

TEST(Numbers, PrecisionThatTheDeviceHasNot) {
  const auto with = [](const char* h, const char* p) {
    return fmt::format("hardware: {{{}}}\ntrain: {{precision: {}}}\n", h, p);
  };
  EXPECT_EQ(lines_with(with("name: mi355x", "mxfp4")), "");
  EXPECT_EQ(lines_with(with("name: mi300x", "fp8_e4m3")), "");
  EXPECT_EQ(lines_with(with("name: h100", "fp8_e4m3")), "");
  expect_refused(with("name: mi300x", "mxfp4"), "train.precision", "gfx950");
  expect_refused(with("name: h100", "mxfp4"), "train.precision", "gfx950");
  expect_refused(with("name: mi355x, gpus: 0", "mxfp4"), "train.precision", "CPU lane");
  expect_refused(with("name: cpu", "fp8_e4m3"), "train.precision", "no FP8 units");
  expect_refused(with("name: mi300x, gpus: 0", "fp8_e4m3"), "train.precision", "no FP8 units");
}

TEST(Numbers, BasePrecisionIsForAFrozenBase) {
  EXPECT_EQ(lines_with(hardware("name: h100") + "train: {base_precision: fp8_e4m3}\n"), "");
  EXPECT_EQ(lines_with(hardware("name: h100") + "train: {base_precision: fp8_e4m3, method: {kind: dpo, lora: {}}}\n"),
            "");
  EXPECT_EQ(lines_with(hardware("name: cpu") + "train: {base_precision: fp8_e4m3}\n"), "");
  expect_refused("train: {base_precision: fp8_e4m3, method: {kind: full}}\n", "train.base_precision", "every weight");
  expect_refused("train: {base_precision: fp8_e4m3, method: {kind: qlora}}\n", "train.base_precision", "quant_bits");
  expect_refused("train: {base_precision: float16}\n", "train.base_precision", "bfloat16, fp8_e4m3");
}

std::string recipe(const std::string& model, const std::string& data) {
  return "meta: {project: p, run_name: r}\nmodel: {name: m" + model + "}\ndata: {" + data + "}\n";
}

TEST(Model, RulesOfTheSection) {
  EXPECT_EQ(
      lines(recipe(", trust_remote_code: true", "hf_id: x")),
      "r.yaml:2:18: model.trust_remote_code: is true: no code from a model folder is ever run; write false or leave "
      "it out");
  EXPECT_NE(lines(recipe(", init: random", "hf_id: x")).find("model.config: is missing"), std::string::npos);
  EXPECT_NE(lines(recipe(", config: c.json", "hf_id: x")).find("only for `init: random`"), std::string::npos);
  EXPECT_EQ(lines(recipe(", init: random, config: c.json", "hf_id: x")), "");
  EXPECT_EQ(lines(recipe(", init: random, config: {n_layer: 2}", "hf_id: x")), "");
}

TEST(Data, EachSourceNeedsItsOwn) {
  EXPECT_NE(lines(recipe("", "source: hf")).find("data.hf_id: is missing"), std::string::npos);
  EXPECT_NE(lines(recipe("", "hf_id: \"\"")).find("data.hf_id"), std::string::npos);
  EXPECT_NE(lines(recipe("", "source: local")).find("data.path: is missing"), std::string::npos);
  EXPECT_NE(lines(recipe("", "source: mindx_dreams")).find("data.path: is missing"), std::string::npos);
  EXPECT_NE(lines(recipe("", "source: lighthouse")).find("data.cid: is missing"), std::string::npos);
  EXPECT_EQ(lines(recipe("", "source: local, path: a.jsonl")), "");
  EXPECT_EQ(lines(recipe("", "source: lighthouse, cid: bafy")), "");
  EXPECT_EQ(lines(recipe("", "source: synth, synth: {rows: 10, test_rows: 0, seed: 1}")), "");
  EXPECT_NE(lines(recipe("", "hf_id: x, synth: {}")).find("data.synth: is only for"), std::string::npos);
  EXPECT_NE(lines(recipe("", "hf_id: x, eval_fraction: 0.1, eval_path: a")).find("keep one"), std::string::npos);
}

TEST(Data, RandomWindowsAreForPlainText) {
  const std::string d = "hf_id: x, sampling: random_windows";
  EXPECT_EQ(lines(recipe("", d) + "train: {method: {kind: pretrain}}\n"), "");
  EXPECT_NE(lines(recipe("", d) + "train: {method: {kind: dpo}}\n").find("data.sampling"), std::string::npos);
}

TEST(Train, MuonSettingsNeedMuon) {
  EXPECT_EQ(minimal_with("train: {optimizer: {name: muon}}\n").train.optimizer.muon->lr, 0.02);
  EXPECT_FALSE(minimal_with("").train.optimizer.muon);
  expect_refused("train: {optimizer: {muon: {lr: 0.1}}}\n", "train.optimizer.muon", "name: muon");
}

TEST(Train, WhatAnOptimizerOrAScheduleDoesNotHaveIsRefused) {
  for (const char* name : {"lion", "adafactor"}) {
    const std::string text = fmt::format("train: {{optimizer: {{name: {}, ", name);
    expect_refused(text + "eps: 1.0e-6}}\n", "train.optimizer.eps", name);
    EXPECT_NO_THROW(minimal_with(text + "betas: [0.9, 0.99]}}\n"));  // of the original schema: loads
  }
  expect_refused("train: {optimizer: {name: muon, muon: {schedule: pretrain, momentum: 0.9}}}\n",
                 "train.optimizer.muon.momentum", "schedule");
  expect_refused("train: {schedule: {decay_ratio: 0.65}}\n", "train.schedule.decay_ratio", "wsd");
  EXPECT_EQ(minimal_with("train: {schedule: {type: wsd, decay_ratio: 0.65}}\n").train.schedule.decay_ratio, 0.65);
  expect_refused("train: {schedule: {type: wsd, decay_ratio: 0}}\n", "train.schedule.decay_ratio", "0");
  expect_refused("train: {schedule: {warmup_steps: -1}}\n", "train.schedule.warmup_steps", "-1");
}

TEST(Train, AModuleTrainsWholeOrGetsAnAdapter) {
  const auto with = [](const char* method) { return std::string("train: {method: ") + method + "}\n"; };
  for (const char* both : {"{kind: lora, target_modules: [lm_head, q_proj], modules_to_save: [lm_head]}",
                           "{kind: lora, target_modules: [model.embed_tokens], modules_to_save: [embed_tokens]}",
                           "{kind: qlora, target_modules: [proj], modules_to_save: [model.layers.0.proj]}"})
    expect_refused(with(both), "train.method.modules_to_save", "trains whole or gets an adapter");
  expect_refused(with("{kind: dpo, lora: {target_modules: [lm_head], modules_to_save: [lm_head]}}"),
                 "train.method.lora.modules_to_save", "keep one");
  EXPECT_EQ(lines_with(with("{kind: lora, target_modules: [q_proj], modules_to_save: [lm_head]}")), "");
  EXPECT_EQ(minimal_with(with("{kind: lora, target_modules: all-linear}")).train.method.lora->target_modules,
            std::vector<std::string>{"all-linear"});
  expect_refused(with("{kind: lora, target_modules: q_proj}"), "train.method.target_modules", "write a list");
}

TEST(Train, AnotherNameOfAFieldIsNoSecondValue) {
  expect_refused("train: {method: {kind: grpo, max_new_tokens: 8, max_completion_length: 9}}\n",
                 "train.method.max_completion_length", "keep one");
}

TEST(Train, TheBoundOfARatioLiesAboveWhereItIsClipped) {
  EXPECT_EQ(
      minimal_with("train: {method: {kind: grpo, epsilon: 0.2, epsilon_high: 0.3, delta: 4}}\n").train.method.delta,
      4.0);
  expect_refused("train: {method: {kind: grpo, epsilon: 0.2, epsilon_high: 0.3, delta: 1.3}}\n", "train.method.delta",
                 "clipped at 1.3");
  expect_refused("train: {method: {kind: rloo, delta: 2}}\n", "train.method.delta", "is not a key");
}

TEST(Train, RewardsOfAList) {
  const auto rewards = [](const char* list) {
    return fmt::format("train: {{method: {{kind: grpo, rewards: [{}]}}}}\n", list);
  };
  EXPECT_EQ(minimal_with(rewards("{kind: exact}, {kind: exact, name: again}")).train.method.rewards.size(), 2u);
  expect_refused(rewards(""), "train.method.rewards", "holds none");
  expect_refused(rewards("{kind: exact}, {kind: exact}"), "train.method.rewards[1].name",
                 "two rewards are called exact");
  expect_refused(rewards("{kind: length, min_tokens: 9, max_tokens: 3}"), "train.method.rewards[0].min_tokens",
                 "is more than max_tokens (3)");
}

TEST(Train, ToolsOfRollouts) {
  const auto tools = [](const char* list, const char* more = "") {
    return fmt::format("train: {{method: {{kind: grpo, tools: [{}]{}}}}}\n", list, more);
  };
  const Recipe r =
      minimal_with(tools("{kind: calculator}, {kind: lookup, table: t.json, name: facts}", ", max_tool_turns: 2"));
  EXPECT_EQ(r.train.method.tools.at(1).name, "facts");
  EXPECT_EQ(r.train.method.max_tool_turns, 2);
  expect_refused(tools("{kind: lookup}"), "train.method.tools[0].table", "kind lookup needs it");
  expect_refused(tools("{kind: calculator, table: t.json}"), "train.method.tools[0].table", "is for kind lookup");
  expect_refused(tools("{kind: command}"), "train.method.tools[0].command", "kind command needs it");
  expect_refused(tools("{kind: calculator}, {kind: calculator}"), "train.method.tools[1].name",
                 "two tools are called calculator");
  expect_refused("train: {method: {kind: grpo, max_tool_turns: 2}}\n", "train.method.max_tool_turns",
                 "of which there are none");
  expect_refused("train: {method: {kind: dpo, tools: [{kind: calculator}]}}\n", "train.method.tools",
                 "is not a key of train.method");
}

TEST(Rules, ARuleIsSilentWhereItsInputIsAlreadyWrong) {
  EXPECT_EQ(issues_of(std::string(kMinimal) + "hardware: {name: mi300, gpus: 2}\n").size(), 1u);
}

}  // namespace
}  // namespace mxt::config
