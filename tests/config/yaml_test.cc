#include "config/yaml.h"

#include "base/error.h"
#include "config/support.h"

namespace mxt::config {
namespace {

TEST(Yaml, DuplicateKeyIsFoundWithBothLines) {
  EXPECT_EQ(lines("meta: {project: p, run_name: r}\nmodel:\n  name: a\n  name: b\ndata: {hf_id: x}\n"),
            "r.yaml:4:3: model.name: stands twice (first in line 3): keep one");
  EXPECT_EQ(lines_with("meta: {project: q, run_name: r}\n"),
            "r.yaml:4:1: meta: stands twice (first in line 1): keep one");
}

TEST(Yaml, DuplicateKeyDeepInAFreeMapIsFound) {
  EXPECT_EQ(lines_with("train:\n  env:\n    A_B: \"1\"\n    A_B: \"2\"\n"),
            "r.yaml:7:5: train.env.A_B: stands twice (first in line 6): keep one");
}

TEST(Yaml, AnchorsAndMergeKeysExpand) {
  const Recipe r = parse_recipe(
      "meta: {project: &p mine, run_name: *p}\n"
      "model: {name: m}\n"
      "data:\n  hf_id: x\n  dedupe:\n    minhash: &d {threshold: 0.5}\n    semdedup: {<<: *d, model: e}\n",
      "r.yaml");
  EXPECT_EQ(r.meta.run_name, "mine");
  EXPECT_EQ(r.data.dedupe.semdedup->threshold, 0.5);
  EXPECT_EQ(r.data.dedupe.semdedup->model, "e");
}

TEST(Yaml, OwnKeyWinsOverMergedOne) {
  const Recipe r = parse_recipe(
      "meta: {project: p, run_name: r}\nmodel: {name: m}\n"
      "data:\n  hf_id: x\n  dedupe:\n    minhash: &d {threshold: 0.5}\n    semdedup: {threshold: 0.9, <<: *d}\n",
      "r.yaml");
  EXPECT_EQ(r.data.dedupe.semdedup->threshold, 0.9);
}

TEST(Yaml, CyclicAliasIsRefused) {
  EXPECT_NE(lines("a: &a [*a]\n").find("has no end"), std::string::npos);
  EXPECT_NE(lines("&r {a: &b {c: *r}}\n").find("has no end"), std::string::npos);
  EXPECT_NE(lines("a: *nowhere\n").find("r.yaml:1:4: this alias has no anchor before it"), std::string::npos);
}

TEST(Yaml, AliasBombIsRefusedBeforeItGrows) {
  std::string bomb = "l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = "*l" + std::to_string(i - 1);
    bomb += "l" + std::to_string(i) + ": &l" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) bomb += before + (k < 9 ? "," : "]\n");
  }
  EXPECT_NE(lines(bomb).find("more than 20000 values"), std::string::npos);
}

TEST(Yaml, DeepNestingIsRefused) {
  for (int depth : {40, 400, 3000, 400'000}) {
    const auto n = static_cast<size_t>(depth);
    const std::string all = lines("a: " + std::string(n, '[') + std::string(n, ']') + "\n");
    EXPECT_NE(all.find("deeper"), std::string::npos) << all.substr(0, 200);
    EXPECT_NE(lines("a: " + std::string(n, '[')), "");
    EXPECT_NE(lines("a: " + std::string(n, '{')), "");
  }
  // Deep through aliases, each of them shallow.
  std::string chain = "a0: &a0 [x]\n";
  for (int i = 1; i < 60; ++i)
    chain += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  EXPECT_NE(lines(chain).find("deeper"), std::string::npos);
}

TEST(Yaml, OneDocumentOfText) {
  EXPECT_NE(lines("").find("empty"), std::string::npos);
  EXPECT_NE(lines("# only a comment\n").find("empty"), std::string::npos);
  EXPECT_NE(lines(std::string(kMinimal) + "---\na: 1\n").find("second document"), std::string::npos);
  EXPECT_EQ(lines("---\n" + std::string(kMinimal) + "...\n"), "");
  EXPECT_NE(lines("just text\n").find("write a map"), std::string::npos);
  EXPECT_NE(lines("- a\n- b\n").find("is a list"), std::string::npos);
  EXPECT_NE(lines(std::string(2 << 20, ' ')).find("at most"), std::string::npos);
}

TEST(Yaml, BytesThatAreNotTextAreRefusedWithTheirPlace) {
  EXPECT_EQ(lines("meta:\n  project: \"\xff\"\n"), "r.yaml:2:13: invalid UTF-8: save the file as UTF-8");
  EXPECT_EQ(lines("meta:\n\tproject: p\n"), "r.yaml:2:1: a tab in the indentation: use spaces");
  EXPECT_EQ(lines(std::string("a: \0b\n", 6)), "r.yaml:1:4: control character 0x00: remove it");
  EXPECT_NE(lines("\xff\xfem\0").find("UTF-8"), std::string::npos);
  EXPECT_EQ(lines("\xEF\xBB\xBF" + std::string(kMinimal)), "");
  EXPECT_EQ(lines("meta: {project: Größe, run_name: 模型}\nmodel: {name: m}\ndata: {hf_id: x}\n"), "");
}

TEST(Yaml, ForeignTagsAreRefused) {
  EXPECT_NE(lines("meta: !!python/object {project: p}\n").find("tag"), std::string::npos);
  EXPECT_NE(lines("meta: {project: !secret p}\n").find("tag"), std::string::npos);
  EXPECT_EQ(
      parse_recipe("meta: {project: !!str 12, run_name: r}\nmodel: {name: m}\ndata: {hf_id: x}\n", "r").meta.project,
      "12");
}

TEST(Yaml, KeysMustBeText) {
  EXPECT_NE(lines("? [a, b]\n: 1\n").find("key must be text"), std::string::npos);
  EXPECT_NE(lines("? {a: b}\n: 1\n").find("key must be text"), std::string::npos);
}

TEST(Yaml, ManyPathologicalInputsEndInTime) {
  for (const std::string piece : {"- ", "? ", "a: ", "!!", "&a ", "\"", "{a: [", "<<: ", "| \n ", "%"}) {
    std::string text;
    while (text.size() < 60'000) text += piece;
    EXPECT_FALSE(issues_of(text).empty()) << piece;
  }
}

// ---- no coercions ----------------------------------------------------------------------------------------------

TEST(Scalars, BoolIsTrueOrFalseOnly) {
  for (const char* good : {"true", "True", "TRUE"})
    EXPECT_TRUE(minimal_with(fmt::format("autotune: {{enabled: {}}}\n", good)).autotune.enabled);
  EXPECT_FALSE(minimal_with("autotune: {enabled: FALSE}\n").autotune.enabled);
  for (const char* bad : {"yes", "no", "on", "off", "Yes", "1", "0", "y", "tRUE", "\"true\"", "~", "", "[true]"})
    expect_refused(fmt::format("autotune: {{enabled: {}}}\n", bad), "autotune.enabled", "");
  EXPECT_EQ(lines_with("autotune:\n  enabled: yes\n"), "r.yaml:5:12: autotune.enabled: is `yes`: write true or false");
}

TEST(Scalars, WholeNumbersAreDecimal) {
  EXPECT_EQ(minimal_with("train: {batch: {per_device: +5}}\n").train.batch.per_device, 5);
  for (const char* bad : {"010", "0x10", "0o10", "0b1", "1_000", "1.0", "1e3", "\"8\"", "eight", "true", "1:30", "--1",
                          "9223372036854775808", "-9223372036854775809", "", "null", "8 GB", "{}"})
    expect_refused(fmt::format("train: {{batch: {{per_device: {}}}}}\n", bad), "train.batch.per_device", "");
  expect_refused("train: {batch: {per_device: 010}}\n", "train.batch.per_device", "octal");
  expect_refused("train: {batch: {per_device: \"8\"}}\n", "train.batch.per_device", "remove the quotes");
}

TEST(Scalars, NumbersAreFiniteAndPlain) {
  for (const auto& [text, value] : std::vector<std::pair<const char*, double>>{
           {"1e-4", 1e-4}, {"1.0e-4", 1e-4}, {".5", 0.5}, {"1", 1}, {"2.", 2}, {"1E+0", 1}, {"0.1", 0.1}})
    EXPECT_EQ(minimal_with(fmt::format("train: {{optimizer: {{lr: {}}}}}\n", text)).train.optimizer.lr, value) << text;
  for (const char* bad : {".inf", ".nan", "1e999", "010.5", "1_0.5", "\"1e-4\"", "true", "e5", ".", "-.inf", "1e"})
    expect_refused(fmt::format("train: {{optimizer: {{lr: \n    {} }}}}\n", bad), "train.optimizer.lr", "");
}

TEST(Scalars, TextThatYamlReadsOtherwiseStandsInQuotes) {
  for (const char* bad : {"123", "1.5", "true", "yes", "off", "0x1F", "1_000", "010", ".inf"})
    expect_refused(fmt::format("receipt: {{output: {}}}\n", bad), "receipt.output", "quotes");
  // Commits, versions and dates are text, as the original's reader has it.
  for (const char* good : {"12e4567", "1.2.3", "2026-05-04", "v1", "\"123\"", "'yes'"})
    EXPECT_EQ(lines_with(fmt::format("receipt: {{output: {}}}\n", good)), "") << good;
  expect_refused("receipt: {output: }\n", "receipt.output", "is empty");
  expect_refused("receipt: {output: \"a\\0b\"}\n", "receipt.output", "NUL");
}

TEST(Scalars, InlineModelConfigFollowsYaml12) {
  const Recipe r = parse_recipe(
      "meta: {project: p, run_name: r}\ndata: {hf_id: x}\n"
      "model: {name: m, init: random, config: {n_layer: 4, p: 0.0, t: gpt2, b: false, l: [1, 2], n: null}}\n",
      "r.yaml");
  EXPECT_EQ(r.model.config.json, R"({"b":false,"l":[1,2],"n":null,"n_layer":4,"p":0.0,"t":"gpt2"})");
  for (const char* bad : {"yes", "010", "0x10", "1_000", ".inf"})
    EXPECT_NE(lines(fmt::format("meta: {{project: p, run_name: r}}\ndata: {{hf_id: x}}\n"
                                "model: {{name: m, init: random, config: {{n_layer: {}}}}}\n",
                                bad))
                  .find("model.config.n_layer"),
              std::string::npos)
        << bad;
}

}  // namespace
}  // namespace mxt::config
