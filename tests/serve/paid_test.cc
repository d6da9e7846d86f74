// Answers that are sold: the server, a chain, and who pays — ours and the official client.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "folders.h"
#include "pay/shop.h"
#include "serve/served.h"

#define NEEDS_CHAIN(shop) \
  if (!shop.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)"

namespace mxt::serve {
namespace {

struct StopsMeter {
  pay::Meter* meter;
  ~StopsMeter() { meter->stop(); }
};

// The meter ends behind all that may still ask it.
struct Server : StopsMeter, served::Server {
  // `answering`: else requests wait until the scheduler is started.
  explicit Server(pay::Meter& m, bool answering = true)
      : StopsMeter{&m}, served::Server(sold_by(m), {}, {.batch = 8}, answering) {}

 private:
  static OperatorSettings sold_by(pay::Meter& m) {
    OperatorSettings settings;
    settings.meter = &m;
    return settings;
  }
};

nlohmann::json chat(bool stream = false, int tokens = 8) {
  return {{"messages", {{{"role", "user"}, {"content", "hi"}}}},
          {"max_tokens", tokens},
          {"ignore_eos", true},
          {"temperature", 0},
          {"stream", stream}};
}

Answer post(const Server& s, const nlohmann::json& body, net::Headers headers = {},
            const std::string& path = "/v1/chat/completions") {
  return ask(s.url, "POST", path, body.dump(), std::move(headers));
}

Answer pay_and_post(const Server& s, pay::EvmPayer& payer, const nlohmann::json& body) {
  const Answer wanted = post(s, body);
  EXPECT_EQ(wanted.status, 402) << wanted.body;
  return post(s, body, payer.pay(wanted.raw));
}

void allow_permit2(pay::Shop& shop, const evm::Key& key) {
  shop.chain->rpc().call("anvil_setBalance", {evm::text_of(key.address()), "0xde0b6b3a7640000"});
  shop.send(key, shop.usdc,
            evm::abi_call("approve(address,uint256)", {evm::AbiValue::address(*evm::parse_address(evm::kPermit2)),
                                                       evm::AbiValue::number(1'000'000)}));
}

TEST(Paid, AnAnswerIsGivenForItsPriceAndOnce) {
  pay::Shop shop;
  NEEDS_CHAIN(shop);
  const Server s(*shop.meter);
  pay::EvmPayer payer(shop.payer(), 1'000'000);
  const Answer wanted = post(s, chat());
  ASSERT_EQ(wanted.status, 402);
  const net::Headers payment = payer.pay(wanted.raw);
  const Answer a = post(s, chat(), payment);
  ASSERT_EQ(a.status, 200) << a.body;
  const Json receipt = pay::response_of(a.raw.headers);
  EXPECT_EQ(receipt["success"], true);
  // Two millionths for each token of prompt and answer at most.
  const auto tokens = a.json()["usage"]["prompt_tokens"].get<int>() + 8;
  EXPECT_EQ(receipt["amount"], std::to_string(2 * tokens));
  EXPECT_EQ(shop.balance(pay::merchant()), 2 * tokens);
  EXPECT_EQ(post(s, chat(), payment).status, 402);
  EXPECT_EQ(post(s, chat(false, 7), payment).status, 402) << "another request";
  EXPECT_EQ(shop.balance(pay::merchant()), 2 * tokens);
}

TEST(Paid, AStreamIsPaidBeforeItsFirstByte) {
  pay::Shop shop;
  NEEDS_CHAIN(shop);
  const Server s(*shop.meter);
  pay::EvmPayer payer(shop.payer(), 1'000'000);
  const Answer a = pay_and_post(s, payer, chat(true));
  ASSERT_EQ(a.status, 200) << a.body;
  EXPECT_EQ(pay::response_of(a.raw.headers)["success"], true);
  EXPECT_TRUE(a.body.ends_with("data: [DONE]\n\n"));
}

TEST(Paid, WhatCannotBeAnsweredIsRefusedBeforeItIsPaid) {
  pay::Shop shop;
  NEEDS_CHAIN(shop);
  const Server s(*shop.meter);
  EXPECT_EQ(post(s, {{"messages", "x"}}).status, 400);
  auto long_one = chat();
  long_one["messages"][0]["content"] = std::string(5000, 'a');
  EXPECT_EQ(post(s, long_one).status, 400);
  EXPECT_EQ(post(s, chat(), {{"PAYMENT-SIGNATURE", "nonsense"}}).status, 400);
  EXPECT_EQ(ask(s.url, "GET", "/v1/models", "", {}).status, 200) << "looking is free";
}

TEST(Paid, CompletionsAndEmbeddingsAreSoldLikewise) {
  pay::Shop shop;
  NEEDS_CHAIN(shop);
  const Server s(*shop.meter);
  pay::EvmPayer payer(shop.payer(), 1'000'000);
  const std::vector<std::pair<std::string, nlohmann::json>> kinds = {
      {"/v1/completions", {{"prompt", "abc"}, {"max_tokens", 4}, {"ignore_eos", true}}},
      {"/v1/embeddings", {{"input", "abcd"}}}};
  for (const auto& [path, body] : kinds) {
    const auto before = shop.balance(pay::merchant());
    const Answer wanted = post(s, body, {}, path);
    ASSERT_EQ(wanted.status, 402) << path;
    const Answer a = post(s, body, payer.pay(wanted.raw), path);
    EXPECT_EQ(a.status, 200) << a.body;
    EXPECT_EQ(shop.balance(pay::merchant()) - before, path == "/v1/completions" ? 14 : 8);
  }
}

TEST(Paid, UptoChargesWhatWasUsedWholeAndStreamed) {
  pay::Shop shop("test_dollar", {pay::Scheme::kUpto});
  NEEDS_CHAIN(shop);
  const Server s(*shop.meter);
  const evm::Key key = shop.payer();
  allow_permit2(shop, key);
  pay::EvmPayer payer(key, 1'000'000);
  for (const bool stream : {false, true}) {
    const auto before = shop.balance(pay::merchant());
    auto body = chat(stream, 200);
    body["stop"] = {"a", "e", "i", "\n", " "};
    body["temperature"] = 1;
    body["seed"] = 3;
    if (stream) body["stream_options"] = {{"include_usage", true}};
    const Answer a = pay_and_post(s, payer, body);
    ASSERT_EQ(a.status, 200) << a.body;
    Json receipt, usage;
    if (stream) {
      const size_t end = a.body.rfind("data: [DONE]"), last = a.body.rfind("data: ", end - 1);
      const Json frame = Json::parse(a.body.substr(last + 6, end - last - 8));
      receipt = pay::decoded(frame["payment"]["value"].get<std::string>());
      usage = frame["usage"];
    } else {
      receipt = pay::response_of(a.raw.headers);
      usage = a.json()["usage"];
    }
    const int used = usage["total_tokens"];
    EXPECT_LT(used, 200);
    EXPECT_EQ(receipt["amount"], std::to_string(2 * used)) << receipt;
    EXPECT_EQ(receipt["success"], true);
    EXPECT_EQ(shop.balance(pay::merchant()) - before, 2 * used);
  }
}

// What was made until then is paid: here, where nothing is generated for six seconds, the prompt.
TEST(Paid, AnAnswerEndsBeforeItsPermitDoes) {
  pay::Shop shop("test_dollar", {pay::Scheme::kUpto});
  NEEDS_CHAIN(shop);
  shop.close();
  shop.terms.timeout_seconds = 10;
  shop.open();
  const Server s(*shop.meter, false);
  const evm::Key key = shop.payer();
  allow_permit2(shop, key);
  pay::EvmPayer payer(key, 1'000'000);
  std::vector<std::future<Answer>> answers;
  for (const bool stream : {false, true}) {
    auto body = chat(stream, 200);
    if (stream) body["stream_options"] = {{"include_usage", true}};
    const net::Headers payment = payer.pay(post(s, body).raw);
    answers.push_back(std::async(std::launch::async, [&s, body, payment] { return post(s, body, payment); }));
  }
  const nlohmann::json texts = {{"input", {"abcd", "efgh"}}};
  const std::string embeddings = "/v1/embeddings";
  const net::Headers payment = payer.pay(post(s, texts, {}, embeddings).raw);
  auto embedded = std::async(std::launch::async, [&] { return post(s, texts, payment, embeddings); });
  std::this_thread::sleep_for(std::chrono::seconds(6));
  s.scheduler->start();
  int sum = 0;
  for (const bool stream : {false, true}) {
    const Answer a = answers[stream].get();
    ASSERT_EQ(a.status, 200) << a.body;
    EXPECT_NE(a.body.find(R"("finish_reason":"length")"), std::string::npos) << a.body;
    const size_t end = a.body.rfind("data: [DONE]"), last = a.body.rfind("data: ", end - 1);
    const Json said = stream ? Json::parse(a.body.substr(last + 6, end - last - 8)) : a.json();
    const Json receipt =
        stream ? pay::decoded(said["payment"]["value"].get<std::string>()) : pay::response_of(a.raw.headers);
    EXPECT_EQ(receipt["success"], true) << receipt;
    EXPECT_EQ(said["usage"]["completion_tokens"], 0);
    const int used = said["usage"]["total_tokens"];
    EXPECT_EQ(receipt["amount"], std::to_string(2 * used));
    sum += used;
  }
  // Half a list of embeddings is none: an error, which costs nothing.
  const Answer none = embedded.get();
  EXPECT_EQ(none.status, 504) << none.body;
  EXPECT_NE(none.body.find("the payment ends before the answer does"), std::string::npos) << none.body;
  EXPECT_EQ(pay::response_of(none.raw.headers)["amount"], "0");
  EXPECT_EQ(shop.balance(pay::merchant()), 2 * sum);
}

// All bytes of an answer as they come: what a client library hides.
std::string raw_post(const Server& s, const nlohmann::json& body, const net::Headers& headers) {
  const std::string text = body.dump();
  std::string out = fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: close\r\nContent-Type: "
      "application/json\r\nContent-Length: {}\r\n",
      text.size());
  for (const auto& [k, v] : headers) out += k + ": " + v + "\r\n";
  out += "\r\n" + text;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(s.http->port());
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
  EXPECT_EQ(send(fd, out.data(), out.size(), 0), static_cast<ssize_t>(out.size()));
  std::string in;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;) in.append(buffer, static_cast<size_t>(n));
  close(fd);
  return in;
}

TEST(Paid, AStreamPaidByItsUseSaysSoInItsTrailer) {
  pay::Shop shop("test_dollar", {pay::Scheme::kUpto});
  NEEDS_CHAIN(shop);
  const Server s(*shop.meter);
  const evm::Key key = shop.payer();
  allow_permit2(shop, key);
  pay::EvmPayer payer(key, 1'000'000);
  const std::string answer = raw_post(s, chat(true), payer.pay(post(s, chat(true)).raw));
  const std::string head = answer.substr(0, answer.find("\r\n\r\n"));
  EXPECT_NE(head.find("Trailer: PAYMENT-RESPONSE"), std::string::npos) << head;
  const size_t end = answer.find("\r\n0\r\n");
  ASSERT_NE(end, std::string::npos) << answer;
  const std::string name = "PAYMENT-RESPONSE: ", trailer = answer.substr(end + 5);
  ASSERT_TRUE(trailer.starts_with(name) && trailer.ends_with("\r\n\r\n")) << trailer;
  const Json receipt = pay::decoded(trailer.substr(name.size(), trailer.size() - name.size() - 4));
  EXPECT_EQ(receipt["success"], true);
  EXPECT_EQ(receipt["amount"], evm::decimal(shop.balance(pay::merchant())));
}

net::Headers named(const net::Headers& payment, const std::string& id) {
  Json j = pay::decoded(payment.at(0).second);
  j["extensions"] = {{"payment-identifier", {{"info", {{"required", false}, {"id", id}}}}}};
  return {{payment.at(0).first, to_base64(j.dump())}};
}

TEST(Paid, WhoNamesThePaymentGetsItsAnswerAgain) {
  for (const pay::Scheme scheme : {pay::Scheme::kExact, pay::Scheme::kUpto})
    for (const bool stream : {false, true}) {
      pay::Shop shop("test_dollar", {scheme});
      NEEDS_CHAIN(shop);
      const Server s(*shop.meter);
      const evm::Key key = shop.payer();
      if (scheme == pay::Scheme::kUpto) allow_permit2(shop, key);
      pay::EvmPayer payer(key, 1'000'000);
      auto body = chat(stream);
      body["temperature"] = 1;
      const Answer wanted = post(s, body);
      const Json offer = pay::response_of(wanted.raw.headers, "PAYMENT-REQUIRED");
      EXPECT_EQ(offer["extensions"]["payment-identifier"]["info"]["required"], false);
      const net::Headers payment = named(payer.pay(wanted.raw), "the-name-of-one-payment");
      const Answer first = post(s, body, payment);
      ASSERT_EQ(first.status, 200) << first.body;
      const auto paid = shop.balance(pay::merchant());
      const Answer again = post(s, body, payment);
      EXPECT_EQ(again.status, 200) << again.body;
      EXPECT_EQ(again.body, first.body);
      EXPECT_TRUE(pay::response_of(again.raw.headers)["success"].get<bool>());
      EXPECT_EQ(shop.balance(pay::merchant()), paid) << "paid once";
      // Another payment under that name, the same payment for another request, and a name that is none.
      EXPECT_EQ(post(s, body, named(payer.pay(post(s, body).raw), "the-name-of-one-payment")).status, 409);
      auto other = body;
      other["seed"] = 5;
      EXPECT_EQ(post(s, other, payment).status, 402);
      EXPECT_EQ(post(s, body, named(payer.pay(post(s, body).raw), "short")).status, 400);
      EXPECT_EQ(shop.balance(pay::merchant()), paid);
    }
}

// What contracts/test/pay.mjs prints; null where Node or its packages are not here.
Json official(const Server& s, const evm::Key& key, const std::string& scheme, const std::string& version) {
  const std::string command = fmt::format("cd {}/contracts && node test/pay.mjs {}/v1/chat/completions {} {} {} 2>&1",
                                          kSourceDir, s.url, evm::hex(key.secret()), scheme, version);
  FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  pclose(pipe);
  const Json j = Json::parse(out, nullptr, false);
  EXPECT_TRUE(j.is_object()) << out;
  return j;
}

TEST(OfficialClient, PaysInBothVersionsAndSchemes) {
  pay::Shop shop("test_dollar", {pay::Scheme::kExact, pay::Scheme::kUpto});
  NEEDS_CHAIN(shop);
  if (!fs::exists(std::string(kSourceDir) + "/contracts/node_modules/@x402/fetch") ||
      std::system("command -v node >/dev/null") != 0)
    GTEST_SKIP() << "the official client is not installed here (./dev contracts)";
  const Server s(*shop.meter);
  const evm::Key key = shop.payer();
  allow_permit2(shop, key);
  for (const auto& [scheme, version] : {std::pair("exact", "1"), std::pair("exact", "2"), std::pair("upto", "2")}) {
    const auto before = shop.balance(pay::merchant());
    const Json j = official(s, key, scheme, version);
    ASSERT_TRUE(j.is_object() && j["status"] == 200) << scheme << version << j;
    EXPECT_EQ(j["payment"]["success"], true) << j;
    EXPECT_GT(shop.balance(pay::merchant()), before);
  }
}

}  // namespace
}  // namespace mxt::serve
