#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "config/recipe.h"
#include "provenance/manifest.h"
#include "provenance/receipt.h"
#include "verbs.h"

namespace mxt::app {

void add_receipt(CLI::App& app) {
  auto* c = app.add_subcommand("receipt", "re-hash everything that a manifest names\nexample: mindxtrain receipt out/run1/manifest.json");
  struct Options {
    std::string manifest, config, key;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  c->add_option("manifest", o->manifest, "manifest.json of a run")->required();
  c->add_option("--config", o->config, "the manifest must be of this recipe");
  c->add_option("--key", o->key, "public key that must have signed");
  c->add_flag("--json", o->json, "machine-readable answer");
  c->callback([o] {
    provenance::VerifyOptions v;
    config::Recipe recipe;
    if (!o->config.empty()) {
      recipe = config::load_recipe(o->config);
      v.recipe = &recipe;
    }
    if (!o->key.empty()) v.trusted_key = provenance::load_public_key(o->key);
    const auto report = provenance::verify(o->manifest, v);
    if (o->json) {
      OrderedJson j;
      j["verified"] = report.ok();
      j["manifest_blake3"] = report.manifest_digest;
      j["signer"] = report.signer.empty() ? OrderedJson(nullptr) : OrderedJson(report.signer);
      j["subjects"] = report.subjects;
      j["findings"] = OrderedJson::array();
      for (const auto& f : report.findings) j["findings"].push_back({{"field", f.field}, {"what", f.what}});
      std::printf("%s\n", j.dump(2).c_str());
      if (!report.ok()) g_exit = 2;
      return;
    }
    for (const auto& f : report.findings) std::fprintf(stderr, "%s: %s\n", f.field.c_str(), f.what.c_str());
    provenance::require_verified(report, o->manifest);
    for (const auto& s : report.subjects) std::printf("%s\n", s.c_str());
    config::Receipt settings;
    if (!o->config.empty()) settings = recipe.receipt;
    std::printf("%sverified: %s\n", provenance::receipt_text(provenance::make_receipt(read_json_file(o->manifest), settings)).c_str(), o->manifest.c_str());
  });
}

}  // namespace mxt::app
