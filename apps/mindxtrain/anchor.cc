#include "base/error.h"
#include "publish.h"
#include "verbs.h"

namespace mxt::app {
namespace {

struct AnchorOptions {
  PublishOptions publish;
  std::string rpc, registry;
  int64_t chain_id = 0, confirmations = 0;
};

void anchor(AnchorOptions o) {
  o.publish.only = {"anchor"};
  o.publish.adjust = [&o](config::Recipe& r) {
    if (!r.publish) r.publish.emplace();
    if (!r.publish->evm) r.publish->evm.emplace();
    config::EvmPublish& e = *r.publish->evm;
    if (!o.rpc.empty()) e.rpc_url = o.rpc;
    if (!o.registry.empty()) e.registry = o.registry;
    if (o.chain_id != 0) e.chain_id = o.chain_id;
    if (o.confirmations != 0) e.confirmations = o.confirmations;
    if (e.rpc_url.empty()) fail_input("anchor: no node: give --rpc URL, or publish.evm.rpc_url in the recipe");
    if (!e.registry)
      fail_input(
          "anchor: no registry: give --registry 0x…, or publish.evm.registry in the recipe (contracts/README.md)");
  };
  publish_run(o.publish);
}

}  // namespace

void add_anchor(CLI::App& app) {
  auto* c = app.add_subcommand("anchor",
                               "write a finished run's digest and CID into mindxtrain_registry on an EVM chain; again: "
                               "sends nothing\nexample: mindxtrain anchor out/run1 --dry-run");
  auto o = std::make_shared<AnchorOptions>();
  c->add_option("run", o->publish.run, "the run's folder")->required();
  c->add_option("--rpc", o->rpc, "JSON-RPC address of a node (publish.evm.rpc_url)");
  c->add_option("--registry", o->registry, "address of mindxtrain_registry (publish.evm.registry)");
  c->add_option("--chain-id", o->chain_id, "the node must be on this chain (publish.evm.chain_id)")
      ->check(CLI::PositiveNumber);
  c->add_option("--confirmations", o->confirmations, "blocks that hold or follow it (publish.evm.confirmations)")
      ->check(CLI::Range(1, 1000));
  c->add_flag("--dry-run", o->publish.dry_run, "print the exact bytes; send nothing");
  c->add_option("--config", o->publish.config, "take the publish section of this recipe, not of the run's own");
  c->add_flag("--json", o->publish.json, "machine-readable answer");
  c->callback([o] { anchor(*o); });
}

}  // namespace mxt::app
