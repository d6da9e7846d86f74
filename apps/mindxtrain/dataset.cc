#include <unistd.h>

#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "data/inputs.h"
#include "data/prepare.h"
#include "data/preview.h"
#include "job_share.h"
#include "model_files.h"
#include "verbs.h"

namespace mxt::app {

void add_dataset(CLI::App& app) {
  auto* d = app.add_subcommand("dataset", "prepare and look at data");
  d->require_subcommand(1);
  struct Options {
    std::string recipe, out, html, job;
    bool no_merge = false;
    int threads = 0;
    int64_t row = 0, rows = 20;
  };
  auto o = std::make_shared<Options>();
  auto* prep = d->add_subcommand(
      "prep", "rows → tokens, masks, packed shards\nexample: mindxtrain dataset prep recipe.yaml --out out/data");
  prep->add_option("recipe", o->recipe, "recipe file")->required();
  prep->add_option("--out", o->out, "folder")->required();
  prep->add_option("--threads", o->threads, "threads");
  prep->add_option(
      "--job", o->job,
      "one of jobs that share the work and the folder: K/N, as 3/16, or auto (Slurm arrays, MPI ranks); the "
      "last to finish merges");
  prep->add_flag("--no-merge", o->no_merge, "with --job: leave merging to `dataset merge`");
  auto load = [](const Options& opt) {
    set_threads(opt.threads);
    const config::Recipe r = config::load_recipe(opt.recipe);
    return std::pair(r, coder_of(r));
  };
  prep->callback([o, load] {
    const auto [r, coder] = load(*o);
    const auto say = [](const data::Prepared& p) { std::printf("%s%s\n", p.text().c_str(), p.kept ? " (kept)" : ""); };
    if (o->job.empty()) return say(data::prepare(r, *coder, o->out, data_access(r)));
    const data::JobShare share = job_share(o->job, environment);
    const data::JobDone done = data::prepare_job(r, *coder, o->out, share, data_access(r));
    if (done.prepared || (done.last && !o->no_merge)) return say(data::merge_jobs(r, *coder, o->out, data_access(r)));
    std::printf("job %d/%d is done: %lld blocks, %lld rows made now\n", share.job, share.jobs,
                static_cast<long long>(done.blocks), static_cast<long long>(done.rows));
  });
  auto* merge = d->add_subcommand("merge",
                                  "what the jobs of `dataset prep --job` made → the prepared folder\nexample: "
                                  "mindxtrain dataset merge recipe.yaml --out out/data");
  merge->add_option("recipe", o->recipe, "recipe file")->required();
  merge->add_option("--out", o->out, "the jobs' folder")->required();
  merge->add_option("--threads", o->threads, "threads");
  merge->callback([o, load] {
    const auto [r, coder] = load(*o);
    const data::Prepared p = data::merge_jobs(r, *coder, o->out, data_access(r));
    std::printf("%s%s\n", p.text().c_str(), p.kept ? " (kept)" : "");
  });
  auto* show = d->add_subcommand(
      "show",
      "one row with what is trained on marked\nexample: mindxtrain dataset show recipe.yaml --data out/data --row 3");
  show->add_option("recipe", o->recipe, "recipe file")->required();
  show->add_option("--data", o->out, "a folder that `dataset prep` made")->required();
  show->add_option("--row", o->row, "which row (0 is the first)");
  show->add_option("--html", o->html, "write a page of rows from that row on to this file instead");
  show->add_option("--rows", o->rows, "how many rows the page shows")->check(CLI::Range(1, 10000));
  show->callback([o, load] {
    const auto [r, coder] = load(*o);
    const auto set = data::Dataset::open(o->out);
    if (const std::string other = data::compare_inputs(o->out, r, *coder); !other.empty()) log::warn("{}", other);
    log::info("data: {}", set.packing());
    if (!o->html.empty()) {
      write_file_atomic(o->html, data::preview_page(set, o->row, o->rows, *coder));
      std::printf("%s\n", o->html.c_str());
      return;
    }
    std::printf(
        "%s\n",
        data::preview_row(set, o->row, *coder, isatty(1) ? data::Marks::kAnsi : data::Marks::kBrackets).c_str());
  });
}

}  // namespace mxt::app
