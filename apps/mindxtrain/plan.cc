#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "base/threads.h"
#include "device/memory.h"
#include "model_files.h"
#include "train/setup.h"
#include "verbs.h"

namespace mxt::app {

void add_plan(CLI::App& app) {
  auto* c = app.add_subcommand("plan", "what a run will take, before anything is allocated\nexample: mindxtrain plan recipe.yaml --json");
  struct Options {
    std::string recipe, plan, device;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  c->add_option("recipe", o->recipe, "recipe file")->required();
  c->add_option("--plan", o->plan, "AutotunePlan whose choices to count with");
  c->add_option("--device", o->device, "cpu, h100 or mi300x");
  c->add_flag("--json", o->json, "machine-readable answer");
  c->callback([o] {
    if (!o->device.empty() && o->device != "cpu") fail_missing("--device {}: this build plans for the CPU", o->device);
    set_threads(0);
    const config::Recipe r = config::load_recipe(o->recipe);
    const std::string model = r.model.init == config::Init::kPretrained ? resolve_model(r.model.name, r.model.revision) : "";
    const TextSide text = text_side_of(r, model);
    kernels::KernelPlan plan;
    if (!o->plan.empty()) plan = kernels::plan_from_json(read_file(o->plan), o->plan);
    const auto setup = train::make_setup(r, model, vocabulary_of(text), o->plan.empty() ? nullptr : &plan);
    const auto backend = train::open_backend(*setup);
    if (o->plan.empty()) plan = train::default_plan(*setup, train::identity_of(backend, num_threads()), *backend.ops);
    const auto e = train::estimate_memory(*setup, plan, *backend.ops);
    const uint64_t free = backend.device ? backend.device->memory().free : device::available_host_bytes();
    const bool fits = static_cast<uint64_t>(e.total()) <= free;
    OrderedJson j;
    j["device"] = backend.device ? backend.device->properties().kind : "cpu";
    j["fits"] = fits;
    j["peak_bytes"] = {{"host", backend.device ? 0 : e.total()}, {"device", backend.device ? e.total() : 0}};
    j["categories"] = {{"weights", e.params.weights + e.params.masters}, {"gradients", e.params.gradients}, {"optimizer", e.params.moments},
                       {"activations", e.program.activations + e.scoring.activations}, {"workspace", e.program.workspace + e.scoring.workspace}, {"logits", e.program.logits + e.scoring.logits}};
    j["tokens_per_second"] = nullptr;
    j["seconds"] = nullptr;
    j["energy_kwh"] = nullptr;
    j["cost_usd"] = nullptr;
    j["cost_per_1b_tokens_usd"] = nullptr;
    j["measured"] = plan.measured;
    if (o->json) {
      std::printf("%s\n", j.dump(2).c_str());
      return;
    }
    for (const auto& [k, v] : j["categories"].items()) std::printf("%-12s %s\n", k.c_str(), human_bytes(v.get<uint64_t>()).c_str());
    std::printf("%-12s %s (%s free: %s)\n", "peak", human_bytes(static_cast<uint64_t>(e.total())).c_str(), human_bytes(free).c_str(), fits ? "fits" : "does not fit");
    std::printf("arena        %.1f %% above the lower bound of any packing\n", 100.0 * (static_cast<double>(e.program.activations) / static_cast<double>(e.program.lower_bound) - 1));
  });
}

}  // namespace mxt::app
