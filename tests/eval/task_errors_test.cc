// What a wrong task file or missing data is answered with.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "eval/score/metrics.h"
#include "eval/task/index.h"
#include "eval/task/task.h"
#include "eval/task/yaml.h"
#include "folders.h"

namespace mxt::eval {
namespace {

const std::string kData = std::string(kSourceDir) + "/tests/golden/eval/data";

std::string folder(const std::string& name) {
  const std::string path = testing::TempDir() + "eval_" + name;
  fs::remove_all(path);
  make_folders(path);
  return path;
}
void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

OrderedJson base() {
  return {{"task", "t"},
          {"dataset_path", "quiz"},
          {"test_split", "test"},
          {"output_type", "multiple_choice"},
          {"doc_to_text", "{{question}}"},
          {"doc_to_target", 0},
          {"doc_to_choice", {"a", "b"}}};
}

// The message, and the exit code it would end with.
std::pair<std::string, int> problem(const OrderedJson& config, const std::string& data = kData) {
  try {
    Task t(config, {data});
    t.requests(2, {});
  } catch (const Error& e) {
    return {e.what(), static_cast<int>(e.code())};
  }
  return {"", 0};
}

// A folder may hold what is no task; who asks for that very file is told why.
TEST(TaskErrors, AFileThatWasPassedOverSaysWhyWhenItIsAskedFor) {
  const std::string path = folder("passed_over");
  put(path + "/broken.yaml", "task: broken\ninclude: nowhere.yaml\n");
  put(path + "/fine.yaml", "task: fine\n");
  const TaskIndex index({path});
  EXPECT_EQ(index.select({"fine"}).tasks.size(), 1u);
  try {
    index.select({"broken"});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("nowhere.yaml"), std::string::npos) << e.what();
  }
}

TEST(TaskErrors, NamesTheKeyThatIsWrong) {
  EXPECT_EQ(problem(base()).first, "");
  OrderedJson c = base();
  c["doc_to_txt"] = "x";
  EXPECT_NE(problem(c).first.find("did you mean doc_to_text"), std::string::npos);
  c = base();
  c["output_type"] = "guess";
  EXPECT_NE(problem(c).first.find("output_type"), std::string::npos);
  c = base();
  c["doc_to_text"] = "{{missing}}";
  EXPECT_NE(problem(c).first.find("'missing' is undefined"), std::string::npos);
  c = base();
  c["doc_to_choice"] = "not a list";
  EXPECT_EQ(problem(c).second, 1);
  c = base();
  c["metric_list"] = {{{"metric", "accc"}}};
  EXPECT_EQ(problem(c).second, 1);
  c = base();
  c["filter_list"] = {{{"name", "f"}, {"filter", {{{"function", "regex"}, {"regex_pattern", "(("}}}}}};
  EXPECT_NE(problem(c).first.find("regular expression"), std::string::npos);
  c["filter_list"] = {{{"name", "f"}, {"filter", {{{"function", "take_first_k"}}}}}};
  EXPECT_NE(problem(c).first.find("task t: filter f: k is a whole number"), std::string::npos);
  c["filter_list"] = {{{"name", "f"}, {"filter", {{{"function", "regex"}, {"group_select", "x"}}}}}};
  EXPECT_NE(problem(c).first.find("group_select is a whole number"), std::string::npos);
  c = base();
  c["metric_list"] = {{{"metric", "exact_match"}, {"regexes_to_ignore", {5}}}};
  EXPECT_NE(problem(c).first.find("regexes_to_ignore holds text"), std::string::npos);
  c["metric_list"] = {{{"metric", "acc"}, {"higher_is_better", "maybe"}}};
  EXPECT_NE(problem(c).first.find("higher_is_better"), std::string::npos);
  c = base();
  c["repeats"] = 100000000;
  EXPECT_NE(problem(c).first.find("repeats"), std::string::npos);
}

// Right answers that are none of the choices: said, scored 0, whatever the metric.
TEST(Choices, ThatHoldNoRightAnswerScoreNothing) {
  int n = 0;
  for (const OrderedJson& gold : std::vector<OrderedJson>{OrderedJson::array(), -1, -100, 2, "c", nullptr, 1.5,
                                                          OrderedJson::array({5, "z"}), OrderedJson::object()}) {
    OrderedJson c = base();
    c["task"] = fmt::format("t{}", n++);
    c["doc_to_target"] = "right";
    c["metric_list"] = OrderedJson::array();
    for (const char* m : {"acc", "acc_norm", "f1", "mcc", "brier_score", "exact_match"})
      c["metric_list"].push_back({{"metric", m}});
    const Task t(c, {kData});
    testing::internal::CaptureStderr();
    const auto got = t.score({{"question", "?"}, {"right", gold}}, {{-1.0, false}, {-2.0, false}}, {});
    EXPECT_NE(testing::internal::GetCapturedStderr().find("is none of its 2 choices"), std::string::npos) << gold;
    ASSERT_EQ(got.size(), 6u) << gold;
    for (const size_t i : {0u, 1u, 5u}) EXPECT_EQ(got[i].second, 0) << gold << " " << got[i].first;
    EXPECT_LT(got[2].second[0].get<int64_t>(), 0) << gold;
  }
}

// Tables that lack some answers hold the others as 1.0.
TEST(Choices, WholeFloatsAreIndexes) {
  OrderedJson c = base();
  c["doc_to_target"] = "right";
  c["metric_list"] = {{{"metric", "acc"}}};
  const Task t(c, {kData});
  for (const auto& [gold, acc] :
       {std::pair<OrderedJson, int>{1.0, 1}, {0.0, 0}, {1, 1}, {OrderedJson::array({1.0}), 1}})
    EXPECT_EQ(t.score({{"question", "?"}, {"right", gold}}, {{-3.0, false}, {-2.0, false}}, {})[0].second, acc) << gold;
}

TEST(Aggregations, OfPairsSayWhatTheyWant) {
  for (const char* name : {"brier_score", "bleu", "chrf", "ter"})
    for (const OrderedJson& item : std::vector<OrderedJson>{1.0, nullptr, "x", OrderedJson::array(), {1}, {"a", 1}}) {
      const Aggregation a = aggregation(name, "t");
      EXPECT_THROW(a.compute({item}), Error) << name << " " << item;
      if (a.std_err == Aggregation::StdErr::kBootstrap) {
        EXPECT_THROW(standard_error(a, {item, item}, 10), Error) << name << " " << item;
      }
    }
}

TEST(TaskErrors, WhatIsNotHereEndsWithThree) {
  OrderedJson c = base();
  c["dataset_path"] = "nobody/nothing";
  const auto [text, code] = problem(c);
  EXPECT_EQ(code, 3);
  EXPECT_NE(text.find("nobody/nothing"), std::string::npos);
  c = base();
  c["dataset_kwargs"] = {{"field", "rows"}};
  EXPECT_EQ(problem(c).second, 3);
  EXPECT_NE(problem(c).first.find("dataset_kwargs.field"), std::string::npos);
  c["dataset_kwargs"] = {{"trust_remote_code", true}};
  EXPECT_EQ(problem(c).second, 0);
  c = base();
  c["process_docs"] = {{"!function", "utils.process_docs"}, {"folder", "/nowhere/unknown_task"}};
  EXPECT_EQ(problem(c).second, 3);
  EXPECT_NE(problem(c).first.find("unknown_task/utils.process_docs"), std::string::npos);
  c = base();
  c["output_type"] = "generate_until";
  c["metric_list"] = {{{"metric", "rouge1"}}};
  EXPECT_EQ(problem(c).second, 3);
  c = base();
  c["doc_to_image"] = "x";
  EXPECT_EQ(problem(c).second, 3);
}

// The tasks in the binary, and what a task with tools cannot have.
TEST(TaskErrors, TasksThatShowToolsAskInAChat) {
  const Selection all = TaskIndex({}).select({"tool_calls"});
  ASSERT_EQ(all.tasks.size(), 4u);
  ContextStyle style;
  size_t tools = 0;
  style.with_tools = [&](const std::vector<Message>& messages, const OrderedJson& list) {
    tools = list.size();
    EXPECT_EQ(messages.size(), 1u);
    EXPECT_TRUE(list[0]["function"].contains("parameters"));
    return messages[0].role + ": " + messages[0].content;
  };
  for (const OrderedJson& config : all.tasks) {
    Task t(config, {});
    EXPECT_TRUE(t.shows_tools());
    EXPECT_EQ(t.docs().size(), 50u);
    EXPECT_TRUE(t.requests(1, style).at(0).context.starts_with("user: "));
    EXPECT_GE(tools, 1u);
  }
  OrderedJson c = all.tasks[0];
  c["num_fewshot"] = 2;
  EXPECT_NE(problem(c).first.find("num_fewshot is 0"), std::string::npos) << problem(c).first;
  c = all.tasks[0];
  c["doc_to_tools"] = "answer";
  EXPECT_NE(problem(c).first.find("doc_to_tools"), std::string::npos) << problem(c).first;
  c = all.tasks[0];
  c["dataset_name"] = "tool_us";
  EXPECT_NE(problem(c).first.find("tool_use"), std::string::npos) << problem(c).first;
  c = all.tasks[0];
  c["dataset_kwargs"] = {{"rows", 0}};
  EXPECT_NE(problem(c).first.find("dataset_kwargs.rows"), std::string::npos) << problem(c).first;
}

TEST(TaskErrors, AFunctionOfAnotherVersionIsNotTakenForTheKnownOne) {
  const std::string f = folder("hellaswag_other") + "/hellaswag";
  make_folders(f);
  put(f + "/utils.py", "def process_docs(d): return d\n");
  OrderedJson c = base();
  c["process_docs"] = {{"!function", "utils.process_docs"}, {"folder", f}};
  EXPECT_EQ(problem(c).second, 3);
  EXPECT_NE(problem(c).first.find("not the version"), std::string::npos);
}

TEST(TaskErrors, YamlIsBounded) {
  const std::string f = folder("yaml");
  put(f + "/a.yaml", "include: b.yaml\ntask: a\n");
  put(f + "/b.yaml", "include: a.yaml\n");
  EXPECT_THROW(load_task_yaml(f + "/a.yaml"), Error);
  put(f + "/bomb.yaml",
      "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: "
      "&d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n");
  EXPECT_THROW(load_task_yaml(f + "/bomb.yaml"), Error);
  put(f + "/list.yaml", "- 1\n");
  EXPECT_THROW(load_task_yaml(f + "/list.yaml"), Error);
  put(f + "/types.yaml",
      "a: yes\nb: 'yes'\nc: 010\nd: 1_000\ne: 1e5\nf: 1.5e+3\ng: ~\nh: 0x1f\ni: .5\nj: .\nk: -.5\nl: -1.5\n");
  const OrderedJson t = load_task_yaml(f + "/types.yaml");
  EXPECT_EQ(
      t.dump(),
      R"({"a":true,"b":"yes","c":8,"d":1000,"e":"1e5","f":1500.0,"g":null,"h":31,"i":0.5,"j":".","k":"-.5","l":-1.5})");
}

TEST(TaskErrors, AnUnknownNameHasANeighbour) {
  try {
    TaskIndex({}).select({"gsm8"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("gsm8k"), std::string::npos);
  }
}

TEST(TaskErrors, DataIsFoundByCardByFolderAndByFile) {
  const std::string f = folder("data");
  make_folders(f + "/owner/set/sub");
  put(f + "/owner/set/sub/test.csv", "question,n\nq1,1\n\"a,b\",2\n");
  OrderedJson c = base();
  c["dataset_path"] = "owner/set";
  c["dataset_name"] = "sub";
  c["doc_to_text"] = "{{question}} {{n + 1}}";
  Task t(c, {f});
  EXPECT_EQ(t.requests(0, {})[2].context, "a,b 3");
  make_folders(f + "/owner/one");
  put(f + "/owner/one/everything.jsonl", "{\"question\":\"x\"}\n");
  c = base();
  c["dataset_path"] = "owner/one";
  EXPECT_EQ(Task(c, {f}).docs().size(), 1u);
}

}  // namespace
}  // namespace mxt::eval
