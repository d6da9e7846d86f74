#include "publish/evm/token.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "evm/abi.h"
#include "publish/evm/chain.h"

namespace mxt::publish {
namespace {

using V = evm::AbiValue;

constexpr const char* kData = "intelligentDataOf(uint256)";  // (string dataDescription, bytes32 dataHash)[]
constexpr const char* kHashes = "dataHashesOf(uint256)";     // bytes32[]
constexpr size_t kMostHashes = 1000;

// Slots of an answer that is one array: how many items, and which slot the first stands in.
std::pair<size_t, size_t> array_of(const evm::AbiReader& r, const std::string& who) {
  const evm::U256 offset = r.number(0);
  if (offset % 32 != 0 || offset > 32 * kMostHashes) fail_input("{}: its answer is no array", who);
  const auto at = static_cast<size_t>(offset / 32);
  const evm::U256 n = r.number(at);
  if (n > kMostHashes) fail_input("{}: its answer has too many items", who);
  return {static_cast<size_t>(n), at + 1};
}

class TokenStep final : public Step {
 public:
  TokenStep(const config::EvmPublish& s, const Run& run, const Surroundings& around)
      : settings_(s),
        run_(run),
        chain_(std::make_unique<EvmChain>(s, around)),
        contract_(evm::address_setting(*s.inft, "publish.evm.inft")) {}
  std::string name() const override { return "erc7857"; }
  std::string target() const override {
    return fmt::format("{} token {}", chain_target(settings_, contract_), *settings_.inft_token);
  }
  void check(const StepContext&) const override {}

  OrderedJson preview(const StepContext&) const override {
    return {{"reads", evm::text_of(contract_)}, {"data", evm::hex(call(kData))}, {"digest", evm::hex(digest())}};
  }

  Json run(const StepContext&) const override {
    chain_->require(contract_, "publish.evm.inft");
    const std::vector<Digest> hashes = hashes_of();
    if (std::find(hashes.begin(), hashes.end(), digest()) == hashes.end())
      fail_verify("token {} of {} holds other data: none of its {} hashes is {}, the SHA-256 of manifest.json",
                  *settings_.inft_token, evm::text_of(contract_), hashes.size(), evm::hex(digest()));
    return {{"contract", evm::text_of(contract_)},
            {"chain_id", settings_.chain_id},
            {"token", *settings_.inft_token},
            {"digest", evm::hex(digest())}};
  }

 private:
  Digest digest() const { return *evm::digest_from_hex("0x" + manifest_sha256(run_)); }
  std::string call(const char* function) const {
    return evm::abi_call(function, {V::number(evm::U256(*settings_.inft_token))});
  }
  std::vector<Digest> hashes_of() const {
    const std::string who = chain_->rpc().name() + ": " + evm::text_of(contract_);
    std::vector<Digest> out;
    std::string answer;
    try {
      answer = chain_->rpc().eth_call(contract_, call(kData));
    } catch (const evm::NodeError&) {
      return hashes_of_the_text(who);
    }
    const evm::AbiReader r(answer, who);
    const auto [n, first] = array_of(r, who);
    for (size_t i = 0; i < n; ++i) {
      const evm::U256 offset = r.number(first + i);  // of the tuple, from the first item's slot
      if (offset % 32 != 0 || offset > answer.size()) fail_input("{}: its answer points outside", who);
      out.push_back(r.digest(first + static_cast<size_t>(offset / 32) + 1));
    }
    return out;
  }
  std::vector<Digest> hashes_of_the_text(const std::string& who) const {
    std::string answer;
    try {
      answer = chain_->rpc().eth_call(contract_, call(kHashes));
    } catch (const evm::NodeError& e) {
      fail_input("publish.evm.inft: {} answers neither {} nor {} for token {}: {}", evm::text_of(contract_), kData,
                 kHashes, *settings_.inft_token, e.what());
    }
    const evm::AbiReader r(answer, who);
    const auto [n, first] = array_of(r, who);
    std::vector<Digest> out;
    for (size_t i = 0; i < n; ++i) out.push_back(r.digest(first + i));
    return out;
  }

  const config::EvmPublish& settings_;
  const Run& run_;
  std::unique_ptr<EvmChain> chain_;
  evm::Address contract_;
};

}  // namespace

std::unique_ptr<Step> token_step(const config::EvmPublish& s, const Run& run, const Surroundings& around) {
  return std::make_unique<TokenStep>(s, run, around);
}

}  // namespace mxt::publish
