#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "base/threads.h"
#include "config/builtin.h"
#include "model_files.h"
#include "train/setup.h"
#include "verbs.h"

namespace mxt::app {

void add_bench(CLI::App& app) {
  auto* c = app.add_subcommand("bench", "write the AutotunePlan of a recipe on this machine\nexample: mindxtrain bench --config recipe.yaml --out plan.json --dry-run");
  struct Options {
    std::string config, out;
    bool dry_run = false;
  };
  auto o = std::make_shared<Options>();
  c->add_option("--config", o->config, "recipe (default: the built-in quickstart)");
  c->add_option("--out", o->out, "plan file")->required();
  c->add_flag("--dry-run", o->dry_run, "a reference plan of default choices, without measuring");
  c->callback([o] {
    if (!o->dry_run) fail_missing("bench: this build writes reference plans only: add --dry-run");
    set_threads(0);
    const config::Recipe r = o->config.empty() ? config::parse_recipe(config::builtin_recipe("quickstart_cpu").text, "quickstart_cpu") : config::load_recipe(o->config);
    const std::string model = r.model.init == config::Init::kPretrained ? resolve_model(r.model.name, r.model.revision) : "";
    const TextSide text = text_side_of(r, model);
    const auto setup = train::make_setup(r, model, vocabulary_of(text), nullptr);
    const auto backend = train::open_backend(*setup);
    write_file_atomic(o->out, kernels::to_json(train::default_plan(*setup, train::identity_of(backend, num_threads()), *backend.ops)));
    std::printf("%s\n", o->out.c_str());
  });
}

}  // namespace mxt::app
