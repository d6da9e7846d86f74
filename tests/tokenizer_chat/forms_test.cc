// One conversation in many spellings: every template gets the form that it was written for, and the text is what
// transformers makes of that form (tools/golden/chat_shapes.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "folders.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/chat/input/conversation.h"

namespace mxt::tokenizer {
namespace {

const std::string kFolder = std::string(kSourceDir) + "/tests/golden/tokenizer_chat/";

OrderedJson json(std::string_view text) { return parse_ordered_json(text, "test"); }

class ChatForms : public testing::TestWithParam<const char*> {};

TEST_P(ChatForms, EverySpellingOfARowIsTheTextOfItsProperForm) {
  const OrderedJson g = json(read_file(kFolder + "shapes.json"));
  const OrderedJson& own = g["templates"][GetParam()];
  const auto t = ChatTemplate::compile(read_file(kFolder + "templates/" + GetParam() + ".jinja"), GetParam(),
                                       own["special_tokens"].get<std::map<std::string, std::string>>());
  const OrderedJson kwargs{{"date", "1 May 2025"}};
  size_t same = 0;
  for (size_t i = 0; i < g["rows"].size(); ++i) {
    const OrderedJson &row = g["rows"][i], &want = own["of_row"][i];
    ChatInput in;
    in.messages = &row["messages"];
    in.tools = row["tools"].is_null() ? nullptr : &row["tools"];
    in.add_generation_prompt = i % 3 == 0;
    in.kwargs = &kwargs;
    SCOPED_TRACE(row.dump());
    try {
      const std::string text = t->render_prompt(in).text;
      ASSERT_FALSE(want.is_null()) << text;
      EXPECT_EQ(text, own["texts"][want.get<size_t>()].get<std::string>());
      ++same;
    } catch (const FieldDropped&) {  // transformers says nothing of it
    } catch (const jinja::TemplateError& e) {
      EXPECT_TRUE(want.is_null()) << e.what();
    }
  }
  EXPECT_GT(same, 8u);  // rows with tools are refused where the template has no place for them
}

INSTANTIATE_TEST_SUITE_P(Templates, ChatForms,
                         testing::Values("qwen3", "header_blocks", "bracketed", "joined", "itemized", "bare", "parts"));

// As Python has them: what a template prints, compares or hands to tojson has the data's own digits.
TEST(ChatNumbers, IntegersOfAnyLengthArePrintedDigitByDigit) {
  const std::string wei = "123456789012345678901234567890";                   // within 128 bits
  const std::string word = "-115792089237316195423570985008687907853269984";  // beyond
  for (const std::string& n : {wei, word}) {
    const OrderedJson v = json("{\"n\":" + n + ",\"m\":" + n + ",\"half\":0.5,\"list\":[" + n + "]}");
    const auto text = [&](const char* source) { return jinja::render(*jinja::Template::compile(source, "t"), v); };
    EXPECT_EQ(text("{{ n }} {{ n | tojson }} {{ list }} {{ n ~ 'x' }} {{ n | string | length }} {{ n | int }}"),
              n + " " + n + " [" + n + "] " + n + "x " + std::to_string(n.size()) + " " + n);
    EXPECT_EQ(
        text("{{ n == m }} {{ n != half }} {{ n is integer }} {{ n is number }} {{ n is string }} {{ 1 if n else 0 }}"),
        "True True True True False 1");
    EXPECT_EQ(text("{{ n > 7 }} {{ n < half }} {{ {n: 1}[m] }} {{ [n] | sort | first }}"),
              n[0] == '-' ? "False True 1 " + n : "True False 1 " + n);
  }
  EXPECT_THROW(jinja::render(*jinja::Template::compile("{{ n + 1 }}", "t"), json("{\"n\":" + word + "}")),
               jinja::TemplateError);
  const auto t = ChatTemplate::compile(read_file(kFolder + "templates/itemized.jinja"), "t", {});
  for (const char* arguments : {R"({"amount":100000000000000000000,"ids":[36893488147419103232]})",
                                R"("{\"amount\":100000000000000000000,\"ids\":[36893488147419103232]}")"}) {
    const OrderedJson messages =
        json(std::string(R"([{"role":"assistant","tool_calls":[{"name":"pay","arguments":)") + arguments + "}]}]");
    ChatInput in;
    in.messages = &messages;
    EXPECT_EQ(t->render_prompt(in).text,
              "<|assistant|>\n\n<call>pay\n<k>amount</k><v>100000000000000000000</v>\n<k>ids</k>"
              "<v>[36893488147419103232]</v><|stop|>\n");
  }
}

// It is the call that is refused, and not what stands beside it.
TEST(ChatFormsWithoutCalls, ACallWithoutContentIsWhatTheTemplateLeavesOut) {
  const auto t = ChatTemplate::compile(
      "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '\n' }}{% endfor %}", "t", {});
  for (const char* content : {R"("content":null,)", R"("content":"",)", ""}) {
    const OrderedJson messages =
        json(R"([{"role":"user","content":"q"},{"role":"assistant",)" + std::string(content) +
             R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]}])");
    ChatInput in;
    in.messages = &messages;
    EXPECT_THROW(t->render(in), FieldDropped) << content;
  }
}

std::string refusal(const char* messages) {
  try {
    normalize_messages(json(messages), "d.jsonl:3: messages");
  } catch (const BadChat& e) {
    return e.what();
  }
  return "";
}

TEST(Conversation, WhatIsNoCallIsRefusedWithItsPlace) {
  const auto call = [](const char* f) {
    return refusal(
        (R"([{"role":"user","content":"x"},{"role":"assistant","tool_calls":[)" + std::string(f) + "]}]").c_str());
  };
  const std::string at = "d.jsonl:3: messages[1].tool_calls[0]";
  EXPECT_EQ(call(R"({"function":{"name":"f","arguments":"{\"a\": 1}"}})"), "");
  for (const char* bad : {"7", "{}", R"({"name":4})", R"({"function":"f"})", R"({"function":{"arguments":{}}})",
                          R"({"function":{"name":"f","arguments":"{a: 1}"}})", R"({"name":"f","arguments":"[1]"})",
                          R"({"name":"f","arguments":"3"})", R"({"name":"f","arguments":[1]})",
                          R"({"name":"f","arguments":"{\"a\":1,\"a\":2}"})"})
    EXPECT_TRUE(call(bad).starts_with(at)) << bad << ": " << call(bad);
  EXPECT_TRUE(
      refusal(R"([{"role":"user","content":[{"type":"image_url"}]}])").starts_with("d.jsonl:3: messages[0] holds"));
  EXPECT_TRUE(
      refusal(R"([{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"x"}]}])")
          .find("holds a part of type \"thinking\": the message's \"reasoning_content\" says it here") !=
      std::string::npos);
  EXPECT_TRUE(
      refusal(R"([{"role":"user","content":[{"type":"text"}]}])").starts_with("d.jsonl:3: messages[0]: a part"));
  EXPECT_TRUE(refusal(R"([4])").starts_with("d.jsonl:3: messages[0] must be"));
}

std::string normalized(const char* assistant) {
  return normalize_messages(json(std::string(R"([{"role":"user","content":"x"},)") + assistant + "]"))[1].dump();
}

TEST(Conversation, ARefusalWithoutContentIsWhatTheAssistantSays) {
  const std::string said = R"({"role":"assistant","content":"I can't."})";
  EXPECT_EQ(normalized(R"({"role":"assistant","content":null,"refusal":"I can't."})"), said);
  EXPECT_EQ(normalized(R"({"role":"assistant","refusal":"I can't."})"), said);
  EXPECT_EQ(normalized(R"({"role":"assistant","content":"","refusal":"I can't.","tool_calls":[]})"),
            R"({"role":"assistant","content":"I can't.","tool_calls":[]})");
  EXPECT_EQ(normalized(R"({"role":"assistant","content":[],"refusal":"I can't."})"), said);
  EXPECT_EQ(normalized(R"({"role":"assistant","content":[{"type":"refusal","refusal":"I can't."}]})"), said);
  // Beside an answer it is a member like others, which the template reads or not.
  for (const char* as_it_came : {R"({"role":"assistant","content":"No.","refusal":"I can't."})",
                                 R"({"role":"user","content":"","refusal":"I can't."})"})
    EXPECT_EQ(normalized(as_it_came), as_it_came);
  EXPECT_TRUE(refusal(R"([{"role":"assistant","refusal":7}])").starts_with("d.jsonl:3: messages[0]: \"refusal\""));
}

TEST(Conversation, ReasoningOfTwoNamesIsOne) {
  EXPECT_EQ(normalized(R"({"role":"assistant","content":"a","reasoning":"b","reasoning_content":"b"})"),
            R"({"role":"assistant","content":"a","reasoning":"b","reasoning_content":"b"})");
  EXPECT_EQ(normalized(R"({"role":"assistant","content":"a","reasoning":"b","reasoning_content":""})"),
            R"({"role":"assistant","content":"a","reasoning":"b"})");
  EXPECT_EQ(refusal(R"([{"role":"assistant","content":"a","reasoning":"b","reasoning_content":"c"}])"),
            "d.jsonl:3: messages[0]: a message has \"reasoning_content\" and another \"reasoning\": leave one of them "
            "out");
}

TEST(Conversation, NormalizingTwiceIsNormalizingOnce) {
  const OrderedJson g = json(read_file(kFolder + "shapes.json"));
  for (const OrderedJson& row : g["rows"]) {
    const OrderedJson once = normalize_messages(row["messages"]);
    EXPECT_EQ(normalize_messages(once), once);
    if (row["tools"].is_null()) continue;
    const OrderedJson tools = normalize_tools(row["tools"]);
    EXPECT_EQ(normalize_tools(tools), tools);
    EXPECT_TRUE(tools[0]["function"]["parameters"].is_object());
  }
}

}  // namespace
}  // namespace mxt::tokenizer
