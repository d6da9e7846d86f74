// Calls read from text and compared, the tools that answer them, and what of an answer with results is trained on.
#include "train/tools/tools.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "data/dataset.h"
#include "infer/calls.h"
#include "train/methods/method.h"
#include "train/rewards/rewards.h"

namespace mxt::train {
namespace {

using infer::calls_of;

OrderedJson parsed(const char* text) { return parse_ordered_json(text, "test"); }

bool right(const char* text, const char* wanted) {
  const auto got = calls_of(text);
  return got && infer::are_right(*got, infer::wanted_calls(parsed(wanted)));
}

template <typename F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Calls, AreReadInTagsAndBare) {
  const auto two = calls_of(
      "Two:\n<tool_call>\n{\"name\":\"a\",\"arguments\":{\"x\":1}}\n</tool_call>\n<tool_call>{\"name\":\"b\"}</"
      "tool_call>");
  ASSERT_TRUE(two && two->size() == 2);
  EXPECT_EQ((*two)[0].arguments, parsed(R"({"x":1})"));
  EXPECT_EQ((*two)[1].name, "b");
  EXPECT_EQ(calls_of(R"([{"name":"a","parameters":{}},{"name":"b","arguments":"{\"y\":2}"}])")->at(1).arguments["y"],
            2);
  EXPECT_EQ(calls_of("It is 21 degrees.")->size(), 0u);
  EXPECT_EQ(calls_of("[1, 2]")->size(), 0u);
  EXPECT_FALSE(calls_of("<tool_call>\n{\"name\": \"a\", \"argum"));  // begun, and none
}

TEST(Calls, AreComparedByStructure) {
  constexpr const char* kOne = R"([{"name":"timer","arguments":{"minutes":5,"label":"tea"}}])";
  EXPECT_TRUE(right(R"({"arguments":{"label":"tea","minutes":5.0},"name":"timer"})", kOne));
  EXPECT_FALSE(right(R"({"name":"timer","arguments":{"minutes":5}})", kOne));
  EXPECT_FALSE(right(R"({"name":"timer","arguments":{"minutes":5,"label":"tea","loud":true}})", kOne));
  EXPECT_FALSE(right("I will.", kOne));
  EXPECT_TRUE(right("None of my tools can do that.", "[]"));
  EXPECT_FALSE(right("<tool_call>{\"na", "[]"));
  constexpr const char* kOther =
      R"([{"name":"timer","arguments":{"minutes":5,"label":"tea"},"accept":{"label":["Tea"]},"optional":["minutes"]}])";
  EXPECT_TRUE(right(R"({"name":"timer","arguments":{"label":"Tea"}})", kOther));
  EXPECT_FALSE(right(R"({"name":"timer","arguments":{"label":"coffee"}})", kOther));
  EXPECT_FALSE(right(R"({"name":"timer","arguments":{"label":"Tea","minutes":6}})", kOther));
  // The first call is right for both that are wanted, the second for one of them alone.
  constexpr const char* kTwo =
      R"([{"name":"f","arguments":{"x":1},"accept":{"x":[2]}},{"name":"f","arguments":{"x":1}}])";
  EXPECT_TRUE(right(R"([{"name":"f","arguments":{"x":1}},{"name":"f","arguments":{"x":2}}])", kTwo));
  EXPECT_FALSE(right(R"([{"name":"f","arguments":{"x":2}},{"name":"f","arguments":{"x":2}}])", kTwo));
  EXPECT_FALSE(right(R"({"name":"f","arguments":{"x":1}})", kTwo));
  EXPECT_NE(error_of([] { infer::wanted_calls(parsed(R"([{"arguments":{}}])")); }).find("a call is"),
            std::string::npos);
  EXPECT_NE(error_of([] { infer::wanted_calls(parsed(R"([{"name":"f","accept":{"x":1}}])")); }).find("object of lists"),
            std::string::npos);
}

// To nlohmann these integers are doubles: all of them would be equal.
TEST(Calls, AreComparedDigitByDigit) {
  constexpr const char* kWei = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
  constexpr const char* kLess = "115792089237316195423570985008687907853269984665640564039457584007913129639934";
  const auto call = [](std::string_view value) {
    return fmt::format(R"({{"name":"f","arguments":{{"x":{}}}}})", value);
  };
  const auto as_text = [](std::string_view v) {
    return fmt::format(R"({{"name":"f","arguments":"{{\"x\":{}}}"}})", v);
  };
  for (const auto& [one, other, equal] : std::initializer_list<std::tuple<std::string, std::string, bool>>{
           {kWei, kWei, true},
           {kWei, kLess, false},
           {"18446744073709551616", "18446744073709551617", false},
           {"-1", "18446744073709551615", false},
           {"9007199254740993", "9007199254740992.0", false},
           {"9007199254740992", "9007199254740992.0", true},
           {"100000000000000000000", "1e20", true},
           {"[1,{\"a\":18446744073709551616,\"b\":0}]", "[1,{\"b\":0,\"a\":18446744073709551616}]", true},
           {"[18446744073709551616]", "[18446744073709551618]", false}}) {
    for (const std::string& got : {call(one), call(other)}) {
      const std::string& wanted = got == call(one) ? other : one;
      EXPECT_EQ(right(got.c_str(), ("[" + call(wanted) + "]").c_str()), equal) << got << " for " << wanted;
      EXPECT_EQ(tool_call_reward(got, call(wanted)), equal ? 1 : 0.5) << got << " for " << wanted;
    }
    if (one.find('"') != std::string::npos) continue;
    EXPECT_EQ(right(as_text(one).c_str(), ("[" + call(other) + "]").c_str()), equal) << one << " for " << other;
    EXPECT_EQ(right(call(one).c_str(), ("[" + as_text(other) + "]").c_str()), equal) << one << " for " << other;
  }
  EXPECT_TRUE(
      right(call(kWei).c_str(),
            ("[{\"name\":\"f\",\"arguments\":{\"x\":1},\"accept\":{\"x\":[" + std::string(kWei) + "]}}]").c_str()));
}

TEST(RolloutTools, AnswerCallsOrSayWhyNot) {
  const std::string table = testing::TempDir() + "/tools_table.json",
                    program = testing::TempDir() + "/tools_program.py";
  write_file_atomic(table, R"({"capital of Peru": "Lima", "height": 12})");
  write_file_atomic(program, "print(1)");
  config::Method m = config::default_method(config::MethodKind::kGrpo);
  config::RolloutTool calculator, lookup, command;
  lookup.kind = config::RolloutToolKind::kLookup, lookup.table = table, lookup.name = "facts";
  command.kind = config::RolloutToolKind::kCommand, command.command = {program, "-v"};
  ToolServices services;
  std::string told;
  services.run = [&](const std::string& source, const std::vector<std::string>& argv, const std::string& input,
                     double) -> std::optional<std::string> {
    told = source + "|" + argv.back() + "|" + input;
    return input.find("bad") == std::string::npos ? std::optional<std::string>(" said\n") : std::nullopt;
  };
  m.tools = {calculator, lookup, command};
  EXPECT_NE(error_of([&] { Tools(m, services); }).find("no chat template"), std::string::npos);
  services.turn = [](std::span<const infer::Call>, std::span<const std::string>) { return std::vector<int32_t>{7, 8}; };
  const Tools tools(m, services);
  const auto say = [&](const char* name, const char* arguments) { return tools.answer({name, parsed(arguments)}); };
  EXPECT_EQ(say("calculator", R"({"expression":"12*7"})").text, "84");
  EXPECT_EQ(say("calculator", R"({"expression":"1/0"})").text, R"({"error":"1/0 has no value"})");
  EXPECT_TRUE(say("calculator", "{}").failed);
  EXPECT_EQ(say("facts", R"({"key":"capital of Peru"})").text, "Lima");
  EXPECT_EQ(say("facts", R"({"key":"height"})").text, "12");
  EXPECT_TRUE(say("facts", R"({"key":"none"})").failed);
  EXPECT_EQ(say("command", R"({"a":1})").text, "said");
  EXPECT_EQ(told, "print(1)|-v|{\"name\":\"command\",\"arguments\":{\"a\":1}}\n");
  EXPECT_TRUE(say("command", R"({"a":"bad"})").failed);
  EXPECT_EQ(say("nobody", "{}").text, R"({"error":"there is no tool nobody"})");
  // What stands in an answer's turns is what the policy read.
  services.cut = [](const std::string& result) { return result.substr(0, 2); };
  EXPECT_EQ(Tools(m, services).answer({"facts", parsed(R"({"key":"capital of Peru"})")}).text, "Li");
  m.tools[1].table = table + ".none";
  EXPECT_NE(error_of([&] { Tools(m, services); }).find("tools_table.json.none"), std::string::npos);
}

// 0 … 9 are letters of the answer, 1 ends a turn; what a tool says is [7, 8].
TEST(RolloutTools, AnswersGoOnAfterCallsUntilALimit) {
  config::Method m = config::default_method(config::MethodKind::kGrpo);
  m.tools = {config::RolloutTool{}};
  m.max_tool_turns = 2;
  ToolServices services;
  services.turn = [](std::span<const infer::Call> calls, std::span<const std::string> results) {
    EXPECT_EQ(calls.size(), 1u);
    EXPECT_EQ(results[0], "4");
    return std::vector<int32_t>{7, 8};
  };
  const Tools tools(m, services);
  const AnswerTurns::Decode decode = [](std::span<const int32_t> ids) {
    return ids[0] == 5 ? R"(<tool_call>{"name":"calculator","arguments":{"expression":"2+2"}}</tool_call>)" : "done";
  };
  const std::vector<int32_t> ends{1};
  const auto sample = [&](std::vector<int32_t> policy, int64_t room, Completion& c) {
    AnswerTurns turns(tools, decode, ends, room, c);
    for (const int32_t id : policy) {
      if (!turns.told(id, -0.5f)) break;
      for (const int32_t said : turns.after(id)) turns.told(said, 0);
    }
    turns.finish();
  };
  Completion once;
  sample({5, 1, 6, 1, 9}, 100, once);
  EXPECT_EQ(once.ids, (std::vector<int32_t>{5, 1, 7, 8, 6, 1}));
  EXPECT_EQ(once.own, (std::vector<uint8_t>{1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(once.sampled_logp.size(), 4u);
  ASSERT_EQ(once.turns.size(), 3u);
  EXPECT_EQ(once.turns[1].role, "tool");
  EXPECT_EQ(once.turns[2].text, "done");
  EXPECT_EQ(once.calls, 1);
  Completion again;  // a third turn that calls ends it
  sample({5, 1, 5, 1, 5, 1, 6, 1}, 100, again);
  EXPECT_EQ(again.calls, 2);
  EXPECT_EQ(again.ids.size(), 10u);
  EXPECT_EQ(again.ids.back(), 1);
  Completion tight;  // no room for another turn
  sample({5, 1, 6, 1}, 4, tight);
  EXPECT_EQ(tight.ids, (std::vector<int32_t>{5, 1}));
  EXPECT_EQ(tight.calls, 0);
  Completion cut;  // a turn that does not end is a turn
  sample({6, 6}, 2, cut);
  EXPECT_EQ(cut.turns.at(0).text, "done");
}

TEST(Rollouts, WhatAToolSaidIsNoTarget) {
  const std::string path = testing::TempDir() + "/masked.jsonl";
  const auto read = [&](const std::string& completion) {
    write_file_atomic(path, R"({"prompt_ids":[3],"completions":[)" + completion +
                                R"(,{"ids":[4],"reward":0,"old_logprobs":[-3]}]})" + "\n");
    return read_rollouts(path, path, {2, 10, 8, 0});
  };
  const auto all = read(R"({"ids":[5,6,7,8],"reward":1,"old_logprobs":[-1,-9,-9,-2],"mask":[1,0,0,1]})");
  const Completion& c = all[0].completions[0];
  EXPECT_EQ(c.trained(), 2);
  EXPECT_EQ(c.old_logp, (std::vector<float>{-1, -2}));
  const LabelledAnswer l = labelled(all[0].prompt, c);
  EXPECT_EQ(l.ids, (std::vector<int32_t>{3, 5, 6, 7, 8}));
  EXPECT_EQ(l.labels, (std::vector<int32_t>{data::kNoTarget, 5, data::kNoTarget, data::kNoTarget, 8}));
  Rollout with = all[0];
  with.completions[0].turns = {{"assistant", "a"}, {"tool", "b"}};
  const Rollout again = rollout_from_json(to_json(with));
  EXPECT_EQ(again.completions[0].own, c.own);
  EXPECT_EQ(again.completions[0].old_logp, c.old_logp);
  EXPECT_EQ(again.completions[0].turns.at(1).text, "b");
  EXPECT_NE(error_of([&] { read(R"({"ids":[5,6],"reward":1,"mask":[1]})"); }).find("0 or 1 for each of the 2 ids"),
            std::string::npos);
  EXPECT_NE(error_of([&] { read(R"({"ids":[5,6],"reward":1,"mask":[1,2]})"); }).find("\"mask\" holds 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] { read(R"({"ids":[5,6],"reward":1,"mask":[0,1]})"); }).find("belongs to prompt_ids"),
            std::string::npos);
  EXPECT_NE(error_of([&] { read(R"({"ids":[5,6],"reward":1,"mask":[0,0]})"); }).find("leaves no token to train on"),
            std::string::npos);
}

// As TRL counts them: by the last token, whoever said it.
TEST(Rollouts, AnAnswerWithAnEndTokenIsNotCut) {
  const auto method = make_method(config::default_method(config::MethodKind::kGrpo));
  const std::vector<int32_t> ends{1};
  method->set_ends(ends);
  std::vector<Rollout> all(1);
  all[0].completions.resize(2);
  all[0].completions[0].ids = {5, 1}, all[0].completions[0].own = {1, 0}, all[0].completions[0].reward = 1;
  all[0].completions[1].ids = {5, 7}, all[0].completions[1].reward = 0;
  method->take_rollouts(all, true);
  StepRows step;
  step.rows.resize(2);
  method->begin(step, {}, {});
  EXPECT_EQ(method->metrics().at("completions/clipped_ratio"), 0.5);
  // A step whose answers nothing could judge has no reward, not one of 0.
  EXPECT_TRUE(method->metrics().contains("reward"));
  for (Completion& c : all[0].completions) c.reward.reset();
  method->take_rollouts(all, true);
  method->begin(step, {}, {});
  EXPECT_FALSE(method->metrics().contains("reward"));
}

TEST(Rewards, ReadTheTurnsOfAnAnswer) {
  config::Method m = config::default_method(config::MethodKind::kGrpo);
  config::RewardPart calls, last;
  calls.kind = config::RewardKind::kToolCall, last.kind = config::RewardKind::kAnswer;
  m.rewards = {calls, last};
  Answer a{"p", "It is 84.", R"({"name":"calculator","arguments":{"expression":"7*12"}})", 3, {}};
  a.turns = {{"assistant", "<tool_call>" + a.reference + "</tool_call>"}, {"tool", "84"}, {"assistant", a.text}};
  Completion c;
  Completion* to = &c;
  Rewards(m, {}).score({&a, 1}, {&to, 1}, nullptr);
  EXPECT_EQ(c.rewards["tool_call"], 1);
}

}  // namespace
}  // namespace mxt::train
