// Chats, completions, embeddings and token ids by the API: what an answer holds.
#include <algorithm>

#include "served.h"

namespace mxt::serve::served {
namespace {

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
  EXPECT_EQ(stopped["logprobs"]["tokens"].size(), at);
  r["stop"] = text.substr(0, 1);  // an answer without a token
  EXPECT_EQ(post("/v1/completions", r).json()["choices"][0]["logprobs"]["token_logprobs"], nlohmann::json::array());
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

}  // namespace
}  // namespace mxt::serve::served
