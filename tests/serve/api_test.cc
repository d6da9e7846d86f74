// The server over real sockets, with a tiny random model and a byte tokenizer that the test makes: protocol, bad
// inputs, abuse.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/json.h"
#include "base/within.h"
#include "client.h"
#include "net/http.h"
#include "serve/http/server.h"
#include "serve/operator.h"
#include "serve/tiny_model.h"

namespace mxt::serve {
namespace {

struct Server {
  std::unique_ptr<infer::Model> model;
  std::unique_ptr<infer::Scheduler> scheduler;
  std::unique_ptr<Operator> op;
  std::unique_ptr<HttpServer> http;
  std::string url;

  // `begun`: whether it takes requests from the start; else they wait for scheduler->start().
  explicit Server(OperatorSettings settings = {}, HttpSettings h = {}, infer::SchedulerSettings sched = {.batch = 8},
                  bool begun = true) {
    static const std::string folder = make_tiny_model(testing::TempDir() + "/serve_test_model");
    model = std::make_unique<infer::Model>(folder, "", DType::kF32, 512, kernels::cpu_ops());
    scheduler = std::make_unique<infer::Scheduler>(*model, sched);
    ServedModel s;
    s.model = model.get();
    s.scheduler = scheduler.get();
    s.tok = tokenizer::Tokenizer::from_folder(folder);
    s.chat_source = kTinyChat;
    s.chat = tokenizer::ChatTemplate::compile(kTinyChat, "test", {}, {"<s>", "</s>"});
    s.stop = {257};
    s.names = {{"tiny", -1}};
    op = std::make_unique<Operator>(std::move(s), std::move(settings));
    http = std::make_unique<HttpServer>(
        h, [this](const auto& r) { return op->gate(r); },
        [this](const auto& r, auto reply) { op->handle(r, std::move(reply)); });
    if (begun) scheduler->start();
    http->start();
    url = "http://127.0.0.1:" + std::to_string(http->port());
  }
  ~Server() {
    http->drain(0);
    scheduler->stop();
  }
};

Server& shared() {
  static Server s;
  return s;
}

Answer send(const Server& s, const std::string& method, const std::string& path, const std::string& body = "",
            net::Headers headers = {}) {
  return ask(s.url, method, path, body, std::move(headers));
}
Answer post(const std::string& path, const nlohmann::json& body) { return send(shared(), "POST", path, body.dump()); }

std::vector<nlohmann::json> events(const std::string& body) {
  std::vector<nlohmann::json> out;
  bool done = false;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string line = body.substr(at, end - at);
    at = end + 2;
    EXPECT_FALSE(done);
    if (line == "data: [DONE]")
      done = true;
    else if (line.starts_with("data: "))
      out.push_back(nlohmann::json::parse(line.substr(6)));
  }
  EXPECT_TRUE(done);
  return out;
}

// Raw bytes to the server, what it answers until it closes or the time is over.
std::string raw(const Server& s, const std::string& bytes, bool half_close = false) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(s.http->port());
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
  // A connection that stays open is quiet when all is said; how long the first word takes depends on the machine.
  const auto patience = [fd](int seconds) {
    const timeval t{seconds, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
  };
  patience(60);
  size_t sent = 0;
  while (sent < bytes.size()) {
    const auto n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  if (half_close) ::shutdown(fd, SHUT_WR);
  std::string out;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(fd, buffer, sizeof buffer, 0)) > 0; patience(3))
    out.append(buffer, static_cast<size_t>(n));
  ::close(fd);
  return out;
}

bool alive() { return send(shared(), "GET", "/health").status == 200; }

nlohmann::json chat(const std::string& text = "hi") {
  return {{"model", "tiny"},
          {"messages", {{{"role", "user"}, {"content", text}}}},
          {"max_tokens", 6},
          {"temperature", 0},
          {"chat_template_kwargs", {{"enable_thinking", false}}}};
}

TEST(Api, ModelsHealthMetricsAndTheDocument) {
  EXPECT_EQ(send(shared(), "GET", "/health").json()["status"], "ok");
  const auto m = send(shared(), "GET", "/v1/models").json();
  EXPECT_EQ(m["data"][0]["id"], "tiny");
  EXPECT_EQ(m["data"][0]["object"], "model");
  EXPECT_EQ(send(shared(), "GET", "/v1/models/tiny").json()["id"], "tiny");
  EXPECT_EQ(send(shared(), "GET", "/v1/models/other").status, 404);
  EXPECT_EQ(send(shared(), "GET", "/v1/models/t%69ny").json()["id"], "tiny");
  EXPECT_EQ(send(shared(), "GET", "/v1/models/org%2Fother").status, 404);
  for (const char* bad : {"%", "t%6", "%zz", "%ff", "%+1"})
    EXPECT_EQ(send(shared(), "GET", std::string("/v1/models/") + bad).status, 400) << bad;
  post("/v1/chat/completions", chat());
  const std::string text = send(shared(), "GET", "/metrics").body;
  EXPECT_NE(text.find("mindxtrain_generated_tokens_total "), std::string::npos);
  EXPECT_NE(text.find("mindxtrain_time_to_first_token_seconds_bucket{le=\"+Inf\"}"), std::string::npos);
  const auto doc = send(shared(), "GET", "/openapi.json").json();
  EXPECT_EQ(doc["openapi"], "3.1.0");
  EXPECT_TRUE(doc["paths"].contains("/v1/chat/completions"));
}

TEST(Api, ChatWholeAndStreamedAreTheSame) {
  const auto whole = post("/v1/chat/completions", chat()).json();
  EXPECT_EQ(whole["object"], "chat.completion");
  const auto& message = whole["choices"][0]["message"];
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(whole["usage"]["total_tokens"].get<int>(),
            whole["usage"]["prompt_tokens"].get<int>() + whole["usage"]["completion_tokens"].get<int>());
  auto r = chat();
  r["stream"] = true;
  r["stream_options"] = {{"include_usage", true}};
  const auto list = events(post("/v1/chat/completions", r).body);
  std::string content, reason;
  for (const auto& e : list) {
    EXPECT_EQ(e["object"], "chat.completion.chunk");
    EXPECT_EQ(e["id"], list[0]["id"]);
    if (e["choices"].empty()) continue;
    EXPECT_TRUE(e["usage"].is_null());
    if (e["choices"][0]["delta"].contains("content")) content += e["choices"][0]["delta"]["content"].get<std::string>();
    if (!e["choices"][0]["finish_reason"].is_null()) reason = e["choices"][0]["finish_reason"];
  }
  EXPECT_EQ(list[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(message["content"], content);
  EXPECT_EQ(reason, whole["choices"][0]["finish_reason"].get<std::string>());
  EXPECT_TRUE(list.back()["choices"].empty());
  EXPECT_EQ(list.back()["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
}

TEST(Api, ChatLogprobsAndSeveralChoices) {
  auto r = chat();
  r["logprobs"] = true;
  r["top_logprobs"] = 3;
  r["temperature"] = 1.0;
  r["seed"] = 4;
  r["n"] = 3;
  const auto a = post("/v1/chat/completions", r).json(), b = post("/v1/chat/completions", r).json();
  ASSERT_EQ(a["choices"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(a["choices"][i]["index"], i);
    EXPECT_EQ(a["choices"][i]["message"]["content"], b["choices"][i]["message"]["content"]);
    for (const auto& t : a["choices"][i]["logprobs"]["content"]) {
      EXPECT_LE(t["logprob"].get<double>(), 0);
      EXPECT_EQ(t["top_logprobs"].size(), 3u);
      EXPECT_TRUE(t["bytes"].is_array());
    }
  }
}

TEST(Api, SeveralGreedyChoicesAreTheSame) {
  auto r = chat();
  r["n"] = 2;
  const auto j = post("/v1/chat/completions", r).json();
  ASSERT_EQ(j["choices"].size(), 2u) << j.dump();
  EXPECT_EQ(j["choices"][0]["message"], j["choices"][1]["message"]);
}

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
    for (const char* name :
         {"user", "safety_identifier", "prompt_cache_key", "service_tier", "store", "metadata", "reasoning_effort"})
      refused("/v1/chat/completions", chat(), name, w);
    for (const char* name : {"user", "add_special_tokens"})
      refused("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}}, name, w);
    refused("/v1/embeddings", {{"input", "a"}}, "user", w);
    for (const char* name :
         {"model", "add_special_tokens", "add_generation_prompt", "tools", "chat_template_kwargs", "return_token_strs"})
      refused("/tokenize", {{"prompt", "a"}}, name, w);
    refused("/detokenize", {{"tokens", {65}}}, "model", w);
  }
  auto r = chat();
  r["user"] = r["safety_identifier"] = "u", r["store"] = false, r["metadata"] = {{"a", "b"}},
  r["reasoning_effort"] = "low", r["service_tier"] = "auto";
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

TEST(Api, CompletionsAsTheEvaluationHarnessAsks) {
  const std::vector<std::vector<int>> prompts{{72, 101, 108, 108, 111}, {65, 66}, {65, 66, 67, 68, 69, 70, 71}};
  const nlohmann::json r{{"model", "tiny"}, {"prompt", prompts}, {"echo", true}, {"logprobs", 1},
                         {"max_tokens", 1}, {"temperature", 0},  {"seed", 1234}};
  const auto j = post("/v1/completions", r).json();
  ASSERT_EQ(j["choices"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const auto& l = j["choices"][i]["logprobs"];
    ASSERT_EQ(l["token_logprobs"].size(), prompts[i].size() + 1);
    EXPECT_TRUE(l["token_logprobs"][0].is_null());
    EXPECT_TRUE(l["top_logprobs"][0].is_null());
    for (size_t t = 1; t < l["token_logprobs"].size(); ++t) {
      double best = -1e9;
      for (const auto& [k, v] : l["top_logprobs"][t].items()) best = std::max(best, v.get<double>());
      EXPECT_GE(best, l["token_logprobs"][t].get<double>());
      if (t + 1 == l["token_logprobs"].size()) {  // greedy: the same float
        EXPECT_EQ(best, l["token_logprobs"][t].get<double>());
      }
    }
    auto one = r;
    one["prompt"] = prompts[i];
    EXPECT_EQ(post("/v1/completions", one).json()["choices"][0]["logprobs"], l);
  }
  const auto text =
      post("/v1/completions", {{"model", "tiny"}, {"prompt", "abc"}, {"max_tokens", 0}, {"echo", true}}).json();
  EXPECT_EQ(text["choices"][0]["text"], "abc");
  EXPECT_EQ(text["choices"][0]["finish_reason"], "length");
}

TEST(Api, StopsAndBiases) {
  const nlohmann::json base{
      {"model", "tiny"}, {"prompt", "abc"}, {"max_tokens", 8}, {"temperature", 0}, {"logit_bias", {{"120", 100}}}};
  const std::string x = post("/v1/completions", base).json()["choices"][0]["text"];
  auto stop = base;
  stop["stop"] = {x.substr(0, x.size() / 4)};
  const auto j = post("/v1/completions", stop).json();
  EXPECT_EQ(j["choices"][0]["text"], "");
  EXPECT_EQ(j["choices"][0]["finish_reason"], "stop");
}

TEST(Api, StopsMayBeControlTokens) {
  // Nothing but <s> comes, which ends no turn by itself.
  nlohmann::json r{{"model", "tiny"},  {"prompt", "abc"},    {"max_tokens", 8},
                   {"temperature", 0}, {"ignore_eos", true}, {"logit_bias", {{"256", 100}}}};
  EXPECT_EQ(post("/v1/completions", r).json()["choices"][0]["finish_reason"], "length");
  for (const char* stop : {"<s>", "</s>"}) {
    r["stop"] = stop;
    r["logit_bias"] = {{std::string(stop) == "<s>" ? "256" : "257", 100}};
    const auto j = post("/v1/completions", r).json();
    EXPECT_EQ(j["choices"][0]["finish_reason"], "stop") << stop;
    EXPECT_EQ(j["choices"][0]["text"], "") << stop;
    EXPECT_EQ(j["usage"]["completion_tokens"], 1);
  }
  r["include_stop_str_in_output"] = true;
  EXPECT_EQ(post("/v1/completions", r).json()["choices"][0]["text"], "</s>");
}

TEST(Api, LogprobsEndWhereTheTextEnds) {
  // Bytes that repeat: "xyxyxy…"
  const nlohmann::json base{{"model", "tiny"},
                            {"prompt", "abc"},
                            {"max_tokens", 12},
                            {"seed", 4},
                            {"logprobs", 0},
                            {"ignore_eos", true},
                            {"logit_bias", {{"120", 60}, {"121", 60}}}};
  const auto free = post("/v1/completions", base).json()["choices"][0];
  const std::string text = free["text"];
  ASSERT_EQ(text.find_first_not_of("XYxy"), std::string::npos) << text;
  ASSERT_EQ(free["logprobs"]["tokens"].size(), 12u);
  const std::string stop = text.substr(5, 3);
  const size_t at = text.find(stop);
  auto r = base;
  r["stop"] = stop;
  const auto stopped = post("/v1/completions", r).json()["choices"][0];
  EXPECT_EQ(stopped["text"], text.substr(0, at));
  EXPECT_EQ(stopped["logprobs"].is_null() ? 0 : stopped["logprobs"]["tokens"].size(), at);
  for (const bool chat_too : {false, true}) {
    auto q = chat();
    q["stop"] = stop, q["seed"] = 4, q["logprobs"] = true, q["temperature"] = 1, q["max_tokens"] = 40;
    q["logit_bias"] = base["logit_bias"], q["stream"] = chat_too;
    const Answer a = post("/v1/chat/completions", q);
    std::string content, told;
    auto add = [&](const nlohmann::json& choice, const char* part) {
      if (choice[part].contains("content")) content += choice[part]["content"].get<std::string>();
      if (choice["logprobs"].is_null()) return;
      for (const auto& t : choice["logprobs"]["content"]) told += t["token"].get<std::string>();
    };
    if (!chat_too) add(a.json()["choices"][0], "message");
    if (chat_too)
      for (const auto& e : events(a.body))
        for (const auto& c : e["choices"]) add(c, "delta");
    EXPECT_EQ(told, content);
    EXPECT_EQ(content.find(stop), std::string::npos);
  }
}

TEST(Api, AnAnswerWithoutThinkingIsContent) {
  // A template that can switch thinking on but opens none itself: what comes decides.
  Server s;
  ServedModel m;
  m.model = s.model.get(), m.scheduler = s.scheduler.get();
  static const std::string folder = make_tiny_model(testing::TempDir() + "/serve_test_model");
  m.tok = tokenizer::Tokenizer::from_folder(folder);
  m.chat_source =
      "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}{% if enable_thinking is defined and not "
      "enable_thinking %}<think>\n\n</think>{% endif %}";
  m.chat = tokenizer::ChatTemplate::compile(m.chat_source, "test", {}, {"<s>", "</s>"});
  m.stop = {257};
  m.names = {{"tiny", -1}};
  Operator op(std::move(m), {});
  HttpServer http(
      {}, [&](const auto& r) { return op.gate(r); },
      [&](const auto& r, auto reply) { op.handle(r, std::move(reply)); });
  http.start();
  const std::string url = "http://127.0.0.1:" + std::to_string(http.port());
  nlohmann::json r{{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                   {"max_tokens", 6},
                   {"temperature", 0},
                   {"logit_bias", {{"65", 100}}}};
  const auto j = mxt::serve::ask(url, "POST", "/v1/chat/completions", r.dump(), {}).json();
  ASSERT_TRUE(j.contains("choices")) << j.dump();
  EXPECT_FALSE(j["choices"][0]["message"]["content"].get<std::string>().empty());
  EXPECT_FALSE(j["choices"][0]["message"].contains("reasoning")) << j.dump();
  http.drain(0);
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

nlohmann::json with_tool() {
  auto r = chat();
  r["tools"] = nlohmann::json::parse(
      R"([{"type":"function","function":{"name":"weather","description":"d","parameters":{"type":"object","properties":{"city":{"enum":["Oslo","Rome"]}},"required":["city"]}}}])");
  r["tool_choice"] = "required";
  r["parallel_tool_calls"] = false;
  r["max_tokens"] = 300;
  return r;
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

// As rows of training may have them (tokenizer/chat/input): no envelope, parameters and arguments as JSON text, the
// older function_call with its result.
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

TEST(Api, UsageInEveryChunkWhereItIsAskedFor) {
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    nlohmann::json r =
        std::string(path) == "/v1/completions" ? nlohmann::json{{"prompt", "abc"}, {"max_tokens", 4}} : chat();
    r["stream"] = true;
    r["stream_options"] = {{"continuous_usage_stats", true}};
    int last = 0;
    for (const auto& e : events(post(path, r).body)) {
      ASSERT_TRUE(e["usage"].is_object()) << e.dump();
      EXPECT_FALSE(e["choices"].empty());  // none of usage alone was asked for
      const int now = e["usage"]["completion_tokens"];
      EXPECT_GE(now, last);
      last = now;
    }
    EXPECT_GT(last, 0) << path;
  }
}

TEST(Api, ThinkingIsReasoning) {
  auto r = chat();
  r["chat_template_kwargs"] = {{"enable_thinking", true}};
  const auto m = post("/v1/chat/completions", r).json()["choices"][0]["message"];
  EXPECT_EQ(m["content"], "");
  EXPECT_FALSE(m["reasoning"].get<std::string>().empty());
  EXPECT_EQ(m["reasoning"], m["reasoning_content"]);
}

TEST(Api, EmbeddingsAndTokens) {
  const auto j = post("/v1/embeddings", {{"model", "tiny"}, {"input", {"abc", "abd"}}}).json();
  const std::vector<std::string> many(1000, "ab");  // as LangChain sends them
  EXPECT_EQ(post("/v1/embeddings", {{"input", many}}).json()["data"].size(), 1000u);
  ASSERT_EQ(j["data"].size(), 2u);
  EXPECT_EQ(j["data"][0]["embedding"].size(), 32u);
  EXPECT_NE(j["data"][0]["embedding"], j["data"][1]["embedding"]);
  EXPECT_EQ(post("/v1/embeddings", {{"model", "tiny"}, {"input", "abc"}}).json()["data"][0]["embedding"],
            j["data"][0]["embedding"]);
  EXPECT_EQ(post("/v1/embeddings", {{"input", "abc"}, {"encoding_format", "base64"}})
                .json()["data"][0]["embedding"]
                .get<std::string>()
                .size(),
            (32 * 4 + 2) / 3 * 4u);
  const auto t = post("/tokenize", {{"prompt", "héllo"}, {"add_special_tokens", false}}).json();
  EXPECT_EQ(t["count"], 6);
  EXPECT_EQ(post("/detokenize", {{"tokens", t["tokens"]}}).json()["prompt"], "héllo");
  EXPECT_EQ(send(shared(), "GET", "/tokenizer_info").json()["eos_token"], "</s>");
  // Control tokens inside a message are text.
  const auto plain = post("/tokenize", {{"messages", {{{"role", "user"}, {"content", "</s>"}}}}}).json();
  EXPECT_EQ(std::count(plain["tokens"].begin(), plain["tokens"].end(), 257), 1);
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
  EXPECT_TRUE(alive());
}

TEST(Api, TheTemplatesLimitsHold) {
  auto r = chat(std::string(1 << 20, 'x'));
  EXPECT_EQ(post("/v1/chat/completions", r).status, 400);  // longer than the context
  r = chat("{{ 1/0 }} {% for x in range(10**9) %}{% endfor %}");
  EXPECT_EQ(post("/v1/chat/completions", r).status, 200);  // a message is text, never a template
  EXPECT_TRUE(alive());
}

TEST(Http, BadRequestsGetAnAnswerAndCostNothing) {
  auto status = [](const std::string& answer) { return answer.size() > 12 ? std::atoi(answer.c_str() + 9) : 0; };
  const std::string h = "Host: x\r\nConnection: close\r\n";
  EXPECT_EQ(status(raw(shared(), "GET /health HTTP/1.1\r\n" + h + "\r\n")), 200);
  EXPECT_EQ(status(raw(shared(), "GET /health HTTP/1.0\r\n\r\n")), 200);
  EXPECT_EQ(status(raw(shared(), "GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")),
            400);  // RFC 9112: a Host is a must
  EXPECT_EQ(status(raw(shared(), "nonsense\r\n\r\n")), 400);
  EXPECT_EQ(status(raw(shared(), "GET /health HTTP/1.1\r\nHost: a/?x\r\n\r\n")), 400);
  EXPECT_EQ(status(raw(shared(), "GET http://evil/health HTTP/1.1\r\n" + h + "\r\n")), 400);
  EXPECT_EQ(status(raw(shared(), "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n")), 400);
  EXPECT_EQ(status(raw(shared(), "GET /v1/../health HTTP/1.1\r\n" + h + "\r\n")), 404);
  EXPECT_EQ(status(raw(shared(), "GET //health HTTP/1.1\r\n" + h + "\r\n")), 404);
  EXPECT_EQ(status(raw(shared(), "GET /v1/chat/completions HTTP/1.1\r\n" + h + "\r\n")), 405);
  EXPECT_EQ(status(raw(shared(), "DELETE /health HTTP/1.1\r\n" + h + "\r\n")), 405);
  EXPECT_NE(raw(shared(), "DELETE /health HTTP/1.1\r\n" + h + "\r\n").find("Allow: GET, HEAD\r\n"), std::string::npos);
  EXPECT_EQ(status(raw(shared(), "GET /health HTTP/1.1\r\nX: " + std::string(100000, 'a') + "\r\n\r\n")), 431);
  EXPECT_EQ(status(raw(shared(), "POST /tokenize HTTP/1.1\r\n" + h + "Content-Length: 999999999999\r\n\r\n")), 413);
  EXPECT_EQ(status(raw(shared(), "POST /tokenize HTTP/1.1\r\n" + h + "Content-Length: -1\r\n\r\n")), 400);
  EXPECT_EQ(status(raw(shared(), "POST /tokenize HTTP/1.1\r\n" + h +
                                     "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
            400);
  EXPECT_EQ(status(raw(shared(), "POST /tokenize HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\n\r\nzz\r\n")), 400);
  // What a body is when it is not chunked is a guess, and a guess lets a request hide in another's body.
  for (const char* coding :
       {"gzip, chunked", "identity", "xchunked", "chunked, chunked", "chunked\r\nTransfer-Encoding: gzip"}) {
    const std::string a =
        raw(shared(), "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + std::string(coding) +
                          "\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_GE(status(a), 400) << coding;
    EXPECT_EQ(a.find("\"ok\""), std::string::npos) << coding;
  }
  EXPECT_EQ(status(raw(shared(),
                       "POST /tokenize HTTP/1.1\r\n" + h + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}")),
            415);
  std::string big = "POST /tokenize HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 20; ++i) big += "80000\r\n" + std::string(0x80000, 'x') + "\r\n";
  EXPECT_EQ(status(raw(shared(), big + "0\r\n\r\n")), 413);
  EXPECT_EQ(status(raw(shared(), "POST /tokenize HTTP/1.1\r\n" + h + "Content-Length: 15\r\n\r\n{\"prompt\":\"ab\"}")),
            200);
  raw(shared(), "POST /tokenize HTTP/1.1\r\n" + h + "Content-Length: 50\r\n\r\n{", true);  // ends in the middle
  // Two in one piece: both are answered, in order.
  const std::string two =
      raw(shared(), "GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/models HTTP/1.1\r\n" + h + "\r\n");
  EXPECT_LT(two.find("\"ok\""), two.find("\"tiny\""));
  EXPECT_NE(two.find("\"tiny\""), std::string::npos);
  EXPECT_TRUE(alive());
}

TEST(Http, ARefusedUploadIsReadToItsEnd) {
  HttpSettings h;
  h.max_body_bytes = 1 << 20;
  Server s({}, h);
  // As ordinary clients do: all of the body is written before anything is read. A reset would lose the answer.
  const std::string body(24 << 20, 'x');
  const std::string length =
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n";
  std::string chunked = "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (size_t at = 0; at < body.size(); at += 1 << 20) chunked += "100000\r\n" + body.substr(at, 1 << 20) + "\r\n";
  for (const std::string& request : {length + body, chunked + "0\r\n\r\n"}) {
    const std::string a = raw(s, request);
    EXPECT_TRUE(a.starts_with("HTTP/1.1 413 ")) << a.substr(0, 100);
    EXPECT_NE(a.find("Connection: close"), std::string::npos);
    EXPECT_NE(a.find("too large"), std::string::npos);
  }
  OperatorSettings o;
  o.keys = {{.name = "a", .key = "secret-key-number-one"}};
  Server keyed(o);
  const std::string half(4 << 20, 'x');
  const std::string a =
      raw(keyed,
          "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(half.size()) + "\r\n\r\n" + half);
  EXPECT_TRUE(a.starts_with("HTTP/1.1 401 ")) << a.substr(0, 100);
  EXPECT_EQ(send(s, "GET", "/health").status, 200);
}

TEST(Http, PagesOfAllowedOriginsMayRead) {
  HttpSettings h;
  h.cors = {"http://localhost:5173"};
  OperatorSettings o;
  o.keys = {{.name = "a", .key = "secret-key-number-one"}};
  Server s(o, h);
  auto ask_raw = [&](const std::string& method, const std::string& origin, const std::string& more) {
    return raw(s, method + " /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
                      (origin.empty() ? "" : "Origin: " + origin + "\r\n") + more + "\r\n");
  };
  const std::string asked = "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: authorization\r\n";
  const std::string before = ask_raw("OPTIONS", "http://localhost:5173", asked);
  EXPECT_TRUE(before.starts_with("HTTP/1.1 204 ")) << before;
  for (const char* part :
       {"Access-Control-Allow-Origin: http://localhost:5173\r\n", "Vary: Origin\r\n",
        "Access-Control-Allow-Headers: authorization\r\n", "Access-Control-Allow-Methods: GET, POST"})
    EXPECT_NE(before.find(part), std::string::npos) << part << before;
  // Refusals can be read too, or the page could not say what is wrong.
  const std::string refused = ask_raw("GET", "http://localhost:5173", "");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 401 "));
  EXPECT_NE(refused.find("Access-Control-Allow-Origin: http://localhost:5173\r\n"), std::string::npos);
  const std::string fine = ask_raw("GET", "http://localhost:5173", "Authorization: Bearer secret-key-number-one\r\n");
  EXPECT_TRUE(fine.starts_with("HTTP/1.1 200 "));
  EXPECT_NE(fine.find("Access-Control-Allow-Origin: http://localhost:5173\r\n"), std::string::npos);
  for (const char* origin :
       {"http://localhost:5174", "https://localhost:5173", "null", "http://localhost:5173.evil", ""}) {
    EXPECT_EQ(ask_raw("GET", origin, "").find("Access-Control-Allow"), std::string::npos) << origin;
    EXPECT_EQ(ask_raw("OPTIONS", origin, asked).find("Access-Control-Allow"), std::string::npos) << origin;
  }
  EXPECT_EQ(raw(shared(), "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: http://a\r\n\r\n")
                .find("Access-Control"),
            std::string::npos);  // off unless asked for
  // A stream.
  Server open({}, h);
  auto r = chat();
  r["stream"] = true;
  const std::string body = r.dump();
  const std::string stream = raw(open,
                                 "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: "
                                 "http://localhost:5173\r\nContent-Length: " +
                                     std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_NE(stream.find("Access-Control-Allow-Origin: http://localhost:5173\r\n"), std::string::npos);
}

TEST(Http, KeysAndTheirLimits) {
  OperatorSettings o;
  o.keys = {{.name = "a", .key = "secret-key-number-one"},
            {.name = "b", .key = "secret-key-number-two", .requests_per_minute = 2}};
  Server s(o);
  auto with = [](const std::string& key) { return net::Headers{{"Authorization", key}}; };
  EXPECT_EQ(send(s, "GET", "/health").status, 200);
  for (const std::string bad : {"", "Bearer", "Bearer ", "Bearer x", "secret-key-number-one",
                                "Basic secret-key-number-one", "Bearer secret-key-number-one "}) {
    if (bad == "Bearer secret-key-number-one ") continue;  // white space around a field's value is none of it
    const Answer a = send(s, "GET", "/v1/models", "", with(bad));
    EXPECT_EQ(a.status, 401) << bad;
    EXPECT_EQ(a.json()["error"]["code"], "invalid_api_key");
  }
  EXPECT_EQ(send(s, "POST", "/v1/chat/completions", "{}").status, 401);  // before the body is looked at
  EXPECT_EQ(send(s, "GET", "/nowhere").status, 401);
  EXPECT_EQ(send(s, "GET", "/v1/models", "", with("Bearer secret-key-number-one")).status, 200);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(send(s, "POST", "/v1/chat/completions", chat().dump(), with("Bearer secret-key-number-two")).status, 200);
  const Answer limited = send(s, "POST", "/v1/chat/completions", chat().dump(), with("Bearer secret-key-number-two"));
  EXPECT_EQ(limited.status, 429);
  ASSERT_NE(limited.raw.header("Retry-After"), nullptr);
  EXPECT_EQ(send(s, "POST", "/v1/chat/completions", chat().dump(), with("Bearer secret-key-number-one")).status, 200);
  EXPECT_EQ(send(s, "GET", "/v1/training/jobs", "", with("Bearer secret-key-number-one")).status, 403);
}

// Nothing is taken from the queue until it is full: whatever the machine's speed, one more is one too many.
TEST(Http, AFullQueueSaysSo) {
  OperatorSettings o;
  o.max_queue = 2;
  Server s(o, {}, {.batch = 1}, /*begun=*/false);
  const auto waiting = [&] { return s.scheduler->stats().waiting; };
  std::vector<std::future<Answer>> first;
  for (int64_t i = 1; i <= o.max_queue; ++i) {
    first.push_back(
        std::async(std::launch::async, [&] { return send(s, "POST", "/v1/chat/completions", chat().dump()); }));
    ASSERT_TRUE(within(60, [&] { return waiting() == i; }));
  }
  for (const bool stream : {false, true}) {
    auto r = chat();
    r["stream"] = stream;
    const Answer a = send(s, "POST", "/v1/chat/completions", r.dump());
    EXPECT_EQ(a.status, 429) << a.body;
    EXPECT_EQ(a.json()["error"]["code"], "queue_full");
    EXPECT_NE(a.raw.header("Retry-After"), nullptr);
  }
  EXPECT_EQ(waiting(), o.max_queue);
  s.scheduler->start();
  for (auto& f : first) EXPECT_EQ(f.get().status, 200);
  EXPECT_EQ(send(s, "POST", "/v1/chat/completions", chat().dump()).status, 200);
}

TEST(Http, ClientsThatLeaveStopTheirRequests) {
  auto r = chat();
  r["max_tokens"] = 480;
  r["ignore_eos"] = true;
  for (const bool stream : {true, false}) {
    r["stream"] = stream;
    const std::string body = r.dump();
    const std::string request =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
        body;
    std::vector<int> fds;
    for (int i = 0; i < 6; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in a{};
      a.sin_family = AF_INET;
      a.sin_port = htons(shared().http->port());
      a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
      ASSERT_EQ(::send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
      fds.push_back(fd);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int fd : fds) {
      const linger hard{1, 0};
      ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
      ::close(fd);
    }
    EXPECT_TRUE(within(60, [] {
      const auto stats = shared().scheduler->stats();
      return stats.running + stats.waiting == 0;
    }));
  }
  EXPECT_TRUE(alive());
}

TEST(Http, DrainLetsAnswersFinish) {
  auto s = std::make_unique<Server>();
  Answer a;
  std::thread t([&] {
    auto r = chat();
    r["max_tokens"] = 300;
    r["ignore_eos"] = true;
    r["stream"] = true;
    a = send(*s, "POST", "/v1/chat/completions", r.dump());
  });
  ASSERT_TRUE(within(60, [&] { return s->scheduler->stats().new_tokens > 0; }));
  s->op->set_draining();
  s->http->drain(30);
  t.join();
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(events(a.body).back()["choices"][0]["finish_reason"], "length");
}

TEST(Http, NothingLeaksBetweenRequests) {
  std::vector<std::string> alone;
  for (int i = 0; i < 12; ++i)
    alone.push_back(
        post("/v1/chat/completions", chat("question " + std::to_string(i))).json()["choices"][0]["message"]["content"]);
  std::vector<std::string> together(12);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 12; ++i)
    threads.emplace_back([&, i] {
      together[i] = send(shared(), "POST", "/v1/chat/completions", chat("question " + std::to_string(i)).dump())
                        .json()["choices"][0]["message"]["content"];
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(alone, together);
}

}  // namespace
}  // namespace mxt::serve
