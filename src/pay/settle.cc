#include "pay/settle.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "evm/abi.h"
#include "evm/transaction.h"

namespace mxt::pay {
namespace {

using Timer = std::chrono::steady_clock;

double seconds_since(Timer::time_point t) { return std::chrono::duration<double>(Timer::now() - t).count(); }

Digest word_of(const evm::Address& a) { return *evm::digest_of(std::string(12, '\0') + evm::bytes_of(a)); }

// Hashes of everything that was sent for a payment.
Json earlier_of(const Json& attempts) {
  Json all = attempts.value("earlier", Json::array());
  for (const Json& a : attempts.value("attempts", Json::array())) all.push_back(a.at("hash"));
  return all;
}

bool says(const evm::NodeError& e, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* w) { return e.said.find(w) != std::string::npos; });
}

// Whether the payer has less than it authorized: a contract's revert need not say why.
bool is_poor(evm::Rpc& rpc, const Payment& p, const Terms& t) {
  try {
    const std::string answer =
        rpc.eth_call(t.token.address, evm::abi_call("balanceOf(address)", {evm::AbiValue::address(p.payer())}));
    return evm::AbiReader(answer, rpc.name() + ": balanceOf").number(0) < p.exact->value;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

double retry_pause(const SettleSettings& s, int tries) {
  return std::min(s.retry_seconds * std::pow(2, tries), s.most_retry_seconds);
}

bool has_ended(const Payment& p) { return evm::U256(std::time(nullptr)) > p.upto->deadline; }

bool holds_transfer(const evm::Receipt& r, const Terms& t, const evm::Address& from, const evm::U256& amount) {
  static const Digest kTransfer = evm::topic("Transfer(address,address,uint256)");
  return std::any_of(r.logs.begin(), r.logs.end(), [&](const evm::Log& l) {
    return l.address == t.token.address && l.topics.size() == 3 && l.topics[0] == kTransfer &&
           l.topics[1] == word_of(from) && l.topics[2] == word_of(t.pay_to) && l.data == evm::word_of(amount);
  });
}

struct Settler::Job {
  Record record;
  Payment payment;
  evm::U256 amount;
  std::function<void(Settlement)> done;
  Timer::time_point born = Timer::now(), offered = Timer::now();
  int tries = 0;                            // of an owed one that came to nothing
  std::optional<Timer::time_point> missed;  // since when its nonce is used and no receipt of it is seen
};

Settler::Settler(evm::Rpc& rpc, evm::Key key, const Terms& terms, Store& store, SettleSettings settings)
    : rpc_(rpc), key_(std::move(key)), terms_(terms), store_(store), settings_(settings) {
  take_up();
  thread_ = std::thread([this] { run(); });
}

Settler::~Settler() { stop(); }

void Settler::stop() {
  inbox_.stop();
  if (thread_.joinable()) thread_.join();
}

void Settler::take_up() {
  const auto job = [](Record r) {
    Job j;
    j.payment = parse_payment(r.payment.at("header").get<std::string>(), r.payment.at("version").get<int>());
    j.amount = evm::parse_decimal(r.amount).value();
    j.record = std::move(r);
    return j;
  };
  for (Record& r : store_.in(State::kSent)) under_way_.push_back(job(std::move(r)));
  for (Record& r : store_.in(State::kOwed)) inbox_.put(job(std::move(r)));
}

void Settler::submit(Record record, const evm::U256& amount, std::function<void(Settlement)> done) {
  Job job;
  job.payment = parse_payment(record.payment.at("header").get<std::string>(), record.payment.at("version").get<int>());
  job.record = std::move(record);
  job.amount = amount;
  job.record.amount = evm::decimal(amount);
  job.done = std::move(done);
  inbox_.put(std::move(job));
}

void Settler::run() {
  for (;;) {
    auto fresh = inbox_.take(!under_way_.empty(), settings_.poll_seconds);
    if (!fresh) return;
    for (Job& j : *fresh)
      if (begin(j)) under_way_.push_back(std::move(j));
    look();
  }
}

// True where it is to be looked at again: also where what became of it cannot be kept now.
bool Settler::begin(Job& job) {
  try {
    return send_new(job);
  } catch (const Error& e) {
    log::warn("payment {}: {}", job.record.key, e.what());
    return true;
  }
}

// A job's record is the one on disk: what is sent has been kept before, and what became of it stays to be kept.
void Settler::keep(Job& job, Record record) {
  store_.put(record);
  job.record = std::move(record);
}

// The simulation comes first: what would revert costs no gas.
bool Settler::send_new(Job& job) {
  try {
    if (!nonce_known_) {
      next_nonce_ = rpc_.nonce(key_.address(), "pending");
      for (const Job& j : under_way_)  // kept, and perhaps not sent yet
        if (!j.record.attempts["attempts"].empty())
          next_nonce_ = std::max(next_nonce_, j.record.attempts["nonce"].get<uint64_t>() + 1);
      nonce_known_ = true;
    }
    const evm::Fees f = rpc_.fees();
    if (f.base + f.tip > settings_.most_fee)
      fail_input("gas costs {} wei now, which is too much", evm::decimal(f.base + f.tip));
    Record sent = job.record;
    sent.attempts = {{"nonce", next_nonce_}, {"attempts", Json::array()}, {"earlier", earlier_of(sent.attempts)}};
    sign(job, sent, std::min<evm::U256>(2 * f.base + f.tip, settings_.most_fee), f.tip);
    sent.state = State::kSent;
    keep(job, std::move(sent));
    ++next_nonce_;
    return broadcast(job, *evm::from_hex(job.record.attempts["attempts"].back()["raw"].get<std::string>()));
  } catch (const evm::NodeError& e) {
    // One that was sent earlier may be what stands in the way, though the node does not show its receipt yet.
    if (is_mined(job)) return false;
    const bool upto = job.payment.scheme == Scheme::kUpto;
    if (upto && !has_ended(job.payment)) {
      log::warn("payment {} was not sent: {}", job.record.key, e.what());
      return keep_owed(job);
    }
    if (!earlier_of(job.record.attempts).empty() && seconds_since(job.born) < settings_.answer_seconds) return true;
    if (upto)
      log::warn("payment {}: {} of the smallest unit of {} is lost: its permit has ended: {}", job.record.key,
                job.record.amount, terms_.token.name, e.what());
    else
      log::info("payment {} was not sent: {}", job.record.key, e.what());
    finish(job, {upto                                 ? "permit2_simulation_failed"
                 : is_poor(rpc_, job.payment, terms_) ? "invalid_exact_evm_insufficient_balance"
                                                      : "invalid_exact_evm_transaction_simulation_failed",
                 ""});
    return false;
  } catch (const Error& e) {
    if (job.record.state == State::kSent) throw;
    log::warn("payment {} was not sent: {}", job.record.key, e.what());
    if (job.record.state == State::kOwed) return keep_owed(job);
    if (job.done) job.done({"unexpected_settle_error", ""});
    return false;
  }
}

// What was delivered already is owed until it is paid: it is tried again.
bool Settler::keep_owed(Job& job) {
  job.record.attempts = {{"attempts", Json::array()}, {"earlier", earlier_of(job.record.attempts)}};
  if (job.done) job.done({"settlement_pending", ""});
  job.done = nullptr;
  job.offered = Timer::now();
  ++job.tries;
  return true;
}

void Settler::sign(Job& job, Record& record, const evm::U256& max_fee, const evm::U256& tip) {
  const evm::Address to = settlement_contract(job.payment, terms_);
  evm::Transaction t;
  t.chain_id = terms_.network->chain_id;
  t.nonce = record.attempts["nonce"].get<uint64_t>();
  t.to = to;
  t.data = settlement_call(job.payment, job.amount);
  const uint64_t gas = rpc_.estimate_gas(key_.address(), to, t.data);
  t.gas = gas + gas / 4;
  t.max_fee = max_fee;
  t.max_priority_fee = std::min(tip, max_fee);
  const evm::SignedTransaction s = evm::sign(t, key_);
  record.attempts["attempts"].push_back({{"hash", evm::hex(s.hash)},
                                         {"raw", evm::hex(s.raw)},
                                         {"max_fee", evm::quantity(max_fee)},
                                         {"tip", evm::quantity(tip)}});
  job.offered = Timer::now();
}

// False where the node will never take it: the job is over.
bool Settler::broadcast(Job& job, const std::string& raw) {
  try {
    rpc_.send_raw(raw);
    return true;
  } catch (const evm::NodeError& e) {
    if (says(e, {"already known", "already imported", "known transaction", "underpriced", "less than block base fee"}))
      return true;
    if (says(e, {"nonce too low"})) return true;  // mined already, or the nonce went elsewhere: look() finds out
    nonce_known_ = false;                         // this nonce was not used
    log::warn("payment {} was refused by the node: {}", job.record.key, e.what());
    if (job.payment.scheme == Scheme::kUpto) {
      Record owed = job.record;
      owed.state = State::kOwed;
      keep(job, std::move(owed));
      return keep_owed(job);
    }
    finish(job, {"unexpected_settle_error", ""});
    return false;
  } catch (const Error& e) {
    log::warn("payment {}: {}", job.record.key, e.what());
    return true;  // it may have arrived
  }
}

void Settler::look() {
  std::deque<Job> still;
  for (Job& j : under_way_) {
    try {
      if (look_at(j)) continue;
    } catch (const Error& e) {
      log::warn("payment {}: {}", j.record.key, e.what());
    }
    if (j.done && seconds_since(j.born) > settings_.answer_seconds) {
      const auto& attempts = j.record.attempts["attempts"];
      j.done({"settlement_pending", attempts.empty() ? "" : attempts.back()["hash"].get<std::string>()});
      j.done = nullptr;
    }
    still.push_back(std::move(j));
  }
  under_way_ = std::move(still);
}

// Whether one of its transactions, the earlier ones too, is mined: then it is over.
bool Settler::is_mined(Job& job) {
  for (const Json& h : earlier_of(job.record.attempts)) {
    const std::string hash = h.get<std::string>();
    const auto r = rpc_.receipt(evm::digest_from_hex(hash).value());
    if (!r) continue;
    if (!r->succeeded)
      finish(job, {"invalid_transaction_state", hash});
    else if (!holds_transfer(*r, terms_, job.payment.payer(), job.amount))
      finish(job, {"invalid_exact_evm_transfer_event_mismatch", hash});
    else
      finish(job, {"", hash});
    return true;
  }
  return false;
}

// True where it is over.
bool Settler::look_at(Job& job) {
  const Json& attempts = job.record.attempts["attempts"];
  if (attempts.empty()) return seconds_since(job.offered) > retry_pause(settings_, job.tries - 1) && !send_new(job);
  if (is_mined(job)) return true;
  if (rpc_.nonce(key_.address()) > job.record.attempts["nonce"].get<uint64_t>()) {
    // A node counts the nonce before it shows the receipt, and another one behind the same address may lag: it is
    // waited for before it is believed that somebody else used the nonce.
    if (!job.missed) job.missed = Timer::now();
    if (seconds_since(*job.missed) < settings_.replace_seconds) return false;
    nothing_came(job);
    return true;
  }
  job.missed.reset();
  const evm::Fees f = rpc_.fees();
  const evm::U256 offered = evm::parse_quantity(attempts.back().at("max_fee").get<std::string>()).value();
  if (f.base > offered && seconds_since(job.offered) > settings_.replace_seconds) {
    offer_more(job, f);
    return false;
  }
  if (!rpc_.knows(evm::digest_from_hex(attempts.back().at("hash").get<std::string>()).value()))
    return !broadcast(job, *evm::from_hex(attempts.back().at("raw").get<std::string>()));
  return false;
}

void Settler::offer_more(Job& job, const evm::Fees& f) {
  const Json& last = job.record.attempts["attempts"].back();
  const evm::U256 fee = evm::parse_quantity(last.at("max_fee").get<std::string>()).value() * 9 / 8 + 1,
                  tip = evm::parse_quantity(last.at("tip").get<std::string>()).value() * 9 / 8 + 1;
  const evm::U256 wanted = std::max<evm::U256>(fee, 2 * f.base + tip);
  if (wanted > settings_.most_fee) return;
  Record more = job.record;
  sign(job, more, wanted, tip);
  keep(job, std::move(more));
  broadcast(job, *evm::from_hex(job.record.attempts["attempts"].back()["raw"].get<std::string>()));
}

// Another program used our nonce: the payment is sent anew with the next.
void Settler::nothing_came(Job& job) {
  nonce_known_ = false;
  job.missed.reset();
  Record owed = job.record;
  owed.state = State::kOwed;
  keep(job, std::move(owed));
  inbox_.put(std::move(job));
}

void Settler::finish(Job& job, Settlement s) {
  const State good = job.payment.scheme == Scheme::kUpto ? State::kServed : State::kSettled;  // upto: delivered before
  Record over = job.record;
  over.state = s.error.empty() ? good : State::kFailed;
  over.transaction = s.transaction;
  keep(job, std::move(over));
  if (job.done) job.done(std::move(s));
  job.done = nullptr;
}

}  // namespace mxt::pay
