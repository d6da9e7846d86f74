// The server in front of another.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client.h"
#include "serve/http/server.h"
#include "serve/operator.h"

namespace mxt::serve {
namespace {

// In front of another server the parser knows the tools however they are spelled.
TEST(Upstream, ToolsInEverySpellingGiveValuesTheirTypes) {
  HttpServer model(
      {}, [](const auto&) { return std::nullopt; },
      [](const auto&, auto reply) {
        const nlohmann::json message{
            {"role", "assistant"},
            {"content", "<tool_call>\n<function=f>\n<parameter=s>\n12\n</parameter>\n</function>\n</tool_call>"}};
        reply->send(
            {200,
             {{"Content-Type", "application/json"}},
             nlohmann::json{{"choices", {{{"index", 0}, {"message", message}, {"finish_reason", "stop"}}}}}.dump()});
      });
  model.start();
  OperatorSettings settings;
  settings.tools = ToolStyle::kQwenCoder;
  settings.upstream = "http://127.0.0.1:" + std::to_string(model.port());
  Operator op({}, settings);
  HttpServer front(
      {}, [&](const auto& r) { return op.gate(r); },
      [&](const auto& r, auto reply) { op.handle(r, std::move(reply)); });
  front.start();
  const auto tools = nlohmann::json::parse(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"s":{"type":"string"}}}}}])");
  auto bare = nlohmann::json::array({tools[0]["function"]}), text = tools;
  text[0]["function"]["parameters"] = text[0]["function"]["parameters"].dump();
  const auto ask_with = [&](const nlohmann::json& list, const nlohmann::json& choice = nullptr) {
    const nlohmann::json r{
        {"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"tools", list}, {"tool_choice", choice}};
    return ask("http://127.0.0.1:" + std::to_string(front.port()), "POST", "/v1/chat/completions", r.dump(), {});
  };
  for (const nlohmann::json& list : {tools, bare, text, nlohmann::json(tools.dump())}) {
    const auto j = ask_with(list).json();
    ASSERT_TRUE(j.contains("choices")) << j.dump();
    EXPECT_EQ(j["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], R"({"s": "12"})") << list.dump();
  }
  // A choice of any form is the other server's to read; with none there are no calls to look for.
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"f"}})",
                             R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"name":"f"}]}})"}) {
    const auto j = ask_with(tools, nlohmann::json::parse(choice)).json();
    ASSERT_TRUE(j.contains("choices")) << j.dump();
    EXPECT_TRUE(j["choices"][0]["message"].contains("tool_calls")) << choice;
  }
  EXPECT_FALSE(ask_with(tools, "none").json()["choices"][0]["message"].contains("tool_calls"));
  EXPECT_EQ(ask_with({{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", "{"}}}}}).status, 400);
  front.drain(0);
  model.drain(0);
}

}  // namespace
}  // namespace mxt::serve
