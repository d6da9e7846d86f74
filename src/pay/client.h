// The paying side: an answer of status 402 becomes the headers of a second request that pays.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "algorand/node.h"
#include "evm/key.h"
#include "net/http.h"
#include "pay/terms.h"

namespace mxt::pay {

// Pays in USDC alone, and never more than its budget in all: what was signed is spent, whether it was settled or not.
class Payer {
 public:
  virtual ~Payer() = default;
  // The first offer that can be paid. Errors: kBadInput where the answer is no x402, offers nothing that can be paid,
  // or wants more than is left, with what it wants.
  net::Headers pay(const net::HttpResponse& wanted);
  const evm::U256& left() const { return left_; }
  // How long what was signed last can be taken; a server that has not settled it then never will.
  int64_t valid_seconds() const { return valid_seconds_; }

 protected:
  // `budget`: in USDC's smallest unit, millionths of a dollar.
  explicit Payer(const evm::U256& budget) : left_(budget) {}
  virtual bool can_pay(const Json& offer, int version) const = 0;
  // The payload of an offer that can be paid; kBadInput where a part of it is none.
  virtual Json sign(const Json& offer, const evm::U256& amount) = 0;
  virtual std::string_view what() const = 0;  // it pays: for messages

 private:
  evm::U256 left_;
  int64_t valid_seconds_ = 0;
};

class EvmPayer final : public Payer {
 public:
  EvmPayer(evm::Key key, const evm::U256& budget) : Payer(budget), key_(std::move(key)) {}
  const evm::Address& address() const { return key_.address(); }

 private:
  bool can_pay(const Json& offer, int version) const override;
  Json sign(const Json& offer, const evm::U256& amount) override;
  std::string_view what() const override { return "USDC on base or base-sepolia"; }
  Json sign_exact(const Json& offer, const evm::U256& amount, uint64_t chain_id) const;
  Json sign_upto(const Json& offer, const evm::U256& amount, uint64_t chain_id) const;

  evm::Key key_;
};

// Transfers of an asset, their fee paid by the offer's fee payer where it names one, else by the key itself.
class AlgorandPayer final : public Payer {
 public:
  // `seed`: 32 bytes of an Ed25519 key. `node`: says its network's genesis and round; must outlive this.
  AlgorandPayer(std::string seed, algorand::Node& node, const evm::U256& budget);
  ~AlgorandPayer() override;
  AlgorandPayer(const AlgorandPayer&) = delete;

 private:
  bool can_pay(const Json& offer, int version) const override;
  Json sign(const Json& offer, const evm::U256& amount) override;
  std::string_view what() const override { return what_; }

  std::string seed_;
  algorand::Node& node_;
  std::string genesis_hash_, what_;
  std::optional<uint64_t> asset_;  // USDC there
};

// Dollars as a person writes them ("0.25") in millionths; kBadInput for anything else.
evm::U256 dollars(const std::string& text);

}  // namespace mxt::pay
