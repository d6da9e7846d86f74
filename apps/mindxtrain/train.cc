#include "pipeline.h"
#include "verbs.h"

namespace mxt::app {

void add_train(CLI::App& app) {
  auto* c = app.add_subcommand(
      "train", "train a recipe into a folder\nexample: mindxtrain train recipe.yaml --plan plan.json --out out/run1");
  auto o = std::make_shared<Pipeline::Options>();
  c->add_option("recipe", o->recipe_path, "recipe file, or the name of one that ships")->required();
  c->add_option("--plan", o->plan_path, "AutotunePlan to replay (none: made now)");
  c->add_option("--out", o->out, kRunFolderHelp);
  auto* resume = c->add_flag("--resume", o->resume, "go on from the newest saved step");
  c->add_option("--resume-from", o->resume_from, "go on from this saved step; later ones are removed")
      ->check(CLI::PositiveNumber)
      ->excludes(resume);
  c->add_option("--data", o->data, "a folder that `dataset prep` made");
  c->add_option("--threads", o->threads, "threads (default: OMP_NUM_THREADS, else all cores)");
  c->callback([o] {
    o->verb = "train";
    take_run_folder(*o);
    if (o->resume_from >= 0) o->resume = true;
    Pipeline p(*o);
    const auto made = [&] {
      if (!p.before()) return false;
      p.learn_tokenizer();
      p.plan();
      p.prepare();
      return p.train();
    };
    if (!made()) {
      g_exit = 4;
      return;
    }
    p.manifest();
  });
}

}  // namespace mxt::app
