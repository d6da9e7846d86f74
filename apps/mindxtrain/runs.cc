#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "answers.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "config/recipe.h"
#include "model_files.h"
#include "registry/registry.h"
#include "reporter.h"
#include "run_record.h"
#include "track/track.h"
#include "verbs.h"

namespace mxt::app {
namespace {

using registry::Run;

struct RunsOptions {
  std::vector<std::string> runs, tags, without;
  int64_t limit = 20;
  std::string to, project, url, out, name, state, text;
  bool json = false, all = false, undo = false;
};

bool contains(const std::vector<std::string>& list, const std::string& x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

// What `runs list` was asked for.
bool wanted(const Run& r, const RunsOptions& o) {
  if (r.note.archived && !o.all) return false;
  if (!o.state.empty() && registry::name_of(r.state) != o.state) return false;
  if (!o.project.empty() && r.project != o.project) return false;
  for (const auto& t : o.tags)
    if (!contains(r.note.tags, t)) return false;
  return o.text.empty() || (r.name() + "\n" + r.run_name + "\n" + r.folder).find(o.text) != std::string::npos;
}

std::string name_of_run(const std::string& name) {
  const std::string s(trim(name));
  if (s.empty() || s.size() > 200 || printable(s) != s)
    fail_input("a name has 1 to 200 bytes and no control characters");
  return s;
}

std::string cell(const OrderedJson& v) {
  if (v.is_null()) return "-";
  if (v.is_string()) return v.get<std::string>();
  if (v.is_number_float()) return fmt::format("{:.6g}", v.get<double>());
  return v.dump();
}

Run find(const registry::Registry& r, const std::string& key) {
  auto run = r.find(key);
  if (!run) fail_input("{}: no such run: `mindxtrain runs list` shows ids, names and folders", key);
  return *run;
}

void list(const RunsOptions& o) {
  auto runs = open_registry().list();
  std::erase_if(runs, [&](const Run& r) { return !wanted(r, o); });
  if (o.limit > 0 && runs.size() > static_cast<size_t>(o.limit)) runs.resize(static_cast<size_t>(o.limit));
  if (o.json) {
    OrderedJson all = OrderedJson::array();
    for (const Run& r : runs) all.push_back(run_answer(r));
    std::printf("%s\n", all.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
    return;
  }
  if (runs.empty()) {
    std::printf(o.state.empty() && o.project.empty() && o.tags.empty() && o.text.empty()
                    ? "no runs yet (archived ones: --all)\n"
                    : "no such runs\n");
    return;
  }
  std::printf("%5s  %-24s %-12s %-10s %-20s %10s  %s\n", "id", "run", "state", "stage", "started", "last loss",
              "folder");
  for (const Run& r : runs) {
    const OrderedJson m = OrderedJson::parse(r.metrics, nullptr, false);
    const std::string loss = m.is_object() && m.contains("last_loss") ? cell(m["last_loss"]) : "-";
    const std::string line =  // characters are cut and counted, and not bytes
        fmt::format("{:>5}  {:<24.24} {:<12} {:<10} {:<20} {:>10}  {}\n", r.id, printable(r.name()),
                    registry::name_of(r.state), r.stage, r.started, loss, printable(r.folder));
    std::fputs(line.c_str(), stdout);
  }
}

void show_run(const RunsOptions& o) {
  const Run r = find(open_registry(), o.runs.at(0));
  OrderedJson j = run_answer(r);
  j["last_step"] = last_step(r);
  if (o.json) {
    std::printf("%s\n", j.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
    return;
  }
  for (const auto& [key, value] : j.items()) {
    if (!value.is_object()) {
      std::printf("%-12s %s\n", key.c_str(), cell(value).c_str());
      continue;
    }
    std::printf("%s\n", key.c_str());
    for (const auto& [k, v] : value.items()) std::printf("  %-20s %s\n", k.c_str(), cell(v).c_str());
  }
}

// One change of what is said of a run, and what it is now.
void note(const RunsOptions& o, const std::function<void(registry::Note&)>& change) {
  auto registry = open_registry();
  const Run r = find(registry, o.runs.at(0));
  const registry::Note n = registry.change_note(r.id, change);
  std::printf("run %lld: %s%s%s%s\n", static_cast<long long>(r.id),
              printable(n.name.empty() ? r.run_name : n.name).c_str(), n.tags.empty() ? "" : "  #",
              fmt::format("{}", fmt::join(n.tags, " #")).c_str(), n.archived ? "  (archived)" : "");
}

void remove(const RunsOptions& o) {
  auto registry = open_registry();
  const Run r = find(registry, o.runs.at(0));
  registry.remove(r);
  std::printf("run %lld is no longer listed; its files stay in %s\n", static_cast<long long>(r.id),
              printable(r.folder).c_str());
}

void compare_runs(const RunsOptions& o) {
  const auto registry = open_registry();
  const Run a = find(registry, o.runs.at(0)), b = find(registry, o.runs.at(1));
  const OrderedJson j = compare_answer(a, b);
  if (o.json) {
    std::printf("%s\n", j.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
    return;
  }
  const auto row = [](const std::string& name, const std::string& x, const std::string& y) {
    std::printf("%-34s %-28s %s\n", name.c_str(), x.c_str(), y.c_str());
  };
  const auto label = [](const Run& r) {
    return fmt::format("{} {} ({})", r.id, r.run_name, registry::name_of(r.state));
  };
  row("", label(a), label(b));
  std::printf("recipe\n");
  if (j["recipe"].is_null())
    std::printf("  not compared: %s\n", j["not_compared"].get<std::string>().c_str());
  else if (j["recipe"].empty())
    std::printf("  the same\n");
  for (const auto& [k, v] : j["recipe"].items()) row("  " + k, cell(v[0]), cell(v[1]));
  std::printf("metrics\n");
  for (const auto& [k, v] : j["metrics"].items()) row("  " + k, cell(v[0]), cell(v[1]));
  std::printf("digests\n");
  for (const auto& [k, v] : j["digests"].items()) {
    const bool same = v[0] == v[1];
    row("  " + k, cell(v[0]).substr(0, 16), same ? "the same" : cell(v[1]).substr(0, 16));
  }
}

void report(const RunsOptions& o) {
  const Run r = find(open_registry(), o.runs.at(0));
  if (r.replaced_by != 0)
    fail_input("run {}: its curves are gone, {} now holds run {}: report that one", r.id, printable(r.folder),
               r.replaced_by);
  track::Curves c = curves_of(r.folder, config::load_recipe(r.folder + "/recipe.yaml"));
  if (!o.project.empty()) c.project = o.project;
  c.finished = r.state == registry::State::kFinished;
  std::string where;
  if (o.to == "wandb") {
    where = track::write_wandb(c, o.out.empty() ? r.folder : o.out);
    log::info("`wandb sync {}` sends it", fs::path(where).parent_path().string());
  } else if (o.to == "trackio") {
    where = track::write_trackio(c, o.out.empty() ? trackio_folder() : o.out);
  } else {
    const std::string url = o.url.empty() ? environment("MLFLOW_TRACKING_URI") : o.url;
    if (url.empty())
      fail_input("runs report --to mlflow: which server? --url http://HOST:PORT, or MLFLOW_TRACKING_URI");
    net::HttpClient client({.proxies = proxies(), .cancel = &g_stop});
    track::MlflowRun run(c, url, client, mlflow_login());
    run.end(c);
    where = run.address();
  }
  std::printf("%s\n", where.c_str());
}

}  // namespace

void add_runs(CLI::App& app) {
  auto* c = app.add_subcommand(
      "runs",
      "what ran on this machine: list, show, compare, report, rename, tag, archive, delete\nexample: "
      "mindxtrain runs compare 3 4");
  c->require_subcommand(1);
  auto o = std::make_shared<RunsOptions>();
  auto* l = c->add_subcommand("list", "newest first\nexample: mindxtrain runs list --state finished --limit 5");
  l->add_option("--limit", o->limit, "runs at most (0: all)")->check(CLI::NonNegativeNumber);
  l->add_flag("--all", o->all, "archived ones too");
  l->add_option("--state", o->state, "running, finished, stopped, failed or interrupted")
      ->check(CLI::IsMember({"running", "finished", "stopped", "failed", "interrupted"}));
  l->add_option("--project", o->project, "of this project alone");
  l->add_option("--tag", o->tags, "with this tag; may be repeated")->allow_extra_args(false);
  l->add_option("--find", o->text, "a part of the name or the folder");
  // A list would take the words that follow it, too.
  auto one = [&](const char* verb, const char* what) {
    auto* sub = c->add_subcommand(verb, what);
    sub->add_option_function<std::string>(
           "run", [o](const std::string& run) { o->runs = {run}; }, "id, name or folder")
        ->required();
    return sub;
  };
  auto* rename = one(
      "rename", "another name for a run (\"\": the recipe's own again)\nexample: mindxtrain runs rename 3 \"rank 16\"");
  rename->add_option("name", o->name, "the name")->required();
  auto* tag = one("tag", "adds tags to a run, takes others away\nexample: mindxtrain runs tag 3 best --remove trial");
  tag->add_option("tags", o->tags, "tags to add");
  tag->add_option("--remove", o->without, "a tag to take away; may be repeated")->allow_extra_args(false);
  auto* archive = one("archive", "leaves a run out of lists\nexample: mindxtrain runs archive 3");
  archive->add_flag("--undo", o->undo, "lists it again");
  auto* del = one("delete", "takes a run out of the registry; its files stay\nexample: mindxtrain runs delete 3");
  auto* s = one("show", "one run\nexample: mindxtrain runs show 3 --json");
  auto* d = c->add_subcommand("compare", "two runs: recipes, metrics, digests\nexample: mindxtrain runs compare 3 4");
  d->add_option("runs", o->runs, "ids, names or folders")->required()->expected(2);
  for (auto* sub : {l, s, d}) sub->add_flag("--json", o->json, "machine-readable answer");
  auto* t = one("report", "give a run's curves to a tracker\nexample: mindxtrain runs report 3 --to wandb");
  t->add_option("--to", o->to,
                "wandb (an offline run, no network), trackio (its local file) or mlflow (a server's REST interface)")
      ->required()
      ->check(CLI::IsMember({"wandb", "trackio", "mlflow"}));
  t->add_option("--project", o->project, "project or experiment there (default: the recipe's)");
  t->add_option("--out", o->out, "folder for wandb or trackio (default: the run's; trackio's own)");
  t->add_option("--url", o->url, "MLflow's server (default: MLFLOW_TRACKING_URI)");
  t->callback([o] { report(*o); });
  l->callback([o] { list(*o); });
  s->callback([o] { show_run(*o); });
  d->callback([o] { compare_runs(*o); });
  rename->callback([o] { note(*o, [&](registry::Note& n) { n.name = o->name.empty() ? "" : name_of_run(o->name); }); });
  tag->callback([o] {
    note(*o, [&](registry::Note& n) {
      const size_t before = n.tags.size();
      for (const auto& t : o->tags)
        if (const std::string s = name_of_run(t); !contains(n.tags, s)) n.tags.push_back(s);
      std::erase_if(n.tags, [&](const std::string& t) { return contains(o->without, t); });
      if (n.tags.size() > std::max(before, registry::Note::kMostTags))
        fail_input("a run has at most {} tags: take some away by --remove", registry::Note::kMostTags);
    });
  });
  archive->callback([o] { note(*o, [&](registry::Note& n) { n.archived = !o->undo; }); });
  del->callback([o] { remove(*o); });
}

}  // namespace mxt::app
