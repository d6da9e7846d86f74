#include "publish/evm/chain.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "provenance/sign.h"
#include "publish/service.h"

namespace mxt::publish {

EvmChain::EvmChain(const config::EvmPublish& s, const Surroundings& around)
    : settings_(s), around_(around), rpc_(service_url(s.rpc_url, "publish.evm.rpc_url"), around.http) {}

void EvmChain::require(const evm::Address& contract, const std::string& what) {
  rpc_.require_chain(static_cast<uint64_t>(settings_.chain_id));
  if (!rpc_.has_code(contract))
    fail_input("{}: {}: there is no contract at {} on chain {}", rpc_.name(), what, evm::text_of(contract),
               settings_.chain_id);
}

evm::Key EvmChain::key() const {
  return evm::load_key(around_.variable(settings_.key_env), settings_.key_env,
                       [&] { return around_.variable(provenance::kPassphraseVariable); });
}

evm::Sent EvmChain::send(const StepContext& c, const std::string& name, const evm::Address& to,
                         const std::string& data) {
  evm::SendSettings s;
  s.chain_id = static_cast<uint64_t>(settings_.chain_id);
  s.confirmations = static_cast<uint64_t>(settings_.confirmations);
  s.most_fee = evm::U256(settings_.max_fee_gwei * 1e9);
  s.poll_seconds = around_.poll_seconds;
  Json state = c.state();
  if (!state.is_object()) state = Json::object();
  const auto keep = [&](const Json& attempts) {
    state[name] = attempts;
    c.save(state);
  };
  evm::Sent sent = evm::send_transaction(rpc_, key(), to, data, s, state.value(name, Json()), keep, around_.stop);
  if (!sent.receipt.succeeded) {
    state.erase(name);  // nothing is under way: what stands on the chain counts again
    c.save(state.empty() ? Json() : state);
    fail_input("{}: transaction {} was mined and failed: the same command tries again", rpc_.name(),
               evm::hex(sent.hash));
  }
  return sent;
}

int64_t earliest_trace(const Json& manifest) {
  constexpr int64_t kDay = 86'400;
  const auto at = "/predicate/environment/finished"_json_pointer;
  std::tm t{};
  if (!manifest.contains(at) || !manifest[at].is_string() ||
      !strptime(manifest[at].get_ref<const std::string&>().c_str(), "%Y-%m-%dT%H:%M:%SZ", &t))
    return 0;
  return std::max<int64_t>(timegm(&t) - kDay, 0);
}

std::string chain_target(const config::EvmPublish& s, const evm::Address& contract) {
  return fmt::format("eip155:{}:{}", s.chain_id, evm::text_of(contract));
}

}  // namespace mxt::publish
