#include <unistd.h>

#include <cstdio>
#include <span>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "data/inputs.h"
#include "data/prepare.h"
#include "data/preview.h"
#include "data/synth/synth.h"
#include "job_share.h"
#include "machine.h"
#include "model_files.h"
#include "verbs.h"

namespace mxt::app {

void add_dataset(CLI::App& app) {
  auto* d = app.add_subcommand("dataset",
                               "prepare and look at data\nexample: mindxtrain dataset prep recipe.yaml --out out/data");
  d->require_subcommand(1);
  struct Options {
    std::string recipe, out, html, job, task;
    bool no_merge = false, test = false;
    int threads = 0;
    int64_t row = 0, rows = 20, turns = 1;
    uint64_t seed = 2048;
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
    const config::Recipe r = load_recipe(opt.recipe);
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
  auto* synth = d->add_subcommand("synth",
                                  "the rows of data.synth as a file, for other programs\nexample: mindxtrain dataset "
                                  "synth tool_preference --rows 192 --out pairs.jsonl");
  synth->add_option("task", o->task, "which task")->required();
  synth->add_option("--rows", o->rows, "rows")->check(CLI::Range(1, 10'000'000));
  synth->add_option("--turns", o->turns, "requests of a row")->check(CLI::Range(1, 64));
  synth->add_flag("--test", o->test, "held-out rows");
  synth->add_option("--seed", o->seed, "seed (a recipe's is meta.seed)");
  synth->add_option("--out", o->out, "file of JSON lines")->required();
  synth->callback([o] {
    const auto turns = static_cast<size_t>(o->turns);
    const auto rows =
        data::synth_rows(o->task, o->test ? data::Split::kTest : data::Split::kTrain, o->rows * o->turns, o->seed);
    if (turns > 1 && !rows.front().rejected.empty()) fail_input("--turns {}: a row of {} is one pair", turns, o->task);
    std::string text;
    for (size_t i = 0; i < rows.size(); i += turns)
      text += data::conversation(std::span(rows).subspan(i, turns)) + "\n";
    write_file_atomic(o->out, text);
  });
  auto* show = d->add_subcommand(
      "show",
      "one row with what is trained on marked\nexample: mindxtrain dataset show recipe.yaml --data out/data --row 3");
  show->add_option("recipe", o->recipe, "recipe file")->required();
  show->add_option("--data", o->out, "a folder that `dataset prep` made")->required();
  show->add_option("--row", o->row, "which row (0 is the first)");
  show->add_option("--html", o->html, "write a page of rows from that row on to this file instead");
  show->add_option("--rows", o->rows, "how many rows the page shows")->check(CLI::Range(1, 10000));
  show->callback([o] {
    config::Recipe r = load_recipe(o->recipe);
    // A run's own dataset: beside it stands the tokenizer that was learned, or the model that was made first.
    const std::string run = fs::absolute(o->out + "/..").lexically_normal().parent_path().string();
    if (fs::exists(run + "/recipe.yaml")) r = as_made(r, run);
    const auto coder = coder_of(r);
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
