#include "till.h"

#include <algorithm>
#include <cmath>

#include "algorand_key.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "exit.h"
#include "home_path.h"
#include "model_files.h"
#include "pay/algorand.h"
#include "pay/facilitator.h"
#include "provenance/sign.h"
#include "publish.h"
#include "publish/service.h"
#include "run_record.h"

namespace mxt::app {
namespace {

std::vector<pay::Scheme> schemes_of(const config::X402& x) {
  std::vector<pay::Scheme> out;
  for (const config::X402Scheme s : x.schemes) {
    const pay::Scheme one = s == config::X402Scheme::kExact ? pay::Scheme::kExact : pay::Scheme::kUpto;
    if (std::find(out.begin(), out.end(), one) == out.end()) out.push_back(one);
  }
  return out;
}

std::unique_ptr<pay::Store> open_store(const config::X402& x) {
  return std::make_unique<pay::Store>(x.store ? home_path(*x.store)
                                              : (fs::path(registry_path()).parent_path() / "x402.sqlite").string());
}

// Of the key that pays fees on Algorand, where there is one; "" = clients pay them.
std::string fee_seed(const config::X402& x, const config::Publish& publish) {
  const bool named = x.key_env != config::X402().key_env;
  const std::string name = named ? x.key_env : publish.algorand.value_or(config::AlgorandPublish()).key_env,
                    file = environment(name.c_str());
  if (file.empty() && named)
    fail_missing("{} is not set: the file of the key that pays fees (`mindxtrain key new FILE --kind algorand`)", name);
  return file.empty() ? "" : algorand_seed(home_path(file));
}

// An address at which what is paid is lost is none that anybody meant.
template <typename Address>
void require_somebody(const Address& a) {
  if (a == Address{})
    fail_input("publish.billing.x402.pay_to: is the zero address, which nobody has the key of: write your own");
}

}  // namespace

std::vector<std::string> wrong_billing(const config::Recipe& r) {
  std::vector<std::string> out;
  if (!r.publish || !r.publish->billing) return out;
  const config::X402& x = r.publish->billing->x402;
  const auto check = [&](const auto& f) {
    try {
      f();
    } catch (const Error& e) {
      out.emplace_back(e.what());
    }
  };
  const bool algorand = x.network == config::X402Network::kAlgorand;
  if (x.pay_to)
    check([&] {
      if (algorand)
        require_somebody(algorand::address_setting(*x.pay_to, "publish.billing.x402.pay_to"));
      else
        require_somebody(evm::address_setting(*x.pay_to, "publish.billing.x402.pay_to"));
    });
  if (!algorand && x.asset != "USDC") check([&] { evm::address_setting(x.asset, "publish.billing.x402.asset"); });
  if (x.rpc_url) check([&] { publish::service_url(*x.rpc_url, "publish.billing.x402.rpc_url"); });
  if (x.facilitator_url)
    check([&] { publish::service_url(*x.facilitator_url, "publish.billing.x402.facilitator_url"); });
  return out;
}

std::unique_ptr<Till> Till::open(const config::Recipe& r, double answer_seconds) {
  if (!r.publish || !r.publish->billing) return nullptr;
  const config::X402& x = r.publish->billing->x402;
  if (x.price_per_1k_tokens == 0) return nullptr;
  if (!x.pay_to) {
    log::warn("answers are free: publish.billing.x402.pay_to names nobody who is paid");
    return nullptr;
  }
  if (const auto wrong = wrong_billing(r); !wrong.empty()) fail_input("{}", wrong.front());
  if (x.receiver_via == config::ReceiverVia::kCoinbaseFacilitator && !x.facilitator_url)
    fail_missing(
        "publish.billing.x402.receiver_via: coinbase_facilitator settles at publish.billing.x402.facilitator_url: set "
        "its address, or write parsec_wallet to settle by {}",
        x.key_env);
  if (x.network == config::X402Network::kAlgorand) return std::unique_ptr<Till>(new Till(x, *r.publish));
  return std::unique_ptr<Till>(new Till(x, pay::network_of(text_of(x.network)), answer_seconds));
}

Till::Till(const config::X402& x, const pay::Network& network, double answer_seconds) : per_1k_(x.price_per_1k_tokens) {
  if (!x.rpc_url)
    fail_missing("publish.billing.x402.rpc_url: is not set: the address of a node of {}, which says what is paid",
                 network.name);
  std::optional<evm::Key> key;
  if (!x.facilitator_url)
    key = evm::load_key(environment(x.key_env.c_str()), x.key_env, [] { return key_passphrase(); });
  net::HttpOptions http = publish_surroundings().http;
  http.cancel = nullptr;  // what is under way is settled after Ctrl-C too
  rpc_ = std::make_unique<evm::Rpc>(*x.rpc_url, http);
  rpc_->require_chain(network.chain_id);
  pay::Terms terms;
  terms.network = &network;
  terms.token = pay::read_token(*rpc_, network, x.asset);
  terms.pay_to = evm::address_setting(*x.pay_to, "publish.billing.x402.pay_to");
  terms.schemes = schemes_of(x);
  terms.answer_seconds = static_cast<int64_t>(std::ceil(std::min(answer_seconds, 1e9)));
  const bool upto = std::find(terms.schemes.begin(), terms.schemes.end(), pay::Scheme::kUpto) != terms.schemes.end();
  if (key)
    terms.facilitator = key->address();
  else if (upto)
    terms.facilitator = pay::facilitator_signer(*x.facilitator_url, http, network.chain_id);
  store_ = open_store(x);
  const pay::Price price(x.price_per_1k_tokens, terms.token.decimals);
  settler_ = x.facilitator_url ? *x.facilitator_url : evm::text_of(key->address());
  meter_ = std::make_unique<pay::Meter>(
      rpc_.get(), std::move(terms), price, *store_, [&](const pay::Terms& t) -> std::unique_ptr<pay::Settling> {
        if (key) return std::make_unique<pay::Settler>(*rpc_, *key, t, *store_);
        return std::make_unique<pay::FacilitatorSettler>(*rpc_, *x.facilitator_url, http, t, *store_);
      });
}

Till::Till(const config::X402& x, const config::Publish& publish) : per_1k_(x.price_per_1k_tokens) {
  std::string url = environment("ALGOD_URL");
  if (url.empty() && x.rpc_url) url = *x.rpc_url;
  if (url.empty() && publish.algorand) url = publish.algorand->algod_url;
  if (url.empty())
    fail_missing(
        "publish.billing.x402.rpc_url: is not set, nor is publish.algorand.algod_url or ALGOD_URL: the address of an "
        "algod, which is paid through");
  if (x.facilitator_url || schemes_of(x) != std::vector{pay::Scheme::kExact})
    fail_input("publish.billing.x402: on algorand the scheme is exact, and no facilitator settles");
  net::HttpOptions http = publish_surroundings().http;
  http.cancel = nullptr;  // what is under way is settled after Ctrl-C too
  node_ = std::make_unique<algorand::Node>(url, environment("ALGOD_TOKEN"), http);
  std::string seed = fee_seed(x, publish);
  pay::Terms terms;
  terms.algorand = pay::read_algorand(*node_, x.asset, *x.pay_to, terms.token);
  if (!seed.empty()) terms.algorand->fee_payer = algorand::address_of(seed);
  terms.schemes = {pay::Scheme::kExact};
  store_ = open_store(x);
  const pay::Price price(x.price_per_1k_tokens, terms.token.decimals);
  settler_ = node_->name();
  meter_ = std::make_unique<pay::Meter>(nullptr, std::move(terms), price, *store_,
                                        [&](const pay::Terms&) -> std::unique_ptr<pay::Settling> {
                                          return std::make_unique<pay::AlgorandSettler>(*node_, *store_, seed);
                                        });
}

std::string Till::text() const {
  const pay::Terms& t = meter_->terms();
  return fmt::format("{} {} for 1,000 tokens on {}, paid to {}, settled by {}", per_1k_, t.token.name,
                     pay::network_text(t, 1), pay::pay_to_text(t), settler_);
}

}  // namespace mxt::app
