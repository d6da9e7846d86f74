#include <nlohmann/json.hpp>

#include "data/shape/example.h"
#include "data/shape/row_text.h"
#include "helpers.h"

namespace mxt::data {
namespace {

using testing::error_of;
using Map = std::map<std::string, std::string>;

Record row(const std::string& text) {
  Record r;
  r.text = text;
  r.path = std::make_shared<const std::string>("d.jsonl");
  r.line = 3;
  return r;
}

Record alone(const std::string& text) {
  Record r = row(text);
  r.alone = true;
  return r;
}

Record csv(std::vector<std::string> header, std::vector<std::string> cells) {
  Record r = row("");
  r.kind = FileKind::kCsv;
  r.header = std::make_shared<const std::vector<std::string>>(std::move(header));
  r.cells = std::move(cells);
  return r;
}

Example read(const Record& r, const Map& columns = {}) { return read_example(r, find_layout(r, columns)); }
std::string messages(const std::string& text) { return read(row(text)).messages->dump(); }

std::string notes(const Example& e) {
  std::string all;
  for (const RowNote& n : e.notes) all += n.text + "|";
  return all;
}

TEST(Shape, IsDetectedFromTheColumns) {
  const auto shape = [](const char* text) { return find_layout(row(text), {}).shape; };
  EXPECT_EQ(shape(R"({"text":""})"), Shape::kText);
  EXPECT_EQ(shape(R"({"instruction":"","input":"","output":"","text":""})"), Shape::kAlpaca);
  EXPECT_EQ(shape(R"({"question":"","answer":""})"), Shape::kQuestion);
  EXPECT_EQ(shape(R"({"prompt":"","completion":""})"), Shape::kCompletion);
  EXPECT_EQ(shape(R"({"prompt":"","answer":""})"), Shape::kReference);
  EXPECT_EQ(shape(R"({"prompt":"","chosen":"","rejected":""})"), Shape::kPreference);
  EXPECT_EQ(shape(R"({"messages":[],"text":""})"), Shape::kMessages);
  EXPECT_EQ(shape(R"({"conversations":[]})"), Shape::kShareGpt);
  EXPECT_EQ(shape(R"({"input_ids":[],"labels":[]})"), Shape::kTokens);
}

TEST(Shape, SaysWhatItFoundAndWhatItLeavesOut) {
  EXPECT_EQ(find_layout(row(R"({"id":1,"question":"","answer":""})"), {}).text(),
            "question/answer (question, answer); columns not used: id");
  EXPECT_EQ(find_layout(row(R"({"q":"","a":""})"), {{"q", "prompt"}, {"a", "completion"}}).text(),
            "prompt/completion (q as prompt, a as completion)");
}

TEST(Shape, UnknownColumnsAreListed) {
  const std::string e = error_of([] { find_layout(row(R"({"frage":"","antwort":""})"), {}); });
  EXPECT_HAS(e, "d.jsonl:3");
  EXPECT_HAS(e, "frage, antwort");
  EXPECT_HAS(e, "data.columns");
}

TEST(Shape, AnotherSeparatorIsNamedWhereAllCellsAreOne) {
  const auto refused = [](const char* header, FileKind kind) {
    Record r = csv({header}, {"x"});
    r.kind = kind;
    return error_of([&] { find_layout(r, {}); });
  };
  EXPECT_HAS(refused("question;answer", FileKind::kCsv), "separated by \";\"; separate them by commas");
  EXPECT_HAS(refused("question\tanswer", FileKind::kCsv), "separated by tabs");
  EXPECT_HAS(refused("question,answer", FileKind::kTsv), "separated by \",\"; separate them by tabs");
  EXPECT_HAS(refused("frage, lang", FileKind::kCsv), "data.columns");  // one quoted name
}

TEST(Shape, AWholeTableIsNoRow) {
  for (const char* table : {
           R"({"columns":["prompt","completion"],"index":[0],"data":[["a","b"]]})",
           R"({"prompt":{"0":"a","1":"c"},"completion":{"0":"b","1":"d"}})",
           R"({"0":{"prompt":"a","completion":"b"},"1":{"prompt":"c","completion":"d"}})",
           R"({"prompt":["a","c"],"completion":["b","d"]})",
           R"({"7":["a","b"]})",
       })
    EXPECT_HAS(error_of([&] { find_layout(alone(table), {}); }),
               "d.jsonl:3: is a whole table and not a row; write a row a line, with pandas: df.to_json(\"rows.jsonl\", "
               "orient=\"records\", lines=True)")
        << table;
  for (const char* one : {R"({"prompt":"a","completion":"b","0":{"x":1}})", R"({"text":"a","tags":["x"],"from":["y"]})",
                          R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})",
                          R"({"input_ids":[1,2],"labels":[1,2]})", R"({"text":"a","columns":["b"],"data":"c"})",
                          R"({"question":"a","answer":"b","columns":["c"],"data":[["d"]]})"})
    EXPECT_NO_THROW(find_layout(alone(one), {})) << one;
}

// With others behind it a row of lists is one that has lists where texts are needed.
TEST(Shape, ATableStandsAloneInItsFile) {
  const auto refused = [](const char* text) { return error_of([&] { read(row(text)); }); };
  EXPECT_HAS(refused(R"({"prompt":["hi"],"completion":["yo"]})"), "d.jsonl:3: prompt[0] must be an object");
  EXPECT_HAS(refused(R"({"messages":["a"],"answer":["b"]})"), "d.jsonl:3: messages[0]");
  EXPECT_HAS(refused(R"({"text":{"0":"a"}})"), "\"text\" is an object");
  EXPECT_HAS(refused(R"({"7":["a","b"]})"), "make no known row: 7");
}

TEST(Shape, APromptWithoutAnAnswerIsAskedForOne) {
  const auto said = [](const char* text) { return error_of([&] { find_layout(row(text), {}); }); };
  EXPECT_HAS(said(R"({"prompt":"a","level":4})"),
             "d.jsonl:3: \"prompt\" stands without an answer; columns here: prompt, level");
  EXPECT_HAS(said(R"({"prompt":"a","id":"longer"})"), "\"answer\" to measure samples against");
  EXPECT_HAS(said(R"({"prompt":"a","response":"b"})"), "as {prompt: prompt, response: completion}");
}

TEST(Shape, TurnsUnderAnotherNameAreAskedForAsMessages) {
  const auto said = [](const char* text) { return error_of([&] { find_layout(row(text), {}); }); };
  EXPECT_HAS(said(R"({"id":"x","dialogue":[{"role":"user","content":"a"}]})"), "as {dialogue: messages}");
  EXPECT_HAS(said(R"({"id":"x","tags":["a"]})"), "as {id: text}");
  EXPECT_HAS(said(R"({"turns":[],"body":"x"})"), "as {body: text}");
}

TEST(Shape, CallsThatAnswerAQuery) {
  const std::string tools = R"("tools":"[{\"name\":\"f\",\"parameters\":{}}]")";
  for (const char* answers :
       {R"("[{\"name\":\"f\",\"arguments\":{\"x\":5}}]")", R"([{"name":"f","arguments":{"x":5}}])"}) {
    const Record r = row(R"({"id":0,"query":"q","answers":)" + std::string(answers) + "," + tools + "}");
    EXPECT_EQ(find_layout(r, {}).text(), "query/answers/tools (query, answers, tools); columns not used: id");
    EXPECT_EQ(read(r).messages->dump(),
              R"([{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[{"type":"function",)"
              R"("function":{"name":"f","arguments":{"x":5}}}]}])");
    EXPECT_EQ((*read(r).tools)[0]["function"]["name"], "f");
    RowText text;
    read_row_text(r, find_layout(r, {}), &text);
    EXPECT_HAS(text.text, "\"x\":5");
  }
  const auto refused = [&](const char* answers) {
    return error_of([&] { read(row(R"({"query":"q","answers":)" + std::string(answers) + "," + tools + "}")); });
  };
  EXPECT_HAS(refused("\"it is 5\""), "answers: a call");
  EXPECT_HAS(refused("\"[]\""), "a call must be JSON text");
  EXPECT_HAS(refused("7"), "\"answers\" is a number");
}

// What other programs write into a column of texts.
std::string quoted(const std::string& json) { return OrderedJson(json).dump(); }

TEST(Shape, MessagesAsJsonTextAreMessages) {
  const std::string turns =
      R"([{"role": "user", "content": "q\n"}, {"role": "assistant", "content": "a", "name": null}])";
  const std::string shares = R"([ {"from": "human", "value": "q\n"}, {"from": "gpt", "value": "a"}])";
  const std::string want = R"([{"role":"user","content":"q\n"},{"role":"assistant","content":"a"}])";
  EXPECT_EQ(messages(R"({"messages":)" + quoted(turns) + "}"), want);
  EXPECT_EQ(messages(R"({"conversations":)" + quoted(shares) + "}"), want);
  EXPECT_EQ(messages(R"({"messages":["{\"role\":\"user\",\"content\":\"q\\n\"}",)"
                     R"({"role":"assistant","content":"a"}]})"),
            want);
  const std::string tools = R"([{"name":"f","parameters":"{\"type\":\"object\"}"}])";
  const Example cells = read(csv({"id", "messages", "tools"}, {"1", turns, tools}));
  EXPECT_EQ(cells.messages->dump(), want);
  EXPECT_EQ(cells.tools->dump(), R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_EQ(read(csv({"chat"}, {shares}), {{"chat", "conversations"}}).messages->dump(), want);
  EXPECT_EQ(messages(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"",)"
                     R"("tool_calls":"[{\"name\":\"f\",\"arguments\":{\"x\":1}}]"}]})"),
            R"([{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[{"type":"function",)"
            R"("function":{"name":"f","arguments":{"x":1}}}]}])");
  EXPECT_EQ(
      messages(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","tool_calls":""}]})"),
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}])");
}

TEST(Shape, AnswersAsJsonTextAreMessagesWhereBothAre) {
  const std::string prompt = R"([{"role":"user","content":"q"}])", a = R"([{"role":"assistant","content":"a"}])",
                    b = R"([{"role":"assistant","content":"b"}])";
  const Example pair = read(csv({"prompt", "chosen", "rejected"}, {prompt, a, b}));
  EXPECT_EQ((*pair.messages)[1]["content"], "a");
  EXPECT_EQ((*pair.rejected->messages)[1]["content"], "b");
  EXPECT_EQ((*read(csv({"prompt", "completion"}, {prompt, a})).messages)[1]["content"], "a");
  for (const auto& [label, mark] : std::map<std::string, int>{{"1", 1}, {"True", 1}, {"0", -1}, {"false", -1}}) {
    const Example e = read(csv({"prompt", "completion", "label"}, {prompt, a, label}));
    EXPECT_EQ(e.kind, Example::Kind::kChat);
    EXPECT_EQ(e.mark, mark) << label;
  }
  EXPECT_EQ((*read(row(R"({"prompt":)" + quoted(prompt) + R"(,"answer":"7"})")).messages)[0]["content"], "q");
  // A model may be asked to write such JSON.
  EXPECT_EQ(read(csv({"prompt", "completion"}, {"Write a chat.", a})).completion, a);
  EXPECT_EQ(read(csv({"prompt", "chosen", "rejected"}, {"Write a chat.", a, "no"})).completion, a);
}

TEST(Shape, BrokenJsonTextIsRefusedWithItsPlace) {
  const auto said = [](const Record& r) { return error_of([&] { read(r); }); };
  EXPECT_HAS(said(csv({"messages"}, {"[{'role': 'user', 'content': 'q'}]"})),
             "d.jsonl:3: \"messages\":1:3: not valid JSON");
  EXPECT_HAS(said(csv({"messages"}, {"[{'role': 'user', 'content': 'q'}]"})), "json.dumps, not str");
  EXPECT_HAS(said(csv({"conversations"}, {R"([{"from":"human")"})), "d.jsonl:3: \"conversations\":1:");
  EXPECT_HAS(said(csv({"messages"}, {"hello"})), "\"messages\" is a text, an array of");
  EXPECT_HAS(said(csv({"messages"}, {""})), "\"messages\" is a text, an array of");
  EXPECT_HAS(said(csv({"messages", "tools"}, {R"([{"role":"user","content":"q"}])", "[{"})), "d.jsonl:3: \"tools\":1:");
  EXPECT_HAS(said(row(R"({"messages":["{\"role\":"]})")), "d.jsonl:3: \"messages\"[0]:1:");
  const std::string python = "[{'role': 'assistant', 'content': 'a'}]";
  EXPECT_HAS(said(csv({"prompt", "chosen", "rejected"}, {"q", python, python + " "})),
             "\"chosen\":1:3: not valid JSON");
  EXPECT_HAS(said(row(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":"[{"}]})")),
             "messages[1]: tool_calls:1:");
}

TEST(Shape, CleaningSeesTheWordsOfJsonText) {
  RowText plain, text, cells;
  const std::string turns = R"([{"role":"user","content":"a\nb"},{"role":"assistant","content":"c"}])";
  const Record r = row(R"({"messages":)" + turns + "}");
  read_row_text(r, find_layout(r, {}), &plain);
  const Record closed = row(R"({"messages":)" + quoted(turns) + "}");
  read_row_text(closed, find_layout(closed, {}), &text);
  const Record c = csv({"messages"}, {turns});
  read_row_text(c, find_layout(c, {}), &cells);
  EXPECT_EQ(plain.text, "a\nb\nc");
  for (const RowText* other : {&text, &cells}) {
    EXPECT_EQ(other->text, plain.text);
    EXPECT_EQ(other->parts, plain.parts);
    EXPECT_EQ(other->context, plain.context);
  }
  const Record own = csv({"prompt", "completion"}, {"Write a chat.", turns});
  read_row_text(own, find_layout(own, {}), &text);
  EXPECT_EQ(text.text, "Write a chat.\n" + turns);
}

TEST(Shape, PreferencesAsOpenAiPublishesThem) {
  const std::string rest = R"("preferred_output":[{"role":"assistant","content":"a"}],)"
                           R"("non_preferred_output":[{"role":"assistant","content":"b"}])";
  const std::string chat = R"("messages":[{"role":"system","content":"s"},{"role":"user","content":"q"}])";
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";
  const Record r = row(R"({"input":{)" + chat + "," + tools + R"(,"parallel_tool_calls":true},)" + rest + "}");
  EXPECT_EQ(find_layout(r, {}).text(),
            "chosen/rejected (preferred_output as chosen, non_preferred_output as rejected, input as prompt, tools); "
            "columns not used: parallel_tool_calls");
  for (const Map& columns :
       {Map{}, Map{{"input", "prompt"}, {"preferred_output", "chosen"}, {"non_preferred_output", "rejected"}}}) {
    const Example e = read(r, columns);
    EXPECT_EQ(e.trained_from, 2u);
    EXPECT_EQ(e.messages->dump(),
              R"([{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}])");
    EXPECT_EQ((*e.rejected->messages)[2]["content"], "b");
    EXPECT_EQ((*e.tools)[0]["function"]["name"], "f");
    EXPECT_EQ((*e.rejected->tools)[0]["function"]["name"], "f");
    EXPECT_EQ(notes(e), "");
  }
  RowText text;
  read_row_text(r, find_layout(r, {}), &text);
  EXPECT_HAS(text.text, "q");
  EXPECT_EQ(text.text.find("parallel"), std::string::npos);

  // In a table all of it is text.
  const std::string answer = R"([{"role":"assistant","content":"a"}])",
                    other = R"([{"role":"assistant","content":"b"}])";
  const std::vector<std::string> header{"input", "preferred_output", "non_preferred_output"};
  const Example cells = read(csv(header, {"{" + chat + "," + tools + "}", answer, other}));
  EXPECT_EQ(cells.messages->dump(), read(r).messages->dump());
  EXPECT_EQ((*cells.tools)[0]["function"]["name"], "f");
  EXPECT_HAS(error_of([&] { read(csv(header, {R"({"messages":[)", answer, other})); }), "d.jsonl:3: \"input\":1:");
  EXPECT_EQ(read(csv({"prompt", "chosen", "rejected"}, {R"({"messages":1} says)", "a", "b"})).text,
            R"({"messages":1} says)");
  EXPECT_EQ(read(csv({"prompt", "completion"}, {R"({"messages":1})", answer})).text, R"({"messages":1})");
  const Example asked = read(csv({"prompt", "chosen", "rejected"}, {"{} is what?", answer, other}));
  EXPECT_EQ((*asked.messages)[0]["content"], "{} is what?");
  // For training on answers.
  const Example sft = read(r, {{"input", "prompt"}, {"preferred_output", "completion"}});
  EXPECT_EQ(sft.messages->dump(), read(r).messages->dump());
  EXPECT_EQ((*sft.tools)[0]["function"]["name"], "f");

  // Rows of one set differ in what stands beside the messages.
  const Record bare = row(R"({"input":{)" + chat + R"(,"tools":[]},)" + rest + "}");
  EXPECT_EQ(read(bare).tools, nullptr);
  EXPECT_EQ(notes(read_example(r, find_layout(bare, {}))),
            "the column \"parallel_tool_calls\", which the first row has not, is not used|");
  const Record first = row(R"({"input":{)" + chat + "}," + rest + "}");
  EXPECT_NE(read_example(r, find_layout(first, {})).tools, nullptr);

  const auto said = [&](const std::string& input) {
    return error_of([&] { read_example(row(R"({"input":)" + input + "," + rest + "}"), find_layout(r, {})); });
  };
  EXPECT_HAS(said("{}"), "\"input\" is an object, a text or a list of messages is needed");
  EXPECT_HAS(said("7"), "\"input\" is a number, a text or a list of messages is needed");
  EXPECT_HAS(said(R"({"messages":[{"role":"user"}]})"), "prompt[0] has no \"content\"");
}

TEST(Shape, AMapThatFitsIsProposed) {
  const auto said = [](const char* text) { return error_of([&] { find_layout(row(text), {}); }); };
  EXPECT_HAS(said(R"({"instruction":"a","context":"b","response":"c","category":"d"})"),
             "as {instruction: instruction, response: output, context: input}");
  EXPECT_HAS(said(R"({"instruction":"a","input":"b","response":"c"})"),
             "as {instruction: instruction, response: output, input: input}");
  EXPECT_HAS(said(R"({"id":0,"query":"a","answers":"b"})"), "as {query: question, answers: answer}");
  EXPECT_HAS(said(R"({"input":"a","preferred_output":[],"non_preferred_output":[]})"),
             "as {preferred_output: chosen, non_preferred_output: rejected, input: prompt}");
  EXPECT_HAS(said(R"({"system":"s","chat":"USER: a long text"})"), "as {chat: text}");
}

TEST(Shape, ASystemColumnBesideASystemTurnIsUsedOrSaid) {
  const auto read_with = [](const std::string& turn) {
    return read(row(R"({"system":"Be brief.","conversations":[)" + turn +
                    R"({"from":"human","value":"q"},{"from":"gpt","value":"a"}]})"));
  };
  for (const char* turn : {"", R"({"from":"system","value":""},)", R"({"from":"system","value":"Be brief."},)"}) {
    const Example e = read_with(turn);
    EXPECT_EQ((*e.messages)[0].dump(), R"({"role":"system","content":"Be brief."})");
    EXPECT_EQ(notes(e), "");
  }
  const auto first = [](const std::string& system, const std::string& turn) {
    return (*read(row("{" + system + R"("messages":[)" + turn +
                      R"({"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"))
                 .messages)[0]
        .dump();
  };
  EXPECT_EQ(first(R"("system":"Be brief.",)", ""), R"({"role":"system","content":"Be brief."})");
  EXPECT_EQ(first(R"("system":"Be brief.",)", R"({"role":"system","content":"Be long."},)"),
            R"({"role":"system","content":"Be long."})");
  EXPECT_EQ(first(R"("system":"Be brief.",)", R"({"from":"system","value":""},)"),
            R"({"role":"system","content":"Be brief."})");
  for (const char* other : {"", R"("system":null,)", R"("system":"",)", R"("system":true,)"})
    EXPECT_EQ(first(other, ""), R"({"role":"user","content":"q"})");
  const Example own = read_with(R"({"from":"system","value":"Be long."},)");
  EXPECT_EQ((*own.messages)[0].dump(), R"({"role":"system","content":"Be long."})");
  EXPECT_EQ(notes(own), "the column \"system\" is not used: the conversation begins with a system turn|");
}

TEST(Shape, FunctionsAreToolsOfOld) {
  const std::string chat = R"("messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,)"
                           R"("function_call":{"name":"f","arguments":"{}"}}],"functions":)";
  const Record r = row("{" + chat + R"([{"name":"f","parameters":{"type":"object"}}]})");
  EXPECT_EQ(find_layout(r, {}).text(), "messages (messages, functions as tools)");
  EXPECT_EQ(read(r).tools->dump(), R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  for (const char* other : {"[]", "[\"f\"]", "\"f\"", "[{\"n\":1}]"})
    EXPECT_EQ(find_layout(row("{" + chat + other + "}"), {}).text(),
              "messages (messages); columns not used: functions");
}

TEST(Shape, WrongColumnMapsAreRefused) {
  const Record r = row(R"({"q":"","a":""})");
  EXPECT_HAS(error_of([&] { find_layout(r, {{"q", "promt"}}); }), "did you mean \"prompt\"");
  EXPECT_HAS(error_of([&] { find_layout(r, {{"x", "prompt"}}); }), "no column \"x\"");
  EXPECT_HAS(error_of([&] { find_layout(r, {{"q", "text"}, {"a", "text"}}); }), "two columns");
}

TEST(Shape, PromptAndCompletionAreBothTextsOrBothMessages) {
  const auto refused = [](const char* text) { return error_of([&] { read(row(text)); }); };
  const Example e = read(row(
      R"({"prompt":[{"role":"user","content":"a"}],"completion":[{"role":"assistant","content":"b"}],"tools":[{"type":"function"}]})"));
  EXPECT_EQ(e.trained_from, 1u);
  ASSERT_NE(e.tools, nullptr);
  EXPECT_HAS(refused(R"({"prompt":"a","completion":[{"role":"assistant","content":"b"}]})"),
             "\"prompt\" is a text, a list of messages");
  EXPECT_HAS(refused(R"({"prompt":[{"role":"user","content":"a"}],"completion":"b"})"), "\"completion\" is a text");
  EXPECT_HAS(refused(R"({"prompt":[],"completion":[{"role":"assistant","content":"b"}]})"),
             "\"prompt\" is an empty array");
  EXPECT_HAS(refused(R"({"prompt":[{"role":"user","content":"a"}],"completion":[{"content":"b"}]})"),
             "completion[0] has no \"role\"");
  EXPECT_HAS(refused(R"({"prompt":"a","completion":"b","tools":[{"type":"function"}]})"), "the row has \"tools\"");
  EXPECT_EQ(read(row(R"({"prompt":"a","completion":"b","tools":[]})")).completion, "b");
}

TEST(Shape, AToolCallHasAName) {
  const auto calls = [](const std::string& call) {
    return R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"","tool_calls":[)" + call +
           "]}]}";
  };
  for (const char* good : {R"({"function":{"name":"f","arguments":{}}})", R"({"name":"f","arguments":{}})"})
    read(row(calls(good)));
  for (const char* bad :
       {"5", "{}", R"({"function":{}})", R"({"function":"f"})", R"({"function":{"name":null}})", R"({"name":3})"})
    EXPECT_HAS(error_of([&] { read(row(calls(bad))); }), "d.jsonl:3: messages[1].tool_calls[0] must be") << bad;
}

TEST(Shape, AResultOfAToolFollowsACall) {
  const auto rows = [](const std::string& turns) {
    return R"({"messages":[{"role":"user","content":"x"},)" + turns + R"({"role":"assistant","content":"z"}]})";
  };
  const std::string result = R"({"role":"tool","content":"5"},)";
  const std::string call =
      R"({"role":"assistant","content":"","tool_calls":[{"name":"f","arguments":{}},{"name":"g","arguments":{}}]},)";
  read(row(rows(call + result + result)));
  read(row(rows(R"({"role":"assistant","content":"<tool_call>{}</tool_call>"},)" + result)));
  for (const std::string& before : {std::string(), std::string(R"({"role":"assistant","content":"Let me see."},)")})
    EXPECT_HAS(error_of([&] { read(row(rows(before + result))); }), "is a tool's result, and the turn before it");
  EXPECT_HAS(error_of([&] { read(row(rows(result))); }), "d.jsonl:3: message 1");
  EXPECT_HAS(error_of([&] { read(row(rows(call + result + result + result))); }),
             "d.jsonl:3: message 4 is result 3 of a turn with 2 calls");
  const std::string named =
      R"({"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":{}}}]},)";
  read(row(rows(named + R"({"role":"tool","tool_call_id":"a","content":"5"},)")));
  EXPECT_HAS(error_of([&] { read(row(rows(named + R"({"role":"tool","tool_call_id":"b","content":"5"},)"))); }),
             "message 2 is the result of call \"b\"");
}

TEST(Shape, NullIsNotCalledMissing) {
  EXPECT_HAS(error_of([] { read(row(R"({"question":"a","answer":null})")); }), "d.jsonl:3: \"answer\" is null");
}

TEST(Shape, ColumnMapDecidesAlone) {
  const Record r = row(R"({"messages":[{"role":"user","content":"x"}],"body":"the text"})");
  EXPECT_EQ(read(r, {{"body", "text"}}).text, "the text");
}

TEST(Shape, QuestionsAndInstructionsBecomeChats) {
  EXPECT_EQ(messages(R"({"question":"Q","answer":"A"})"),
            R"([{"role":"user","content":"Q"},{"role":"assistant","content":"A"}])");
  for (const char* number : {"204", "-7", "0.5", "123456789012345678901234567890"})
    EXPECT_EQ(messages(fmt::format(R"({{"question":"Q","answer":{}}})", number).c_str()),
              fmt::format(R"([{{"role":"user","content":"Q"}},{{"role":"assistant","content":"{}"}}])", number));
  EXPECT_EQ(
      messages(R"({"instruction":"Do","input":"this","output":"done","system":"S"})"),
      R"([{"role":"system","content":"S"},{"role":"user","content":"Do\n\nthis"},{"role":"assistant","content":"done"}])");
  EXPECT_EQ(
      messages(R"({"instruction":"c","input":"","output":"d","history":[["a","b"]],"system":"S"})"),
      R"([{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"}])");
  EXPECT_EQ(messages(R"({"instruction":"c","output":"d","history":"[[\"a\",\"b\"]]"})"),
            messages(R"({"instruction":"c","output":"d","history":[["a","b"]]})"));
  EXPECT_HAS(error_of([] { messages(R"({"instruction":"c","output":"d","history":[["a"]]})"); }),
             "\"history\" is an array, a list of");
  EXPECT_EQ(messages(R"({"instruction":"Do","input":"","output":"done"})"),
            R"([{"role":"user","content":"Do"},{"role":"assistant","content":"done"}])");
}

TEST(Shape, MessagesKeepTheirFieldsAndKeyOrder) {
  const std::string m =
      R"([{"role":"user","content":"x"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"z":1,"a":2}}}]}])";
  const Example e = read(row(R"({"messages":)" + m + R"(,"tools":[{"type":"function","function":{"name":"f"}}]})"));
  EXPECT_EQ(e.messages->dump(), m);
  EXPECT_EQ(e.tools->dump(), R"([{"type":"function","function":{"name":"f"}}])");
  const Example t = read(row(R"({"messages":[{"role":"user","content":"x"}],"tools":"[{\"name\":\"f\"}]"})"));
  EXPECT_EQ(t.tools->dump(), R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(read(row(R"({"messages":[{"role":"user","content":"x"}],"tools":[]})")).tools, nullptr);
}

TEST(Shape, MembersThatAreNullAreNotThere) {
  EXPECT_EQ(
      messages(
          R"({"messages":[{"role":"user","content":"x","name":null,"tool_calls":null},{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":null,"function":{"name":"f","arguments":{"a":null},"strict":null}}]}]})"),
      R"([{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a":null}}}]}])");
}

TEST(Shape, CallsOfTheOlderWayAreToolCalls) {
  EXPECT_EQ(
      messages(
          R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"a\":1}"}},{"role":"function","name":"f","content":"r"}]})"),
      R"([{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","name":"f","content":"r"}])");
  EXPECT_HAS(
      error_of([] {
        read(row(
            R"({"messages":[{"role":"assistant","content":"","function_call":{"name":"f"},"tool_calls":[{"name":"f"}]}]})"));
      }),
      "messages[0]: a message has both");
}

TEST(Shape, WhatTemplatesPassOverIsRefused) {
  const auto role = [](const char* r) {
    return error_of([&] {
      read(row(R"({"messages":[{"role":"user","content":"x"},{"role":")" + std::string(r) + R"(","content":"y"}]})"));
    });
  };
  EXPECT_HAS(role("Assistant"), "messages[1]: the role \"Assistant\" is written \"assistant\"");
  EXPECT_HAS(role(" user"), "is written \"user\"");
  EXPECT_HAS(role("gpt"), "messages[1]: the role \"gpt\" is written \"assistant\"");
  EXPECT_HAS(role("human"), "is written \"user\"");
  EXPECT_EQ(role("developer"), "");
}

TEST(Shape, WhatATurnSaysOfTrainingIsReadOrRefused) {
  const auto turn = [](const std::string& members, Exit code = Exit::kBadInput) {
    return error_of(
        [&] {
          read(
              row((R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y",)" + members + "}]}")
                      .c_str()));
        },
        code);
  };
  for (const char* good : {R"("loss":false)", R"("train":true)", R"("training":0)", R"("trainable":1)",
                           R"("loss_mask":0)", R"("weight":0)", R"("weight":1.0)", R"("weight":null)",
                           R"("masked":true,"train":false)", R"("train_on":false)"})
    EXPECT_EQ(turn(good), "") << good;
  EXPECT_HAS(turn(R"("loss":"no")"), "d.jsonl:3: messages[1]: \"loss\" is \"no\": true or false is wanted");
  EXPECT_HAS(turn(R"("loss":[0])"), "true or false is wanted");
  EXPECT_HAS(turn(R"("train":true,"weight":0)"), "contradicts");
  EXPECT_HAS(turn(R"("masked":true,"loss_mask":1)"), "contradicts");
  EXPECT_HAS(turn(R"("weight":0.5)", Exit::kMissing), "other than 0 and 1");
}

TEST(Shape, TextPartsAreOneText) {
  EXPECT_EQ(
      messages(
          R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","content":"c"}]})"),
      R"([{"role":"user","content":"ab"},{"role":"assistant","content":"c"}])");
  EXPECT_EQ(
      messages(
          R"({"messages":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"role":"assistant","content":[{"type":"output_text","text":"c"}]}]})"),
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"c"}])");
  EXPECT_HAS(error_of([] { read(row(R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})")); }),
             "messages[0]");
  EXPECT_HAS(error_of([] { read(row(R"({"messages":[{"role":"user","content":["a"]}]})")); }),
             "messages[0]: a part of \"content\" is an object with a type");
}

TEST(Shape, ShareGptBecomesMessages) {
  EXPECT_EQ(
      messages(
          R"({"conversations":[{"from":"human","value":"H"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"a\":1}}"},{"from":"observation","value":"O"},{"from":"gpt","value":"G"}],"system":"S"})"),
      R"([{"role":"system","content":"S"},{"role":"user","content":"H"},{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":1}}}]},{"role":"tool","content":"O"},{"role":"assistant","content":"G"}])");
  EXPECT_EQ(
      messages(
          R"({"conversations":[{"from":"Prompter","value":"a"},{"from":"bot","value":"b","weight":0,"model":"m"},{"from":"tool-call","value":"[{\"name\":\"f\"}]"},{"from":"function_response","value":"c"},{"from":"ChatGPT","value":"d"}]})"),
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","weight":0,"model":"m"},{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}]},{"role":"tool","content":"c"},{"role":"assistant","content":"d"}])");
  EXPECT_EQ(messages(R"({"messages":[{"from":"human","value":"H"},{"from":"gpt","value":"G"}]})"),
            R"([{"role":"user","content":"H"},{"role":"assistant","content":"G"}])");
  for (const char* mixed : {R"({"conversations":[{"role":"human","value":"H"},{"role":"gpt","value":"G"}]})",
                            R"({"conversations":[{"from":"human","content":"H"},{"from":"gpt","content":"G"}]})",
                            R"({"messages":[{"role":"user","value":"H"},{"role":"assistant","value":"G"}]})"})
    EXPECT_EQ(messages(mixed), R"([{"role":"user","content":"H"},{"role":"assistant","content":"G"}])") << mixed;
  EXPECT_HAS(error_of([] { messages(R"({"conversations":[{"from":"narrator","value":"H"}]})"); }),
             "from \"narrator\"; known: human, ");
  EXPECT_HAS(error_of([] { messages(R"({"conversations":[{"from":"function_call","value":"[3]"}]})"); }),
             "conversations[0]: a call must be");
  EXPECT_HAS(error_of([] { messages(R"({"conversations":[{"from":1,"value":"H"}]})"); }), "conversations[0]");
  EXPECT_HAS(error_of([] { messages(R"({"conversations":[1]})"); }), "conversations[0]");
}

TEST(Shape, BrokenMessagesNameTheirPlace) {
  const auto e = [](const char* text) { return error_of([&] { read(row(text)); }); };
  EXPECT_HAS(e(R"({"messages":"x"})"), "\"messages\" is a text, an array");
  EXPECT_HAS(e(R"({"messages":[]})"), "empty array");
  EXPECT_HAS(e(R"({"messages":[1]})"), "messages[0] must be an object");
  EXPECT_HAS(e(R"({"messages":[{"content":"x"}]})"), "messages[0] has no \"role\"");
  EXPECT_HAS(e(R"({"messages":[{"role":"user","content":"x"},{"role":"user"}]})"), "messages[1] has no \"content\"");
  EXPECT_HAS(e(R"({"messages":[{"role":"user","content":5}]})"), "must be a text");
  EXPECT_HAS(e(R"({"messages":[{"role":"user","content":"x"}],"tools":"{}"})"), "\"tools\" is an object");
  EXPECT_HAS(error_of([] { read(row(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})")); }),
             "a part of type \"image_url\" has no picture");
  EXPECT_HAS(e(R"({"messages":[{"role":"user","content":[{"type":7}]}]})"), "is an object with a type");
}

TEST(Shape, WrongTypesAndMissingColumnsNameLineAndColumn) {
  EXPECT_HAS(error_of([] { read(row(R"({"text":5})")); }), "d.jsonl:3: \"text\" is a number, a text is needed");
  const Layout l = find_layout(row(R"({"q":"","answer":""})"), {{"q", "question"}, {"answer", "answer"}});
  EXPECT_HAS(error_of([&] { read_example(row(R"({"other":1,"answer":""})"), l); }), "has no \"q\"");
  EXPECT_HAS(error_of([&] { read_example(row("[1]"), l); }), "is an array");
  EXPECT_HAS(error_of([&] { read_example(row("{\"a\":"), l); }), "d.jsonl:3");
  EXPECT_HAS(error_of([&] { read_example(row("{\"q\":\"\xff\"}"), l); }), "UTF-8");
}

// Texts taken straight from the JSON are those that the parser gives, and what it refuses is not taken.
TEST(Shape, FlatTextsAreTheParsers) {
  const Layout l = find_layout(row(R"({"text":""})"), {});
  for (const char* same :
       {R"({"text":"a"})", R"( { "id" : -1.5e3 , "text" : "a\"\\\n\u00e9\ud83d\ude00€" , "z":null,"t":"\t"} )",
        R"({"text":"a","meta":{"text":"b"}})", R"({"text":""})", R"({"Text":"x","text":"y"})"})
    EXPECT_EQ(read_example(row(same), l).text, OrderedJson::parse(same)["text"].get<std::string>()) << same;
  for (const char* bad :
       {R"({"text":"a"} x)", R"({"text":"a",})", R"({"text":"a","b":01})", R"({"text":"a","b":"\q"})",
        R"({"text":"\ud800"})", R"({"text":"a")", "{\"text\":\"a\tb\"}", "{\"text\":\"a\",\"b\":\"\x01\"}",
        R"({"text":5})", R"({"b":"text"})", R"({"text":"a","text":"b"})", R"({"b":1,"text":"a","b":2})",
        "{\"text\":\"a\",\"b\":\"\xff\"}"})
    EXPECT_HAS(error_of([&] { read_example(row(bad), l); }), "d.jsonl:3") << bad;
}

TEST(Shape, LabelsOfAnswersAreTruthsOrNumbers) {
  for (const auto& [label, mark] : {std::pair("true", 1), {"false", -1}, {"1", 1}, {"0", -1}, {"1.0", 1}, {"0.0", -1}})
    EXPECT_EQ(read(row(fmt::format(R"({{"prompt":"a","completion":"b","label":{}}})", label))).mark, mark) << label;
  for (const char* label : {"0.5", "2", "\"yes\"", "\"\"", "18446744073709551616"})
    EXPECT_HAS(error_of([&] { read(row(fmt::format(R"({{"prompt":"a","completion":"b","label":{}}})", label))); }),
               "a good answer");
}

TEST(Shape, TokenRowsAreTakenAsTheyAre) {
  const Example e = read(row(R"({"input_ids":[1,2,3],"labels":[-100,7,3]})"));
  EXPECT_EQ(e.ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(e.labels, (std::vector<int32_t>{-100, 7, 3}));
  EXPECT_HAS(error_of([] { read(row(R"({"input_ids":[1],"labels":[1,2]})")); }), "1 input_ids, 2 labels");
  EXPECT_HAS(error_of([] { read(row(R"({"input_ids":[-1],"labels":[1]})")); }), "\"input_ids\"[0] is -1");
  EXPECT_EQ(read(row(R"({"input_ids":[-0,2],"labels":[-0,2]})")).ids, (std::vector<int32_t>{0, 2}));
  EXPECT_HAS(error_of([] { read(row(R"({"input_ids":[18446744073709551616],"labels":[1]})")); }),
             "is 18446744073709551616, a token");
  EXPECT_HAS(error_of([] { read(row(R"({"input_ids":[1.5],"labels":[1]})")); }), "1.5");
  EXPECT_HAS(error_of([] { read(row(R"({"input_ids":[99999999999],"labels":[1]})")); }), "99999999999");
  EXPECT_HAS(error_of([] { read(row(R"({"input_ids":[1],"labels":["a"]})")); }), "or -100");
}

TEST(Shape, CsvCellsAreTexts) {
  const Example e = read(csv({"prompt", "completion"}, {"2+2=", "4"}));
  EXPECT_EQ(e.text, "2+2=");
  EXPECT_EQ(e.completion, "4");
  EXPECT_HAS(error_of([] { read(csv({"text"}, {"\xc3"})); }), "UTF-8");
}

TEST(Shape, PreferenceAndReferenceRowsAreChecked) {
  const auto check = [](const char* text) {
    return error_of([&] {
      const Record r = row(text);
      read_example(r, find_layout(r, {}));
    });
  };
  EXPECT_EQ(check(R"({"prompt":"p","chosen":"a","rejected":"b"})"), "");
  const char* chat =
      R"({"chosen":[{"role":"user","content":"x"},{"role":"assistant","content":"a"}],"rejected":[{"role":"user","content":"x"},{"role":"assistant","content":"b"}]})";
  EXPECT_EQ(check(chat), "");
  const Example e = read(row(chat));  // the prompt is what both begin with
  EXPECT_EQ(e.trained_from, 1u);
  EXPECT_EQ((*e.rejected->messages)[1]["content"], "b");
  EXPECT_HAS(check(R"({"chosen":[{"role":"user","content":"x"}],"rejected":[{"role":"user","content":"x"}]})"),
             "are equal");
  EXPECT_EQ(check(R"({"prompt":"p","answer":"4"})"), "");
  EXPECT_EQ(check(R"({"prompt":"p","answer":204})"), "");
  EXPECT_HAS(check(R"({"prompt":"p","answer":true})"), "a text is needed");
  // An answer without words or calls is none, however it is written.
  const auto pair = [&](const char* chosen, const char* rejected) {
    return check(fmt::format(R"({{"prompt":[{{"role":"user","content":"x"}}],"chosen":[{{"role":"assistant",{}}}],)"
                             R"("rejected":[{{"role":"assistant",{}}}]}})",
                             chosen, rejected)
                     .c_str());
  };
  const char *words = R"("content":"a")", *silent = R"("content":"")",
             *call = R"("content":"","tool_calls":[{"function":{"name":"f","arguments":{}}}])";
  EXPECT_HAS(pair(silent, words), "d.jsonl:3: \"chosen\" is empty");
  EXPECT_HAS(pair(words, R"("content":null,"tool_calls":[])"), "\"rejected\" is empty");
  EXPECT_EQ(pair(call, words), "");
  EXPECT_HAS(check(R"({"prompt":[{"role":"user","content":"x"}],"label":true,)"
                   R"("completion":[{"role":"assistant","content":""}]})"),
             "\"completion\" is empty");
  EXPECT_HAS(check(R"({"prompt":"p","chosen":1,"rejected":"b"})"), "\"chosen\" is a number");
}

TEST(Shape, ATurnThatSaysItTwiceSaysTheSame) {
  const auto turn = [](const std::string& members) {
    return error_of([&] { read(row("{\"conversations\":[{" + members + R"(},{"from":"gpt","value":"a"}]})")); });
  };
  EXPECT_EQ(turn(R"("from":"human","value":"q","role":"user","content":"q")"), "");
  EXPECT_HAS(turn(R"("from":"human","value":"q","role":"assistant")"), "has the role \"assistant\"");
  EXPECT_HAS(turn(R"("from":"human","value":"q","content":"p")"), "another \"content\"");
}

// A prompt of another form than the answers is used, or refused.
TEST(Shape, APromptInAnotherFormThanItsAnswers) {
  const std::string user = R"({"role":"user","content":"q"})", a = R"({"role":"assistant","content":"a"})",
                    b = R"({"role":"assistant","content":"b"})";
  const auto pair = [&](const std::string& prompt, const std::string& before) {
    return read(row("{\"prompt\":" + prompt + ",\"chosen\":[" + before + a + "],\"rejected\":[" + before + b + "]}"));
  };
  const OrderedJson whole = OrderedJson::parse("[" + user + "," + a + "]");
  for (const auto& [prompt, before] :
       std::vector<std::pair<std::string, std::string>>{{"\"q\"", ""},              // what the user says
                                                        {"\" q\\n\"", user + ","},  // said once more (UltraFeedback)
                                                        {"\"\"", user + ","},
                                                        {"null", user + ","},
                                                        {"[" + user + "]", ""},
                                                        {"[" + user + "]", user + ","}}) {
    const Example e = pair(prompt, before);
    EXPECT_EQ(*e.messages, whole) << prompt;
    EXPECT_EQ(e.trained_from, 1u);
    EXPECT_EQ((*e.rejected->messages)[1]["content"], "b");
  }
  EXPECT_HAS(error_of([&] { pair("\"context\"", user + ","); }), "\"prompt\" is a text that no message says");
  EXPECT_HAS(error_of([&] { pair("null", ""); }), "has no \"prompt\"");
  for (const std::string& answers :
       {std::string(R"("chosen":"a","rejected":"b"})"), R"("chosen":)" + a + R"(,"rejected":)" + b + "}"}) {
    const Example e = read(row("{\"prompt\":[" + user + "]," + answers));
    EXPECT_EQ(*e.messages, whole) << answers;
    EXPECT_EQ((*e.rejected->messages)[1]["content"], "b");
  }
  const Example e = read(row(R"({"conversations":[{"from":"human","value":"q"}],"chosen":{"from":"gpt","value":"a"},)"
                             R"("rejected":{"from":"gpt","value":"b"}})"),
                         {{"conversations", "prompt"}, {"chosen", "chosen"}, {"rejected", "rejected"}});
  EXPECT_EQ(*e.messages, whole);
}

TEST(Shape, WhatARowHasBesideTheFirstIsSaid) {
  const std::string chat = R"("messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}])";
  const Layout l = find_layout(row("{" + chat + R"(,"id":1})"), {});
  const auto said = [&](const std::string& more) { return notes(read_example(row("{" + chat + more + "}"), l)); };
  EXPECT_EQ(said(R"(,"id":2)"), "");
  EXPECT_EQ(said(R"(,"tools":[],"extra":null,"note":"")"), "");
  EXPECT_EQ(said(R"(,"loss":false)"), "the column \"loss\", which the first row has not, is not used|");
  const Layout text = find_layout(row(R"({"text":"a"})"), {});
  EXPECT_EQ(notes(read_example(row(R"({"text":"b"})"), text)), "");
  EXPECT_EQ(notes(read_example(row(R"({"weight":0,"text":"b"})"), text)),
            "the column \"weight\", which the first row has not, is not used|");
  EXPECT_EQ(notes(read_example(csv({"text", "x", "y"}, {"b", "1", ""}), text)),
            "the column \"x\", which the first row has not, is not used|");
}

TEST(Shape, ARoleThatNoTemplateIsKnownToReadIsSaid) {
  const auto said = [](const std::string& role) {
    return notes(read(row(R"({"messages":[{"role":")" + role +
                          R"(","content":"q"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})")));
  };
  for (const char* usual : {"system", "developer", "user", "ipython"}) EXPECT_EQ(said(usual), "") << usual;
  for (const std::string other : {"usr", "critic", "assistent"})
    EXPECT_EQ(said(other), "messages[0]: the role \"" + other +
                               "\" is none of system, developer, user, assistant and tool: it means what the chat "
                               "template makes of it|");
}

TEST(Shape, MembersOfPartsThatAreNotUsedAreSaid) {
  const auto said = [](const std::string& part) {
    return notes(read(row(R"({"messages":[{"role":"user","content":[{"type":"text","text":"q")" + part +
                          R"(}]},{"role":"assistant","content":"a"}]})")));
  };
  EXPECT_EQ(said(""), "");
  EXPECT_EQ(said(R"(,"annotations":[],"id":null)"), "");
  EXPECT_EQ(said(R"(,"cache_control":{"type":"ephemeral"})"),
            "\"cache_control\" of a part of messages[0]'s content is not used|");
  const auto shown = [](const std::string& part) {
    return notes(read(row(R"({"messages":[{"role":"user","content":[{"type":"text","text":"q"},{)" + part +
                          R"(}]},{"role":"assistant","content":"a"}]})")));
  };
  EXPECT_EQ(shown(R"("type":"image_url","image_url":{"url":"a.png"})"), "");
  EXPECT_EQ(shown(R"("type":"image_url","image_url":{"url":"a.png","detail":"auto"})"), "");
  EXPECT_EQ(shown(R"("type":"image_url","image_url":{"url":"a.png","detail":"low"})"),
            "\"image_url.detail\" of a part of messages[0]'s content is not used|");
  EXPECT_EQ(shown(R"("type":"image","image":"a.png","text":null,"max_pixels":3136)"),
            "\"max_pixels\" of a part of messages[0]'s content is not used|");
  EXPECT_EQ(shown(R"("type":"image","image":"a.png","path":"b.png","text":"a cat")"),
            "\"path\" of a part of messages[0]'s content is not used|"
            "\"image.text\" of a part of messages[0]'s content is not used|");
}

}  // namespace
}  // namespace mxt::data
