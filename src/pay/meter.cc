#include "pay/meter.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/error.h"
#include "base/log.h"
#include "evm/abi.h"

namespace mxt::pay {
namespace {

using V = evm::AbiValue;

std::string used_word(const Payment& p) {
  if (p.group) return "invalid_exact_avm_payment_already_used";  // its SDK has no word for it
  return p.scheme == Scheme::kExact ? "invalid_exact_evm_nonce_already_used" : "permit2_invalid_nonce";
}

// By which an answer is kept: identifiers hold no colon, and keys do.
std::string name_of(const Record& r) { return r.identifier.empty() ? r.key : r.identifier; }

KeptAnswer kept(const Record& r, const Answer& a) {
  return {name_of(r), r.payment.at("header").get<std::string>(), r.request, a.status, a.headers, a.body};
}

// The extension payment-identifier: 16–128 of [A-Za-z0-9_-]; "" where there is none. kBadInput for another shape.
std::string identifier_of(const Payment& p) {
  const auto at = "/extensions/payment-identifier/info/id"_json_pointer;
  if (!p.whole.contains(at)) return "";
  const Json& id = p.whole[at];
  const auto good = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
  if (!id.is_string()) fail_input("payment-identifier is no text");
  const auto text = id.get<std::string>();
  if (text.size() < 16 || text.size() > 128 || !std::all_of(text.begin(), text.end(), good))
    fail_input("payment-identifier is not 16 to 128 letters, digits, - and _");
  return text;
}

}  // namespace

// Before a permit ends what it owes must be mined: an answer ends so long before, or, where the permit is shorter than
// two of these, when half of its time is gone.
std::chrono::system_clock::time_point end_of_answer(const evm::UptoPermit& permit) {
  constexpr int64_t kCollectSeconds = 30, kFar = int64_t{1} << 32;  // a client may sign for ever
  const auto now = std::chrono::system_clock::now();
  const int64_t began = std::chrono::system_clock::to_time_t(now),
                left = static_cast<int64_t>(std::min<evm::U256>(permit.deadline, began + kFar)) - began;
  return now + std::chrono::seconds(std::max(left - kCollectSeconds, left / 2));
}

// One paid request, from its admission to its end.
class Meter::PaidGrant final : public Grant, public std::enable_shared_from_this<PaidGrant> {
 public:
  PaidGrant(Meter& m, Payment p, Record r, net::Headers headers)
      : meter_(m),
        payment_(std::move(p)),
        record_(std::move(r)),
        headers_(std::move(headers)),
        delivered_(record_.state == State::kAnswered) {
    if (payment_.upto) end_ = end_of_answer(*payment_.upto);
  }
  // One whose end is not on disk may not come in again: it stays inside for as long as this server lives.
  ~PaidGrant() override {
    if (on_disk_) meter_.leave(record_.key);
  }
  net::Headers headers() const override { return headers_; }
  std::optional<std::chrono::system_clock::time_point> end() const override { return end_; }
  // What upto delivered is owed whatever becomes of this grant; exact is inside until its answer went out.
  Keeper keeper() override {
    if (payment_.scheme == Scheme::kExact) {
      const auto self = shared_from_this();
      return {[self](const Answer& a) { self->made(a); }, [self] { self->sent(); }};
    }
    if (record_.identifier.empty()) return {};
    return {[&store = meter_.store_, r = record_](const Answer& a) {
              try {
                store.keep_answer(kept(r, a));
              } catch (const Error& e) {
                log::warn("payment {}: {}", r.identifier, e.what());
              }
            },
            nullptr};
  }
  // The payment is spent, and what it bought is there for who did not get it.
  void made(const Answer& a) {
    if (!delivered_) return;
    Record answered = record_;
    answered.state = State::kAnswered;
    try {
      meter_.store_.put_answered(answered, kept(record_, a));
    } catch (const Error& e) {
      log::warn("payment {}: {}", record_.key, e.what());
    }
  }
  void sent() {
    if (!delivered_) return;  // the same payment lets the same request in again
    record_.state = State::kServed;
    try {
      meter_.store_.put_served(record_);
    } catch (const Error& e) {
      log::warn("payment {}: {}", record_.key, e.what());
      on_disk_ = false;
    }
  }

  void finish(int64_t tokens, bool delivered, std::function<void(net::Headers)> then) override {
    try {
      if (payment_.scheme == Scheme::kExact) {
        delivered_ = delivered;
        return then({});
      }
      const evm::U256 used = std::min<evm::U256>(meter_.price_.of(tokens), payment_.upto->amount);
      if (used == 0) {
        keep(State::kServed);
        return then(meter_.response(payment_.version, payment_, {}, "0"));
      }
      record_.amount = evm::decimal(used);
      keep(State::kOwed);
      meter_.settling_->submit(record_, used,
                               [&m = meter_, p = payment_, amount = record_.amount, then](const Settlement& s) {
                                 then(m.response(p.version, p, s, amount));
                               });
    } catch (const Error& e) {
      log::warn("payment {}: {}", record_.key, e.what());
      then({});
    }
  }

 private:
  // What was delivered is settled though it cannot be kept now: the settlement is kept when it can be.
  void keep(State s) {
    record_.state = s;
    try {
      meter_.store_.put(record_);
    } catch (const Error& e) {
      log::warn("payment {}: {}", record_.key, e.what());
      on_disk_ = false;
    }
  }

  Meter& meter_;
  Payment payment_;
  Record record_;
  net::Headers headers_;
  std::optional<std::chrono::system_clock::time_point> end_;
  bool delivered_, on_disk_ = true;
};

Meter::Meter(evm::Rpc* rpc, Terms terms, Price price, Store& store,
             const std::function<std::unique_ptr<Settling>(const Terms&)>& settling)
    : rpc_(rpc), terms_(std::move(terms)), price_(price), store_(store), settling_(settling(terms_)) {}

Meter::~Meter() { stop(); }

void Meter::stop() { settling_->stop(); }

void Meter::leave(const std::string& key) {
  const std::lock_guard lock(mutex_);
  inside_.erase(key);
}

Answer Meter::refusal(const Ask& a, const evm::U256& amount, const std::string& error, int status) const {
  Resource r;
  r.url = a.resource;
  return {status,
          {{"Content-Type", "application/json"},
           {"Cache-Control", "no-store"},
           {"PAYMENT-REQUIRED", to_base64(required_v2(terms_, amount, r, error).dump())}},
          required_v1(terms_, amount, r, error).dump()};
}

net::Headers Meter::response(int version, const Payment& p, const Settlement& s, const std::string& amount) const {
  Json j = {{"success", s.error.empty()},
            {"transaction", s.transaction},
            {"network", network_text(terms_, version)},
            {"payer", p.payer_text()}};
  if (!s.error.empty()) j["errorReason"] = s.error;
  if (version == 2) j["amount"] = amount;
  return {{version == 2 ? "PAYMENT-RESPONSE" : "X-PAYMENT-RESPONSE", to_base64(j.dump())}};
}

// What the other permits of this payer will take at most: it stands in the account still.
evm::U256 Meter::held(const Payment& p) {
  const std::string key = p.key();
  const auto others = store_.under_way(key.substr(0, key.rfind(':') + 1));
  const std::lock_guard lock(mutex_);
  evm::U256 sum = 0;
  for (const Record& r : others)
    if (r.key != key && (r.state != State::kGranted || inside_.contains(r.key)))
      sum += evm::parse_decimal(r.amount).value();
  return sum;
}

// Grants a permit, and keeps that; the SDK's word where it may not hold.
std::string Meter::hold(const Payment& p, const evm::U256& amount, Record& record) {
  try {
    const std::lock_guard lock(holding_);
    if (const std::string why = check_upto_on_chain(p, held(p) + amount); !why.empty()) return why;
    record.state = State::kGranted;
    record.amount = evm::decimal(amount);
    store_.put(record);
    return "";
  } catch (const Error& e) {
    log::warn("payment {}: {}", record.key, e.what());
    return "unexpected_verify_error";
  }
}

// What only the chain knows of a permit; the SDK's word, "" where it will hold. `amount`: with what others hold.
std::string Meter::check_upto_on_chain(const Payment& p, const evm::U256& amount) {
  const evm::Address permit2 = *evm::parse_address(evm::kPermit2);
  const auto read = [&](const evm::Address& to, const std::string& call) {
    return evm::AbiReader(rpc_->eth_call(to, call), rpc_->name()).number(0);
  };
  if (!rpc_->has_code(settlement_contract(p, terms_))) return "permit2_proxy_not_deployed";
  if (read(terms_.token.address,
           evm::abi_call("allowance(address,address)", {V::address(p.payer()), V::address(permit2)})) < amount)
    return "permit2_allowance_required";
  if (read(terms_.token.address, evm::abi_call("balanceOf(address)", {V::address(p.payer())})) < amount)
    return "permit2_insufficient_balance";
  return is_used(*rpc_, p, terms_) ? "permit2_invalid_nonce" : "";
}

// To the same payload and request, whatever time has passed: nothing is settled for it again.
std::optional<Answer> Meter::given_before(const Ask& a, const Payment& p) {
  const std::string identifier = identifier_of(p);
  const auto kept = identifier.empty() ? std::nullopt : store_.answer_of(identifier);
  if (!kept || kept->payment != (p.version == 2 ? a.payment_v2 : a.payment_v1) || kept->request != a.request)
    return std::nullopt;
  return Answer{kept->status, kept->headers.get<net::Headers>(), kept->body};
}

// The answer to a payment whose server ended when it may have gone out; absent where newer ones took its place.
std::optional<Answer> Meter::once_more(const Payment& p, const Record& record) {
  const auto grant = std::make_shared<PaidGrant>(*this, p, record, net::Headers{});
  const auto kept = store_.answer_of(name_of(record));
  if (!kept) return std::nullopt;
  return Answer{kept->status, kept->headers.get<net::Headers>(), kept->body, [grant] { grant->sent(); }};
}

// Takes the payment's place among those inside, and finds what is known of it. "" where it may go on.
std::string Meter::begin(const Ask& a, const Payment& p, int version, Record& record) {
  const std::string key = p.key();
  const std::string identifier = identifier_of(p);
  const std::lock_guard lock(mutex_);
  if (inside_.contains(key)) return identifier.empty() ? used_word(p) : "settlement_pending";
  if (!identifier.empty())
    if (const auto other = store_.find_identifier(identifier); other && other->key != key) return "conflict";
  Json attempts = {{"attempts", Json::array()}};
  if (const auto known = store_.find(key)) {
    attempts = known->attempts;
    const bool same = known->request == a.request;
    switch (known->state) {
      case State::kServed:
        return used_word(p);
      case State::kSent:
      case State::kOwed:
        return same ? "settlement_pending" : used_word(p);
      case State::kSettled:
      case State::kAnswered:
        if (!same) return used_word(p);
        record = *known;
        inside_.insert(key);
        return "";
      case State::kFailed:
        if (p.scheme == Scheme::kUpto) return used_word(p);  // an answer was given for it
        break;
      case State::kReserved:
      case State::kGranted:
        break;  // nothing was taken: it may pay for anything
    }
  }
  record = {};
  record.key = key;
  record.request = a.request;
  record.payment = {
      {"version", version}, {"header", version == 2 ? a.payment_v2 : a.payment_v1}, {"resource", a.resource}};
  record.attempts = std::move(attempts);
  record.identifier = identifier;
  record.amount = "0";
  store_.put(record);
  inside_.insert(key);
  return "";
}

void Meter::admit(const Ask& a, std::function<void(Answer)> refuse, std::function<void(std::shared_ptr<Grant>)> grant) {
  const evm::U256 amount = price_.of(a.prompt_tokens + a.most_tokens);
  if (a.payment_v2.empty() && a.payment_v1.empty()) return refuse(refusal(a, amount, "Payment required"));
  const int version = a.payment_v2.empty() ? 1 : 2;
  Payment p;
  Record record;
  try {
    p = parse_payment(version == 2 ? a.payment_v2 : a.payment_v1, version);
    if (auto before = given_before(a, p)) return refuse(std::move(*before));
    if (const std::string why = check_payment(p, terms_, amount, std::time(nullptr)); !why.empty())
      return refuse(refusal(a, amount, why));
    if (const std::string why = begin(a, p, version, record); !why.empty()) {
      if (why == "settlement_pending") {
        Answer r = refusal(a, amount, why);
        r.headers.emplace_back("Retry-After", "5");
        return refuse(std::move(r));
      }
      return refuse(refusal(a, amount, why == "conflict" ? "payment-identifier belongs to another payment" : why,
                            why == "conflict" ? 409 : 402));
    }
    if (record.state == State::kAnswered) {
      auto again = once_more(p, record);
      return refuse(again ? std::move(*again) : refusal(a, amount, used_word(p)));
    }
  } catch (const StoreFailed& e) {  // ours, and no business of the client's
    log::warn("{}", e.what());
    return refuse(refusal(a, amount, "unexpected_verify_error", 503));
  } catch (const Error& e) {
    return refuse(refusal(a, amount, e.what(), 400));
  }
  if (record.state == State::kSettled)  // the server was killed, or failed, before it had answered
    return grant(
        std::make_shared<PaidGrant>(*this, p, record, response(version, p, {"", record.transaction}, record.amount)));
  if (p.scheme == Scheme::kUpto) {
    const std::string why = hold(p, amount, record);
    if (why.empty()) return grant(std::make_shared<PaidGrant>(*this, p, record, net::Headers{}));
    leave(record.key);
    return refuse(refusal(a, amount, why, why == "permit2_allowance_required" ? 412 : 402));
  }
  settling_->submit(record, amount, [this, a, p, record, amount, version, refuse, grant](const Settlement& s) mutable {
    const std::string paid = evm::decimal(amount);
    if (s.error.empty()) {
      record.state = State::kSettled;
      record.transaction = s.transaction;
      record.amount = paid;
      return grant(std::make_shared<PaidGrant>(*this, p, record, response(version, p, s, paid)));
    }
    leave(record.key);
    Answer r = refusal(a, amount, s.error);
    for (auto& h : response(version, p, s, paid)) r.headers.push_back(std::move(h));
    refuse(std::move(r));
  });
}

}  // namespace mxt::pay
