#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "config/support.h"
#include "folders.h"

namespace mxt::config {
namespace {

TEST(Fields, DefaultsAreThoseOfTheTable) {
  const Recipe r = minimal_with("");
  EXPECT_EQ(r.meta.seed, 2048);
  EXPECT_EQ(r.meta.license, "apache-2.0");
  EXPECT_EQ(r.hardware.name, GpuName::kMi300x);
  EXPECT_EQ(r.hardware.gfx_arch, Arch::kGfx942);
  EXPECT_EQ(r.hardware.gpus, 1);
  EXPECT_EQ(r.hardware.expected_hbm_gb, 192);
  EXPECT_EQ(r.autotune.plan_path, "./out/mindxtrain.tuned.yaml");
  EXPECT_EQ(r.autotune.budget_seconds, 60);
  EXPECT_EQ(r.model.torch_dtype, Precision::kBFloat16);
  EXPECT_FALSE(r.model.trust_remote_code);
  EXPECT_EQ(r.data.seq_len, 4096);
  EXPECT_TRUE(r.data.packing && r.data.streaming && r.data.shuffle);
  EXPECT_FALSE(r.data.dedupe.minhash || r.data.dedupe.semdedup);
  EXPECT_EQ(r.train.backend, Backend::kNative);
  EXPECT_EQ(r.train.method.kind, MethodKind::kLora);
  ASSERT_TRUE(r.train.method.lora);
  EXPECT_EQ(r.train.method.lora->r, 16);
  EXPECT_EQ(r.train.method.lora->target_modules.size(), 7u);
  EXPECT_EQ(r.train.optimizer.lr, 1e-4);
  EXPECT_EQ(r.train.optimizer.betas, (std::array<double, 2>{0.9, 0.95}));
  EXPECT_EQ(r.train.schedule.epochs, 3);
  EXPECT_EQ(r.train.batch.per_device, 8);
  EXPECT_EQ(r.train.batch.grad_accum, 4);
  EXPECT_EQ(r.train.keep_last, 2);
  EXPECT_FALSE(r.eval || r.quantize || r.serve || r.publish);
  EXPECT_EQ(r.receipt.include.size(), 8u);
}

TEST(Fields, WithoutHardwareARecipeIsForTheMachineThatReadsIt) {
  int asked = 0;
  const auto h100_here = [&] { return ++asked, GpuName::kH100; };
  const Recipe none = parse_recipe(kMinimal, "r.yaml", h100_here);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(none.hardware.name, GpuName::kH100);
  EXPECT_EQ(none.hardware.gfx_arch, Arch::kSm90);
  EXPECT_EQ(none.hardware.gpus, 1);
  EXPECT_EQ(hints(none).front(), "hardware: absent, so this machine: h100");
  EXPECT_EQ(parse_recipe(kMinimal, "r.yaml").hardware.gpus, 0);  // who knows no machine says the processor
  const Recipe section = parse_recipe(std::string(kMinimal) + "hardware: {gpus: 1}\n", "r.yaml", h100_here);
  EXPECT_EQ(asked, 1);  // a section without a name is the original's: MI300X
  EXPECT_EQ(section.hardware.name, GpuName::kMi300x);
  EXPECT_EQ(settled_text(section), section.text);
}

TEST(Fields, SettledTextMeansTheSameOnAnyMachine) {
  const auto h100_here = [] { return GpuName::kH100; };
  for (const std::string& text :
       {std::string(kMinimal), std::string(kMinimal).substr(0, std::string(kMinimal).size() - 1),
        std::string("---\n") + kMinimal + "...\n",
        std::string("{meta: {project: p, run_name: r}, model: {name: m}, data: {source: hf, hf_id: some/rows}}")}) {
    const Recipe r = parse_recipe(text, "r.yaml", h100_here);
    const Recipe again = parse_recipe(settled_text(r), "r.yaml");
    EXPECT_EQ(recipe_hash(again), recipe_hash(r)) << settled_text(r);
    EXPECT_TRUE(again.is_given("hardware")) << text;
    EXPECT_EQ(settled_text(again), again.text);
  }
}

TEST(Fields, PresentSectionTakesItsDefaults) {
  const Recipe r = minimal_with("eval: {}\nquantize: {}\nserve: {}\npublish: {}\n");
  EXPECT_EQ(r.eval->harness.tasks, (std::vector<std::string>{"mmlu", "gsm8k", "ifeval", "humaneval"}));
  EXPECT_FALSE(r.eval->harness.fewshot);
  EXPECT_EQ(r.eval->regression.threshold_pct, -1.0);
  EXPECT_EQ(r.quantize->scheme, QuantScheme::kQuarkFp8);
  EXPECT_EQ(r.serve->backend, ServeBackend::kNative);
  EXPECT_EQ(r.serve->port, 8000);
  EXPECT_TRUE(r.publish->enabled);
  EXPECT_FALSE(r.publish->hf || r.publish->lighthouse || r.publish->ipfs || r.publish->mindx ||
               r.publish->agenticplace || r.publish->bankon || r.publish->evm || r.publish->billing);
  expect_refused("eval:\n", "eval", "is empty");
}

TEST(Fields, ADestinationThatIsWrittenTakesItsDefaults) {
  const Recipe r = minimal_with("publish: {lighthouse: {}, billing: {}, mindx: {}}\n");
  EXPECT_EQ(r.publish->lighthouse->api_key_env, "LIGHTHOUSE_API_KEY");
  EXPECT_EQ(r.publish->billing->x402.price_per_1k_tokens, 0.0002);
  EXPECT_TRUE(r.publish->mindx && !r.publish->agenticplace);
}

TEST(Fields, NullTakesTheDerivedDefault) {
  const auto with = [](const char* synth) {
    return parse_recipe(fmt::format("meta: {{project: p, run_name: r}}\nmodel: {{name: m}}\n"
                                    "data: {{source: synth{}}}\neval: {{generation: null}}\n"
                                    "train: {{optimizer: {{name: muon, muon: ~}}}}\nhardware: {{usd_per_hour: null}}\n",
                                    synth),
                        "r");
  };
  const Recipe r = with(", synth: null");
  ASSERT_TRUE(r.data.synth && r.eval->generation && r.train.optimizer.muon);
  EXPECT_EQ(r.hardware.usd_per_hour, 1.99);
  EXPECT_FALSE(r.is_given("hardware.usd_per_hour"));
  EXPECT_EQ(canonical(r), canonical(with("")));
}

TEST(Fields, DerivedDefaultsFollowTheHardware) {
  const auto hardware = [](const char* name) {
    return minimal_with(fmt::format("hardware: {{name: {}}}\n", name)).hardware;
  };
  EXPECT_EQ(hardware("mi325x").expected_hbm_gb, 256);
  EXPECT_EQ(hardware("mi355x").gfx_arch, Arch::kGfx950);
  EXPECT_EQ(hardware("h100").gfx_arch, Arch::kSm90);
  EXPECT_EQ(hardware("h100").expected_hbm_gb, 80);
  EXPECT_EQ(hardware("h200").expected_hbm_gb, 141);
  EXPECT_EQ(hardware("rtx4090").gfx_arch, Arch::kSm89);
  EXPECT_EQ(hardware("rtx4090").expected_hbm_gb, 24);
  EXPECT_EQ(hardware("a100").gpus, 1);
  EXPECT_EQ(hardware("cpu").gpus, 0);
  EXPECT_EQ(hardware("cpu").gfx_arch, Arch::kNone);
  EXPECT_EQ(hardware("h100").usd_per_hour, 4.0);
  EXPECT_FALSE(hardware("h200").usd_per_hour);
  EXPECT_EQ(minimal_with("train: {precision: float32}\n").train.base_precision, Precision::kBFloat16);
}

TEST(Fields, HeldOutRowsTurnGenerationOn) {
  const std::string synth = "meta: {project: p, run_name: r}\nmodel: {name: m}\ndata: {source: synth}\neval: {}\n";
  const Recipe r = parse_recipe(synth, "r");
  ASSERT_TRUE(r.data.synth && r.eval->generation);
  EXPECT_EQ(r.data.synth->rows, 1200);
  EXPECT_EQ(r.data.synth->test_rows, 60);
  EXPECT_FALSE(minimal_with("eval: {}\n").eval->generation);
}

TEST(Fields, EveryIssueOfAFileIsReportedInItsOrder) {
  EXPECT_EQ(lines("meta: {run_name: r, seed: -1, projct: p}\n"
                  "model: {name: m, torch_dtype: bf16}\n"
                  "data: {hf_id: x, seq_len: 32}\n"
                  "trian: {}\n"),
            "r.yaml:1:7: meta.project: is missing: it is required\n"
            "r.yaml:1:27: meta.seed: is -1: must be at least 0\n"
            "r.yaml:1:31: meta.projct: is not a known key: did you mean project?\n"
            "r.yaml:2:31: model.torch_dtype: is `bf16`: write one of bfloat16, float16, float32, fp8_e4m3, mxfp4\n"
            "r.yaml:3:27: data.seq_len: is 32: must be at least 64 and at most 1048576\n"
            "r.yaml:4:1: trian: is not a known key: did you mean train?");
}

TEST(Fields, NumbersBeyondAnyIntegerAreNamedAsTheyAre) {
  const std::string out = lines(std::string(kMinimal) + "train: {schedule: {min_lr_ratio: 1e+87}}\n");
  EXPECT_NE(out.find("train.schedule.min_lr_ratio: is 1e+87: must be"), std::string::npos) << out;
}

TEST(Fields, ErrorOfLoadNamesTheFirstIssueAndTheRest) {
  try {
    parse_recipe("meta: {project: p}\nmodel: {name: m}\ndata: {hf_id: x, seq_len: 1}\n", "r.yaml");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kBadInput);
    EXPECT_STREQ(
        e.what(),
        "r.yaml:1:7: meta.run_name: is missing: it is required (and 1 more: `mindxtrain validate` lists them)");
  }
}

TEST(Fields, AnIssueIsOneLineWhateverTheFileHolds) {
  for (const std::string bad : {"\"a\\nb\": 1\n", "train: {precision: \"x\\ny\"}\n", "autotune: {enabled: \"a\\n\"}\n"})
    for (const Issue& i : issues_of(kMinimal + bad)) EXPECT_EQ(i.text().find('\n'), std::string::npos) << i.text();
  EXPECT_LT(lines(std::string(kMinimal) + std::string(100'000, 'k') + ": 1\n").size(), 2000u);
}

TEST(Fields, NamesHoldNoControlCharacters) {
  const auto meta = [](const std::string& name) {
    return "meta: {project: p, run_name: \"" + name + "\"}\nmodel: {name: m}\ndata: {source: local, path: x}\n";
  };
  for (const char* name : {"a\\nb", "a\\tb", "\\e[31mred", "x\\0y", "bell\\a", "\\x9b"})
    EXPECT_THROW(parse_recipe(meta(name), "r.yaml"), Error) << name;
  EXPECT_NO_THROW(parse_recipe(meta("Größe 2 — ok"), "r.yaml"));
}

TEST(Fields, RequiredSectionsAreNamed) {
  EXPECT_EQ(lines("hardware: {}\n"),
            "r.yaml:1:1: meta: is missing: it is required\n"
            "r.yaml:1:1: model: is missing: it is required\n"
            "r.yaml:1:1: data: is missing: it is required");
}

TEST(Fields, RangesOfTheTableHold) {
  struct Case {
    const char *key, *good, *bad;
  };
  // For each field the last allowed values and the first refused ones.
  for (const Case& c : std::vector<Case>{{"autotune.budget_seconds", "10 600", "9 601"},
                                         {"data.seq_len", "64 1048576", "63 1048577"},
                                         {"data.max_samples", "1 null", "0"},
                                         {"data.dedupe.minhash.threshold", "0 1", "-0.01 1.01"},
                                         {"data.dedupe.semdedup.threshold", "0 1", "-0.01 1.01"},
                                         {"data.shard.num_shards", "1", "0"},
                                         {"data.eval_fraction", "0 0.5", "1 -0.1"},
                                         {"hardware.expected_hbm_gb", "64", "63"},
                                         {"hardware.nodes", "1 4", "0"},
                                         {"train.optimizer.lr", "1e-9", "0 -1"},
                                         {"train.optimizer.weight_decay", "0", "-0.1"},
                                         {"train.optimizer.grad_clip", "0 1", "-1"},
                                         {"train.optimizer.eps", "1e-8", "0"},
                                         {"train.optimizer.betas", "[0,0.99]", "[0.9,1] [0.9] [0.9,0.9,0.9] 0.9"},
                                         {"train.schedule.warmup_ratio", "0 1", "-0.1 1.1"},
                                         {"train.schedule.epochs", "1 100", "0 101 1.5"},
                                         {"train.schedule.max_steps", "1 null", "0"},
                                         {"train.schedule.min_lr_ratio", "0 1", "-0.1 1.1"},
                                         {"train.batch.per_device", "1", "0"},
                                         {"train.batch.grad_accum", "1", "0"},
                                         {"train.micro_batch", "1 8", "0 9"},
                                         {"train.cpu_throttle.percent", "1 100", "0 101"},
                                         {"train.cpu_throttle.nice_level", "-20 19", "-21 20"},
                                         {"train.log_every", "1", "0"},
                                         {"eval.harness.fewshot", "0 5", "-1"},
                                         {"eval.harness.limit", "1", "0"},
                                         {"serve.tensor_parallel", "1", "0"},
                                         {"serve.max_model_len", "512", "511"},
                                         {"serve.port", "1024 65535", "1023 65536"},
                                         {"publish.billing.x402.price_per_1k_tokens", "0", "-0.1"}}) {
    const auto text = [&](const std::string& value) {
      std::string out, key = c.key;
      Json j = {
          {"meta", {{"project", "p"}, {"run_name", "r"}}}, {"model", {{"name", "m"}}}, {"data", {{"hf_id", "x"}}}};
      std::string pointer = "/" + key;
      for (char& ch : pointer)
        if (ch == '.') ch = '/';
      j[Json::json_pointer(pointer)] = Json::parse(value);
      return j.dump();  // JSON is YAML
    };
    std::istringstream good(c.good), bad(c.bad);
    for (std::string v; good >> v;) EXPECT_EQ(lines(text(v)), "") << c.key << " " << v;
    for (std::string v; bad >> v;) {
      const auto found = issues_of(text(v));
      ASSERT_FALSE(found.empty()) << c.key << " " << v;
      EXPECT_TRUE(found[0].key.starts_with(c.key)) << found[0].text();
    }
  }
}

TEST(Method, EachKindHasItsOwnFieldsOnly) {
  struct Case {
    const char *kind, *good, *bad;
  };
  for (const Case& c : std::vector<Case>{
           {"full", "", "r: 8"},
           {"full", "", "lora: {r: 8}"},
           {"pretrain", "", "lora: {r: 8}"},
           {"lora", "r: 512, alpha: 1024, dropout: 1, use_rslora: true, init_adapter: a", "quant_bits: 4"},
           {"lora", "target_modules: [q_proj]", "target_modules: []"},
           {"lora", "", "r: 0"},
           {"lora", "", "r: 513"},
           {"lora", "", "alpha: 1025"},
           {"lora", "", "dropout: 1.5"},
           {"lora", "", "beta: 0.1"},
           {"qlora", "quant_bits: 8", "quant_bits: 3"},
           {"qlora", "quant_bits: 4, quant_type: mxfp4", "quant_type: nf8"},
           {"qlora", "", "quant_bits: 8, quant_type: nf4"},
           {"dpo", "beta: 0.5, lora: {r: 8}", "beta: 0"},
           {"dpo", "", "r: 8"},
           {"orpo", "beta: 0.5, lora: {}", "kl_coef: 1"},
           {"kto", "beta: 0.5, desirable_weight: 2, lora: {}", "beta: -1"},
           {"grpo", "num_generations: 2, kl_coef: 0, lora: {r: 4}", "num_generations: 1"},
           {"grpo", "reward: model, reward_model: m", "reward: model"},
           {"grpo", "", "kl_coef: -1"},
           {"gspo", "num_generations: 2, kl_coef: 0.1, lora: {}", "beta: 0.1"},
           {"reward", "center_rewards: 0.01", "beta: 0.1"},
           {"ppo", "kl_coef: 0.1, lora: {}", "beta: 0.1"},
           {"cpt", "lora: {r: 8}", "beta: 0.1"}}) {
    const auto text = [&](const char* more) {
      return fmt::format("train: {{method: {{kind: {}{}{}}}}}\n", c.kind, *more ? ", " : "", more);
    };
    EXPECT_EQ(lines_with(text(c.good)), "");
    const auto found = issues_of(kMinimal + text(c.bad));
    ASSERT_FALSE(found.empty()) << text(c.bad);
    EXPECT_TRUE(found[0].key.starts_with("train.method")) << found[0].text();
  }
}

TEST(Method, DefaultsAreThoseOfTheKind) {
  const auto method = [](const char* m) {
    return minimal_with(fmt::format("train: {{method: {{{}}}}}\n", m)).train.method;
  };
  const Method q = method("kind: qlora");
  EXPECT_EQ(q.quant_bits, 4);
  EXPECT_EQ(q.quant_type, QuantType::kNf4);
  EXPECT_EQ(q.lora->target_modules, (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj"}));
  EXPECT_EQ(method("kind: grpo").kl_coef, 0.04);
  EXPECT_EQ(method("kind: dpo").beta, 0.1);
  EXPECT_FALSE(method("kind: dpo").lora);
  EXPECT_EQ(method("kind: dpo, lora: {r: 4}").lora->target_modules.size(), 7u);
  EXPECT_FALSE(method("kind: full").frozen_base());
}

TEST(Method, KindIsRequiredAndSuggested) {
  expect_refused("train: {method: {r: 8}}\n", "train.method.kind", "is missing");
  expect_refused("train: {method: {kind: lroa}}\n", "train.method.kind", "did you mean lora?");
  expect_refused("train: {method: lora}\n", "train.method", "kind");
  expect_refused("train: {method: {kind: lora, aplha: 8}}\n", "train.method.aplha", "did you mean alpha?");
}

TEST(Canonical, SameRunSameText) {
  const Recipe a = minimal_with("");
  const Recipe b = parse_recipe(
      "# a comment\ndata:\n  hf_id: some/rows\n  source: hf\n  seq_len: 4096\nmodel:\n  name: \"Qwen/Qwen3-8B\"\n"
      "meta: {run_name: r, project: p}\ntrain: {optimizer: {lr: 1.0e-4}}\n",
      "elsewhere.yaml", mi300x_here);
  EXPECT_EQ(canonical(a), canonical(b));
  EXPECT_EQ(recipe_hash(a), recipe_hash(b));
  EXPECT_NE(recipe_hash(a), recipe_hash(minimal_with("train: {optimizer: {lr: 1.1e-4}}\n")));
}

// A state that an earlier program saved knows the recipe by its hash.
TEST(Canonical, FieldsThatCameLaterStayOutAtTheirDefaults) {
  const Json at_default = Json::parse(canonical(minimal_with("")))["train"];
  EXPECT_FALSE(at_default["schedule"].contains("warmup_steps"));
  EXPECT_FALSE(at_default["method"].contains("lora_plus"));
  const Json given = Json::parse(canonical(minimal_with("train: {schedule: {warmup_steps: 4}}\n")))["train"];
  EXPECT_EQ(given["schedule"]["warmup_steps"], 4);
}

// Hashes of commit a66828f.
TEST(Canonical, TheHashOfARecipeIsThatOfEarlierPrograms) {
  EXPECT_EQ(recipe_hash(minimal_with("")), "f321d3fc975d67fa518d810ae717deb0f0862b9d086d5d72fb7de4b4bc2d6487");
  EXPECT_EQ(recipe_hash(minimal_with("train: {method: {kind: full}}\n")),
            "1181df7df3c882e5d1cf3fa2423ad0978528593b826ab029333fa58384e0f498");
  EXPECT_EQ(recipe_hash(minimal_with("train: {method: {kind: cpt}, precision: float32}\neval: {}\n"
                                     "quantize: {scheme: gguf_f16}\n")),
            "a369b6234b58499da1cd3aa419d455f50e825b1a2b0d41db0e1f3dc0c32bcbd6");
}

TEST(Canonical, IsItselfAValidRecipeOfTheSameRun) {
  const Recipe r = minimal_with("eval: {}\nserve: {}\ntrain: {method: {kind: qlora, r: 8, double_quant: false}}\n");
  Json j = Json::parse(canonical(r));
  // null says that an optional section or field is absent; a section that was absent stays so.
  for (const char* stage : {"quantize", "publish"}) j.erase(stage);
  EXPECT_EQ(lines(j.dump()), "");
  EXPECT_EQ(canonical(parse_recipe(j.dump(), "again")), canonical(r));
}

TEST(Canonical, HoldsOnlyTheFieldsOfTheMethod) {
  const Json m = Json::parse(canonical(minimal_with("train: {method: {kind: dpo}}\n")))["train"]["method"];
  EXPECT_EQ(m, Json({{"kind", "dpo"}, {"beta", 0.1}, {"loss", "sigmoid"}, {"simpo_gamma", 0.5}, {"lora", nullptr}}));
}

TEST(Lines, StagesThatAreOffAndHints) {
  EXPECT_EQ(off_stages(minimal_with("quantize: {enabled: false}\neval: {}\n")),
            (std::vector<std::string>{"quantize: off, as the recipe says", "serve: absent, so off",
                                      "publish: absent, so off"}));
  EXPECT_EQ(hints(minimal_with("hardware: {}\ntrain: {flash_attention: {backend: triton}}\n")),
            (std::vector<std::string>{"train.flash_attention.backend: a hint; the plan decides"}));
  EXPECT_EQ(hints(parse_recipe("meta: {project: p, run_name: r}\nhardware: {name: cpu}\nmodel: {name: m, torch_dtype: "
                               "fp8_e4m3}\ndata: {source: synth}\n",
                               "r")),
            std::vector<std::string>{
                "model.torch_dtype: fp8_e4m3 is not this hardware's: weights are held in train.precision"});
  EXPECT_TRUE(hints(minimal_with("hardware: {}\n")).empty());
  EXPECT_EQ(
      hints(parse_recipe(
          "meta: {project: p, run_name: r}\nhardware: {}\nmodel: {name: m}\ndata: {source: synth, path: x}\n", "r")),
      (std::vector<std::string>{"data.path: not read, for data.source is synth"}));
  EXPECT_EQ(hints(parse_recipe("meta: {project: p, run_name: r}\nhardware: {}\nmodel: {name: m}\ndata: {path: x, "
                               "source: local, train_on: all}\ntrain: {method: {kind: kto}}\n",
                               "r")),
            (std::vector<std::string>{"data.train_on: not read, for kto trains on answers: remove it"}));
  const auto group = [](const char* more) {
    return hints(minimal_with(std::string("hardware: {}\ntrain: {batch: {per_device: 8}, method: {kind: grpo, ") +
                              more + "}}\n"));
  };
  EXPECT_TRUE(group("max_new_tokens: 4095").empty());  // data.seq_len less a prompt's least
  ASSERT_EQ(group("max_completion_length: 4096").size(), 1u);
  EXPECT_EQ(group("max_completion_length: 4096")[0].find("train.method.max_new_tokens: 4096, and a row has 4096"), 0u);
}

// A field that is accepted has its effect, or a line says that it has none.
TEST(Lines, KeysThatStandElsewhere) {
  const auto line = [](const std::string& yaml, const std::string& key, const std::string& place) {
    expect_refused(yaml, key, "is not a known key: did you mean " + place + "?");
  };
  line("train: {max_steps: 5}\n", "train.max_steps", "train.schedule.max_steps");
  line("train: {lr: 1e-4}\n", "train.lr", "train.optimizer.lr");
  line("lora_r: 8\n", "lora_r", "train.method.r");
  line("train: {learning_rate: 1e-4}\n", "train.learning_rate", "train.optimizer.lr");
  line("train: {optimizer: {seq_len: 8}}\n", "train.optimizer.seq_len", "data.seq_len");
  // Of another method, and a word that many sections have: what there is.
  expect_refused("train: {method: {kind: lora, beta: 0.1}}\n", "train.method.beta", "is not a key of train.method");
  expect_refused("train: {name: x}\n", "train.name", "is not a key of train");
}

TEST(Lines, FieldsThatNothingReads) {
  const auto said = [](const std::string& rest) {
    std::vector<std::string> keys;
    for (const std::string& line : hints(minimal_with("hardware: {}\n" + rest))) {
      EXPECT_NE(line.find(": not read, for "), std::string::npos) << line;
      EXPECT_TRUE(line.ends_with(": remove it")) << line;
      keys.push_back(line.substr(0, line.find(':')));
    }
    return keys;
  };
  using Keys = std::vector<std::string>;
  const auto train = [&](const std::string& t) { return said("train: {" + t + "}\n"); };
  EXPECT_EQ(train("optimizer: {name: adafactor, betas: [0.5, 0.6]}"), Keys{"train.optimizer.betas"});
  EXPECT_EQ(
      train("method: {kind: full}, optimizer: {name: muon, betas: [0.5, 0.6], eps: 0.1, weight_decay: 0.3, lr: 1}"),
      (Keys{"train.optimizer.betas", "train.optimizer.eps", "train.optimizer.weight_decay"}));
  EXPECT_EQ(train("method: {kind: full}, optimizer: {name: muon, weight_decay: 0.3, muon: {variant: torch}}"), Keys{});
  EXPECT_EQ(train("method: {kind: lora}, optimizer: {name: muon, lr: 0.1}"), Keys{"train.optimizer.lr"});
  EXPECT_EQ(train("schedule: {type: constant, min_lr_ratio: 0.5}"), Keys{"train.schedule.min_lr_ratio"});
  EXPECT_EQ(train("schedule: {type: linear, min_lr_ratio: 0.5}"), Keys{});
  EXPECT_EQ(train("precision: float32, base_precision: bfloat16"), Keys{"train.base_precision"});
  EXPECT_EQ(train("base_precision: bfloat16"), Keys{});
  EXPECT_EQ(train("method: {kind: dpo, lora: {dropout: 0.1}}"), Keys{"train.method.lora.dropout"});
  EXPECT_EQ(train("method: {kind: grpo, lora: {dropout: 0.1}}"), Keys{});
  EXPECT_EQ(train("rollouts: {path: x.jsonl}, method: {kind: grpo, reward: exact, top_p: 0.5, share_prompts: false, "
                  "max_new_tokens: 9}"),
            (Keys{"train.method.reward", "train.method.top_p", "train.method.max_new_tokens"}));
  EXPECT_EQ(train("schedule: {max_steps: 5, epochs: 2, warmup_steps: 1, warmup_ratio: 0.5}"),
            (Keys{"train.schedule.epochs", "train.schedule.warmup_ratio"}));
  EXPECT_EQ(train("gradient_checkpointing: false"), Keys{"train.gradient_checkpointing"});
  EXPECT_EQ(train("gradient_checkpointing: true"), Keys{});
  EXPECT_EQ(said("autotune: {enabled: false, budget_seconds: 20}\n"), Keys{"autotune.budget_seconds"});
  EXPECT_EQ(said("quantize: {scheme: mxfp4, ptpc: false}\n"), Keys{"quantize.ptpc"});
  EXPECT_EQ(said("eval: {regression: {threshold_pct: -5}}\n"), Keys{"eval.regression.threshold_pct"});
  EXPECT_EQ(said("eval: {harness: {tasks: []}, regression: {baseline: x}}\n"), Keys{"eval.regression.baseline"});
}

TEST(Documents, SchemaHasEverySectionAndForbidsOthers) {
  const OrderedJson s = schema();
  EXPECT_EQ(s["properties"].size(), 12u);
  EXPECT_EQ(s["additionalProperties"], false);
  EXPECT_EQ(s["required"], OrderedJson({"meta", "model", "data"}));
  EXPECT_EQ(s["properties"]["data"]["properties"]["seq_len"]["maximum"], 1048576);
  EXPECT_EQ(s["properties"]["train"]["properties"]["method"]["oneOf"].size(), 13u);
  EXPECT_EQ(s["properties"]["autotune"]["properties"]["policy"]["enum"], OrderedJson({"aot_only"}));
  EXPECT_EQ(s["properties"]["eval"]["type"], "object");  // not null, as the reader
  const OrderedJson train = s["properties"]["train"]["properties"];
  EXPECT_EQ(train["optimizer"]["allOf"].size(), 2u);
  EXPECT_EQ(train["method"]["allOf"].size(), 3u);
  EXPECT_FALSE(train["method"]["oneOf"][0].contains("allOf"));
}

TEST(Documents, TheCommittedReferenceIsTheGeneratedOne) {
  EXPECT_EQ(read_file(std::string(kSourceDir) + "/docs/recipe.md"), reference_markdown())
      << "run: mindxtrain schema --markdown > docs/recipe.md";
}

}  // namespace
}  // namespace mxt::config
