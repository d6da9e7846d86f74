// A node of an EVM chain over JSON-RPC (ethereum.github.io/execution-apis). Its answers are hostile: small, within a
// time, of the right shape.
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
#include "evm/types.h"
#include "net/http.h"

namespace mxt::evm {

// What a node answered instead of a result.
class NodeError : public Error {
 public:
  NodeError(const std::string& message, int64_t code, std::string said, std::string data)
      : Error(Exit::kBadInput, message), rpc_code(code), said(std::move(said)), data(std::move(data)) {}
  int64_t rpc_code;
  std::string said;  // its words, in lower case
  std::string data;  // of a revert: the bytes that the contract gave
};

struct Log {
  Address address{};
  std::vector<Digest> topics;
  std::string data;
  Digest transaction{};
  uint64_t block = 0;
};

struct Receipt {
  Digest transaction{};
  bool succeeded = false;
  uint64_t block = 0;
  Digest block_hash{};
  std::vector<Log> logs;
  std::optional<Address> contract;  // that it made
};

struct Fees {
  U256 base, tip;  // wei a unit of gas: of the newest block; what the node suggests beyond it
};

// Thread-safe: calls are made one after another. Errors of all calls: kBadInput where the node cannot be reached,
// refuses (NodeError) or answers nonsense; kInterrupted.
class Rpc {
 public:
  // `name` for messages: "the node at https://…", without what may be a secret in its path. kBadInput: no http(s) URL.
  Rpc(const std::string& url, const net::HttpOptions& options);

  Json call(const std::string& method, Json params);
  uint64_t chain_id();
  // Asks for the chain's id: kBadInput where it is another.
  void require_chain(uint64_t id);
  uint64_t block_number();
  uint64_t block_time();                                           // of the newest block, seconds since 1970
  std::optional<Digest> block_hash(uint64_t number);               // absent: not there (any more)
  uint64_t nonce(const Address& a, const char* block = "latest");  // "pending": with what waits to be mined
  U256 balance(const Address& a);
  Fees fees();
  uint64_t estimate_gas(const Address& from, const std::optional<Address>& to, const std::string& data);
  std::string eth_call(const Address& to, const std::string& data, const std::optional<Address>& from = {});
  bool has_code(const Address& a);
  void send_raw(const std::string& raw);
  bool knows(const Digest& transaction);  // mined or waiting
  std::optional<Receipt> receipt(const Digest& transaction);
  // All of a contract's that were mined at `since` (seconds since 1970) or later. A node that answers for a bounded
  // range of blocks alone is asked for one after another, as large as it takes them. NodeError where it takes none, or
  // would have to be asked too often.
  std::vector<Log> logs(const Address& contract, const std::vector<std::optional<Digest>>& topics, int64_t since);
  const std::string& name() const { return name_; }

 private:
  [[noreturn]] void nonsense(const std::string& method) const;
  U256 number(const std::string& method, const Json& j) const;
  uint64_t small(const std::string& method, const Json& j) const;
  std::string bytes(const std::string& method, const Json& j) const;
  Log log_of(const Json& j) const;
  std::vector<Log> logs_in(const Address& contract, const std::vector<std::optional<Digest>>& topics, const Json& from,
                           const Json& to);
  uint64_t time_of(uint64_t block);
  uint64_t first_block_since(int64_t time, uint64_t head);

  std::string url_, name_;
  std::mutex mutex_;
  net::HttpClient http_;
  uint64_t id_ = 0;
};

}  // namespace mxt::evm
