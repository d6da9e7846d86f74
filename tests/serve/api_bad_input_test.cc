// Requests that are refused by the name of what is wrong with them.
#include <chrono>

#include "served.h"

namespace mxt::serve::served {
namespace {

TEST(Api, MalformedSchemasAreTheClientsError) {
  auto r = chat();
  nlohmann::json wide;
  for (int i = 0; i < 1500; ++i) wide["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  for (const nlohmann::json& schema :
       {wide, nlohmann::json::parse(R"({"type":"string","nullable":"yes"})"),
        nlohmann::json::parse(R"({"allOf":[{"$ref":"#/a~2b"}]})"),
        nlohmann::json::parse(R"({"properties":{"a":true},"allOf":[{"properties":[1]}]})")}) {
    r["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}};
    const auto a = post("/v1/chat/completions", r);
    EXPECT_EQ(a.status, 400) << a.body.substr(0, 300);
    EXPECT_EQ(a.json()["error"]["param"], "response_format");
  }
}

TEST(Api, FieldsWithoutEffectHaveTypesToo) {
  const nlohmann::json wrong[] = {5, -1.5, nlohmann::json::array({1}), {{"a", 1}}};
  auto refused = [](const char* path, nlohmann::json r, const char* name, const nlohmann::json& value) {
    r[name] = value;
    const auto a = post(path, r);
    EXPECT_EQ(a.status, 400) << name << " " << value.dump() << " " << a.body.substr(0, 200);
  };
  for (const auto& w : wrong) {
    for (const char* name : {"user", "safety_identifier", "prompt_cache_key", "service_tier", "store", "metadata",
                             "reasoning_effort", "modalities"})
      refused("/v1/chat/completions", chat(), name, w);
    for (const char* name : {"user", "add_special_tokens"})
      refused("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}}, name, w);
    refused("/v1/embeddings", {{"input", "a"}}, "user", w);
    for (const char* name : {"model", "add_special_tokens", "add_generation_prompt", "continue_final_message", "tools",
                             "chat_template_kwargs", "return_token_strs"})
      refused("/tokenize", {{"prompt", "a"}}, name, w);
    refused("/detokenize", {{"tokens", {65}}}, "model", w);
  }
  auto r = chat();
  r["user"] = r["safety_identifier"] = "u", r["store"] = false, r["metadata"] = {{"a", "b"}},
  r["reasoning_effort"] = "low", r["service_tier"] = "auto", r["modalities"] = {"text"};
  EXPECT_EQ(post("/v1/chat/completions", r).status, 200);
  EXPECT_EQ(post("/tokenize", {{"model", "other"}, {"prompt", "a"}}).status, 404);
}

TEST(Api, HostileBodiesCostLittleAndTellNothing) {
  nlohmann::json bias;
  for (int i = 0; i < 200000; ++i) bias[std::to_string(i)] = 1;
  auto r = chat();
  r["logit_bias"] = bias;
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(post("/v1/chat/completions", r).status, 400);
  auto odd = chat();
  odd[std::string(1 << 20, 'x')] = 1;
  const auto a = post("/v1/chat/completions", odd);
  EXPECT_EQ(a.status, 400);
  EXPECT_LT(a.body.size(), 1000u);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count(), 20.0);
  // What the template refuses is told without where it lies.
  auto bad = chat();
  bad["chat_template_kwargs"]["range"] = 1;
  const auto b = post("/v1/chat/completions", bad);
  EXPECT_EQ(b.status, 400);
  EXPECT_EQ(b.body.find("serve_test_model"), std::string::npos) << b.body;
}

TEST(Api, BadFieldsAreRefusedByName) {
  auto expect_bad = [&](const std::string& path, nlohmann::json r, const std::string& param) {
    const Answer a = post(path, r);
    EXPECT_EQ(a.status, 400) << r.dump() << a.body;
    const auto j = a.json();
    EXPECT_EQ(j["error"]["type"], "invalid_request_error") << a.body;
    EXPECT_FALSE(j["error"]["message"].get<std::string>().empty());
    EXPECT_EQ(j["error"]["param"].is_null() ? "" : j["error"]["param"].get<std::string>(), param) << a.body;
  };
  auto with = [&](const char* key, const nlohmann::json& v) {
    auto r = chat();
    r[key] = v;
    return r;
  };
  const std::string path = "/v1/chat/completions";
  for (const auto& [key, v] :
       std::vector<std::pair<const char*, nlohmann::json>>{{"n", 1000000000},
                                                           {"n", 0},
                                                           {"n", -1},
                                                           {"n", 1.5},
                                                           {"n", "1"},
                                                           {"n", 18446744073709551615u},
                                                           {"temperature", -1},
                                                           {"temperature", "hot"},
                                                           {"temperature", 1e308},
                                                           {"top_p", 2},
                                                           {"top_k", -2},
                                                           {"max_tokens", -1},
                                                           {"max_tokens", 0},
                                                           {"max_tokens", 9223372036854775807},
                                                           {"max_completion_tokens", 0},
                                                           {"max_completion_tokens", "all"},
                                                           {"stop", 5},
                                                           {"stop", {1}},
                                                           {"seed", 1.5},
                                                           {"stream", "yes"},
                                                           {"stream_options", {{"include_usage", true}}},
                                                           {"top_logprobs", 2},
                                                           {"top_logprobs", 100},
                                                           {"logit_bias", {{"-1", 1}}},
                                                           {"logit_bias", {{"999999", 1}}},
                                                           {"logit_bias", 3},
                                                           {"messages", nlohmann::json::array()},
                                                           {"messages", 5},
                                                           {"messages", nullptr},
                                                           {"tools", 5},
                                                           {"chat_template", "{{ 1 }}"},
                                                           {"chat_template_kwargs", 5},
                                                           {"chat_template_kwargs", {{"messages", 1}}},
                                                           {"chat_template_kwargs", {{"tokenize", true}}},
                                                           {"response_format", 5},
                                                           {"tool_choice", "required"},
                                                           {"tool_choice", "sometimes"},
                                                           {"stop_token_ids", {-1}},
                                                           {"stop_token_ids", {99999}},
                                                           {"temprature", 1},
                                                           {"priority", 99999999}})
    expect_bad(path, with(key, v), std::string(key));
  auto both = with("max_completion_tokens", 4);
  both["max_tokens"] = "all";
  expect_bad(path, both, "max_tokens");
  for (const char* name : {"continuous_usage_stats", "include_usage", "include_obfuscation"}) {
    auto streamed = with("stream", true);
    streamed["stream_options"] = {{name, "yes"}};
    expect_bad(path, streamed, "stream_options." + std::string(name));
  }
  expect_bad(path, with("response_format", {{"type", "xml"}}), "response_format.type");
  expect_bad(path, with("response_format", {{"type", "json_schema"}}), "response_format.json_schema");
  expect_bad(path, with("messages", {{{"role", "root"}, {"content", "x"}}}), "messages[0].role");
  expect_bad(path, with("messages", {{{"role", "user"}}}), "messages[0].content");
  expect_bad(
      path,
      with("messages", {{{"role", "user"},
                         {"content", {{{"type", "image_url"}, {"image_url", {{"url", "http://169.254.169.254/"}}}}}}}}),
      "messages[0].content");
  expect_bad(path,
             with("messages", {{{"role", "assistant"},
                                {"content", ""},
                                {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", "{"}}}}}}}}),
             "messages[0].tool_calls[0]");
  auto schema = [&](const char* s) {
    return with("response_format",
                {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", nlohmann::json::parse(s)}}}});
  };
  for (const char* s :
       {R"({"type":"nope"})", R"({"type":"string","pattern":"(((("})", R"({"type":"string","pattern":"(a+)+\\1"})",
        R"({"$ref":"#"})", R"({"$ref":"#/x"})", R"({"type":"array","maxItems":-5})"})
    expect_bad(path, schema(s), "response_format");
  expect_bad(path, with("tools", nlohmann::json::parse(R"([{"type":"function"}])")), "tools[0]");
  auto tool = with_tool();
  tool["tools"][0]["function"]["parameters"] = {{"type", "array"}};
  expect_bad(path, tool, "tools[0].function.parameters");
  tool = with_tool();
  tool["tools"][0]["function"]["parameters"]["properties"]["city"] = {{"type", "strung"}};
  expect_bad(path, tool, "tools");
  tool = with_tool();
  tool["tools"][0]["function"]["name"] = "bad name\n";
  expect_bad(path, tool, "tools[0].function.name");
  const std::string cpath = "/v1/completions";
  for (const auto& [key, v] : std::vector<std::pair<const char*, nlohmann::json>>{{"prompt", ""},
                                                                                  {"prompt", nlohmann::json::array()},
                                                                                  {"prompt", nullptr},
                                                                                  {"prompt", {{-1}}},
                                                                                  {"prompt", {1, "a"}},
                                                                                  {"prompt", 5},
                                                                                  {"prompt", {{1000000}}},
                                                                                  {"prompt", {1e99}},
                                                                                  {"best_of", 1000000000},
                                                                                  {"best_of", 5},
                                                                                  {"suffix", "x"},
                                                                                  {"logprobs", -1},
                                                                                  {"logprobs", 1000},
                                                                                  {"max_tokens", 0}}) {
    nlohmann::json r{{"model", "tiny"}, {"prompt", "abc"}};
    r[key] = v;
    expect_bad(cpath, r, key);
  }
  const Answer lengthy = post(cpath, {{"prompt", std::vector<int>(600, 65)}});
  EXPECT_EQ(lengthy.status, 400);
  EXPECT_EQ(lengthy.json()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(post(path, with("model", "gpt-4")).status, 404);
  EXPECT_EQ(post(path, with("model", "gpt-4")).json()["error"]["code"], "model_not_found");
  for (const char* body : {"", "{", "[]", "nul", "{\"a\":1,\"a\":2}", "\xff\xfe", "{\"messages\":\"\xff\"}"})
    EXPECT_EQ(send(shared(), "POST", path, std::string(body) + " ").status, 400) << body;
  EXPECT_EQ(send(shared(), "POST", path, std::string(100000, '[')).status, 400);
  const auto instead = [&](const std::string& to, const char* key) {
    return send(shared(), "POST", to, "{\"" + std::string(key) + "\":1}").json()["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(instead(path, "guided_json"), "unrecognized request argument: guided_json (here: response_format)");
  EXPECT_EQ(instead(path, "functions"), "unrecognized request argument: functions (here: tools)");
  EXPECT_EQ(instead(cpath, "n_predict"), "unrecognized request argument: n_predict (here: max_tokens)");
  EXPECT_EQ(instead(cpath, "functions"), "unrecognized request argument: functions");
  EXPECT_EQ(instead(path, "temperatur"), "unrecognized request argument: temperatur (nearest: temperature)");
  const auto why = [&](const std::string& body) {
    return send(shared(), "POST", path, body).json()["error"]["message"].get<std::string>();
  };
  EXPECT_TRUE(why("{\"a\": nul}").starts_with("the request body:1:10: not valid JSON: syntax error"))
      << why("{\"a\": nul}");
  EXPECT_TRUE(why("{\"temperature\": 1e999}").starts_with("the request body:1:17: 1e999 is beyond the largest number"));
  EXPECT_EQ(why("{\"a\": 1, \"a\": 2}"), "the request body: key \"a\" stands twice in one object");
  EXPECT_TRUE(alive());
}

TEST(Api, TheTemplatesLimitsHold) {
  auto r = chat(std::string(1 << 20, 'x'));
  EXPECT_EQ(post("/v1/chat/completions", r).status, 400);  // longer than the context
  r = chat("{{ 1/0 }} {% for x in range(10**9) %}{% endfor %}");
  EXPECT_EQ(post("/v1/chat/completions", r).status, 200);  // a message is text, never a template
  EXPECT_TRUE(alive());
}

}  // namespace
}  // namespace mxt::serve::served
