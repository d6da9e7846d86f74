// Declaration of publish. Secrets never stand in a recipe: fields that end in _env name an environment variable.
#include "config/field.h"

namespace mxt::config {

Section declare(const HfPublish*) {
  Declaration<HfPublish> d("Hugging Face Hub.");
  d.field("repo", &HfPublish::repo, "Repository, `owner/name`.").required();
  d.field("private", &HfPublish::is_private, "Not visible to others.");
  return d.take();
}

Section declare(const LighthousePublish*) {
  Declaration<LighthousePublish> d("Lighthouse storage.");
  d.field("api_key_env", &LighthousePublish::api_key_env, "Environment variable that holds the API key.").non_empty();
  return d.take();
}

Section declare(const IpfsPublish*) {
  Declaration<IpfsPublish> d("An IPFS node of one's own.");
  d.field("api_url", &IpfsPublish::api_url, "Kubo's RPC address.").non_empty().plus();
  d.field("profile", &IpfsPublish::profile,
          "How files are cut and encoded: kubo-v1, unixfs-v1-2025 or unixfs-v0-2015 (`mindxtrain cid`).")
      .non_empty()
      .plus();
  d.field("car", &IpfsPublish::car, "Send blocks (`dag/import`), which a node cannot cut in another way.").plus();
  return d.take();
}

Section declare(const MindxPublish*) {
  Declaration<MindxPublish> d("mindX's register of agents.");
  d.field("api_url", &MindxPublish::api_url, "Address.").non_empty();
  d.field("register_as_capability", &MindxPublish::register_as_capability, "Register the model as a capability.");
  return d.take();
}

Section declare(const AgenticPlacePublish*) {
  Declaration<AgenticPlacePublish> d("AgenticPlace listing.");
  d.field("api_url", &AgenticPlacePublish::api_url, "Address.").non_empty();
  d.field("chain_map_url", &AgenticPlacePublish::chain_map_url,
          "Address of the chain map. Accepted and not read: a listing names no chain.")
      .non_empty();
  return d.take();
}

Section declare(const BankonPublish*) {
  Declaration<BankonPublish> d("BANKON name in ENS.");
  d.field("ens_parent", &BankonPublish::ens_parent, "Parent name.").non_empty();
  d.field("subname", &BankonPublish::subname, "Name below it; \"\" = none.");
  return d.take();
}

Section declare(const EvmPublish*) {
  Declaration<EvmPublish> d("Contracts on one EVM chain. A contract without an address is left out.");
  d.field("rpc_url", &EvmPublish::rpc_url, "JSON-RPC address.").required().plus();
  d.field("chain_id", &EvmPublish::chain_id, "Chain that the address must be of: 8453 Base, 84532 Base Sepolia.")
      .min(1)
      .plus();
  d.field("key_env", &EvmPublish::key_env,
          "Environment variable that holds the private key (hexadecimal) or names a key file.")
      .non_empty()
      .plus();
  d.field("confirmations", &EvmPublish::confirmations, "Blocks that hold or follow a transaction before it counts.")
      .range(1, 1000)
      .later();
  d.field("max_fee_gwei", &EvmPublish::max_fee_gwei, "Most that a unit of gas may cost; above it nothing is sent.")
      .above(0)
      .max(1e9)
      .later();
  d.field("registry", &EvmPublish::registry, "mindxtrain_registry: write-once anchor of digest and CID.")
      .non_empty()
      .plus();
  d.field("identity_registry", &EvmPublish::identity_registry, "ERC-8004 identity.").non_empty().plus();
  d.field("reputation_registry", &EvmPublish::reputation_registry, "ERC-8004 reputation.").non_empty().plus();
  d.field("validation_registry", &EvmPublish::validation_registry,
          "ERC-8004 validation; MINDXTRAIN_ERC8004_VALIDATOR names who is asked.")
      .non_empty()
      .plus();
  d.field("inft", &EvmPublish::inft, "ERC-7857 INFT.").non_empty().plus();
  d.field("agent_id", &EvmPublish::agent_id,
          "ERC-8004 agent that the run belongs to; absent = a new one is registered.")
      .min(0)
      .later();
  d.field("inft_token", &EvmPublish::inft_token, "Token of `inft` that stands for the run: read, never minted.")
      .min(0)
      .later();
  d.field("name_wrapper", &EvmPublish::name_wrapper,
          "ENS NameWrapper that sets `bankon.subname` by this section's key, instead of BANKON's service.")
      .non_empty()
      .later();
  d.field("resolver", &EvmPublish::resolver, "ENS resolver of that name.").non_empty().later();
  return d.take();
}

Section declare(const AlgorandPublish*) {
  Declaration<AlgorandPublish> d("Algorand ASA.");
  d.field("algod_url", &AlgorandPublish::algod_url, "Address of algod.").required().plus();
  d.field("key_env", &AlgorandPublish::key_env,
          "Environment variable that names the file of the key which pays the fees of payments (publish.billing.x402).")
      .non_empty()
      .plus();
  d.field("asa_id", &AlgorandPublish::asa_id,
          "Asset that stands for the run, its metadata hash the SHA-256 of manifest.json: read, never made.")
      .min(1)
      .plus();
  return d.take();
}

Section declare(const X402*) {
  Declaration<X402> d("Payment per token.");
  d.field("network", &X402::network, "Chain.");
  d.field("asset", &X402::asset, "Token.").non_empty();
  d.field("receiver_via", &X402::receiver_via,
          "Who receives: coinbase_facilitator settles at `facilitator_url`, which must be set then.");
  d.field("price_per_1k_tokens", &X402::price_per_1k_tokens, "In units of the asset.").min(0).max(1e9);
  d.field("pay_to", &X402::pay_to, "Address that is paid.").non_empty().later();
  d.field("rpc_url", &X402::rpc_url, "JSON-RPC address of a node of that chain.").non_empty().later();
  d.field("key_env", &X402::key_env,
          "Environment variable that holds the key (or names its file) that settles payments and pays their gas; on "
          "algorand the file of the key that pays fees; there, unless named, that of publish.algorand.")
      .non_empty()
      .later();
  d.field("facilitator_url", &X402::facilitator_url, "x402 facilitator that settles instead of a key of one's own.")
      .non_empty()
      .later();
  d.field("store", &X402::store, "File that remembers payments; absent = x402.sqlite in MINDXTRAIN_HOME.")
      .non_empty()
      .later();
  d.field("schemes", &X402::schemes, "In the order in which they are offered: exact, upto.").non_empty().later();
  return d.take();
}

Section declare(const Billing*) {
  Declaration<Billing> d("Payment.");
  d.field("x402", &Billing::x402, "Payment per token.");
  return d.take();
}

Section declare(const Publish*) {
  Declaration<Publish> d("Where the result is published: only to destinations that are written here.");
  d.field("enabled", &Publish::enabled, "false = off: `publish` and `run --publish` refuse.");
  d.field("hf", &Publish::hf, "Hugging Face Hub. Absent = not there.");
  d.field("lighthouse", &Publish::lighthouse, "Lighthouse storage. Absent = not there.");
  d.field("ipfs", &Publish::ipfs, "An IPFS node of one's own. Absent = not there.").plus();
  d.field("mindx", &Publish::mindx, "mindX's register of agents. Absent = not there.");
  d.field("agenticplace", &Publish::agenticplace, "AgenticPlace listing. Absent = not there.");
  d.field("bankon", &Publish::bankon, "BANKON name in ENS. Absent = not there.");
  d.field("evm", &Publish::evm, "Contracts on one EVM chain. Absent = not there.").plus();
  d.field("algorand", &Publish::algorand, "Algorand ASA. Absent = not there.").plus();
  d.field("billing", &Publish::billing, "Payment for what `serve` answers. Absent = free.");
  return d.take();
}

}  // namespace mxt::config
