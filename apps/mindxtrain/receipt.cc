#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "config/recipe.h"
#include "machine.h"
#include "new_key.h"
#include "provenance/manifest.h"
#include "provenance/merkle.h"
#include "provenance/receipt.h"
#include "publish.h"
#include "publish/evm/anchor.h"
#include "replay.h"
#include "verbs.h"

namespace mxt::app {

namespace {

struct ReceiptOptions {
  std::string manifest, config, key, work, prove, proof, rpc, registry, publisher;
  bool json = false, replay = false;
  int threads = 0;
};

// A manifest that holds is not enough: what it names must come out again.
void run_replay(const ReceiptOptions& o, provenance::VerifyReport& report) {
  std::string work = o.work;
  fs::path folder = fs::absolute(o.manifest).lexically_normal().parent_path();
  // A published copy holds what its manifest names and nothing else.
  const bool copy = folder.filename() == provenance::kPublishedFolder;
  if (copy) folder = folder.parent_path();
  if (copy && !work.empty())
    if (const fs::path rest = fs::weakly_canonical(fs::absolute(work)).lexically_relative(fs::weakly_canonical(folder));
        !rest.empty() && *rest.begin() != "..")
      fail_input("--work {}: lies in the published copy, which would not hold any more: choose a folder elsewhere",
                 work);
  if (work.empty()) {  // a name that nothing has: what differed in an earlier replay is left for who looks into it
    const std::string run = folder.string();
    for (int n = 1; work.empty() || fs::exists(fs::symlink_status(work)); ++n)
      work = n == 1 ? run + ".replay" : fmt::format("{}.replay{}", run, n);
  }
  const auto remove_ours = [&] {
    std::error_code ec;
    if (o.work.empty()) fs::remove_all(work, ec);
  };
  try {
    report.findings = replay(o.manifest, work, o.threads);
  } catch (...) {  // half a replay shows nothing, and the next one begins anew
    remove_ours();
    throw;
  }
  if (report.ok()) {
    report.subjects.push_back("replay: the same plan choices, dataset and checkpoint");
    remove_ours();
  } else {
    log::warn("what the replay made is left in {}, to be looked into", work);
    report.subjects.push_back("replay: left in " + work);
  }
}

// What a chain says of a run whose files hold.
void run_anchor(const ReceiptOptions& o, provenance::VerifyReport& report) {
  std::string registry = o.registry;
  std::optional<uint64_t> chain;  // the recipe's: anybody can start one that holds a registry at the same address
  const std::string recipe = (fs::path(o.manifest).parent_path() / "recipe.yaml").string();
  std::error_code ec;
  const auto publish = fs::is_regular_file(recipe, ec) ? config::load_recipe(recipe).publish : std::nullopt;
  if (publish && publish->evm && publish->evm->registry) {
    chain = static_cast<uint64_t>(publish->evm->chain_id);
    if (registry.empty()) registry = *publish->evm->registry;
  }
  if (registry.empty())
    fail_input("receipt --rpc: the run's recipe names no publish.evm.registry: give --registry 0x…");
  std::optional<evm::Address> publisher;
  if (!o.publisher.empty()) publisher = evm::address_setting(o.publisher, "--publisher");
  evm::Rpc rpc(o.rpc, publish_surroundings().http);
  if (chain) rpc.require_chain(*chain);
  const auto check =
      publish::check_anchor(o.manifest, rpc, evm::address_setting(registry, "--registry"), publisher, &g_stop);
  report.findings.insert(report.findings.end(), check.findings.begin(), check.findings.end());
  report.subjects.insert(report.subjects.end(), check.lines.begin(), check.lines.end());
}

// One file of a run that may not be here: the manifest alone says whether it is of it.
void run_proof(const ReceiptOptions& o) {
  const Json manifest = read_json_file(o.manifest);
  provenance::VerifyOptions v;
  if (!o.key.empty()) v.trusted_key = provenance::load_public_key(o.key);
  provenance::require_verified(provenance::verify_statement(o.manifest, v), o.manifest);
  if (!o.prove.empty()) {
    std::printf("%s\n", provenance::prove_file(manifest, o.prove).dump(2).c_str());
    return;
  }
  const Json proof = read_json_file(o.proof);
  if (const std::string why = provenance::check_file_proof(manifest, proof); !why.empty())
    fail_verify("{}: {}", o.proof, why);
  std::printf("%s: is of this run, BLAKE3 %s\n", printable(proof["path"].get<std::string>()).c_str(),
              proof["blake3"].get<std::string>().c_str());
}

}  // namespace

void add_receipt(CLI::App& app) {
  auto* c = app.add_subcommand(
      "receipt", "re-hash everything that a manifest names\nexample: mindxtrain receipt out/run1/manifest.json");
  auto o = std::make_shared<ReceiptOptions>();
  c->add_option("manifest", o->manifest, "manifest.json of a run, the run's folder, or a published copy of it");
  auto* keygen = add_new_key(*c, "keygen",
                             "make a key for receipt.sign_key (as `key new` does); its public half, for --key, goes to "
                             "FILE.pub\nexample: mindxtrain receipt keygen ~/.mindxtrain.key");
  c->add_option("--config", o->config, "the manifest must be of this recipe");
  c->add_option("--key", o->key, "public key (or NAME.pub) that must have signed");
  auto* replay_flag =
      c->add_flag("--replay", o->replay, "train again from recipe, plan and data, and compare the checkpoint");
  c->add_option("--work", o->work, "empty folder for the replay (default: beside the run's, removed when all is equal)")
      ->needs(replay_flag);
  c->add_option("--threads", o->threads, "threads of the replay")->needs(replay_flag);
  auto* rpc = c->add_option("--rpc", o->rpc, "JSON-RPC address of a node: check the anchor on its chain too");
  c->add_option("--registry", o->registry, "address of mindxtrain_registry (the recipe's publish.evm.registry)")
      ->needs(rpc);
  c->add_option("--publisher", o->publisher, "who must have anchored it (else all who did are named)")->needs(rpc);
  c->add_flag("--json", o->json, "machine-readable answer");
  auto* prove = c->add_option("--prove", o->prove, "print a proof that this file (checkpoint/…) is one of the run's");
  auto* proof = c->add_option("--proof", o->proof, "check such a proof against the manifest (and its signature) alone");
  prove->excludes(proof);
  for (CLI::Option* alone : {prove, proof})
    for (const char* other : {"--config", "--replay", "--rpc", "--json"}) alone->excludes(c->get_option(other));
  c->callback([o, keygen] {
    if (keygen->parsed()) return;
    if (o->manifest.empty())
      fail_input("receipt: give a run's folder or its manifest.json: mindxtrain receipt out/run1");
    std::error_code ec;
    if (fs::is_directory(o->manifest, ec)) {
      const std::string folder = o->manifest;
      o->manifest = provenance::manifest_of(folder);
      if (!fs::exists(o->manifest, ec))
        fail_input("{}: holds neither manifest.json nor {}/manifest.json: is no run, and no published copy of one",
                   folder, provenance::kPublishedFolder);
    }
    if (!o->prove.empty() || !o->proof.empty()) return run_proof(*o);
    provenance::VerifyOptions v{.of_a_run = true, .stop = &g_stop};
    config::Recipe recipe;
    if (!o->config.empty()) {
      // One without a hardware section is of the machine that the run was on.
      const std::string kept = (fs::path(o->manifest).parent_path() / "recipe.yaml").string();
      recipe = config::load_recipe(o->config, [&] {
        return fs::is_regular_file(kept, ec) ? config::load_recipe(kept).hardware.name : this_machine();
      });
      v.recipe = &recipe;
    }
    if (!o->key.empty()) v.trusted_key = provenance::load_public_key(o->key);
    auto report = provenance::verify(o->manifest, v);
    if (!o->rpc.empty() && report.ok()) run_anchor(*o, report);
    if (o->replay && report.ok()) run_replay(*o, report);
    if (o->json) {
      OrderedJson j;
      j["verified"] = report.ok();
      j["manifest_blake3"] = report.manifest_digest;
      j["signer"] = report.signer.empty() ? OrderedJson(nullptr) : OrderedJson(report.signer);
      j["subjects"] = report.subjects;
      j["findings"] = OrderedJson::array();
      for (const auto& f : report.findings) j["findings"].push_back({{"field", f.field}, {"what", f.what}});
      std::printf("%s\n", j.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
      if (!report.ok()) g_exit = 2;
      return;
    }
    for (const auto& f : report.findings) std::fprintf(stderr, "%s\n", printable(f.field + ": " + f.what).c_str());
    provenance::require_verified(report, o->manifest);
    for (const auto& s : report.subjects) std::printf("%s\n", printable(s).c_str());
    config::Receipt settings;
    if (!o->config.empty()) settings = recipe.receipt;
    std::printf("%sverified: %s\n",
                provenance::receipt_text(provenance::make_receipt(read_json_file(o->manifest), settings)).c_str(),
                o->manifest.c_str());
  });
}

}  // namespace mxt::app
