#include "pay/facilitator.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "evm/abi.h"
#include "net/url.h"

namespace mxt::pay {
namespace {

constexpr int kThreads = 8;  // settlements under way: each waits for the facilitator, and then for a block
constexpr double kAnswerSeconds = 60;
constexpr uint64_t kMaxAnswer = 1u << 20;

constexpr const char* kUsed = "AuthorizationUsed(address,bytes32)";

Digest payer_topic(const Payment& p) { return *evm::digest_of(std::string(12, '\0') + evm::bytes_of(p.payer())); }

std::string base_of(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  net::public_url(url, "publish.billing.x402.facilitator_url");
  return url;
}

net::HttpRequest request(const std::string& url) {
  net::HttpRequest q;
  q.url = url;
  q.leave_origin = false;
  q.max_bytes = kMaxAnswer;
  q.total_seconds = kAnswerSeconds;
  return q;
}

std::string text_at(const Json& j, const char* key) {
  return j.is_object() && j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : "";
}

}  // namespace

evm::Address facilitator_signer(const std::string& given, const net::HttpOptions& options, uint64_t chain_id) {
  const std::string url = base_of(given);
  net::HttpClient http(options);
  const net::HttpResponse r = http.send(request(url + "/supported"));
  const Json j = Json::parse(r.body, nullptr, false);
  if (r.status == 200 && j.is_object() && j.contains("signers") && j["signers"].is_object())
    for (const std::string& where : {caip2(chain_id), std::string("eip155:*")})
      if (j["signers"].contains(where) && j["signers"][where].is_array())
        for (const Json& s : j["signers"][where])
          if (const auto a = s.is_string() ? evm::parse_address(s.get<std::string>()) : std::nullopt) return *a;
  fail_input("the facilitator at {}: /supported names no signer for {}", url, caip2(chain_id));
}

FacilitatorSettler::FacilitatorSettler(evm::Rpc& rpc, std::string url, const net::HttpOptions& http, const Terms& terms,
                                       Store& store, SettleSettings settings)
    : rpc_(rpc), url_(base_of(std::move(url))), http_(http), terms_(terms), store_(store), settings_(settings) {
  for (Record& r : store_.in(State::kOwed)) {
    const evm::U256 amount = evm::parse_decimal(r.amount).value();
    jobs_.push_back({std::move(r), amount, nullptr});
  }
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { run(); });
}

FacilitatorSettler::~FacilitatorSettler() { stop(); }

void FacilitatorSettler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& t : threads_)
    if (t.joinable()) t.join();
}

bool FacilitatorSettler::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void FacilitatorSettler::submit(Record record, const evm::U256& amount, std::function<void(Settlement)> done) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(record), amount, std::move(done)});
  }
  wake_.notify_one();
}

void FacilitatorSettler::run() {
  net::HttpClient http(http_);
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    Settlement s;
    try {
      s = settle(job, http);
      const bool upto = job.record.key.starts_with("permit2:");
      job.record.transaction = s.transaction;
      if (s.error.empty())
        job.record.state = upto ? State::kServed : State::kSettled;
      else
        job.record.state = upto ? State::kOwed : State::kFailed;  // what was delivered stays owed
      store_.put(job.record);
    } catch (const Error& e) {
      log::warn("payment {}: {}", job.record.key, e.what());
      s = {"unexpected_settle_error", s.transaction};
    }
    if (job.done) job.done(std::move(s));
  }
}

// A facilitator that was asked once and whose answer was lost may have settled: then the chain knows of it. One that
// was never asked has not, and an authorization that is used all the same was used elsewhere.
Settlement FacilitatorSettler::settle(Job& job, net::HttpClient& http) {
  const Payment p =
      parse_payment(job.record.payment.at("header").get<std::string>(), job.record.payment.at("version").get<int>());
  const bool asked = job.record.attempts.value("asked", Json()) == Json(true);
  if (p.scheme == Scheme::kExact && is_used(p))
    return asked ? mined(transaction_of(p), p, job.amount) : Settlement{"invalid_exact_evm_nonce_already_used", ""};
  job.record.attempts = {{"asked", true}, {"attempts", Json::array()}};
  job.record.amount = evm::decimal(job.amount);
  store_.put(job.record);
  std::string why;
  const std::string transaction = ask(job, p, http, why);
  if (!transaction.empty()) return mined(transaction, p, job.amount);
  if (p.scheme == Scheme::kExact && is_used(p)) return mined(transaction_of(p), p, job.amount);
  return {why, ""};
}

// The transaction that it names, or "" and why.
std::string FacilitatorSettler::ask(const Job& job, const Payment& p, net::HttpClient& http, std::string& why) {
  net::HttpRequest q = request(url_ + "/settle");
  q.method = "POST";
  q.headers = {{"Content-Type", "application/json"}};
  Resource resource;
  resource.url = text_at(job.record.payment, "resource");
  q.body = Json{{"x402Version", p.version},
                {"paymentPayload", p.whole},
                {"paymentRequirements", p.version == 2 ? requirement_v2(terms_, p.scheme, job.amount)
                                                       : requirement_v1(terms_, job.amount, resource)}}
               .dump();
  why = "unexpected_settle_error";
  try {
    const net::HttpResponse r = http.send(q);
    const Json j = Json::parse(r.body, nullptr, false);
    if (j.is_object() && j.value("success", Json()) == Json(true)) {
      why = "invalid_exact_evm_transfer_event_mismatch";  // it names nothing that could hold one
      return text_at(j, "transaction");
    }
    if (const std::string said = text_at(j, "errorReason"); !said.empty()) why = printable(said.substr(0, 100));
    log::warn("the facilitator at {} did not settle {}: {} {}", url_, job.record.key, r.status, why);
  } catch (const Error& e) {
    log::warn("the facilitator at {}: {}", url_, e.what());
  }
  return "";
}

// Waits for the transaction, and looks into it.
Settlement FacilitatorSettler::mined(const std::string& transaction, const Payment& p, const evm::U256& amount) {
  const auto hash = evm::digest_from_hex(transaction);
  if (!hash) return {"invalid_exact_evm_transfer_event_mismatch", ""};
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(settings_.answer_seconds);
  for (;;) {
    if (const auto r = rpc_.receipt(*hash)) {
      const bool good = r->succeeded && holds_transfer(*r, terms_, p.payer(), amount) && is_of(*r, p);
      return {good ? "" : "invalid_exact_evm_transfer_event_mismatch", transaction};
    }
    if (std::chrono::steady_clock::now() > end || stopping()) return {"settlement_pending", transaction};
    std::this_thread::sleep_for(std::chrono::duration<double>(settings_.poll_seconds));
  }
}

// Another payment's transaction may hold the same Transfer.
bool FacilitatorSettler::is_of(const evm::Receipt& r, const Payment& p) {
  if (p.scheme == Scheme::kUpto) return !store_.has_transaction(evm::hex(r.transaction), p.key());
  return std::any_of(r.logs.begin(), r.logs.end(), [&](const evm::Log& l) {
    return l.address == terms_.token.address && l.topics.size() == 3 && l.topics[0] == evm::topic(kUsed) &&
           l.topics[1] == payer_topic(p) && l.topics[2] == p.exact->nonce;
  });
}

bool FacilitatorSettler::is_used(const Payment& p) {
  const std::string answer = rpc_.eth_call(
      terms_.token.address, evm::abi_call("authorizationState(address,bytes32)",
                                          {evm::AbiValue::address(p.payer()), evm::AbiValue::word(p.exact->nonce)}));
  return evm::AbiReader(answer, rpc_.name() + ": authorizationState").boolean(0);
}

// The one that used an authorization; "" where the node does not say.
std::string FacilitatorSettler::transaction_of(const Payment& p) {
  const auto logs = rpc_.logs(terms_.token.address, {evm::topic(kUsed), payer_topic(p), p.exact->nonce});
  return logs.empty() ? "" : evm::hex(logs.front().transaction);
}

}  // namespace mxt::pay
