// A chain of the test's own: npm's anvil, where ./dev contracts has installed it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "evm/key.h"
#include "evm/rpc.h"

namespace mxt::evm {

class Anvil {
 public:
  // Null where anvil is not installed: the test is skipped.
  static std::unique_ptr<Anvil> start(const std::vector<std::string>& options = {});
  ~Anvil();
  Anvil(const Anvil&) = delete;
  std::string url() const;
  Rpc& rpc() { return *rpc_; }
  // One of anvil's accounts, 0 … 9, rich in ether.
  static Key account(int i);
  void mine(int blocks = 1);
  // Deploys code of tests/golden/evm/contracts.json with these constructor arguments.
  Address deploy(const std::string& contract, const std::string& arguments = "");

 private:
  Anvil() = default;
  pid_t pid_ = -1;
  int port_ = 0;
  std::unique_ptr<Rpc> rpc_;
};

}  // namespace mxt::evm
