#include "evm/anvil.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/files.h"
#include "evm/send.h"
#include "folders.h"
#include "free_port.h"

namespace mxt::evm {
namespace {

// Accounts of the mnemonic that anvil and Hardhat share ("test test … junk"): known to everybody.
constexpr const char* kAccounts[] = {"ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
                                     "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
                                     "5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a"};

}  // namespace

std::unique_ptr<Anvil> Anvil::start(const std::vector<std::string>& options) {
  const std::string program =
      std::string(kSourceDir) + "/contracts/node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil";
  if (!fs::exists(program)) return nullptr;
  std::unique_ptr<Anvil> a(new Anvil());
  a->port_ = free_port();
  std::vector<std::string> words = {program, "--port", std::to_string(a->port_), "--silent"};
  words.insert(words.end(), options.begin(), options.end());
  a->pid_ = fork();
  if (a->pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  net::HttpOptions quick;
  quick.retry_base_seconds = 0.05;
  a->rpc_ = std::make_unique<Rpc>(a->url(), quick);
  for (int i = 0; i < 100; ++i) {
    try {
      a->rpc_->chain_id();
      return a;
    } catch (const Error&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  ADD_FAILURE() << "anvil does not answer";
  return nullptr;
}

Anvil::~Anvil() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string Anvil::url() const { return "http://127.0.0.1:" + std::to_string(port_); }

Key Anvil::account(int i) { return Key(*from_hex(std::string("0x") + kAccounts[i])); }

void Anvil::mine(int blocks) { rpc_->call("anvil_mine", Json::array({quantity(blocks)})); }

Address Anvil::deploy(const std::string& contract, const std::string& arguments) {
  const Json codes = read_json_file(std::string(kSourceDir) + "/tests/golden/evm/contracts.json");
  const std::string code = *from_hex(codes.at(contract).get<std::string>()) + arguments;
  SendSettings s;
  s.chain_id = rpc_->chain_id();
  s.poll_seconds = 0.05;
  const Sent sent = send_transaction(*rpc_, account(0), std::nullopt, code, s, Json(), [](const Json&) {});
  EXPECT_TRUE(sent.receipt.succeeded);
  return sent.receipt.contract.value();
}

}  // namespace mxt::evm
