// Payment for what a server answers: who has not paid is told how, who has is let in once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "net/http.h"
#include "pay/settle.h"

namespace mxt::pay {

struct Ask {
  std::string payment_v2, payment_v1;  // PAYMENT-SIGNATURE and X-PAYMENT, "" = absent
  std::string resource;                // URL of what is asked for
  std::string request;                 // digest of the request: a payment pays for one
  int64_t prompt_tokens = 0, most_tokens = 0;
};

// What is said to who has not paid, or, with status 200, once more to who has.
struct Answer {
  int status = 402;
  net::Headers headers;
  std::string body;
  std::function<void()> sent = {};  // to be called when the network has it; null where nobody waits for that
};

// What a grant wants to know of its answer; may outlive the grant, not the meter.
struct Keeper {
  std::function<void(const Answer&)> made;  // before its last byte goes out; null: nothing is wanted
  std::function<void()> sent;               // when the network has it, perhaps without made() before; null: no matter
};

// A request that is paid for (exact), or whose payment will hold (upto).
class Grant {
 public:
  virtual ~Grant() = default;
  virtual net::Headers headers() const = 0;  // of the answer's head: PAYMENT-RESPONSE where it is settled
  // When the answer must be over, so that what was used can still be collected; absent: whenever it is.
  virtual std::optional<std::chrono::system_clock::time_point> end() const { return std::nullopt; }
  // To be called once, with the tokens that were used, and whether they are delivered. upto: what was used is settled,
  // and `then` gets the PAYMENT-RESPONSE. May call `then` at once or on another thread.
  virtual void finish(int64_t tokens, bool delivered, std::function<void(net::Headers)> then) = 0;
  // Keeps the answer for who sends the same payment with the same request again: where the payment names itself
  // always; of exact until it went out, so that a server that is killed meanwhile answers once and loses nothing.
  virtual Keeper keeper() { return {}; }
};

class Meter {
 public:
  // `rpc`: of the terms' chain; null on Algorand.
  Meter(evm::Rpc* rpc, Terms terms, Price price, Store& store,
        const std::function<std::unique_ptr<Settling>(const Terms&)>& settling);
  ~Meter();

  // Calls one of the two, at once or on another thread. `refuse` also gets the answer that was given before.
  void admit(const Ask& ask, std::function<void(Answer)> refuse, std::function<void(std::shared_ptr<Grant>)> grant);
  void stop();  // no callback runs or will run afterwards
  const Terms& terms() const { return terms_; }

 private:
  class PaidGrant;
  Answer refusal(const Ask& a, const evm::U256& amount, const std::string& error, int status = 402) const;
  std::string hold(const Payment& p, const evm::U256& amount, Record& record);
  std::string check_upto_on_chain(const Payment& p, const evm::U256& amount);
  evm::U256 held(const Payment& p);
  std::optional<Answer> given_before(const Ask& a, const Payment& p);
  std::optional<Answer> once_more(const Payment& p, const Record& record);
  std::string begin(const Ask& a, const Payment& p, int version, Record& record);
  void leave(const std::string& key);
  net::Headers response(int version, const Payment& p, const Settlement& s, const std::string& amount) const;

  evm::Rpc* rpc_;
  const Terms terms_;
  const Price price_;
  Store& store_;
  std::mutex mutex_;
  std::set<std::string> inside_;  // payments whose request is being answered
  std::mutex holding_;            // permits are granted one after another: each counts those before it
  std::unique_ptr<Settling> settling_;
};

}  // namespace mxt::pay
