// The queue that brings payments onto the chain: one account, one nonce after another, many transactions under way.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "evm/key.h"
#include "evm/rpc.h"
#include "pay/inbox.h"
#include "pay/payment.h"
#include "pay/store.h"

namespace mxt::pay {

struct SettleSettings {
  double poll_seconds = 0.5;
  double retry_seconds = 1;  // before what is owed is tried again: doubled from try to try, up to the next
  double most_retry_seconds = 10;
  double answer_seconds = 60;  // then who waits is told "settlement_pending"; it is followed all the same
  // A transaction that the base fee has outgrown is offered more after these, and one whose nonce is used without it is
  // given up.
  double replace_seconds = 20;
  evm::U256 most_fee = evm::U256(500'000'000'000);  // wei a unit of gas
};

double retry_pause(const SettleSettings& s, int tries);  // seconds, after so many

struct Settlement {
  std::string error;  // "" = the Transfer is mined; else the SDK's word
  std::string transaction;
};

// A permit (`upto`) settles until its deadline alone: what was delivered for it and is not collected then is lost.
bool has_ended(const Payment& p);

// A payment counts where a mined transaction holds the Transfer of its amount, from its payer to who is to be paid: a
// transaction that merely succeeded does not.
// Whether a mined transaction moved `amount` of the terms' token from `from` to who is to be paid.
bool holds_transfer(const evm::Receipt& r, const Terms& t, const evm::Address& from, const evm::U256& amount);

class Settling {
 public:
  virtual ~Settling() = default;
  // Settles `amount` of a payment whose record is kept; `done` is called once, on another thread.
  virtual void submit(Record record, const evm::U256& amount, std::function<void(Settlement)> done) = 0;
  virtual void stop() = 0;  // returns when no callback runs or will run; what is under way goes on at the next start
};

class Settler final : public Settling {
 public:
  // Takes up what the store says was sent and not seen mined, and what is owed.
  Settler(evm::Rpc& rpc, evm::Key key, const Terms& terms, Store& store, SettleSettings settings = {});
  ~Settler() override;
  Settler(const Settler&) = delete;

  void submit(Record record, const evm::U256& amount, std::function<void(Settlement)> done) override;
  void stop() override;

 private:
  struct Job;
  void run();
  void take_up();
  bool begin(Job& job);
  bool send_new(Job& job);
  bool keep_owed(Job& job);
  void look();
  bool look_at(Job& job);
  bool is_mined(Job& job);
  void offer_more(Job& job, const evm::Fees& fees);
  bool broadcast(Job& job, const std::string& raw);
  void sign(Job& job, Record& record, const evm::U256& max_fee, const evm::U256& tip);
  void keep(Job& job, Record record);
  void finish(Job& job, Settlement s);
  void nothing_came(Job& job);

  evm::Rpc& rpc_;
  const evm::Key key_;
  const Terms& terms_;
  Store& store_;
  const SettleSettings settings_;
  Inbox<Job> inbox_;
  std::deque<Job> under_way_;  // of the thread alone
  uint64_t next_nonce_ = 0;
  bool nonce_known_ = false;
  std::thread thread_;
};

}  // namespace mxt::pay
