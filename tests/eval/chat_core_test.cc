// ChatCORE: what is asked, what counts as right, and what is centred, as nanochat's chat_eval.py has it.
#include "eval/core/chat_core.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace mxt::eval {
namespace {

class ChatCore : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "chat_core_" + std::to_string(getpid());
    fs::remove_all(folder_);
    put("ai2_arc/ARC-Easy/test.jsonl",
        R"({"id":"1","question":"Which is wet?","choices":{"text":["sand","water"],"label":["1","2"]},"answerKey":"2"})");
    put("ai2_arc/ARC-Challenge/test.jsonl",
        R"({"question":"Hot?","choices":{"text":["ice","fire"],"label":["A","B"]},"answerKey":"B"}
{"question":"Cold?","choices":{"text":["ice","fire"],"label":["A","B"]},"answerKey":"A"})");
    put("mmlu/test.jsonl", R"({"question":"1+1?","subject":"math","choices":["1","2","3","4"],"answer":1})");
    put("gsm8k/test.jsonl", R"({"question":"How many?","answer":"<<2*600=1200>>1200\n#### 1,200"}
{"question":"And now?","answer":"#### -3"})");
    put("humaneval/HumanEval.jsonl",
        R"({"task_id":"0","prompt":"import math\n# x\nfrom os import path\n\ndef f(x):\n    import re\n","canonical_solution":"","test":"def check(c):\n    assert c(1) == 2","entry_point":"f"})");
  }
  void TearDown() override { fs::remove_all(folder_); }
  void put(const std::string& name, const std::string& text) {
    make_folders(fs::path(folder_ + "/" + name).parent_path().string());
    write_file_atomic(folder_ + "/" + name, text + "\n");
  }
  std::string error(const std::vector<std::string>& names = {}, Exit code = Exit::kBadInput) {
    try {
      read_chat_tasks(folder_, names, 0);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      return e.what();
    }
    return "";
  }
  std::string folder_;
};

TEST_F(ChatCore, AsksAndJudgesAsNanochatDoes) {
  const auto tasks = read_chat_tasks(folder_, {}, 0);
  ASSERT_EQ(tasks.size(), 5u);
  std::vector<std::string> programs;
  ChatModel m;
  std::string asked_last;
  m.prompt = [&](const std::string& asked) {
    asked_last = asked;
    return std::vector<int32_t>{7, static_cast<int32_t>(asked.size())};
  };
  m.encode = [](const std::string& letter) { return std::vector<int32_t>{letter[0]}; };
  // Always the letter B or 2; of equals the first.
  m.score = [](const std::vector<infer::Continuation>& rows, std::vector<infer::ContinuationScore>* out) {
    for (const auto& r : rows) {
      EXPECT_EQ(r.scored, 1);
      out->push_back({r.ids.back() == 'B' || r.ids.back() == '2' ? -1.0 : -2.0, true});
    }
    return true;
  };
  m.answer = [](const std::vector<std::string>& asked, std::vector<std::string>* answers) {
    for (const std::string& a : asked)
      answers->push_back(a == "How many?"  ? "So <<2*600=1200.0>>1200 #### 1200 and #### 7"
                         : a == "And now?" ? "#### 3"
                                           : "Sure:\n```python\ndef f(x):\n    return x + 1\n```\nand\n```\nno\n```");
    return true;
  };
  m.run_programs = [&](const std::vector<std::string>& p) {
    programs = p;
    return std::vector<bool>(p.size(), true);
  };
  const Evaluation e = evaluate_chat_core(tasks, m);
  EXPECT_EQ(asked_last,
            "Multiple Choice question: 1+1?\n- 1=A\n- 2=B\n- 3=C\n- 4=D\n\nRespond only with the letter of "
            "the correct answer.");
  const OrderedJson want = {
      {"ARC-Easy", 1.0}, {"ARC-Challenge", 0.5}, {"MMLU", 1.0}, {"GSM8K", 0.5}, {"HumanEval", 1.0}};
  EXPECT_EQ(e.results["chat_results"], want);
  EXPECT_NEAR(e.results["chatcore_metric"].get<double>(), (1 + 0.25 / 0.75 + 1 + 0.5 + 1) / 5, 1e-12);
  EXPECT_EQ(programs, std::vector<std::string>{"import math\nfrom os import path\n\ndef f(x):\n    return x + 1\n\n"
                                               "def check(c):\n    assert c(1) == 2\ncheck(f)"});
  EXPECT_NE(chat_core_table(e.results).find("ChatCORE"), std::string::npos);
  m.answer = [](const std::vector<std::string>&, std::vector<std::string>*) { return false; };
  EXPECT_FALSE(evaluate_chat_core(tasks, m).finished);
  m.encode = [](const std::string&) { return std::vector<int32_t>{1, 2}; };
  EXPECT_THROW(evaluate_chat_core(tasks, m), Error);
}

TEST_F(ChatCore, SomeOfTheTasksHaveNoMean) {
  const auto tasks = read_chat_tasks(folder_, {"GSM8K"}, 1);
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].items.size(), 1u);
  EXPECT_EQ(tasks[0].items[0].gold, "1200");
  EXPECT_NE(error({"GSM9K"}).find("no task GSM9K"), std::string::npos);
}

TEST_F(ChatCore, WhatIsMissingOrMalformedIsNamed) {
  const auto names = [&](const char* file, const char* row, const char* what) {
    const std::string before = read_file(folder_ + "/" + file);
    put(file, row);
    EXPECT_NE(error().find(what), std::string::npos) << error();
    write_file_atomic(folder_ + "/" + file, before);
  };
  names("mmlu/test.jsonl", R"({"question":"q","choices":["a","b"],"answer":0})", "MMLU, item 1: \"choices\" are 2");
  names("mmlu/test.jsonl", R"({"question":"q","choices":["a","b","c","d"],"answer":4})",
        "\"answer\" is none of 0 to 3");
  names("mmlu/test.jsonl", R"({"choices":["a","b","c","d"],"answer":1})", "\"question\" is missing");
  names("ai2_arc/ARC-Easy/test.jsonl", R"({"question":"q","choices":{"text":["a"],"label":["A"]},"answerKey":"B"})",
        "ARC-Easy, item 1: \"answerKey\" B");
  names("ai2_arc/ARC-Easy/test.jsonl", R"({"question":"q","choices":{"text":["a","b"],"label":["A"]},"answerKey":"A"})",
        "2 texts and 1 labels");
  names("gsm8k/test.jsonl", R"({"question":"q","answer":"no number"})", "GSM8K, item 1");
  names("humaneval/HumanEval.jsonl", R"({"prompt":"p","test":"t"})", "\"entry_point\" is missing");
  fs::remove_all(folder_ + "/mmlu");
  EXPECT_NE(error({}, Exit::kMissing).find("MMLU"), std::string::npos);
}

}  // namespace
}  // namespace mxt::eval
