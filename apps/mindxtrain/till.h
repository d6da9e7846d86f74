// What `serve --config` needs to be paid: publish.billing.x402 of a recipe, a node, a key, a store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "algorand/node.h"
#include "config/recipe.h"
#include "pay/meter.h"

namespace mxt::app {

// What no server could be paid by, in words that begin with the key.
std::vector<std::string> wrong_billing(const config::Recipe& recipe);

class Till {
 public:
  // Null where the recipe sells nothing: without the section, at a price of 0, or (said) without an address that is
  // paid. Errors: kMissing names the setting or credential that is not there; kBadInput where node or token are not
  // what the recipe says. `answer_seconds`: the longest that an answer takes.
  static std::unique_ptr<Till> open(const config::Recipe& recipe, double answer_seconds);
  pay::Meter& meter() { return *meter_; }
  std::string text() const;  // for people: what is paid to whom

 private:
  Till(const config::X402& settings, const pay::Network& network, double answer_seconds);
  Till(const config::X402& settings, const config::Publish& publish);  // on Algorand
  double per_1k_;
  std::string settler_;  // who: an address, or a facilitator's
  std::unique_ptr<evm::Rpc> rpc_;
  std::unique_ptr<algorand::Node> node_;
  std::unique_ptr<pay::Store> store_;
  std::unique_ptr<pay::Meter> meter_;
};

}  // namespace mxt::app
