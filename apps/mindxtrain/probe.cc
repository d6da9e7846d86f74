#include "probe.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "exit.h"
#include "kernels/api.h"
#include "model_files.h"
#include "train/card.h"
#include "train/memory.h"

namespace mxt::app {

bool threads_given(int asked) { return asked > 0 || !environment("OMP_NUM_THREADS").empty(); }

bool may_pin(const config::Recipe& recipe) {
  return recipe.train.cpu_throttle.omp_proc_bind && num_threads() == usable_cores() && num_threads() > 1;
}

kernels::KernelPlan reference_plan(const train::Setup& setup) {
  const auto backend = train::open_backend(setup);
  const auto pass =
      setup.backend->own_memory ? setup.pass() : train::open_passes(setup, *backend.ops, train::host_memory()).front();
  return train::default_plan(setup, train::identity_of(backend, num_threads()), *backend.ops, pass);
}

kernels::KernelPlan absent_plan(const train::Setup& setup, const config::Recipe& recipe) {
  kernels::KernelPlan p;
  // The set-up may be the CPU lane's, for counting; the plan is for the recipe's own device.
  const kernels::BackendInfo* backend = train::backend_of(recipe);
  p.device.kind = backend ? backend->kind : "hip";
  p.device.name = std::string(config::text_of(recipe.hardware.name));
  p.device.arch = std::string(config::text_of(recipe.hardware.gfx_arch));
  p.shapes = train::shapes_of(setup);
  p.env = recipe.train.env;
  p.choices["step micro_batch"] = std::to_string(setup.micro_batch);
  p.choices["step recompute"] = std::string(graph::recompute_name(setup.options.recompute));
  p.choices["step offload"] = std::string(runtime::offload_name(setup.offload));
  return p;
}

namespace {

// The passes that the probe compares, the default first. A GPU's was chosen to fill the card, so only the half of it is
// a question there.
std::vector<autotune::Pass> passes_of(const train::Setup& setup, const kernels::Backend& backend) {
  std::vector<autotune::Pass> out;
  if (!backend.device) {
    for (const train::Pass& p : train::open_passes(setup, *backend.ops, train::host_memory()))
      out.push_back({p.micro_batch, p.recompute, p.packed_weights});
    return out;
  }
  constexpr int64_t kEnough = 4096;  // tokens; fewer fill no GPU
  const train::Pass whole = setup.pass();
  // The card is here and says what it has free: less is made again than with the bounds by which the pass was chosen.
  const uint64_t free = backend.device->memory().free / 100 * 98;
  const auto recompute = [&](int64_t rows) {
    if (whole.recompute == graph::Recompute::kNone) return whole.recompute;
    bool found = false;
    const graph::Recompute few = train::fewest(
        setup,
        [&](graph::Recompute r) {
          const train::Pass pass{rows, r, whole.offload, whole.packed_weights};
          return static_cast<uint64_t>(train::estimate_memory(setup, pass, {}, *backend.ops).needs()) <= free;
        },
        &found);
    return found ? few : whole.recompute;
  };
  out.push_back({whole.micro_batch, recompute(whole.micro_batch)});
  if (!setup.recipe.train.micro_batch && whole.micro_batch % 2 == 0 &&
      setup.pass_tokens(whole.micro_batch / 2) >= kEnough)
    out.push_back({whole.micro_batch / 2, recompute(whole.micro_batch / 2)});
  return out;
}

}  // namespace

autotune::Report measured_plan(const train::Setup& setup, bool ask_threads, bool enumerate) {
  const auto backend = train::open_backend(setup);
  autotune::Subject s;
  s.model = setup.model;
  s.options = setup.options;
  s.seq_len = setup.seq_len;
  s.pass_tokens = [&setup](int64_t rows) { return setup.pass_tokens(rows); };
  s.rows = setup.rows_per_step;
  s.train = setup.recipe.train;
  s.packed = setup.recipe.data.packing && setup.recipe.data.sampling == config::Sampling::kDocuments;
  s.offload = setup.offload;
  s.passes = passes_of(setup, backend);
  s.one_pass_ranks = kernels::one_pass_ranks(*setup.backend, config::text_of(setup.recipe.hardware.gfx_arch),
                                             setup.options.base == graph::Storage::kFp8);
  if (ask_threads && !backend.device)
    for (int n = num_threads(); n >= 1; n = n > 1 ? (n + 1) / 2 : 0) {
      s.threads.push_back(n);
      if (s.threads.size() == 2) break;  // all, and one a core where each core runs two
    }
  s.pinning = !backend.device && may_pin(setup.recipe);
  s.plan =
      train::default_plan(setup, train::identity_of(backend, num_threads()), *backend.ops,
                          {s.passes[0].micro_batch, s.passes[0].recompute, setup.offload, s.passes[0].packed_weights});
  return autotune::probe(s, *backend.ops,
                         {static_cast<double>(setup.recipe.autotune.budget_seconds), enumerate, &g_stop});
}

std::string table_of(const autotune::Report& r, int64_t rows, int64_t seq_len) {
  std::string out = fmt::format("{:<58} {:>6} {:>14} {:>14} {:>10} {:>10} {:>7}\n", "call", "times", "default",
                                "planned", "us", "us", "gain");
  auto us = [](double v) { return v > 0 ? fmt::format("{:.1f}", v) : std::string("-"); };
  auto gain = [](double usual, double chosen) {
    return usual > 0 && chosen > 0 ? fmt::format("{:.1f}%", 100 * (usual / chosen - 1)) : std::string("-");
  };
  for (const autotune::Line& l : r.lines)
    out += fmt::format("{:<58} {:>6.0f} {:>14} {:>14} {:>10} {:>10} {:>7}\n", l.key, l.count, l.usual, l.chosen,
                       us(l.usual_us), us(l.chosen_us), gain(l.usual_us, l.chosen_us));
  for (const char* key :
       {"step threads", "step pinning", "step micro_batch", "step recompute", "step offload", "step weights"}) {
    const auto choice = r.plan.choices.find(key);
    if (choice == r.plan.choices.end()) continue;
    out += fmt::format("{:<58} {:>6} {:>14} {:>14}", key, "", "", choice->second);
    if (const auto c = r.plan.candidates.find(key); c != r.plan.candidates.end())
      for (const auto& x : c->second) out += fmt::format("  {}: {} us a row", x.algorithm, us(x.median_us));
    out += "\n";
  }
  if (r.usual_step_us > 0) {
    const double usual = (r.usual_step_us + r.update_us) * 1e-6, chosen = (r.chosen_step_us + r.update_us) * 1e-6,
                 tokens = static_cast<double>(rows * seq_len);
    out += fmt::format(
        "whole step, from slices of the model: default {:.3f} s ({:.0f} tok/s), planned {:.3f} s ({:.0f} tok/s), gain "
        "{}\n",
        usual, tokens / usual, chosen, tokens / chosen, gain(usual, chosen));
  } else {
    const bool usual = r.kept_default ||
                       std::all_of(r.lines.begin(), r.lines.end(), [](const auto& l) { return l.chosen == l.usual; });
    out += usual ? "whole step: not timed, the budget was too short; gain 0.0%, for every choice is the default one\n"
                 : "whole step: not timed, the budget was too short; the choices above gained each by itself\n";
  }
  if (r.kept_default)
    out += fmt::format("the measured choices gain too little together ({:.1f}%): the plan keeps the default ones\n",
                       100 * r.declined_gain);
  if (r.unmeasured > 0)
    out += fmt::format("{} candidates were not measured within the budget: they stand in the plan with median 0\n",
                       r.unmeasured);
  out += fmt::format("probe: {:.1f} s\n", r.seconds);
  return out;
}

}  // namespace mxt::app
