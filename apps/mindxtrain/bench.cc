#include <cstdio>

#include "autotune/choose.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/threads.h"
#include "config/builtin.h"
#include "kernels/backend.h"
#include "machine.h"
#include "model_files.h"
#include "probe.h"
#include "throttle.h"
#include "train/setup.h"
#include "verbs.h"

namespace mxt::app {
namespace {

// A plan of another device says nothing about this one's libraries.
void require_same_device(const kernels::KernelPlan& before, const train::Setup& setup, const std::string& path) {
  const std::string_view kind = setup.backend->kind;
  const auto here = train::cpu_identity(num_threads());
  const auto& d = before.device;
  if (d.kind != kind || (!setup.backend->own_memory && (d.name != here.name || d.arch != here.arch)))
    fail_input("--against {}: was measured on another device ({} {} {}): the two cannot be compared", path, d.kind,
               d.name, d.arch);
}

// Calls that both plans measured and whose chosen algorithm takes longer now: beyond what processes differ by, and
// beyond both spreads.
int slower_than(const kernels::KernelPlan& now, const kernels::KernelPlan& before, const kernels::BackendInfo& on) {
  int slower = 0, compared = 0;
  auto chosen = [](const kernels::KernelPlan& p, const std::string& key) -> const kernels::Candidate* {
    const auto choice = p.choices.find(key);
    const auto list = p.candidates.find(key);
    if (choice == p.choices.end() || list == p.candidates.end()) return nullptr;
    for (const auto& c : list->second)
      if (c.algorithm == choice->second && c.median_us > 0) return &c;
    return nullptr;
  };
  for (const auto& [key, choice] : before.choices) {
    const auto *a = chosen(before, key), *b = chosen(now, key);
    if (!a || !b) continue;
    ++compared;
    if (autotune::within_noise(*b, *a, !on.own_memory) || b->median_us < a->median_us) continue;
    ++slower;
    std::printf("slower: %s: %s %.1f us, before %s %.1f us\n", key.c_str(), b->algorithm.c_str(), b->median_us,
                a->algorithm.c_str(), a->median_us);
  }
  if (compared == 0) fail_input("--against: the two plans have no measured call in common");
  std::printf("%d of %d calls are slower than before\n", slower, compared);
  return slower;
}

// Whether this build drives the recipe's GPU and finds it.
bool device_is_here(const config::Recipe& r) {
  const kernels::BackendInfo* backend = train::backend_of(r);
  if (backend == nullptr || r.hardware.gpus != 1) return false;
  try {
    return backend->open().ops != nullptr;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* c = app.add_subcommand("bench",
                               "measure this machine on a recipe's shapes and write the AutotunePlan\nexample: "
                               "mindxtrain bench --config recipe.yaml --out plan.json");
  struct Options {
    std::string config, out, policy = "aot_only", against;
    bool dry_run = false;
    int threads = 0;
  };
  auto o = std::make_shared<Options>();
  c->add_option("--config", o->config, "recipe (default: the built-in quickstart)");
  c->add_option("--out", o->out, "plan file (default: the recipe's autotune.plan_path)");
  c->add_flag("--dry-run", o->dry_run, "a reference plan of default choices, without measuring");
  c->add_option("--policy", o->policy, "enumerate: every round of the budget, no early end")
      ->check(CLI::IsMember({"aot_only", "enumerate"}));
  c->add_option("--against", o->against, "an older plan: exit 2 where a choice got slower");
  c->add_option("--threads", o->threads,
                "threads (default: OMP_NUM_THREADS, else all cores, and whether fewer are faster)");
  c->callback([o] {
    const config::Recipe r = as_planned(
        o->config.empty() ? config::parse_recipe(config::builtin_recipe("quickstart_cpu").text, "quickstart_cpu")
                          : load_recipe(o->config));
    apply_throttle(r, o->threads);
    if (o->out.empty()) o->out = r.autotune.plan_path;
    // Behind every check, and before a minute of measuring.
    const auto make_place = [&] {
      if (const auto folder = fs::path(o->out).parent_path(); !folder.empty()) make_folders(folder.string());
    };
    std::optional<kernels::KernelPlan> against;  // read first: a minute of measuring is not lost to a wrong name
    if (!o->against.empty() && o->dry_run)
      fail_input("--against: compares what was measured; --dry-run measures nothing");
    if (!o->against.empty()) against = kernels::plan_from_json(read_file(o->against), o->against);
    const std::string model = resolve_model(r, Fetch::kAllowed, Parts::kNoWeights);
    const TokenizerBundle text = text_side_of(r, model);
    if (o->dry_run) {
      config::Recipe shapes = r;  // they do not depend on the device, which need not be here
      shapes.hardware.gpus = 0;
      const bool here = r.hardware.cpu_lane() || device_is_here(r);
      const auto setup =
          train::make_setup(here ? r : shapes, model, vocabulary_of(text), nullptr, train::Reads::kConfig);
      make_place();
      write_file_atomic(o->out, kernels::to_json(here ? reference_plan(*setup) : absent_plan(*setup, r)));
      std::printf("%s\n", o->out.c_str());
      return;
    }
    const auto setup = train::make_setup(r, model, vocabulary_of(text), nullptr, train::Reads::kConfig);
    if (against) require_same_device(*against, *setup, o->against);
    if (against && against->shapes != train::shapes_beside(*against, *setup))
      fail_input("--against {}: is a plan of other shapes: its calls are not this recipe's", o->against);
    make_place();
    const auto report = measured_plan(*setup, !threads_given(o->threads), o->policy == "enumerate");
    write_file_atomic(o->out, kernels::to_json(report.plan));
    std::printf("%s%s\n", table_of(report, setup->rows_per_step, setup->seq_len).c_str(), o->out.c_str());
    if (against && slower_than(report.plan, *against, *setup->backend) > 0)
      g_exit = static_cast<int>(Exit::kVerifyFailed);
  });
}

}  // namespace mxt::app
