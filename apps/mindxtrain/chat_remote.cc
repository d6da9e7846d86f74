#include "chat_remote.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "algorand_key.h"
#include "base/base64.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wait.h"
#include "exit.h"
#include "model_files.h"
#include "net/url.h"
#include "publish.h"

namespace mxt::app {
namespace {

net::HttpOptions http_options() { return publish_surroundings().http; }

std::string message_of(const net::HttpResponse& r) {
  const Json j = Json::parse(r.body, nullptr, false);
  const auto at = "/error/message"_json_pointer;
  if (j.is_object() && j.contains(at) && j[at].is_string()) return printable(j[at].get<std::string>().substr(0, 300));
  if (j.is_object() && j.contains("error") && j["error"].is_string())
    return printable(j["error"].get<std::string>().substr(0, 300));
  return printable(r.body.substr(0, 300));
}

// Why a payment was refused: servers of version 2 say so in a header, beside a body that may be empty.
std::string refusal_of(const net::HttpResponse& r) {
  static constexpr std::pair<const char*, const char*> kPlaces[] = {
      {"PAYMENT-RESPONSE", "errorReason"}, {"X-PAYMENT-RESPONSE", "errorReason"}, {"PAYMENT-REQUIRED", "error"}};
  for (const auto& [name, key] : kPlaces) {
    const std::string* h = r.header(name);
    const auto text = h ? from_base64(*h) : std::nullopt;
    const Json j = text ? Json::parse(*text, nullptr, false) : Json();
    if (j.is_object() && j.contains(key) && j[key].is_string() && !j[key].get_ref<const std::string&>().empty())
      return printable(j[key].get<std::string>().substr(0, 300));
  }
  return message_of(r);
}

// The transaction that a server says it waits for, as part of a sentence.
std::string awaited(const net::HttpResponse& r) {
  for (const char* name : {"PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE"}) {
    const std::string* h = r.header(name);
    const auto text = h ? from_base64(*h) : std::nullopt;
    const Json j = text ? Json::parse(*text, nullptr, false) : Json();
    const Json id = j.is_object() ? j.value("transaction", Json()) : Json();
    if (id.is_string() && !id.get_ref<const std::string&>().empty())
      return fmt::format(" (transaction {})", printable(id.get<std::string>().substr(0, 100)));
  }
  return "";
}

// What a server asks for before it is asked again, where that is a time that a person waits.
int wait_of(const net::HttpResponse& r) {
  int seconds = 2;
  if (const std::string* after = r.header("Retry-After"))
    std::from_chars(after->data(), after->data() + after->size(), seconds);
  return std::clamp(seconds, 1, 30);
}

}  // namespace

RemoteChat::RemoteChat(const RemoteOptions& options) : o_(options), http_(http_options()) {
  address_ = o_.url;
  while (address_.ends_with('/')) address_.pop_back();
  net::public_url(address_, "--url");
  if (!address_.ends_with("/v1")) address_ += "/v1";
  address_ += "/chat/completions";
  if (o_.pay_file.empty() != o_.max_usd.empty()) fail_input("--pay FILE and --max-usd X belong together");
  if (!o_.pay_file.empty() && !fs::is_regular_file(o_.pay_file))
    fail_missing("--pay: there is no such file: make one with `mindxtrain key new FILE --kind evm` (or algorand)");
  if (!o_.pay_file.empty()) open_purse();
}

void RemoteChat::open_purse() {
  const evm::U256 budget = pay::dollars(o_.max_usd);
  if (!is_ed25519_key(o_.pay_file)) {
    payer_ =
        std::make_unique<pay::EvmPayer>(evm::load_key(o_.pay_file, "--pay", [] { return key_passphrase(); }), budget);
    return;
  }
  const std::string url = environment("ALGOD_URL");
  if (url.empty())
    fail_missing("ALGOD_URL is not set: the address of an algod of the network that {} is to pay on", o_.pay_file);
  node_ = std::make_unique<algorand::Node>(url, environment("ALGOD_TOKEN"), http_options());
  payer_ = std::make_unique<pay::AlgorandPayer>(algorand_seed(o_.pay_file), *node_, budget);
}

void RemoteChat::reset(const std::string& system) {
  messages_ = OrderedJson::array();
  if (!system.empty()) messages_.push_back({{"role", "system"}, {"content", system}});
}

net::HttpResponse RemoteChat::post(const OrderedJson& body, const net::Headers& payment) {
  net::HttpRequest q;
  q.method = "POST";
  q.url = address_;
  q.headers = {{"Content-Type", "application/json"}};
  if (!o_.api_key.empty()) q.headers.emplace_back("Authorization", "Bearer " + o_.api_key);
  for (const auto& h : payment) q.headers.push_back(h);
  q.body = body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  q.idle_seconds = 600;  // a model may think before it speaks
  q.leave_origin = false;
  q.on_data = [this](std::string_view piece) { take(piece); };
  try {
    return http_.send(q);
  } catch (const Error& e) {
    if (e.code() == Exit::kInterrupted) throw;
    fail_input("{}", e.what());
  }
}

// What was signed is spent: the same payment is shown again while it is being settled, and where the connection was
// lost before an answer began, so that nothing is paid twice. No longer than it can be taken and blocks take to come,
// whatever the server waits for.
net::HttpResponse RemoteChat::post_paid(const OrderedJson& body, const net::Headers& payment) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kMostSeconds = 100, kBlockSeconds = 20;
  constexpr int kLost = 3;
  const int64_t patience = std::min(payer_->valid_seconds(), kMostSeconds) + kBlockSeconds;
  const auto begun = Clock::now(), end = begun + std::chrono::seconds(patience);
  const auto seconds_to = [](Clock::duration d) { return std::chrono::ceil<std::chrono::seconds>(d).count(); };
  for (int lost = 0;;) {
    std::optional<net::HttpResponse> r;
    try {
      r = post(body, payment);
    } catch (const Error& e) {
      if (e.code() == Exit::kInterrupted || !said_.empty() || ++lost == kLost) throw;
      log::warn("{}", e.what());
    }
    if (r && (r->status != 402 || refusal_of(*r) != "settlement_pending")) return std::move(*r);
    const int seconds = r ? wait_of(*r) : 2;
    const std::string what = r ? "the payment is not settled yet" + awaited(*r) + ": it" : "the payment";
    if (Clock::now() + std::chrono::seconds(seconds) > end)
      fail_input("{}: had not settled the payment after {} s{}: see whether it was taken before you pay anew", o_.url,
                 seconds_to(Clock::now() - begun), r ? awaited(*r) : "");
    log::info("{} is shown again in {} s, for {} s at most", what, seconds, seconds_to(end - Clock::now()));
    rest_.clear();
    wait_for(o_.url, seconds, &g_stop);
  }
}

void RemoteChat::take(std::string_view piece) {
  rest_.append(piece);
  size_t from = 0;
  for (size_t end; (end = rest_.find('\n', from)) != std::string::npos; from = end + 1)
    take_line(std::string_view(rest_).substr(from, end - from));
  rest_.erase(0, from);
  if (rest_.size() > (1u << 20)) fail_input("{}: sends a line without end", o_.url);
}

// One line of server-sent events.
void RemoteChat::take_line(std::string_view line) {
  if (!line.starts_with("data: ")) return;
  const Json j = Json::parse(line.substr(6), nullptr, false);
  if (!j.is_object()) return;
  if (j.contains("error")) fail_input("{}: {}", o_.url, printable(j["error"].dump().substr(0, 300)));
  const auto text = "/choices/0/delta/content"_json_pointer, paid = "/payment/value"_json_pointer;
  if (j.contains(text) && j[text].is_string()) {
    const auto s = j[text].get<std::string>();
    std::fwrite(s.data(), 1, s.size(), stdout);
    std::fflush(stdout);
    said_ += s;
    line_open_ = true;
  }
  if (j.contains(paid) && j[paid].is_string())
    if (const auto receipt = from_base64(j[paid].get<std::string>())) say_payment(*receipt);
}

// On a line of its own, behind what was answered.
void RemoteChat::say_payment(const std::string& receipt) {
  if (std::exchange(line_open_, false)) std::printf("\n");
  std::fflush(stdout);
  log::info("payment: {}", printable(receipt));
}

void RemoteChat::answer(const std::string& role, const std::string& said) {
  messages_.push_back({{"role", role}, {"content", said}});
  OrderedJson body = {{"messages", messages_},
                      {"max_tokens", o_.max_tokens},
                      {"temperature", o_.temperature},
                      {"top_p", o_.top_p},
                      {"stream", true}};
  if (!o_.model.empty()) body["model"] = o_.model;
  rest_.clear();
  said_.clear();
  line_open_ = false;
  try {
    net::HttpResponse r = post(body, {});
    if (r.status == 402) {
      if (!payer_)
        fail_missing(
            "{}: wants to be paid by x402: give --pay KEYFILE and --max-usd X (`mindxtrain key new FILE --kind evm` or "
            "algorand)",
            o_.url);
      r = post_paid(body, payer_->pay(r));
      for (const char* name : {"PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE"})
        if (const std::string* h = r.header(name))
          if (const auto receipt = from_base64(*h)) say_payment(*receipt);
    }
    if (r.status != 200) fail_input("{}: answers {}: {}", o_.url, r.status, refusal_of(r));
  } catch (...) {
    messages_.erase(messages_.size() - 1);
    throw;
  }
  if (std::exchange(line_open_, false) || said_.empty()) std::printf("\n");
  messages_.push_back({{"role", "assistant"}, {"content", said_}});
}

}  // namespace mxt::app
