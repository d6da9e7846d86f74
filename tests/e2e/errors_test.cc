// Bad input: one line that names the place, exit code 1, nothing lost.
#include <algorithm>

#include "e2e/cli.h"

namespace mxt {
namespace {

void expect_error(const cli::Result& r, int code, const std::vector<std::string>& words) {
  EXPECT_EQ(r.code, code) << r.out;
  for (const auto& w : words) EXPECT_NE(r.out.find(w), std::string::npos) << "no \"" << w << "\" in: " << r.out;
}

TEST(Errors, UnknownKeyNamesTheNearest) {
  cli::Folder f("unknown");
  write_file_atomic(f / "r.yaml", cli::recipe({}) + "trian: {}\n");
  expect_error(cli::run("validate " + (f / "r.yaml")), 1, {"r.yaml:", "trian", "train"});
}

TEST(Errors, AnotherRecipesFolderIsRefused) {
  cli::Folder f("other");
  cli::Tiny t;
  t.steps = 1;
  write_file_atomic(f / "a.yaml", cli::recipe(t));
  t.steps = 2;
  write_file_atomic(f / "b.yaml", cli::recipe(t));
  ASSERT_EQ(cli::run("train " + (f / "a.yaml") + " --out " + (f / "out")).code, 0);
  expect_error(cli::run("train " + (f / "b.yaml") + " --out " + (f / "out")), 1, {"another recipe", "--out"});
}

TEST(Errors, PlanOfOtherShapesNamesTheDifference) {
  cli::Folder f("plan");
  cli::Tiny t;
  t.steps = 1;
  write_file_atomic(f / "a.yaml", cli::recipe(t));
  ASSERT_EQ(cli::run("train " + (f / "a.yaml") + " --out " + (f / "out")).code, 0);
  t.model = "llama_mqa";
  write_file_atomic(f / "b.yaml", cli::recipe(t));
  expect_error(cli::run("train " + (f / "b.yaml") + " --plan " + (f / "out/plan.json") + " --out " + (f / "out2")), 1, {"plan", "heads"});
}

TEST(Errors, BadRowIsNamedWithItsLine) {
  cli::Folder f("row");
  cli::Tiny t;
  std::string text = cli::recipe(t);
  const std::string rows = f / "rows.jsonl";
  write_file_atomic(rows, "{\"input_ids\":[1,2,3],\"labels\":[1,2,3]}\n{\"input_ids\":[1,2,\n");
  text.replace(text.find(cli::golden(t.model) + "/rows.jsonl"), (cli::golden(t.model) + "/rows.jsonl").size(), rows);
  write_file_atomic(f / "r.yaml", text);
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 1, {"rows.jsonl:2"});
}

TEST(Errors, IdOutsideTheVocabularyIsNamed) {
  cli::Folder f("vocab");
  cli::Tiny t;
  std::string text = cli::recipe(t);
  const std::string rows = f / "rows.jsonl";
  write_file_atomic(rows, "{\"input_ids\":[1,2,96],\"labels\":[1,2,96]}\n");
  text.replace(text.find(cli::golden(t.model) + "/rows.jsonl"), (cli::golden(t.model) + "/rows.jsonl").size(), rows);
  write_file_atomic(f / "r.yaml", text);
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 1, {"rows.jsonl", "96"});
}

TEST(Errors, MissingModelIsExitThreeWithTheRemedy) {
  cli::Folder f("model");
  std::string text = cli::recipe({});
  const std::string name = "\"" + cli::golden("qwen3_gqa") + "\"";
  text.replace(text.find(name), name.size(), "./no/such/model");
  write_file_atomic(f / "r.yaml", text);
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 3, {"no such model"});
}

TEST(Errors, WrongShapeAndMissingTensorAreNamed) {
  cli::Folder f("shape");
  fs::copy(cli::golden("qwen3_gqa"), f / "model", fs::copy_options::recursive);
  std::string config = read_file(f / "model/config.json");
  const size_t at = config.find("\"intermediate_size\": 48");
  ASSERT_NE(at, std::string::npos);
  config.replace(at, 23, "\"intermediate_size\": 56");
  write_file_atomic(f / "model/config.json", config);
  std::string text = cli::recipe({});
  const std::string name = "name: \"" + cli::golden("qwen3_gqa") + "\"";
  text.replace(text.find(name), name.size(), "name: \"" + (f / "model") + "\"");
  write_file_atomic(f / "r.yaml", text);
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 1, {"gate_proj", "48", "56"});
}

TEST(Errors, WhatThisBuildCannotTrainIsExitThree) {
  cli::Folder f("dpo");
  cli::Tiny t;
  t.method = "{kind: dpo}";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  EXPECT_EQ(cli::run("validate " + (f / "r.yaml")).code, 0);
  expect_error(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")), 3, {"dpo"});
}

}  // namespace
}  // namespace mxt
