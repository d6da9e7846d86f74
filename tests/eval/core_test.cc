// CORE against nanochat's own core_eval.py (tools/golden/core.py): prompts byte for byte, verdicts, scores.
#include "eval/core/core.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "folders.h"

namespace mxt::eval {
namespace {

std::string golden(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/core/" + name; }

std::vector<int32_t> bytes(const std::string& text) {
  std::vector<int32_t> ids = {256};
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

// The formula of tools/golden/core.py.
std::vector<double> logits(int64_t token, int64_t place) {
  std::vector<double> out(257);
  for (int64_t v = 0; v < 257; ++v) {
    const int64_t n = (token * 31 + v * 17 + place * 7 + (token * v + place) % 13) % 29;
    const bool likely = (v >= 97 && v <= 122) || v == 32;
    out[static_cast<size_t>(v)] = static_cast<double>(n) * 0.25 - (likely ? 0 : 8);
  }
  return out;
}

bool score(const std::vector<infer::Continuation>& rows, std::vector<infer::ContinuationScore>* out) {
  out->clear();
  for (const auto& r : rows) {
    infer::ContinuationScore s;
    const size_t n = r.ids.size();
    EXPECT_GE(r.scored, 1);
    EXPECT_LT(static_cast<size_t>(r.scored), n);
    for (size_t t = n - static_cast<size_t>(r.scored); t < n; ++t) {
      const auto l = logits(r.ids[t - 1], static_cast<int64_t>(t) - 1);
      double sum = 0;
      for (const double x : l) sum += std::exp(x);
      s.logprob += l[static_cast<size_t>(r.ids[t])] - std::log(sum);
      s.greedy &= std::max_element(l.begin(), l.end()) - l.begin() == r.ids[t];
    }
    out->push_back(s);
  }
  return true;
}

TEST(Core, PromptsAndScoresAreNanochats) {
  for (const Json& want : read_json_file(golden("core.json"))) {
    const auto tasks = read_core_bundle(golden("bundle"), want.at("limit").get<int64_t>());
    ASSERT_EQ(tasks.size(), want.at("results").size());
    const Evaluation got = evaluate_core(tasks, bytes, score);
    for (size_t k = 0; k < tasks.size(); ++k) {
      const Json& items = want.at("tasks").at(tasks[k].label);
      const auto& samples = got.samples[k].samples;
      ASSERT_EQ(samples.size(), items.size());
      for (size_t i = 0; i < items.size(); ++i) {
        if (items[i].contains("prompts")) {
          EXPECT_EQ(samples[i]["prompts"].get<std::vector<std::string>>(),
                    items[i]["prompts"].get<std::vector<std::string>>())
              << tasks[k].label << i;
        }
        EXPECT_EQ(samples[i]["correct"].get<bool>(), items[i]["correct"].get<bool>()) << tasks[k].label << " " << i;
      }
      EXPECT_NEAR(got.results["results"][tasks[k].label].get<double>(), want["results"][tasks[k].label], 1e-6);
      EXPECT_NEAR(got.results["centered_results"][tasks[k].label].get<double>(),
                  want["centered_results"][tasks[k].label], 1e-6);
    }
    EXPECT_NEAR(got.results["core_metric"].get<double>(), want["core_metric"], 1e-6);
    EXPECT_NE(core_table(got.results).find("CORE"), std::string::npos);
  }
}

TEST(Core, AnInterruptedScoreEndsIt) {
  const auto tasks = read_core_bundle(golden("bundle"), 12);
  const Evaluation e = evaluate_core(tasks, bytes, [](const auto&, auto*) { return false; });
  EXPECT_FALSE(e.finished);
}

// Bundles from outside: one clear line each.
class CoreBundle : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "mxt_core_" + std::to_string(::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/eval_data");
    put("core.yaml", yaml_);
    put("eval_meta_data.csv", "Eval Task,Random baseline\nt,25\n");
    put("eval_data/t.jsonl", "{\"query\":\"q\",\"choices\":[\"a\",\"b\"],\"gold\":1}\n");
  }
  void TearDown() override { fs::remove_all(folder_); }
  void put(const std::string& name, const std::string& text) { write_file_atomic(folder_ + "/" + name, text); }
  void expect(const std::string& part, Exit code = Exit::kBadInput) {
    try {
      read_core_bundle(folder_, 0);
      ADD_FAILURE() << "no error, wanted: " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    }
  }
  std::string folder_;
  const std::string yaml_ =
      "icl_tasks:\n- {label: t, dataset_uri: t.jsonl, num_fewshot: [0], icl_task_type: multiple_choice}\n";
};

TEST_F(CoreBundle, IsReadWhereItIsWhole) { EXPECT_EQ(read_core_bundle(folder_, 0).at(0).items.size(), 1u); }

TEST_F(CoreBundle, MissingFilesAreNamed) {
  fs::remove(folder_ + "/eval_data/t.jsonl");
  expect("t.jsonl is not there");
  fs::remove(folder_ + "/core.yaml");
  expect("core.yaml", Exit::kMissing);
}

TEST_F(CoreBundle, MalformedTasksAreNamed) {
  put("core.yaml", "icl_tasks:\n- {label: t, dataset_uri: t.jsonl, num_fewshot: [0], icl_task_type: essay}\n");
  expect("icl_task_type \"essay\"");
  put("core.yaml", "icl_tasks:\n- {label: t, dataset_uri: ../../x, num_fewshot: [0], icl_task_type: schema}\n");
  expect("leaves the bundle");
  put("core.yaml",
      "icl_tasks:\n- {label: t, dataset_uri: t.jsonl, num_fewshot: [1], icl_task_type: multiple_choice}\n");
  expect("wants 1 examples");
  put("core.yaml", "icl_tasks:\n- {label: t, dataset_uri: t.jsonl, num_fewshot: [], icl_task_type: multiple_choice}\n");
  expect("num_fewshot");
  put("core.yaml", "tasks: []\n");
  expect("icl_tasks is missing");
  put("core.yaml", yaml_ + yaml_.substr(yaml_.find("- ")));
  expect("stands twice");
}

TEST_F(CoreBundle, MalformedItemsAndBaselinesAreNamed) {
  for (const auto& [row, part] : {std::pair{"{\"query\":\"q\",\"choices\":[\"a\"],\"gold\":1}", "\"gold\" is no index"},
                                  {"{\"query\":\"q\",\"choices\":[],\"gold\":0}", "\"choices\" is missing"},
                                  {"{\"query\":1,\"choices\":[\"a\"],\"gold\":0}", "\"query\" is missing"},
                                  {"[1]", "is no object"},
                                  {"{\"query\":", "t.jsonl:1"}}) {
    put("eval_data/t.jsonl", std::string(row) + "\n");
    expect(part);
  }
  put("eval_data/t.jsonl", "");
  expect("holds no item");
  SetUp();
  put("eval_meta_data.csv", "Eval Task,Random baseline\nt,\n");
  expect("no \"Random baseline\"");
  put("eval_meta_data.csv", "Task,Chance\nt,1\n");
  expect("has no column");
}

}  // namespace
}  // namespace mxt::eval
