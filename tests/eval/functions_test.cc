#include "eval/task/functions.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace mxt::eval {
namespace {

const TaskFunction& function(const std::string& name) {
  return known_function({{"!function", name}, {"folder", ""}}, "test");
}

// What lm-evaluation-harness 0.4.13's own functions give.
TEST(TaskFunctions, OfCopaAndMnli) {
  const OrderedJson d = {{"premise", " The man drank é. "},
                         {"choice1", "Élan grew."},
                         {"choice2", "The sun rose."},
                         {"question", "cause"},
                         {"label", 1}};
  EXPECT_EQ(function("copa/utils.doc_to_text").of_doc(d), "The man drank é because");
  EXPECT_EQ(function("copa/utils.doc_to_choice").of_doc(d), OrderedJson::array({" élan grew.", " the sun rose."}));
  EXPECT_EQ(function("copa/utils.doc_to_target").of_doc(d), " the sun rose.");
  const auto& mnli = function("mnli/utils.doc_to_text");
  EXPECT_EQ(mnli.of_doc({{"premise", "A."}, {"hypothesis", " B "}}),
            "A.\nQuestion: B. True, False or Neither?\nAnswer:");
  EXPECT_EQ(mnli.of_doc({{"premise", "A."}, {"hypothesis", "B."}}),
            "A.\nQuestion: B. True, False or Neither?\nAnswer:");
}

TEST(TaskFunctions, OfMmluProAndTruthfulqa) {
  const OrderedJson q = {{"question", "Q?"},
                         {"options", {" x ", "y"}},
                         {"cot_content", "A: Let's think step by step. So (B)."},
                         {"category", "law"}};
  EXPECT_EQ(function("mmlu_pro/utils.doc_to_text").of_doc(q),
            "Question:\nQ?\nOptions:\nA. x\nB. y\nAnswer: Let's think step by step.");
  EXPECT_EQ(function("mmlu_pro/utils.fewshot_to_target").of_doc(q), "So (B).");
  Table t;
  t.rows = {q, q};
  t.rows[1]["category"] = "computer science";
  function("mmlu_pro/utils.process_computer_science").process_docs(t);
  ASSERT_EQ(t.rows.size(), 1u);
  EXPECT_EQ(t.rows[0]["category"], "computer science");

  const OrderedJson doc = {{"mc2_targets", {{"labels", {1, 0, 1}}}}};
  const DocMetrics m = function("truthfulqa/utils.process_results_mc2")
                           .results(doc, {OrderedJson::array({-1.0, false}), OrderedJson::array({-2.0, true}),
                                          OrderedJson::array({-3.0, false})});
  ASSERT_EQ(m.size(), 1u);
  EXPECT_EQ(m[0].first, "acc");
  EXPECT_NEAR(m[0].second.get<double>(), 0.7552715289452023, 1e-12);
}

TEST(TaskFunctions, OfToolCalls) {
  const auto score = [](const OrderedJson& calls, const char* answer) {
    const DocMetrics m =
        function("tool_calls/utils.process_results").results({{"calls", calls}}, {OrderedJson(answer)});
    return std::pair(m.at(0).second.get<int>(), m.at(1).second.get<int>());
  };
  constexpr const char* kCall = R"([{"name":"f","arguments":{"x":1}}])";
  EXPECT_EQ(score(kCall, R"(<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>)"), std::pair(1, 1));
  EXPECT_EQ(score(kCall, R"(<tool_call>{"name":"f","arguments":{"x":2}}</tool_call>)"), std::pair(0, 1));
  EXPECT_EQ(score(kCall, "No."), std::pair(0, 0));
  EXPECT_EQ(score("[]", "No."), std::pair(1, 1));
  EXPECT_EQ(score("[]", "<tool_call>{"), std::pair(0, 0));
  constexpr const char* kWei = R"([{"name":"f","arguments":{"wei":100000000000000000001}}])";
  constexpr const char* kOther = R"({"name":"f","arguments":{"wei":100000000000000000002}})";
  for (const OrderedJson& calls : {OrderedJson(kWei), parse_ordered_json(kWei, "test")}) {
    EXPECT_EQ(score(calls, kWei), std::pair(1, 1));
    EXPECT_EQ(score(calls, kOther), std::pair(0, 1));
  }
  EXPECT_THROW(function("tool_calls/utils.process_results").results({{"x", 1}}, {OrderedJson("")}), Error);
}

}  // namespace
}  // namespace mxt::eval
