// Tool calls, structured answers and reasoning by the API.

#include "served.h"

namespace mxt::serve::served {
namespace {

// The tiny model behind a chat template of its own.
class Templated {
 public:
  explicit Templated(std::string chat_template) : operator_(model_of(std::move(chat_template)), {}) { http_.start(); }
  ~Templated() { http_.drain(0); }
  mxt::serve::Answer chat(const nlohmann::json& body) const {
    return mxt::serve::ask("http://127.0.0.1:" + std::to_string(http_.port()), "POST", "/v1/chat/completions",
                           body.dump(), {});
  }

 private:
  ServedModel model_of(std::string chat_template) const {
    static const std::string folder = make_tiny_model(testing::TempDir() + "/serve_test_model");
    ServedModel m;
    m.model = server_.model.get(), m.scheduler = server_.scheduler.get();
    m.tok = tokenizer::Tokenizer::from_folder(folder);
    m.chat_source = std::move(chat_template);
    m.chat = tokenizer::ChatTemplate::compile(m.chat_source, "test", {}, {"<s>", "</s>"});
    m.stop = {257};
    m.names = {{"tiny", -1}};
    return m;
  }

  Server server_;
  Operator operator_;
  HttpServer http_{{},
                   [this](const auto& r) { return operator_.gate(r); },
                   [this](const auto& r, auto reply) { operator_.handle(r, std::move(reply)); }};
};

TEST(Api, AnAnswerWithoutThinkingIsContent) {
  // A template that can switch thinking on but opens none itself: what comes decides.
  const Templated server(
      "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}{% if enable_thinking is defined and not "
      "enable_thinking %}<think>\n\n</think>{% endif %}");
  const auto j = server
                     .chat({{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                            {"max_tokens", 6},
                            {"temperature", 0},
                            {"logit_bias", {{"65", 100}}}})
                     .json();
  ASSERT_TRUE(j.contains("choices")) << j.dump();
  EXPECT_FALSE(j["choices"][0]["message"]["content"].get<std::string>().empty());
  EXPECT_FALSE(j["choices"][0]["message"].contains("reasoning")) << j.dump();
}

TEST(Api, ToolsWithoutAPlaceInTheTemplateAreRefusedWithWhatHelpsAServer) {
  const Templated server("{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}");
  const auto a = server.chat(with_tool());
  EXPECT_EQ(a.status, 400);
  const auto said = a.json()["error"]["message"].get<std::string>();
  EXPECT_NE(said.find("leaves out tools[0]: "), std::string::npos) << said;
  EXPECT_NE(said.find("--chat-template"), std::string::npos) << said;
  EXPECT_EQ(said.find("data."), std::string::npos) << said;
  EXPECT_EQ(a.json()["error"]["param"], "tools");
}

TEST(Api, TheLastMessageIsGoneOnWith) {
  const auto text = [](nlohmann::json messages, nlohmann::json kwargs = nullptr) {
    const auto t =
        post("/tokenize", {{"messages", messages}, {"continue_final_message", true}, {"chat_template_kwargs", kwargs}});
    if (t.status != 200) return t.body;
    return post("/detokenize", {{"tokens", t.json()["tokens"]}}).json()["prompt"].get<std::string>();
  };
  const nlohmann::json asks{{"role", "user"}, {"content", "hi"}};
  const auto says = [](nlohmann::json content) { return nlohmann::json{{"role", "assistant"}, {"content", content}}; };
  EXPECT_EQ(text({asks, says("It is ")}), "<s>user:hi</s><s>assistant:It is ");
  EXPECT_EQ(text({asks, says("")}), "<s>user:hi</s><s>assistant:");
  EXPECT_EQ(text({asks, says({{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b "}}})}),
            "<s>user:hi</s><s>assistant:ab ");
  auto calls = says(nullptr);
  calls["tool_calls"] = {{{"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}}};
  EXPECT_NE(text({asks, calls}).find("continue_final_message"), std::string::npos);

  auto r = chat();
  r["messages"].push_back(says("It is "));
  r["continue_final_message"] = true;
  const auto j = post("/v1/chat/completions", r).json();
  ASSERT_TRUE(j.contains("choices")) << j.dump();
  const auto c = post("/v1/completions", {{"prompt", "<s>user:hi</s><s>assistant:It is "},
                                          {"add_special_tokens", false},
                                          {"max_tokens", 6},
                                          {"temperature", 0}})
                     .json();
  EXPECT_EQ(j["choices"][0]["message"]["content"], c["choices"][0]["text"]);  // what comes, without what was begun
  r["add_generation_prompt"] = false;
  EXPECT_EQ(post("/v1/chat/completions", r).status, 200);
  r["add_generation_prompt"] = true;
  const auto both = post("/v1/chat/completions", r);
  EXPECT_EQ(both.status, 400);
  EXPECT_EQ(both.json()["error"]["param"], "continue_final_message");
}

TEST(Api, AnAnswerThatIsGoneOnWithThinksWhereItHasBegunTo) {
  OperatorSettings settings;
  settings.reasoning = ReasoningStyle::kThinkTags;
  settings.always_thinks = true;
  Server s(settings);
  const auto message = [&](const std::string& begun) {
    auto r = chat();
    r.erase("chat_template_kwargs");
    r["messages"].push_back({{"role", "assistant"}, {"content", begun}});
    r["continue_final_message"] = true;
    r["logit_bias"] = {{"65", 100}};
    return send(s, "POST", "/v1/chat/completions", r.dump()).json()["choices"][0]["message"];
  };
  EXPECT_EQ(message("<think>\nHm, ")["reasoning"].get<std::string>().size(), 6u);
  for (const char* answers : {"It is ", "<think>\nHm.\n</think>\n\nIt "}) {
    const auto m = message(answers);
    EXPECT_FALSE(m.contains("reasoning")) << m.dump();
    EXPECT_EQ(m["content"].get<std::string>().size(), 6u) << m.dump();
  }
}

TEST(Api, StructuredOutputHoldsWhateverTheModelThinks) {
  auto r = chat();
  r["max_tokens"] = 300;
  r["temperature"] = 1.0;
  for (int seed = 0; seed < 4; ++seed) {
    r["seed"] = seed;
    r["response_format"] = nlohmann::json::parse(
        R"({"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object","properties":{"color":{"enum":["red","blue"]},"n":{"type":"integer","minimum":1,"maximum":20},
      "tags":{"type":"array","items":{"type":"string","maxLength":4},"maxItems":2}},"required":["color","n","tags"],"additionalProperties":false}}})");
    const auto j = post("/v1/chat/completions", r).json();
    ASSERT_TRUE(j.contains("choices")) << j.dump();
    const auto v = nlohmann::json::parse(j["choices"][0]["message"]["content"].get<std::string>());
    EXPECT_TRUE(v["color"] == "red" || v["color"] == "blue");
    EXPECT_TRUE(v["n"] >= 1 && v["n"] <= 20);
    EXPECT_LE(v["tags"].size(), 2u);
    EXPECT_EQ(j["choices"][0]["finish_reason"], "stop");
  }
}

TEST(Api, RequiredToolCallsWholeAndStreamed) {
  const auto j = post("/v1/chat/completions", with_tool()).json();
  ASSERT_TRUE(j.contains("choices")) << j.dump();
  const auto& c = j["choices"][0];
  EXPECT_EQ(c["finish_reason"], "tool_calls");
  EXPECT_TRUE(c["message"]["content"].is_null());
  ASSERT_EQ(c["message"]["tool_calls"].size(), 1u);
  const auto& call = c["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "weather");
  const auto arguments = nlohmann::json::parse(call["function"]["arguments"].get<std::string>());
  EXPECT_TRUE(arguments["city"] == "Oslo" || arguments["city"] == "Rome");
  auto r = with_tool();
  r["stream"] = true;
  r["tool_choice"] = {{"type", "function"}, {"function", {{"name", "weather"}}}};
  std::string name, text, reason;
  for (const auto& e : events(post("/v1/chat/completions", r).body))
    for (const auto& ch : e["choices"]) {
      if (!ch["finish_reason"].is_null()) reason = ch["finish_reason"];
      if (!ch["delta"].contains("tool_calls")) continue;
      const auto& d = ch["delta"]["tool_calls"][0];
      EXPECT_EQ(d["index"], 0);
      if (d["function"].contains("name")) name = d["function"]["name"];
      text += d["function"]["arguments"].get<std::string>();
    }
  EXPECT_EQ(name, "weather");
  EXPECT_EQ(text, call["function"]["arguments"].get<std::string>());
  EXPECT_EQ(reason, "tool_calls");
  // The answer goes back in.
  auto next = with_tool();
  next["tool_choice"] = "none";
  next["messages"].push_back(c["message"]);
  next["messages"].push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "sunny"}});
  EXPECT_EQ(post("/v1/chat/completions", next).status, 200);
}

// The grammar leaves both ways open; what the model likes best decides.
TEST(Api, AnAnswerBesideToolsIsAsTheSchemaSaysOrCalls) {
  const auto id = [](const char* text) {
    return std::to_string(
        post("/tokenize", {{"prompt", text}, {"add_special_tokens", false}}).json()["tokens"][0].get<int>());
  };
  for (const char* format : {R"({"type":"json_object"})",
                             R"({"type":"json_schema","json_schema":{"name":"x","schema":{"const":{"a":1}}}})"}) {
    auto r = with_tool();
    r["response_format"] = nlohmann::json::parse(format);
    r["tool_choice"] = "auto";
    r["logit_bias"] = {{id("<"), 100}};
    const auto call = post("/v1/chat/completions", r).json();
    ASSERT_TRUE(call.contains("choices")) << call.dump();
    EXPECT_EQ(call["choices"][0]["finish_reason"], "tool_calls") << call.dump();
    EXPECT_EQ(call["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "weather");
    r["logit_bias"] = {{id("{"), 100}, {id("}"), 100}};
    const auto said = post("/v1/chat/completions", r).json();
    ASSERT_TRUE(said.contains("choices")) << said.dump();
    EXPECT_FALSE(said["choices"][0]["message"].contains("tool_calls")) << said.dump();
    EXPECT_EQ(said["choices"][0]["message"]["content"].get<std::string>().substr(0, 1), "{");
  }
}

// As rows of training may have them (tokenizer/chat/input): no envelope, parameters and arguments as JSON text, the
// older function_call with its result.
TEST(Api, ToolsAndCallsAreTakenInEverySpelling) {
  using Any = nlohmann::ordered_json;  // the order of members is text too
  const auto tokens = [&](const Any& r) {
    const auto a = send(shared(), "POST", "/tokenize", r.dump());
    EXPECT_EQ(a.status, 200) << a.body;
    return a.json().value("tokens", nlohmann::json());
  };
  const auto proper = Any::parse(
      R"({"messages":[{"role":"user","content":"w?"},
          {"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"weather","arguments":{"city":"Oslo"}}}]},
          {"role":"tool","content":"12"}],
          "tools":[{"type":"function","function":{"name":"weather","description":"d","parameters":{"type":"object","properties":{"city":{"enum":["Oslo"]}}}}}]})");
  const auto want = tokens(proper);
  auto r = proper;
  r["messages"][1]["tool_calls"][0] = {{"name", "weather"}, {"arguments", {{"city", "Oslo"}}}};
  EXPECT_EQ(tokens(r), want);
  r["messages"][1]["tool_calls"][0]["arguments"] = R"({"city": "Oslo"})";
  EXPECT_EQ(tokens(r), want);
  r["messages"][1].erase("tool_calls");
  r["messages"][1]["function_call"] = {{"name", "weather"}, {"arguments", R"({"city":"Oslo"})"}};
  r["messages"][2]["role"] = "function";
  EXPECT_EQ(tokens(r), want);
  r["tools"] = Any::array({proper["tools"][0]["function"]});
  EXPECT_EQ(tokens(r), want);
  r["tools"][0]["parameters"] = r["tools"][0]["parameters"].dump();
  EXPECT_EQ(tokens(r), want);
  r["tools"] = r["tools"].dump();
  EXPECT_EQ(tokens(r), want);

  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"weather"}})",
                             R"({"type":"function","name":"weather"})", R"({"name":"weather"})"}) {
    auto q = with_tool();
    q["tools"][0] = q["tools"][0]["function"];
    q["tool_choice"] = nlohmann::json::parse(choice);
    const auto j = post("/v1/chat/completions", q).json();
    ASSERT_TRUE(j.contains("choices")) << j.dump();
    EXPECT_EQ(j["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "weather") << choice;
  }
  auto q = with_tool();
  q["tools"][0]["function"]["parameters"]["type"] = {"object", "null"};
  const auto nullable = post("/v1/chat/completions", q);
  EXPECT_EQ(nullable.status, 200) << nullable.body;
  q["tools"][0]["function"]["parameters"]["type"] = {"array", "null"};
  EXPECT_EQ(post("/v1/chat/completions", q).status, 400);
  q = with_tool();
  q["tools"][0] = q["tools"][0]["function"];
  q["tool_choice"] = {{"name", "other"}};
  EXPECT_EQ(post("/v1/chat/completions", q).json()["error"]["param"], "tool_choice");
  Any p = proper;
  p["messages"][1]["function_call"] = {{"name", "weather"}, {"arguments", "{}"}};
  EXPECT_EQ(send(shared(), "POST", "/tokenize", p.dump()).status, 400);  // both ways at once
  p = proper;
  p["messages"][0]["tool_calls"] = p["messages"][1]["tool_calls"];
  EXPECT_EQ(send(shared(), "POST", "/tokenize", p.dump()).json()["error"]["param"], "messages[0].tool_calls");
}

TEST(Api, AllowedToolsAloneAreOffered) {
  using Any = nlohmann::ordered_json;
  auto r = Any::parse(with_tool().dump());
  r.erase("tool_choice");
  Any all = r;
  for (const char* name : {"alpha", "beta"})
    all["tools"].insert(
        all["tools"].begin(),
        Any{{"type", "function"}, {"function", {{"name", name}, {"parameters", {{"type", "object"}}}}}});
  const auto allow = [&](const char* mode, Any tools) {
    Any q = all;
    q["tool_choice"] = {{"type", "allowed_tools"}, {"allowed_tools", {{"mode", mode}, {"tools", std::move(tools)}}}};
    return q;
  };
  const Any weather = {{"type", "function"}, {"function", {{"name", "weather"}}}};
  // Whatever else the model would call: what it reads and answers is what it is without the other tools.
  const auto answer = [](const Any& q) { return send(shared(), "POST", "/v1/chat/completions", q.dump()).json(); };
  Any alone = r;
  alone["tool_choice"] = "auto";
  Any want = answer(alone), got = answer(allow("auto", Any::array({weather})));
  ASSERT_TRUE(got.contains("choices")) << got.dump();
  EXPECT_EQ(got["usage"]["prompt_tokens"], want["usage"]["prompt_tokens"]);
  EXPECT_EQ(got["choices"][0]["message"]["content"], want["choices"][0]["message"]["content"]);
  for (const Any& spelled : {weather, Any{{"type", "function"}, {"name", "weather"}}}) {
    got = answer(allow("required", Any::array({spelled})));
    ASSERT_TRUE(got.contains("choices")) << got.dump();
    EXPECT_EQ(got["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "weather");
  }
  got = answer(allow("required", Any::array({Any{{"name", "beta"}}, weather, weather})));
  ASSERT_TRUE(got.contains("choices")) << got.dump();
  EXPECT_NE(got["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "alpha");

  const auto refused = [&](const char* choice) {
    Any q = all;
    q["tool_choice"] = Any::parse(choice);
    const auto a = send(shared(), "POST", "/v1/chat/completions", q.dump());
    EXPECT_EQ(a.status, 400) << choice;
    return a.json()["error"]["param"].get<std::string>();
  };
  EXPECT_EQ(refused(R"({"type":"allowed_tools"})"), "tool_choice.allowed_tools");
  EXPECT_EQ(refused(R"({"type":"allowed_tools","allowed_tools":["weather"]})"), "tool_choice.allowed_tools");
  EXPECT_EQ(refused(R"({"type":"allowed_tools","mode":"auto","tools":[]})"), "tool_choice.mode");
  EXPECT_EQ(refused(R"({"type":"allowed_tools","allowed_tools":{"tools":[{"name":"weather"}]}})"),
            "tool_choice.allowed_tools.mode");
  EXPECT_EQ(refused(R"({"type":"allowed_tools","allowed_tools":{"mode":"none","tools":[{"name":"weather"}]}})"),
            "tool_choice.allowed_tools.mode");
  EXPECT_EQ(refused(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}})"),
            "tool_choice.allowed_tools.tools");
  EXPECT_EQ(refused(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"name":"weather"},"beta"]}})"),
            "tool_choice.allowed_tools.tools[1]");
  EXPECT_EQ(refused(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"name":"other"}]}})"),
            "tool_choice.allowed_tools.tools[0]");
  EXPECT_EQ(refused(R"({"type":"custom","custom":{"name":"weather"}})"), "tool_choice");
  all.erase("tools");
  EXPECT_EQ(refused(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"name":"weather"}]}})"),
            "tool_choice.allowed_tools.tools[0]");
}

TEST(Api, ARefusalComesBackAsWhatWasSaid) {
  const auto tokens = [](const std::string& assistant) {
    return send(shared(), "POST", "/tokenize",
                R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant",)" + assistant + "}]}")
        .json()["tokens"];
  };
  const auto want = tokens(R"("content":"I can't.")");
  ASSERT_FALSE(want.empty());
  EXPECT_EQ(tokens(R"("content":null,"refusal":"I can't.")"), want);
  EXPECT_EQ(tokens(R"("refusal":"I can't.")"), want);
  EXPECT_EQ(tokens(R"("content":[{"type":"refusal","refusal":"I can't."}])"), want);
  EXPECT_EQ(tokens(R"("content":null,"refusal":"")"), nullptr);
}

TEST(Api, ThinkingIsReasoning) {
  auto r = chat();
  r["chat_template_kwargs"] = {{"enable_thinking", true}};
  const auto m = post("/v1/chat/completions", r).json()["choices"][0]["message"];
  EXPECT_EQ(m["content"], "");
  EXPECT_FALSE(m["reasoning"].get<std::string>().empty());
  EXPECT_EQ(m["reasoning"], m["reasoning_content"]);
}

}  // namespace
}  // namespace mxt::serve::served
