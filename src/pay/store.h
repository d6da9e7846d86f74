// What is known of each payment, on disk before anything is done with it: a killed server knows where it stood.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace mxt::pay {

// reserved → (granted, owed: what `upto` used) → sent → settled → answered: its answer is kept, and may have gone out →
// served; failed: it came to nothing and may be tried anew. On disk they are numbers.
enum class State { kReserved, kGranted, kOwed, kSent, kSettled, kServed, kFailed, kAnswered };

struct Record {
  std::string key;      // of the payment
  std::string request;  // digest of the one request that it pays for
  State state = State::kReserved;
  std::string amount;  // decimal: what is or was settled
  Json payment;        // as it came: {"version", "header"}
  Json attempts;       // of its transaction (evm/send.h)
  std::string transaction;
  std::string identifier;  // payment-identifier; "" = none
};

// What was answered.
struct KeptAnswer {
  std::string name;              // the payment's identifier, or its key where it has none
  std::string payment, request;  // the payment as it came
  int status = 0;
  Json headers;  // [[name, value], …]
  std::string body;
};

// The file cannot be read or written, for want of space say.
struct StoreFailed : Error {
  using Error::Error;
};

class Store {
 public:
  // StoreFailed where the file cannot be used, as from all else here. Another server may not have it open.
  explicit Store(const std::string& path);
  ~Store();
  Store(const Store&) = delete;

  std::optional<Record> find(const std::string& key);
  std::optional<Record> find_identifier(const std::string& identifier);
  bool has_transaction(const std::string& hash, const std::string& but_of);  // of another payment than this one
  void put(const Record& r);                                                 // on disk when it returns
  void keep_answer(const KeptAnswer& a);                                     // of the newest kMostAnswers
  void put_answered(const Record& r, const KeptAnswer& a);                   // both or neither
  // Served, and its answer forgotten. Not lost with the process, at once; with the machine perhaps.
  void put_served(const Record& r);
  std::optional<KeptAnswer> answer_of(const std::string& name);
  static constexpr int kMostAnswers = 10'000;
  std::vector<Record> in(State state);                       // oldest first
  std::vector<Record> under_way(const std::string& prefix);  // granted, owed or sent, of keys that begin so

 private:
  struct Db;
  std::mutex mutex_;
  std::unique_ptr<Db> db_;
};

}  // namespace mxt::pay
