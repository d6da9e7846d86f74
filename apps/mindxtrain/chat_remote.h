// A conversation with a model behind OpenAI's API somewhere, paid for by x402 where the server asks for it.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "net/http.h"
#include "pay/client.h"

namespace mxt::app {

struct RemoteOptions {
  std::string url;      // with or without /v1
  std::string api_key;  // "" = none
  std::string model;    // "" = the server's first
  std::string pay_file, max_usd;
  int64_t max_tokens = 512;
  double temperature = 0.7, top_p = 0.95;
};

class RemoteChat {
 public:
  explicit RemoteChat(const RemoteOptions& options);
  void reset(const std::string& system);
  // Prints the answer while it comes. Errors: kBadInput where the server refuses or cannot be reached, kMissing where
  // it wants to be paid and there is no key.
  void answer(const std::string& role, const std::string& said);
  const OrderedJson& messages() const { return messages_; }

 private:
  void open_purse();
  net::HttpResponse post(const OrderedJson& body, const net::Headers& payment);
  net::HttpResponse post_paid(const OrderedJson& body, const net::Headers& payment);
  void take(std::string_view piece);
  void take_line(std::string_view line);
  void say_payment(const std::string& receipt);

  RemoteOptions o_;
  std::string address_;
  net::HttpClient http_;
  std::unique_ptr<algorand::Node> node_;  // which an Algorand key pays through
  std::unique_ptr<pay::Payer> payer_;
  OrderedJson messages_ = OrderedJson::array();
  std::string rest_, said_;  // of the answer: an unfinished line; its text
  bool line_open_ = false;   // what was said of it last has no line break behind it
};

}  // namespace mxt::app
