// algod over REST (developer.algorand.org/docs/rest-apis/algod). Its answers are hostile: small, within a time, of the
// right shape.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "net/http.h"

namespace mxt::algorand {

// What a node says of transactions that it does not take.
class Refused : public Error {
 public:
  explicit Refused(const std::string& message) : Error(Exit::kBadInput, message) {}
};

struct Asset {
  std::string name, unit;
  int decimals = 0;
};

// What a new transaction has to say of its network.
struct Params {
  std::string genesis_hash, genesis_id;  // the hash: 32 bytes
  uint64_t last_round = 0;
  uint64_t min_fee = 0, fee_per_byte = 0;  // microalgos; by the byte only where the network is full
};

struct Pending {
  uint64_t round = 0;  // in which it was confirmed; 0: not (yet)
  std::string error;   // why the pool threw it away
  bool known = false;
};

// Thread-safe. Errors: kBadInput where the node cannot be reached, refuses or answers nonsense; kInterrupted.
class Node {
 public:
  // `token`: X-Algo-API-Token, "" = none is wanted. kBadInput: no http or https URL.
  Node(const std::string& url, std::string token, const net::HttpOptions& options);

  std::string genesis_hash();  // 32 bytes
  Params params();
  Asset asset(uint64_t id);
  void send(const std::string& transactions);  // encoded, one after another; Refused
  Pending pending(const std::string& id);
  const std::string& name() const { return name_; }

 private:
  net::HttpResponse ask(const std::string& method, const std::string& path, const std::string& body = {});
  Json json(const std::string& path);
  std::string hash_in(const Json& params) const;
  std::string url_, token_, name_;
  std::mutex mutex_;
  net::HttpClient http_;
};

}  // namespace mxt::algorand
