#include "pay/facilitator.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "evm/abi.h"
#include "net/url.h"
#include "pay/offer.h"

namespace mxt::pay {
namespace {

constexpr int kThreads = 8;  // settlements under way: each waits for the facilitator, and then for a block
constexpr double kAnswerSeconds = 60;
constexpr uint64_t kMaxAnswer = 1u << 20;

constexpr const char* kUsed = "AuthorizationUsed(address,bytes32)";
constexpr const char* kTransfer = "Transfer(address,address,uint256)";

Digest padded(const evm::Address& a) { return *evm::digest_of(std::string(12, '\0') + evm::bytes_of(a)); }

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
  q.idle_seconds = q.total_seconds = kAnswerSeconds;  // it says nothing until a block holds what it sent
  return q;
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
    jobs_.push_back(job_of(std::move(r), amount));
  }
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { run(); });
}

FacilitatorSettler::Job FacilitatorSettler::job_of(Record record, const evm::U256& amount) const {
  Job job;
  job.payment = parse_payment(record.payment.at("header").get<std::string>(), record.payment.at("version").get<int>());
  job.record = std::move(record);
  job.amount = amount;
  job.record.amount = evm::decimal(amount);
  return job;
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
  Job job = job_of(std::move(record), amount);
  job.done = std::move(done);
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

// Waits for a job that is due; nothing: stop() was called.
std::optional<FacilitatorSettler::Job> FacilitatorSettler::next() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopping_) return std::nullopt;
    const auto first =
        std::min_element(jobs_.begin(), jobs_.end(), [](const Job& a, const Job& b) { return a.due < b.due; });
    if (first == jobs_.end()) {
      wake_.wait(lock);
    } else if (first->due > Clock::now()) {
      const auto due = first->due;
      wake_.wait_until(lock, due);
    } else {
      Job job = std::move(*first);
      jobs_.erase(first);
      return job;
    }
  }
}

void FacilitatorSettler::run() {
  net::HttpClient http(http_);
  while (auto job = next()) {
    Settlement s;
    try {
      s = settle(*job, http);
    } catch (const Error& e) {
      log::warn("payment {}: {}", job->record.key, e.what());
      s = {"unexpected_settle_error", ""};
    }
    finish(std::move(*job), std::move(s));
  }
}

void FacilitatorSettler::finish(Job job, Settlement s) {
  const bool upto = job.payment.scheme == Scheme::kUpto;
  job.record.transaction = s.transaction;
  const bool again = !s.error.empty() && upto && try_later(job, s.error);
  job.record.state = again             ? State::kOwed  // what was delivered stays owed
                     : s.error.empty() ? (upto ? State::kServed : State::kSettled)
                                       : State::kFailed;
  try {
    store_.put(job.record);
  } catch (const Error& e) {
    log::warn("payment {}: {}", job.record.key, e.what());
    if (!again) s = {"unexpected_settle_error", s.transaction};
  }
  if (again) s.error = "settlement_pending";
  if (job.done) job.done(std::move(s));
  job.done = nullptr;
  if (!again) return;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

// False where it is too late, which is said: the permit cannot be collected any more.
bool FacilitatorSettler::try_later(Job& job, const std::string& why) {
  if (has_ended(job.payment)) {
    log::warn(
        "payment {}: {} of the smallest unit of {} is lost: its permit has ended, and the facilitator at {} did "
        "not settle it in {} tries: {}",
        job.record.key, job.record.amount, terms_.token.name, url_, job.tries + 1, why);
    return false;
  }
  const std::chrono::duration<double> pause(retry_pause(settings_, job.tries++));
  job.due = Clock::now() + std::chrono::duration_cast<Clock::duration>(pause);
  return true;
}

// A facilitator that was asked once and whose answer was lost may have settled: then the chain knows of it. One that
// was never asked has not, and what is used all the same was used elsewhere.
Settlement FacilitatorSettler::settle(Job& job, net::HttpClient& http) {
  const Payment& p = job.payment;
  const auto on_chain = [&] { return mined(transaction_of(job), p, job.amount); };
  if (is_used(rpc_, p, terms_)) {
    if (job.record.attempts.value("asked", Json()) == Json(true)) return on_chain();
    return {p.scheme == Scheme::kExact ? "invalid_exact_evm_nonce_already_used" : "permit2_invalid_nonce", ""};
  }
  if (p.scheme == Scheme::kUpto && has_ended(p)) return {"permit2_deadline_expired", ""};
  if (job.record.attempts.value("asked", Json()) != Json(true))
    job.record.attempts = {{"asked", true}, {"at", std::time(nullptr)}, {"attempts", Json::array()}};
  store_.put(job.record);
  std::string why;
  const std::string transaction = ask(job, http, why);
  if (!transaction.empty()) return mined(transaction, p, job.amount);
  return is_used(rpc_, p, terms_) ? on_chain() : Settlement{why, ""};
}

// The transaction that it names, or "" and why.
std::string FacilitatorSettler::ask(const Job& job, net::HttpClient& http, std::string& why) {
  const Payment& p = job.payment;
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
  why = "settlement_pending";  // one that is not heard may settle all the same: the same payment is shown again
  try {
    const net::HttpResponse r = http.send(q);
    if (r.status < 500) why = "unexpected_settle_error";
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
           l.topics[1] == padded(p.payer()) && l.topics[2] == p.exact->nonce;
  });
}

// The one that settled it; "" where the node does not say. A permit is not named by a Transfer: one of its amount
// counts that no other payment has.
std::string FacilitatorSettler::transaction_of(const Job& job) {
  constexpr int64_t kClocksDiffer = 600;
  const Payment& p = job.payment;
  const Json at = job.record.attempts.value("at", Json());
  const int64_t since = at.is_number_integer() ? at.get<int64_t>() - kClocksDiffer : 0;
  try {
    if (p.scheme == Scheme::kExact) {
      const auto logs = rpc_.logs(terms_.token.address, {evm::topic(kUsed), padded(p.payer()), p.exact->nonce}, since);
      return logs.empty() ? "" : evm::hex(logs.front().transaction);
    }
    for (const evm::Log& l :
         rpc_.logs(terms_.token.address, {evm::topic(kTransfer), padded(p.payer()), padded(terms_.pay_to)}, since))
      if (l.data == evm::word_of(job.amount) && !store_.has_transaction(evm::hex(l.transaction), p.key()))
        return evm::hex(l.transaction);
  } catch (const Error& e) {
    log::warn("payment {}: {}", p.key(), e.what());
  }
  return "";
}

}  // namespace mxt::pay
