#include "base/files.h"
#include "machine.h"
#include "pipeline.h"
#include "publish.h"
#include "verbs.h"

namespace mxt::app {
namespace {

// False where it was interrupted.
bool run_stages(const Pipeline::Options& o) {
  Pipeline p(o);
  if (!p.chain()) return false;
  p.summary();
  p.require_gate();
  return true;
}

}  // namespace

// The whole chain. Run again on the same folder it keeps what is finished and goes on with the rest.
void add_run(CLI::App& app) {
  auto* c = app.add_subcommand("run",
                               "plan, prepare, train, evaluate, quantize, and leave a verified receipt\nexample: "
                               "mindxtrain run quickstart_cpu --out out/quickstart");
  auto o = std::make_shared<Pipeline::Options>();
  c->add_option("recipe", o->recipe_path, "recipe file, or the name of one that ships")->required();
  c->add_option("--out", o->out, kRunFolderHelp);
  c->add_option("--plan", o->plan_path, "AutotunePlan to replay (none: made now)");
  c->add_option("--threads", o->threads, "threads (default: OMP_NUM_THREADS, else all cores)");
  auto send = std::make_shared<bool>(false);
  c->add_flag("--publish", *send, "then send it to the destinations of the recipe's publish section");
  c->callback([o, send] {
    o->resume = true;
    take_run_folder(*o);
    // What publishing would refuse is refused before the hours of training; a run that is there is asked about itself.
    if (*send && !fs::exists(o->out + "/manifest.json"))
      publish::check_before_run(load_recipe(o->recipe_path), publish_surroundings());
    if (!run_stages(*o))
      g_exit = 4;
    else if (*send)
      publish_run({.run = o->out});
  });
}

}  // namespace mxt::app
