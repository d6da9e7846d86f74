// `chat --url --pay`: what was signed is shown again until it is settled, and nothing is paid twice.
#include <set>

#include "e2e/cli.h"
#include "net/test_server.h"

namespace mxt {
namespace {

// Takes an x402 payment of $0.002 at the third time that it is shown: the first is answered as still being settled,
// at the second the connection is lost before the answer begins.
class Shop {
 public:
  std::set<std::string> payments;  // different ones
  int shown = 0, unpaid = 0;

  net::ServerResponse operator()(const net::ServerRequest& q) {
    const auto paid = q.headers.find("x-payment");
    if (paid == q.headers.end()) return ++unpaid, wanted("Payment required");
    payments.insert(paid->second);
    if (++shown == 1) {
      net::ServerResponse r = wanted("settlement_pending");
      r.headers.emplace_back("Retry-After", "1");
      return r;
    }
    net::ServerResponse r;
    r.headers = {{"Content-Type", "text/event-stream"}};
    r.body = "data: {\"choices\":[{\"delta\":{\"content\":\"four\"}}]}\n\ndata: [DONE]\n\n";
    if (shown == 2) r.cut_after = 5;
    return r;
  }

 private:
  static net::ServerResponse wanted(const std::string& why) {
    const Json offer = {{"scheme", "exact"},
                        {"network", "base-sepolia"},
                        {"maxAmountRequired", "2000"},
                        {"payTo", "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"},
                        {"asset", "0x036CbD53842c5426634e7929541eC2318f3dCF7e"},
                        {"maxTimeoutSeconds", 60},
                        {"resource", "http://shop/v1/chat/completions"},
                        {"description", "an answer"},
                        {"mimeType", "text/event-stream"},
                        {"extra", {{"name", "USDC"}, {"version", "2"}}}};
    net::ServerResponse r;
    r.status = 402;
    r.headers = {{"Content-Type", "application/json"}};
    r.body = Json({{"x402Version", 1}, {"error", why}, {"accepts", Json::array({offer})}}).dump();
    return r;
  }
};

TEST(PaidChat, ShowsTheSamePaymentUntilItIsSettled) {
  Shop shop;
  net::TestServer server([&](const net::ServerRequest& q) { return shop(q); });
  const cli::Folder t("paid_chat");
  ASSERT_EQ(cli::run("key new " + t.path + "/key --kind evm").code, 0);
  const cli::Result r =
      cli::run("chat --url " + server.url() + " --prompt 'two and two?' --max-usd 0.002 --pay " + t.path + "/key");
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("four"), std::string::npos) << r.out;
  EXPECT_EQ(shop.unpaid, 1);
  EXPECT_EQ(shop.shown, 3);
  EXPECT_EQ(shop.payments.size(), 1u) << "one payment for one answer";
}

}  // namespace
}  // namespace mxt
