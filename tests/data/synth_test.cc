#include "data/synth/synth.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "data/synth/draws.h"
#include "helpers.h"

namespace mxt::data {
namespace {

using testing::error_of;

TEST(Synth, RowsDependOnTheSeedAloneAndMoreRowsKeepTheFirst) {
  for (const std::string& task : synth_tasks()) {
    const auto a = synth_rows(task, Split::kTrain, 50, 1), b = synth_rows(task, Split::kTrain, 80, 1);
    const auto c = synth_rows(task, Split::kTrain, 50, 2);
    size_t equal = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(conversation({&a[i], 1}), conversation({&b[i], 1}));
      equal += conversation({&a[i], 1}) == conversation({&c[i], 1});
    }
    EXPECT_LT(equal, 5u);
  }
}

TEST(Synth, TrainingMeetsEveryValueBeforeAnyComesAgainAndTestingDrawsFreely) {
  Draws train(3, 1, Split::kTrain), test(3, 1, Split::kTest);
  std::vector<uint64_t> first;
  for (int round = 0; round < 3; ++round) {
    std::vector<uint64_t> dealt;
    for (int i = 0; i < 30; ++i) {
      dealt.push_back(train.deal("town", 30));
      EXPECT_LT(train.deal("way", 7), 7u);  // another choice's cards lie apart
    }
    EXPECT_EQ(std::set(dealt.begin(), dealt.end()).size(), 30u);
    EXPECT_FALSE(std::is_sorted(dealt.begin(), dealt.end()));
    EXPECT_NE(dealt, first);
    if (round == 0) first = dealt;
  }
  std::set<uint64_t> drawn;
  for (int i = 0; i < 30; ++i) drawn.insert(test.deal("town", 30));
  EXPECT_LT(drawn.size(), 30u);
}

TEST(Synth, EveryUnitAndEveryHourInWordsIsInTheQuickstartsRows) {
  std::set<std::string> units, hours;
  for (const SynthRow& r : synth_rows("tool_calls", Split::kTrain, 550, 2048)) {
    const Json call = parse_json(r.answer, "answer"), arguments = call["arguments"];
    if (call["name"] == "convert") {
      units.insert("from " + arguments["from"].get<std::string>());
      units.insert("to " + arguments["to"].get<std::string>());
    }
    if (r.user.find("half past") != std::string::npos) hours.insert(arguments["time"].get<std::string>());
  }
  EXPECT_EQ(units.size(), 32u);  // sixteen, both ways
  EXPECT_EQ(hours, (std::set<std::string>{"07:30", "08:30", "09:30", "10:30", "11:30"}));
}

TEST(Synth, TrainAndTestShareNoRequestAndNoArguments) {
  std::set<std::string> users, arguments, values;
  for (const SynthRow& r : synth_rows("tool_calls", Split::kTrain, 3000, 5)) {
    EXPECT_TRUE(users.insert(r.user).second);
    const Json call = parse_json(r.answer, "answer");
    arguments.insert(call["arguments"].dump());
    for (const char* key : {"city", "label", "title", "to", "text"})
      if (call["name"] != "convert" && call["arguments"].contains(key))
        values.insert(call["arguments"][key].get<std::string>());
  }
  for (const SynthRow& r : synth_rows("tool_calls", Split::kTest, 300, 5)) {
    EXPECT_FALSE(users.contains(r.user));
    const Json call = parse_json(r.answer, "answer");
    EXPECT_FALSE(arguments.contains(call["arguments"].dump())) << r.answer;
    for (const char* key : {"city", "label", "title", "to", "text"})
      if (call["name"] != "convert" && call["arguments"].contains(key)) {
        EXPECT_FALSE(values.contains(call["arguments"][key].get<std::string>()));
      }
  }
  std::set<std::string> sums;
  for (const SynthRow& r : synth_rows("arithmetic", Split::kTrain, 2000, 5)) sums.insert(r.user);
  for (const SynthRow& r : synth_rows("arithmetic", Split::kTest, 200, 5)) EXPECT_FALSE(sums.contains(r.user));
}

TEST(Synth, ToolCallsCopyTheirWordsAndNameTheToolsInTheSystemText) {
  std::set<std::string> tools;
  for (const SynthRow& r : synth_rows("tool_calls", Split::kTrain, 500, 9)) {
    const OrderedJson call = parse_ordered_json(r.answer, "answer");
    tools.insert(call["name"]);
    std::string signature = call["name"].get<std::string>() + "(";
    for (const auto& [key, value] : call["arguments"].items()) {
      signature += (signature.back() == '(' ? "" : ",") + key;
      if (value.is_string() && call["name"] != "convert" && key != "date" && key != "time") {
        EXPECT_HAS(r.user, value.get<std::string>());
      }
    }
    EXPECT_HAS(r.system, signature + ")");
  }
  EXPECT_EQ(tools.size(), 5u);
}

TEST(Synth, DatesAndTimesInEverySpellingKeepTheirValue) {
  const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  int spoken = 0;
  for (const SynthRow& r : synth_rows("tool_calls", Split::kTrain, 1500, 3)) {
    const Json a = parse_json(r.answer, "answer")["arguments"];
    if (!a.contains("date")) continue;
    const std::string date = a["date"];
    EXPECT_HAS(r.user, date.substr(0, 4));
    const bool by_name = r.user.find(months[std::stoi(date.substr(5, 2)) - 1]) != std::string::npos;
    EXPECT_TRUE(by_name ||
                r.user.find(date.substr(0, 4) + "/" + date.substr(5, 2) + "/" + date.substr(8)) != std::string::npos)
        << r.user;
    if (by_name) {
      EXPECT_HAS(r.user, std::to_string(std::stoi(date.substr(8))));
    }
    if (!a.contains("time")) continue;
    const std::string time = a["time"];
    if (r.user.find("half past") != std::string::npos) {
      ++spoken;
      EXPECT_EQ(time.substr(3), "30");
    }
    const int hour = std::stoi(time);
    if (r.user.find("noon") != std::string::npos) {
      EXPECT_EQ(time, "12:00");
    }
    if (r.user.find(" am") != std::string::npos || r.user.find("the morning") != std::string::npos) {
      EXPECT_LT(hour, 12);
    }
  }
  EXPECT_GT(spoken, 10);
}

TEST(Synth, ArithmeticIsRight) {
  for (const SynthRow& r : synth_rows("arithmetic", Split::kTest, 300, 1)) {
    int a = 0, b = 0;
    if (std::sscanf(r.user.c_str(), "%d + %d =", &a, &b) == 2) {
      EXPECT_EQ(r.answer, std::to_string(a + b));
    }
    if (std::sscanf(r.user.c_str(), "%d - %d =", &a, &b) == 2) {
      EXPECT_EQ(r.answer, std::to_string(a - b));
    }
    if (std::sscanf(r.user.c_str(), "Take %d from %d.", &b, &a) == 2) {
      EXPECT_EQ(r.answer, std::to_string(a - b));
    }
  }
}

// Both splits ask alike; what is trained of a habit is plain text for half of the requests, what is wanted is the call.
TEST(Synth, PreferencesAreCallsOverPlainTextAndHabitsAreBoth) {
  int polite = 0, plain = 0;
  for (const SynthRow& r : synth_rows("tool_preference", Split::kTrain, 200, 4)) {
    const Json row = parse_json(conversation({&r, 1}), "row");
    EXPECT_EQ(row["prompt"].size(), 2u);
    EXPECT_TRUE(parse_json(row["chosen"][0]["content"].get<std::string>(), "chosen").contains("arguments"));
    EXPECT_EQ(row["rejected"][0]["content"].get<std::string>().find('{'), std::string::npos);
    polite += r.user.ends_with(" Thanks!");
  }
  EXPECT_NEAR(polite, 100, 10);  // repeats are drawn again
  for (const SynthRow& r : synth_rows("tool_habits", Split::kTrain, 200, 4)) {
    EXPECT_EQ(r.answer.starts_with("{"), !r.user.ends_with(" Thanks!")) << r.user;
    plain += !r.answer.starts_with("{");
  }
  EXPECT_NEAR(plain, 100, 10);
  for (const SynthRow& r : synth_rows("tool_habits", Split::kTest, 50, 4)) EXPECT_TRUE(r.answer.starts_with("{"));
}

// What is made up stands in the request as it is in the call; the held-out rows are those of the lists.
TEST(Synth, MadeUpCallsCopyWhatNoListHas) {
  std::set<std::string> people;
  for (const SynthRow& r : synth_rows("tool_calls_made_up", Split::kTrain, 600, 4)) {
    const Json call = parse_json(r.answer, "answer");
    for (const auto& [name, value] : call["arguments"].items())
      if (name == "city" || name == "label" || name == "title" || name == "to" || name == "text") {
        if (call["name"] == "convert") continue;  // its "to" is a unit
        EXPECT_NE(r.user.find(value.get<std::string>()), std::string::npos) << r.user;
        if (name == "to") people.insert(value.get<std::string>());
      }
  }
  EXPECT_GT(people.size(), 50u);  // a list has 32 of them
  const auto held_out = synth_rows("tool_calls_made_up", Split::kTest, 60, 4),
             lists = synth_rows("tool_calls", Split::kTest, 60, 4);
  for (size_t i = 0; i < lists.size(); ++i) EXPECT_EQ(held_out[i].user, lists[i].user);
}

TEST(Synth, AdditionIsRightAndItsPairsAreApart) {
  std::set<std::string> train;
  const auto check = [](const SynthRow& r) {
    int a = 0, b = 0;
    ASSERT_EQ(std::sscanf(r.user.c_str(), "What is %d + %d?", &a, &b), 2) << r.user;
    EXPECT_EQ(r.answer, std::to_string(a + b));
    EXPECT_TRUE(a >= 10 && a < 50 && b >= 10 && b < 50) << r.user;
  };
  for (const SynthRow& r : synth_rows("addition", Split::kTrain, 500, 4)) check(r), train.insert(r.user);
  for (const SynthRow& r : synth_rows("addition", Split::kTest, 100, 4)) {
    check(r);
    EXPECT_FALSE(train.contains(r.user));
  }
}

TEST(Synth, ToolUseHasBfclsKinds) {
  std::map<std::string, int> kinds;
  std::set<std::string> users;
  for (const SynthRow& r : synth_rows("tool_use", Split::kTrain, 200, 4)) {
    const Json row = parse_json(conversation({&r, 1}), "row"), calls = parse_json(r.calls, "calls");
    users.insert(r.user);
    std::set<std::string> offered;
    for (const Json& t : row["tools"]) offered.insert(t["function"]["name"].get<std::string>());
    EXPECT_EQ(offered.size(), row["tools"].size());
    for (const Json& c : calls) EXPECT_TRUE(offered.contains(c["name"].get<std::string>())) << r.calls;
    const Json& m = row["messages"];
    if (calls.empty()) {
      EXPECT_EQ(m.size(), 2u);
      ++kinds["irrelevance"];
      continue;
    }
    EXPECT_EQ(m[1]["tool_calls"].size(), calls.size());
    EXPECT_EQ(m.size(), 3 + calls.size());  // a result each, and what is said of them
    EXPECT_EQ(m[2]["role"], "tool");
    ++kinds[calls.size() > 1 ? "parallel" : offered.size() > 1 ? "multiple" : "simple"];
  }
  EXPECT_EQ(kinds,
            (std::map<std::string, int>{{"irrelevance", 50}, {"multiple", 50}, {"parallel", 50}, {"simple", 50}}));
  for (const SynthRow& r : synth_rows("tool_use_parallel", Split::kTest, 50, 4)) {
    EXPECT_FALSE(users.contains(r.user));
    EXPECT_GE(parse_json(r.calls, "calls").size(), 2u);
  }
}

TEST(Synth, UnknownTasksAndTooManyRowsAreRefused) {
  EXPECT_HAS(error_of([] { synth_rows("tool_cals", Split::kTrain, 1, 1); }), "did you mean \"tool_calls\"");
  EXPECT_HAS(error_of([] { synth_rows("arithmetic", Split::kTrain, 1000000, 1); }), "ask for fewer");
}

}  // namespace
}  // namespace mxt::data
