// Renderings equal to transformers' own (tools/golden/chat_templates.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "folders.h"
#include "tokenizer/chat/chat_template.h"

namespace mxt::tokenizer {
namespace {

const std::string kFolder = std::string(kSourceDir) + "/tests/golden/tokenizer_chat/";

OrderedJson golden(const std::string& name) { return parse_ordered_json(read_file(kFolder + name), name); }

TEST(JinjaGolden, SmallTemplatesRenderAsInTransformers) {
  const OrderedJson g = golden("jinja.json");
  size_t texts = 0;
  for (const OrderedJson& row : g["templates"]) {
    const auto source = row[0].get<std::string>();
    std::string text, error;
    try {
      text = jinja::render(*jinja::Template::compile(source, "t"), g["variables"]);
    } catch (const jinja::TemplateError& e) {
      error = e.what();
    }
    if (row[1].is_null()) {
      EXPECT_FALSE(error.empty()) << source << "\nrenders: " << text;
    } else {
      EXPECT_EQ(text, row[1].get<std::string>()) << source << "\n" << error;
      ++texts;
    }
  }
  EXPECT_GT(texts, 500u);
}

class ChatGolden : public testing::TestWithParam<const char*> {};

TEST_P(ChatGolden, EveryChatAndSettingRendersAsInTransformers) {
  const OrderedJson g = golden("chats.json");
  const OrderedJson& own = g["templates"][GetParam()];
  const auto t = ChatTemplate::compile(read_file(kFolder + "templates/" + GetParam() + ".jinja"), GetParam(),
                                       own["special_tokens"].get<std::map<std::string, std::string>>());
  size_t same = 0;
  for (size_t c = 0; c < g["chats"].size(); ++c)
    for (size_t s = 0; s < g["settings"].size(); ++s) {
      const OrderedJson& setting = g["settings"][s];
      OrderedJson kwargs = setting.value("chat_template_kwargs", OrderedJson::object());
      if (!kwargs.contains("date")) kwargs["date"] = "1 May 2025";
      ChatInput in;
      in.messages = &g["chats"][c];
      in.tools = setting.contains("tools") ? &g["tools"] : nullptr;
      in.add_generation_prompt = setting.value("add_generation_prompt", false);
      in.kwargs = &kwargs;
      const OrderedJson& want = own["cases"][c][s];
      SCOPED_TRACE(g["chats"][c].dump() + setting.dump());
      try {
        const RenderedChat chat = t->render_prompt(in);
        ASSERT_FALSE(want.is_null()) << chat.text;
        EXPECT_EQ(chat.text, own["texts"][want.get<size_t>()].get<std::string>());
        ++same;
      } catch (const FieldDropped&) {
        EXPECT_FALSE(want.is_null());  // transformers renders it, without the tools
      } catch (const jinja::TemplateError& e) {
        EXPECT_TRUE(want.is_null()) << e.what();
      }
    }
  EXPECT_GT(same, 40u);
}

TEST_P(ChatGolden, AnOpenLastMessageEndsTheTextAsInTransformers) {
  const OrderedJson g = golden("continued.json");
  const auto t = ChatTemplate::compile(
      read_file(kFolder + "templates/" + GetParam() + ".jinja"), GetParam(),
      golden("chats.json")["templates"][GetParam()]["special_tokens"].get<std::map<std::string, std::string>>());
  const OrderedJson kwargs{{"date", "1 May 2025"}};
  size_t same = 0;
  for (size_t c = 0; c < g["chats"].size(); ++c) {
    ChatInput in;
    in.messages = &g["chats"][c];
    in.continue_final_message = true;
    in.kwargs = &kwargs;
    const OrderedJson& want = g["templates"][GetParam()][c];
    SCOPED_TRACE(g["chats"][c].dump());
    try {
      const RenderedChat chat = t->render_prompt(in);
      ASSERT_FALSE(want.is_null()) << chat.text;
      EXPECT_EQ(chat.text, want.get<std::string>());
      EXPECT_TRUE(chat.plain.empty() || chat.plain.back().end <= chat.text.size());
      EXPECT_LE(chat.last_message, chat.text.size());
      ++same;
    } catch (const FieldDropped&) {
      EXPECT_FALSE(want.is_null());  // transformers renders it, without the call
    } catch (const Error& e) {
      EXPECT_TRUE(want.is_null()) << e.what();
    }
  }
  EXPECT_GT(same, 8u);
}

INSTANTIATE_TEST_SUITE_P(Templates, ChatGolden,
                         testing::Values("qwen3", "smollm2", "header_blocks", "bracketed", "marked", "by_index"));

}  // namespace
}  // namespace mxt::tokenizer
