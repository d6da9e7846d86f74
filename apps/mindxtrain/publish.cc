#include "publish.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "model_files.h"
#include "publish/steps.h"
#include "verbs.h"

namespace mxt::app {

publish::Surroundings publish_surroundings() {
  publish::Surroundings s;
  s.variable = [](const std::string& name) { return environment(name.c_str()); };
  s.hub = hub_settings();
  s.http.proxies = proxies();
  s.http.cancel = &g_stop;
  s.stop = &g_stop;
  return s;
}

namespace {

const char* word(publish::StepOutcome::State s) {
  using State = publish::StepOutcome::State;
  return s == State::kDone ? "done" : s == State::kKept ? "kept" : "would";
}

void print(const publish::StepOutcome& o) {
  std::printf("%s: %s: %s\n", o.name.c_str(), word(o.state), printable(o.target).c_str());
  for (const auto& [key, value] : o.result.items()) {
    if (value.is_array())
      std::printf("  %s %zu\n", key.c_str(), value.size());
    else if (!(value.is_string() && value.get<std::string>().find('\n') != std::string::npos))
      std::printf("  %s %s\n", key.c_str(),
                  printable(value.is_string() ? value.get<std::string>() : value.dump()).c_str());
  }
  std::fflush(stdout);
}

}  // namespace

void publish_run(const PublishOptions& o) {
  publish::Run run = publish::open_run(o.run, &g_stop);
  if (!o.config.empty()) {
    config::Recipe other = config::load_recipe(o.config);
    if (!other.publish) fail_input("{}: has no publish section", o.config);
    run.recipe.publish = std::move(other.publish);
    run.recipe.source = std::move(other.source);  // that is where what is wrong stands
    run.recipe.given = std::move(other.given);
  }
  if (o.adjust) o.adjust(run.recipe);
  publish::Surroundings around = publish_surroundings();
  around.again = o.again;
  OrderedJson all = OrderedJson::array();
  const auto answer = [&](const char* error) {
    OrderedJson j = {{"run", o.run}, {"manifest", run.manifest_digest}, {"steps", all}};
    if (error) j["error"] = error;
    if (o.json) std::printf("%s\n", j.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
  };
  try {
    publish::publish(run, around, o.only, o.dry_run, [&](const publish::StepOutcome& done) {
      if (!o.json) return print(done);
      all.push_back(
          {{"step", done.name}, {"state", word(done.state)}, {"target", done.target}, {"result", done.result}});
    });
  } catch (const Error& e) {
    answer(e.what());  // what was done before it failed is done
    throw;
  }
  answer(nullptr);
}

void add_publish(CLI::App& app) {
  auto* c = app.add_subcommand("publish",
                               "send a finished run to the destinations that its recipe writes; again: goes on with "
                               "what is not done\nexample: mindxtrain publish out/run1 --dry-run");
  auto o = std::make_shared<PublishOptions>();
  c->add_option("run", o->run, "the run's folder")->required();
  c->add_flag("--dry-run", o->dry_run, "say what would be sent; send nothing");
  c->add_option("--only", o->only, "these steps alone: hf,ipfs,lighthouse …")->delimiter(',');
  c->add_flag("--again", o->again, "send the run once more to a service that named another content id for it");
  c->add_option("--config", o->config, "take the publish section of this recipe, not of the run's own");
  c->add_flag("--json", o->json, "machine-readable answer");
  c->callback([o] { publish_run(*o); });
}

}  // namespace mxt::app
