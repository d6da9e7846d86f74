// `chat --url --pay`: what was signed is shown again until it is settled, and nothing is paid twice.
#include <set>

#include "base/base64.h"
#include "e2e/cli.h"
#include "net/test_server.h"

namespace mxt {
namespace {

// Takes an x402 payment of $0.002 at the third time that it is shown: the first is answered as still being settled,
// at the second the connection is lost before the answer begins. In version 2 all that it says of payments is in
// headers, as the official server has it.
class Shop {
 public:
  explicit Shop(int version) : version_(version) {}
  std::string refusal;             // not empty: why no payment is ever taken
  std::set<std::string> payments;  // different ones
  int shown = 0, unpaid = 0, valid_seconds = 60, seconds = 1;

  net::ServerResponse operator()(const net::ServerRequest& q) {
    const auto paid = q.headers.find(version_ == 2 ? "payment-signature" : "x-payment");
    if (paid == q.headers.end()) return ++unpaid, wanted("Payment required");
    payments.insert(paid->second);
    if (++shown == 1 || !refusal.empty()) {
      net::ServerResponse r = refused(refusal.empty() ? "settlement_pending" : refusal);
      r.headers.emplace_back("Retry-After", std::to_string(seconds));
      return r;
    }
    net::ServerResponse r;
    r.headers = {{"Content-Type", "text/event-stream"}};
    r.body = "data: {\"choices\":[{\"delta\":{\"content\":\"four\"}}]}\n\ndata: [DONE]\n\n";
    if (shown == 2) r.cut_after = 5;
    if (version_ == 2)
      r.headers.emplace_back("PAYMENT-RESPONSE", to_base64(R"({"success":true,"transaction":"0x12"})"));
    return r;
  }

 private:
  int version_;

  net::ServerResponse refused(const std::string& why) const {
    if (version_ == 1) return wanted(why);
    net::ServerResponse r;
    r.status = 402;
    r.headers = {{"Content-Type", "application/json"},
                 {"PAYMENT-RESPONSE",
                  to_base64(Json({{"success", false}, {"errorReason", why}, {"transaction", "0x12"}}).dump())}};
    r.body = "{}";
    return r;
  }
  net::ServerResponse wanted(const std::string& why) const {
    const Json offer = {{"scheme", "exact"},
                        {"network", version_ == 2 ? "eip155:84532" : "base-sepolia"},
                        {version_ == 2 ? "amount" : "maxAmountRequired", "2000"},
                        {"payTo", "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"},
                        {"asset", "0x036CbD53842c5426634e7929541eC2318f3dCF7e"},
                        {"maxTimeoutSeconds", valid_seconds},
                        {"resource", "http://shop/v1/chat/completions"},
                        {"description", "an answer"},
                        {"mimeType", "text/event-stream"},
                        {"extra", {{"name", "USDC"}, {"version", "2"}}}};
    net::ServerResponse r;
    r.status = 402;
    r.headers = {{"Content-Type", "application/json"}};
    const std::string all = Json({{"x402Version", version_}, {"error", why}, {"accepts", Json::array({offer})}}).dump();
    r.body = version_ == 2 ? "{}" : all;
    if (version_ == 2) r.headers.emplace_back("PAYMENT-REQUIRED", to_base64(all));
    return r;
  }
};

class PaidChat : public testing::TestWithParam<int> {
 protected:
  cli::Result chat() {
    net::TestServer server([this](const net::ServerRequest& q) { return shop(q); });
    const cli::Folder t("paid_chat");
    EXPECT_EQ(cli::run("key new " + t.path + "/key --kind evm").code, 0);
    return cli::run("chat --url " + server.url() + " --prompt 'two and two?' --max-usd 0.002 --pay " + t.path + "/key");
  }
  Shop shop{GetParam()};
};

TEST_P(PaidChat, ShowsTheSamePaymentUntilItIsSettled) {
  const cli::Result r = chat();
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("four\n"), std::string::npos) << r.out;
  EXPECT_EQ(shop.unpaid, 1);
  EXPECT_EQ(shop.shown, 3);
  EXPECT_EQ(shop.payments.size(), 1u) << "one payment for one answer";
}

TEST_P(PaidChat, SaysWhyAPaymentWasRefused) {
  shop.refusal = "insufficient_funds";
  const cli::Result r = chat();
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("answers 402: insufficient_funds"), std::string::npos) << r.out;
  EXPECT_EQ(shop.shown, 1);
}

// A server that waits for a transaction that no block will hold.
TEST_P(PaidChat, WaitsNoLongerThanThePaymentCanBeTaken) {
  shop.refusal = "settlement_pending";
  shop.valid_seconds = 1;
  shop.seconds = 30;
  const cli::Result r = chat();
  EXPECT_EQ(r.code, 1) << r.out;
  if (GetParam() == 2) {
    EXPECT_NE(r.out.find("(transaction 0x12)"), std::string::npos) << r.out;
  }
  EXPECT_NE(r.out.find("had not settled the payment after"), std::string::npos) << r.out;
  EXPECT_EQ(shop.payments.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Versions, PaidChat, testing::Values(1, 2));

}  // namespace
}  // namespace mxt
