// What answers are worth, and that a reward which fails, hangs or talks too much ends in a value or in a stop.
#include "train/rewards/rewards.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "train/rewards/json_schema.h"

namespace mxt::train {
namespace {

using config::RewardKind;
using config::RewardPart;

RewardPart part(RewardKind kind) {
  RewardPart p;
  p.kind = kind;
  return p;
}

std::vector<Completion> score(const std::vector<RewardPart>& parts, const std::vector<Answer>& answers,
                              StopFlag stop = nullptr) {
  config::Method m = config::default_method(config::MethodKind::kGrpo);
  m.rewards = parts;
  std::vector<Completion> out(answers.size());
  std::vector<Completion*> to;
  for (Completion& c : out) to.push_back(&c);
  RewardServices services;
  services.run_programs = [](const std::vector<std::string>& programs, double, StopFlag) {
    std::vector<bool> passed;
    for (const std::string& p : programs)
      passed.push_back(p.find("def f") == 0 && p.find("assert") != std::string::npos);
    return passed;
  };
  Rewards(m, services).score(answers, to, stop);
  return out;
}

std::string error_of(const std::vector<RewardPart>& parts, const std::vector<Answer>& answers) {
  try {
    score(parts, answers);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

double one(const RewardPart& p, const Answer& a) { return *score({p}, {a})[0].reward; }

TEST(Rewards, AreAddedUpByTheirWeightsAndKeptByName) {
  RewardPart form = part(RewardKind::kRegex), number = part(RewardKind::kAnswer);
  form.pattern = R"(^\d+$)";
  form.weight = 0.5;
  form.name = "form";
  const auto got = score({number, form}, {{"", "58", "58", 1}, {"", "It is 58", "58", 1}, {"", "57", "58", 1}});
  EXPECT_EQ(*got[0].reward, 1.5);
  EXPECT_EQ(*got[1].reward, 1);
  EXPECT_EQ(*got[2].reward, 0.5);
  EXPECT_EQ(got[2].rewards.at("form"), 1);
  EXPECT_EQ(got[2].rewards.at("answer"), 0);
}

TEST(Rewards, AnAnswerWithoutANumberCannotBeJudgedByIt) {
  const auto got = score({part(RewardKind::kAnswer)}, {{"", "58", "fifty-eight", 1}, {"", "58", "58", 1}});
  EXPECT_FALSE(got[0].reward);
  EXPECT_EQ(*got[1].reward, 1);
}

// Their squares would be infinite: every advantage 0 or no number.
TEST(Rewards, BeyondWhatAStepCanHoldAreRefused) {
  RewardPart huge = part(RewardKind::kCommand);
  huge.command = {"/bin/sh", "-c", "echo 1e200; echo -1e200"};
  const std::vector<Answer> answers{{"p", "a", "r", 1}, {"p", "b", "r", 1}};
  EXPECT_NE(error_of({huge}, answers).find("it says 1e+200: with its weight that is more than 1e+15"),
            std::string::npos);
  huge.error_value = -2;
  EXPECT_EQ(*score({huge}, answers)[1].reward, -2);
  huge.weight = 1e20;
  EXPECT_NE(error_of({huge}, answers).find("rewards come to -2e+20"), std::string::npos);
  const std::string path = testing::TempDir() + "/huge.jsonl";
  const auto refused = [&](const char* more) {
    write_file_atomic(path, std::string(R"({"prompt_ids":[3],"completions":[{"ids":[4],)") + more + "}]}\n");
    try {
      read_rollouts(path, path, {1, 10, 8, 0});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(refused(R"("reward":1e200)").find("more than 1e+15"), std::string::npos);
  EXPECT_NE(refused(R"("reward":1,"old_logprobs":[-1e300])").find("no float is as small"), std::string::npos);
  EXPECT_EQ(refused(R"("reward":-1e15,"old_logprobs":[-1e30])"), "");
}

// With the key of each, all of them at once; what a run makes of them says the same.
TEST(Rewards, ThatCannotBeUsedAreKnownBeforeARun) {
  const std::string schema = testing::TempDir() + "/schema.json";
  write_file_atomic(schema, R"({"type": "object", "propertys": {}})");
  const auto wrong = [&](const std::string& rewards, const std::string& more = "") {
    return wrong_rewards(
        config::parse_recipe("meta: {project: p, run_name: tiny}\nmodel: {name: org/base}\nhardware: {name: cpu}\n"
                             "data: {source: synth}\ntrain: {method: {kind: rloo, rewards: [" +
                                 rewards + "]" + more + "}}\n",
                             "r.yaml"),
        "/none:/bin");
  };
  const auto all = wrong(
      "{kind: regex, pattern: \"(\"}, {kind: http, url: \"ftp://x\"}, {kind: command, name: a, command: "
      "[no_such_program]}, {kind: command, name: b, command: [/none/x]}, {kind: command, name: c, "
      "command: [/tmp]}, {kind: json_schema, name: d, schema: /none.json}, {kind: json_schema, name: e, "
      "schema: " +
      schema + "}, {kind: http, name: f, url: \"http://me:s3cret@host/\"}");
  const char* begins[] = {"train.method.rewards[0].pattern: ",
                          "train.method.rewards[1].url: ",
                          "train.method.rewards[2].command: no_such_program cannot be started: no folder of PATH",
                          "train.method.rewards[3].command: /none/x cannot be started: No such file",
                          "train.method.rewards[4].command: /tmp cannot be started: Is a directory",
                          "train.method.rewards[5].schema: /none.json",
                          "train.method.rewards[6].schema: ",
                          "train.method.rewards[7].url: "};
  ASSERT_EQ(all.size(), std::size(begins));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(all[i].starts_with(begins[i])) << all[i];
  EXPECT_NE(all[6].find("#/propertys"), std::string::npos) << all[6];
  EXPECT_EQ(all[7].find("s3cret"), std::string::npos) << all[7];
  EXPECT_TRUE(wrong("{kind: command, command: [sh, -c, x]}, {kind: regex, pattern: \"[0-9]+\"}, {kind: code}").empty());
  const auto tools =
      wrong("{kind: answer}", ", tools: [{kind: calculator}, {kind: lookup, table: " + schema +
                                  "}, {kind: lookup, name: b, table: /none.json}, {kind: command, command: "
                                  "[/none.py]}]");
  ASSERT_EQ(tools.size(), 2u);
  EXPECT_TRUE(tools[0].starts_with("train.method.tools[2].table: /none.json")) << tools[0];
  EXPECT_TRUE(tools[1].starts_with("train.method.tools[3].command: /none.py")) << tools[1];
}

// One call, so that who runs them may do so side by side, and may end them.
TEST(Rewards, CodeIsRunAllAtOnceUntilAStop) {
  config::Method m = config::default_method(config::MethodKind::kGrpo);
  m.rewards = {part(RewardKind::kCode)};
  std::atomic<bool> stop = false;
  size_t ran = 0;
  RewardServices services;
  services.run_programs = [&](const std::vector<std::string>& programs, double, StopFlag flag) {
    ran += programs.size();
    check_stop(flag);
    return std::vector<bool>{false, true};
  };
  std::vector<Completion> completions(2);
  Completion* to[] = {&completions[0], &completions[1]};
  const std::vector<Answer> answers{{"p", "a", "r", 1}, {"p", "b", "r", 1}};
  Rewards(m, services).score(answers, to, &stop);
  EXPECT_EQ(ran, 2u);
  EXPECT_EQ(*completions[0].reward, 0);
  EXPECT_EQ(*completions[1].reward, 1);
  stop = true;
  EXPECT_THROW(Rewards(m, services).score(answers, to, &stop), Error);
}

TEST(Rewards, LengthFallsOffOutsideItsBounds) {
  RewardPart p = part(RewardKind::kLength);
  p.min_tokens = 4;
  p.max_tokens = 8;
  EXPECT_EQ(one(p, {"", "", "", 4}), 1);
  EXPECT_EQ(one(p, {"", "", "", 8}), 1);
  EXPECT_EQ(one(p, {"", "", "", 2}), 0.5);
  EXPECT_EQ(one(p, {"", "", "", 16}), 0.5);
}

TEST(Rewards, CallsAreComparedByStructure) {
  const std::string want = R"({"name":"timer","arguments":{"minutes":5,"label":"tea"}})";
  EXPECT_EQ(tool_call_reward(R"( {"arguments": {"label":"tea", "minutes":5}, "name":"timer"} )", want), 1);
  EXPECT_EQ(tool_call_reward("<tool_call>" + want + "</tool_call>", want), 1);
  EXPECT_EQ(tool_call_reward(R"({"name":"timer","arguments":{"minutes":6,"label":"tea"}})", want), 0.75);
  EXPECT_EQ(tool_call_reward(R"({"name":"timer","arguments":{"minutes":5,"label":"tea","loud":true}})", want),
            0.5 + 0.5 * 2 / 3);
  EXPECT_EQ(tool_call_reward(R"({"name":"alarm","arguments":{"minutes":5,"label":"tea"}})", want), 0);
  EXPECT_EQ(tool_call_reward("I will.", want), 0);
  EXPECT_EQ(tool_call_reward("I cannot.", "No tool does that."), 1);
  EXPECT_EQ(tool_call_reward(want, "No tool does that."), 0);
  const std::string two = "[" + want + R"(,{"name":"message","arguments":{}}])";
  EXPECT_EQ(tool_call_reward(R"([{"name":"message","arguments":{}},)" + want + "]", two), 1);
  EXPECT_EQ(tool_call_reward(want, two), 0.5);
}

TEST(Rewards, CodeIsTheLastFenceWithTheReferenceAsItsTests) {
  const RewardPart p = part(RewardKind::kCode);
  EXPECT_EQ(one(p, {"", "Here:\n```python\ndef f(): return 1\n```\nDone.", "assert f() == 1", 9}), 1);
  EXPECT_EQ(one(p, {"", "I cannot.", "assert f() == 1", 9}), 0);
}

bool allows(const char* schema, const char* value) {
  return JsonSchema(OrderedJson::parse(schema), "schema").allows(OrderedJson::parse(value));
}

TEST(JsonSchemas, SayWhatIsAllowed) {
  const char* person = R"({"type":"object","required":["name"],"additionalProperties":false,
    "properties":{"name":{"type":"string","minLength":1},"age":{"type":"integer","minimum":0},
    "tags":{"type":"array","items":{"enum":["a","b"]},"uniqueItems":true}}})";
  EXPECT_TRUE(allows(person, R"({"age":3,"name":"x","tags":["b","a"]})"));
  for (const char* bad : {R"({})", R"({"name":""})", R"({"name":"x","age":-1})", R"({"name":"x","age":1.5})",
                          R"({"name":"x","more":1})", R"({"name":"x","tags":["a","a"]})", R"([])"})
    EXPECT_FALSE(allows(person, bad)) << bad;
  EXPECT_TRUE(allows(R"({"type":"integer"})", "2.0"));
  EXPECT_FALSE(allows(R"({"oneOf":[{"type":"number"},{"minimum":3}]})", "5"));
  EXPECT_TRUE(allows(R"({"not":{"const":{"a":1,"b":2}}})", R"({"a":1})"));
  EXPECT_FALSE(allows(R"({"not":{"const":{"a":1,"b":2}}})", R"({"b":2,"a":1})"));
  EXPECT_TRUE(allows(R"({"multipleOf":0.1})", "0.3"));
  EXPECT_TRUE(
      allows(R"({"$defs":{"t":{"prefixItems":[{"type":"null"}],"items":{"$ref":"#/$defs/t"}}},"$ref":"#/$defs/t"})",
             "[null,[null]]"));
  EXPECT_FALSE(allows(R"({"patternProperties":{"^x":{"type":"null"}},"additionalProperties":false})", R"({"y":null})"));
  EXPECT_FALSE(allows(R"({"$ref":"#"})", "1"));  // without end: nothing
}

// To doubles these bounds are their neighbours too.
TEST(JsonSchemas, BoundsAreComparedDigitByDigit) {
  const auto holds = [](const std::string& schema, const std::string& value) {
    return JsonSchema(parse_ordered_json(schema, ""), "schema").allows(parse_ordered_json(value, ""));
  };
  const std::string large = "9007199254740993", less = "9007199254740992", more = "9007199254740994",
                    wei = "115792089237316195423570985008687907853269984665640564039457584007913129639935",
                    next = "115792089237316195423570985008687907853269984665640564039457584007913129639936";
  EXPECT_FALSE(holds("{\"minimum\":" + large + "}", less));
  EXPECT_TRUE(holds("{\"minimum\":" + large + "}", large));
  EXPECT_FALSE(holds("{\"maximum\":" + large + "}", more));
  EXPECT_FALSE(holds("{\"maximum\":-" + large + "}", "-" + less));
  EXPECT_TRUE(holds("{\"exclusiveMinimum\":" + less + "}", large));
  EXPECT_FALSE(holds("{\"exclusiveMaximum\":" + wei + "}", wei));
  EXPECT_TRUE(holds("{\"exclusiveMaximum\":" + next + "}", wei));
  EXPECT_FALSE(holds("{\"maximum\":18446744073709551615}", "18446744073709551616"));
  EXPECT_TRUE(holds("{\"minimum\":-1,\"maximum\":0.5}", "-0.0"));
  EXPECT_FALSE(holds("{\"minimum\":-0.5}", "-0.75"));
  EXPECT_TRUE(holds("{\"exclusiveMinimum\":0}", "0.5"));
  EXPECT_TRUE(holds("{\"maximum\":1e300}", wei));
  EXPECT_TRUE(holds("{\"multipleOf\":3}", large));
  EXPECT_FALSE(holds("{\"multipleOf\":2}", large));
  EXPECT_FALSE(holds("{\"multipleOf\":10}", wei));
  EXPECT_TRUE(holds("{\"multipleOf\":" + large + "}", large + "00"));
  EXPECT_TRUE(holds("{\"multipleOf\":7}", "0"));
  EXPECT_FALSE(holds("{\"multipleOf\":7}", "2.5"));
}

TEST(JsonSchemas, WhatIsNotLookedAtIsRefused) {
  for (const char* bad : {R"({"unevaluatedProperties":false})", R"({"type":"text"})", R"({"$ref":"#/nothing"})",
                          R"({"$ref":"http://x/y"})", R"({"pattern":"("})", R"({"minimum":"3"})", R"([1])"})
    EXPECT_THROW(JsonSchema(OrderedJson::parse(bad), "schema"), Error) << bad;
}

RewardPart command(const std::string& script) {
  RewardPart p = part(RewardKind::kCommand);
  p.command = {"/bin/sh", "-c", script};
  p.timeout_seconds = 20;
  return p;
}

TEST(Commands, GetALineForEachAnswerAndSayANumberForEach) {
  const auto got = score(
      {command("while read -r line; do case $line in *good*) echo 1.5;; *odd*) echo null;; *) echo 0;; esac; done")},
      {{"p", "good", "r", 1}, {"p", "bad", "r", 1}, {"p", "odd", "r", 1}});
  EXPECT_EQ(*got[0].reward, 1.5);
  EXPECT_EQ(*got[1].reward, 0);
  EXPECT_FALSE(got[2].reward);
  // More than a pipe holds, to a program that first reads all and to one that reads nothing.
  const std::vector<Answer> large(8, Answer{std::string(100000, 'x'), "a", "r", 1, {}});
  EXPECT_EQ(*score({command("cat > /dev/null; for i in 1 2 3 4 5 6 7 8; do echo $i; done")}, large)[7].reward, 8);
  EXPECT_EQ(*score({command("for i in 1 2 3 4 5 6 7 8; do echo $i; done")}, large)[7].reward, 8);
}

// Its errors stay out of the run's log, however many there are; the last line is in the message.
TEST(Commands, AreQuotedWhereTheyComplain) {
  const std::vector<Answer> answers{{"p", "a", "r", 1}};
  testing::internal::CaptureStderr();
  EXPECT_NE(error_of({command("echo first >&2; echo 'no judge today' >&2; exit 3")}, answers)
                .find("ended with exit code 3: no judge today"),
            std::string::npos);
  EXPECT_NE(error_of({command("echo 'rows are odd' >&2")}, answers).find("0 lines for 1 answers: rows are odd"),
            std::string::npos);
  EXPECT_EQ(*score({command("yes | head -c 1000000 >&2; echo 2")}, answers)[0].reward, 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Commands, MayLeaveAProgramRunningThatHoldsTheirOutput) {
  RewardPart p = command("setsid sleep 30 & echo 1");
  p.timeout_seconds = 60;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(*score({p}, {{"p", "a", "r", 1}})[0].reward, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(25));
}

bool ends_soon(pid_t pid) {
  for (int tries = 0; tries < 500; ++tries, ::usleep(10000))
    if (::kill(pid, 0) != 0) return true;
  return false;
}

// In sessions of their own, too; and where the run itself is killed.
TEST(Commands, EndWithAllThatTheyStarted) {
  const std::string file = testing::TempDir() + "/pid" + std::to_string(::getpid());
  const std::string stray = "setsid sh -c 'echo $$ > " + file + ".part; mv " + file + ".part " + file +
                            "; exec sleep 300' & while [ ! -e " + file + " ]; do sleep 0.01; done; ";
  const auto its_pid = [&] {
    const pid_t pid = std::stoi(read_file(file));
    fs::remove(file);
    return pid;
  };
  EXPECT_EQ(*score({command(stray + "echo 1")}, {{"p", "a", "r", 1}})[0].reward, 1);
  EXPECT_TRUE(ends_soon(its_pid()));
  RewardPart slow = command(stray + "sleep 300");
  slow.timeout_seconds = 1;
  EXPECT_NE(error_of({slow}, {{"p", "a", "r", 1}}).find("took more than 1 s"), std::string::npos);
  EXPECT_TRUE(ends_soon(its_pid()));
  slow.timeout_seconds = 60;
  const pid_t run = ::fork();
  if (run == 0) {
    score({slow}, {{"p", "a", "r", 1}});
    ::_exit(0);
  }
  for (int tries = 0; tries < 500 && !fs::exists(file); ++tries) ::usleep(10000);
  ::kill(run, SIGKILL);
  ::waitpid(run, nullptr, 0);
  EXPECT_TRUE(ends_soon(its_pid()));
}

// What counts is its end, not that of its output; whatever else it has started by then, and however much that writes.
TEST(Commands, AreHeardToTheirEnd) {
  for (const char* script :
       {"echo 1; exec >&-; yes | head -c 1000000 >&2", "yes >&2 & echo 1", "exec >&- 2>&-; exit 3"}) {
    RewardPart p = command(script);
    p.timeout_seconds = 20;
    p.error_value = 1;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(*score({p}, {{"p", "a", "r", 1}})[0].reward, 1) << script;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << script;
  }
}

TEST(Commands, ThatCloseTheirOutputAndHangAreStopped) {
  RewardPart p = command("echo 1; exec >&-; sleep 600");
  p.timeout_seconds = 60;
  std::atomic<bool> stop = false;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    stop = true;
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(score({p}, {{"p", "a", "r", 1}}, &stop), Error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(25));
  later.join();
}

TEST(Commands, ThatFailHangOrTalkTooMuchAreNamed) {
  const std::vector<Answer> answers{{"p", "a", "r", 1}};
  EXPECT_NE(error_of({command("echo 1; exit 1")}, answers).find("ended with exit code 1"), std::string::npos);
  EXPECT_NE(error_of({command("true")}, answers).find("wrote 0 lines for 1 answers"), std::string::npos);
  EXPECT_NE(error_of({command("echo nan")}, answers).find("a number or null is needed"), std::string::npos);
  EXPECT_NE(error_of({command("yes")}, answers).find("bytes"), std::string::npos);
  RewardPart slow = command("sleep 600 & wait");
  slow.timeout_seconds = 0.2;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(error_of({slow}, answers).find("took more than 0.2 s"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  slow.error_value = -1;
  EXPECT_EQ(*score({slow}, answers)[0].reward, -1);
  RewardPart none = part(RewardKind::kCommand);
  none.command = {"/no/such/program"};
  none.error_value = 0;  // for answers that it fails on: there is nothing to fail
  EXPECT_NE(error_of({none}, answers).find("cannot be started"), std::string::npos);
  RewardPart closed = part(RewardKind::kHttp);
  closed.url = "http://127.0.0.1:9/";
  closed.timeout_seconds = 2;
  EXPECT_NE(error_of({closed}, answers).find("http failed"), std::string::npos);
}

}  // namespace
}  // namespace mxt::train
