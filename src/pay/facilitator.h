// Settlement by a facilitator (x402's /settle). What it says is checked on the chain: the Transfer must be mined. What
// `upto` owes is asked for again, after longer and longer pauses, until the permit has ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "net/http.h"
#include "pay/settle.h"

namespace mxt::pay {

// The address that a facilitator settles `upto` payments with (GET /supported). kBadInput where it names none for the
// chain.
evm::Address facilitator_signer(const std::string& url, const net::HttpOptions& http, uint64_t chain_id);

class FacilitatorSettler final : public Settling {
 public:
  FacilitatorSettler(evm::Rpc& rpc, std::string url, const net::HttpOptions& http, const Terms& terms, Store& store,
                     SettleSettings settings = {});
  ~FacilitatorSettler() override;
  void submit(Record record, const evm::U256& amount, std::function<void(Settlement)> done) override;
  void stop() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    Record record;
    evm::U256 amount;
    std::function<void(Settlement)> done;
    Payment payment;
    Clock::time_point due = Clock::now();
    int tries = 0;
  };
  Job job_of(Record record, const evm::U256& amount) const;
  std::optional<Job> next();
  void run();
  void finish(Job job, Settlement s);
  bool try_later(Job& job, const std::string& why);
  Settlement settle(Job& job, net::HttpClient& http);
  std::string ask(const Job& job, net::HttpClient& http, std::string& why);
  Settlement mined(const std::string& transaction, const Payment& p, const evm::U256& amount);
  bool is_of(const evm::Receipt& r, const Payment& p);
  std::string transaction_of(const Job& job);
  bool stopping();

  evm::Rpc& rpc_;
  const std::string url_;
  const net::HttpOptions http_;
  const Terms& terms_;
  Store& store_;
  const SettleSettings settings_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::deque<Job> jobs_;
  std::vector<std::thread> threads_;
};

}  // namespace mxt::pay
