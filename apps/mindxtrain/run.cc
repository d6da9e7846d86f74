#include "pipeline.h"
#include "verbs.h"

namespace mxt::app {

// The whole chain. Run again on the same folder it keeps what is finished and goes on with the rest.
void add_run(CLI::App& app) {
  auto* c = app.add_subcommand("run",
                               "plan, prepare, train, evaluate, quantize, and leave a verified receipt\nexample: "
                               "mindxtrain run recipes/quickstart_cpu.yaml --out out/quickstart");
  auto o = std::make_shared<Pipeline::Options>();
  c->add_option("recipe", o->recipe_path, "recipe file")->required();
  c->add_option("--out", o->out, "the run's folder")->required();
  c->add_option("--plan", o->plan_path, "AutotunePlan to replay (none: made now)");
  c->add_option("--threads", o->threads, "threads (default: OMP_NUM_THREADS, else all cores)");
  c->callback([o] {
    o->resume = true;
    Pipeline p(*o);
    p.plan();
    p.prepare();
    p.evaluate(false);
    if (!p.harness(false) || !p.train()) {
      g_exit = 4;
      return;
    }
    p.evaluate(true);
    if (!p.harness(true)) {
      g_exit = 4;
      return;
    }
    p.quantize();
    p.manifest();
    p.summary();
    p.require_gate();
  });
}

}  // namespace mxt::app
