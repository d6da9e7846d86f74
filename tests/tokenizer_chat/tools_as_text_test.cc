// Templates that are made to take tools: the text that transformers renders of them (tools/golden/tools_as_text.py),
// what of it is trained on, and what of a call each byte is.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "folders.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/chat/tools_as_text.h"

namespace mxt::tokenizer {
namespace {

OrderedJson golden() {
  const std::string path = std::string(kSourceDir) + "/tests/golden/tokenizer_chat/tools_as_text.json";
  return parse_ordered_json(read_file(path), path);
}

std::shared_ptr<const ChatTemplate> compile(const std::string& source) {
  return ChatTemplate::compile(with_tools_as_text(source), "with tools", {{"eos_token", "<|im_end|>"}},
                               {"<|im_start|>", "<|im_end|>", "</s>"});
}

std::string text_of(const RenderedChat& r, const Span& s) { return r.text.substr(s.begin, s.end - s.begin); }

TEST(ToolsAsText, RendersAsTransformersDoes) {
  for (const OrderedJson& c : golden()) {
    const auto t = compile(c["template"].get<std::string>());
    ChatInput in;
    in.messages = &c["messages"];
    in.tools = &c["tools"];
    in.now = 0;
    EXPECT_EQ(t->render(in).text, c["text"].get<std::string>());
    OrderedJson before = c["messages"];
    before.erase(before.size() - 1);
    in.messages = &before;
    in.add_generation_prompt = true;
    EXPECT_EQ(t->render_prompt(in).text, c["prompt"].get<std::string>());
  }
}

TEST(ToolsAsText, CallsAreTrainedAndResultsAreNot) {
  const OrderedJson c = golden()[1];  // three parallel calls beside words, three results, one of them long
  const auto t = compile(c["template"].get<std::string>());
  ChatInput in;
  in.messages = &c["messages"];
  in.tools = &c["tools"];
  in.now = 0;
  const RenderedChat r = t->render(in);
  ASSERT_EQ(r.assistant.size(), 2u);
  EXPECT_EQ(
      text_of(r, r.assistant[0]),
      "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\", \"days\": 2}}\n"
      "</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"timer\", \"arguments\": {\"minutes\": 1.5}}\n</tool_call><|im_end|>");
  EXPECT_EQ(text_of(r, r.assistant[1]), "Done.<|im_end|>");
}

TEST(ToolsAsText, EveryByteOfACallIsKnown) {
  const OrderedJson c = golden()[1];
  const auto t = compile(c["template"].get<std::string>());
  ChatInput in;
  in.messages = &c["messages"];
  in.tools = &c["tools"];
  in.now = 0;
  const RenderedChat r = t->render(in);
  std::string names, arguments, form;
  for (const CallSpan& s : r.calls) {
    EXPECT_GE(s.span.begin, r.assistant[0].begin);
    EXPECT_LE(s.span.end, r.assistant[0].end);  // the last turn has no call
    (s.part == CallPart::kName ? names : s.part == CallPart::kArguments ? arguments : form) += text_of(r, s.span);
  }
  EXPECT_NE(names.find("get_weather"), std::string::npos) << names;
  EXPECT_NE(names.find("timer"), std::string::npos) << names;
  EXPECT_EQ(names.find("city"), std::string::npos) << names;
  for (const char* part : {"city", "Köln", "Rome", "minutes", "1.5"})
    EXPECT_NE(arguments.find(part), std::string::npos) << part << " in " << arguments;
  EXPECT_EQ(arguments.find("tool_call"), std::string::npos) << arguments;
  EXPECT_NE(form.find("<tool_call>\n{\"name\": "), std::string::npos) << form;
  EXPECT_NE(form.find(", \"arguments\": "), std::string::npos) << form;
  EXPECT_EQ(form.find("Let me look"), std::string::npos) << form;
}

TEST(ToolsAsText, IsDoneOnce) {
  EXPECT_EQ(with_tools_as_text(with_tools_as_text("{{ messages }}")), with_tools_as_text("{{ messages }}"));
}

}  // namespace
}  // namespace mxt::tokenizer
