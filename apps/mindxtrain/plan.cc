#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "config/recipe.h"
#include "cost.h"
#include "estimate.h"
#include "machine.h"
#include "recipe_issues.h"
#include "throttle.h"
#include "verbs.h"

namespace mxt::app {

namespace {

void list_devices(const config::Prices& prices, bool json) {
  OrderedJson j = OrderedJson::array();
  for (const std::string& name : prices.names()) {
    const config::DevicePrice& d = *prices.find(name);
    j.push_back({{"name", name},
                 {"title", d.title},
                 {"arch", d.arch},
                 {"memory_gb", d.memory_gb},
                 {"bandwidth_tb_s", d.bandwidth_tb_s},
                 {"peak_tflops", d.peak_tflops},
                 {"peak_tflops_fp8", d.peak_tflops_fp8},
                 {"watts", d.watts},
                 {"usd_per_hour", d.usd_per_hour},
                 {"price_source", d.price_source},
                 {"source", d.source}});
    if (json) continue;
    if (!d.has_figures())
      std::printf("%-12s %s\n", name.c_str(), d.title.c_str());
    else
      std::printf("%-12s %-24s %-8s %5.0f GB %6.2f TB/s %7.0f TFLOP/s bf16 %5.0f W  %s\n", name.c_str(),
                  d.title.c_str(), d.arch.c_str(), d.memory_gb, d.bandwidth_tb_s, d.peak_tflops, d.watts,
                  d.usd_per_hour > 0 ? fmt::format("{:.2f} USD/h", d.usd_per_hour).c_str() : "its electricity");
  }
  if (json) std::printf("%s\n", j.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
}

void line(const std::string& name, const std::string& value) { std::printf("%-14s %s\n", name.c_str(), value.c_str()); }

std::string bytes(const OrderedJson& n) { return human_bytes(n.get<uint64_t>()); }

// Which kernel makes the gradients of adapters, and what a rank costs that the fast one does not have.
void show_adapters(const OrderedJson& adapters) {
  const OrderedJson& served = adapters["one_pass_ranks"];
  for (const auto& a : adapters["by_rank"]) {
    std::string text =
        fmt::format("rank {}: {} gradients a pass ", a["rank"].get<int64_t>(), a["gradients"].get<int64_t>());
    if (a["kernel"] == "one pass") {
      text += "by the kernel that reads what they share once";
    } else if (served.empty()) {
      text += "by products (this device has no kernel of one pass)";
    } else if (a["rank"] > served.back() || std::find(served.begin(), served.end(), a["rank"]) != served.end()) {
      text += "by products, which are as fast at this rank";
    } else {
      text += fmt::format("by products that read it twice: kernels of one pass have ranks {}",
                          fmt::join(served.get<std::vector<int64_t>>(), ", "));
      if (adapters.contains("us_a_row_and_layer")) {
        const OrderedJson& us = adapters["us_a_row_and_layer"];
        std::string parts;
        for (const auto& [rank, v] : us.items())
          parts += fmt::format("{}{} {:.1f} us", parts.empty() ? "" : ", ", rank, v.get<double>());
        text += fmt::format("; a row through a layer takes: {}", parts);
      } else {
        text += "; what that costs is measured by autotune";
      }
    }
    line("adapters", text);
  }
}

// `unnamed`: nobody said which device.
void show_memory(const OrderedJson& j, bool unnamed) {
  const auto device = j["device"].get<std::string>();
  const auto number = [&](const char* key) { return j[key].get<double>(); };
  for (const auto& [k, v] : j["categories"].items())
    line(k, bytes(v) + (k == "workspace" && !j["kernels_workspace_counted"].get<bool>()
                            ? " (and what the device's own kernels take: counted where the device is)"
                            : ""));
  if (unnamed) line("device", device + ", as this machine is: the recipe names no hardware");
  if (!j["driven"].get<bool>())
    line("device",
         fmt::format("{}: this build has no kernels for it and cannot train there; counted with the processor's",
                     device));
  auto verdict = [](bool fits) { return fits ? "fits" : "does not fit"; };
  const bool two = j.contains("host_fits");  // the device's memory and the host's beside it, each its own line
  const bool fits = two ? j["peak_bytes"]["device"] <= j["available_bytes"] : j["fits"].get<bool>();
  line("peak", fmt::format("{} of {} that may be used: {}", bytes(j["peak_bytes"][device == "cpu" ? "host" : "device"]),
                           bytes(j["available_bytes"]), verdict(fits)));
  if (two)
    line("host", fmt::format("{} of {} that may be used: {}", bytes(j["peak_bytes"]["host"]),
                             bytes(j["host_available_bytes"]), verdict(j["host_fits"].get<bool>())));
  if (j.contains("stages"))
    line("quantize", fmt::format("{} of the host's memory after training: the model beside its copy",
                                 bytes(j["stages"]["quantize"])));
  if (j.contains("changes_that_fit"))
    for (const auto& x : j["changes_that_fit"])
      line("fits with", fmt::format("{}: {}", x["change"].get<std::string>(), bytes(x["bytes"])));
  line("arena", fmt::format("{}, the most alive at once {}: {:.2f} % above", bytes(j["activations_bytes"]),
                            bytes(j["lower_bound_bytes"]),
                            100.0 * (number("activations_bytes") / number("lower_bound_bytes") - 1)));
  if (j.contains("longest_row"))
    line("rows", j["longest_row"].is_null()
                     ? std::string("counted as long as seq_len: shorter ones touch less (--data FOLDER counts them)")
                     : fmt::format("the longest has {} tokens: its passes touch {} of the arena",
                                   j["longest_row"].get<int64_t>(), bytes(j["categories"]["activations"])));
}

void show_pass(const OrderedJson& j) {
  const auto rows = j["rows_per_step"].get<int64_t>(), micro = j["micro_batch"].get<int64_t>();
  line("pass", fmt::format("{} rows of {} tokens, {} passes a step, recompute {}", micro, j["seq_len"].get<int64_t>(),
                           (rows + micro - 1) / micro, j["recompute"].get<std::string>()));
  if (j.contains("prompts"))
    line("prompts", j["prompts"]["shared"]
                        ? std::string("once a pass for all answers of a prompt in it")
                        : fmt::format("once for each answer ({})", j["prompts"]["because"].get<std::string>()));
  for (const auto& x : j["recompute_options"])
    line("recompute", fmt::format("{}: activations {}, {:.0f} % more work", x["name"].get<std::string>(),
                                  bytes(x["activations"]), 100 * x["more_work"].get<double>()));
  if (j.contains("adapters")) show_adapters(j["adapters"]);
  if (j["device"] == "cpu") line("offload", "none: the model trains in the host's own memory");
  for (const auto& x : j["offload_options"])
    line("offload", fmt::format("{}: masters and the optimizer's states in the host's memory {} {} of the device's{}",
                                j["offload"].get<std::string>(), j["offload"] == "none" ? "would free" : "free",
                                bytes(x["device_bytes_saved"]),
                                x["more_seconds"].is_null()
                                    ? std::string()
                                    : fmt::format(", {:.3f} s more a step at the published rate of the link",
                                                  x["more_seconds"].get<double>())));
}

void show_time_and_cost(const OrderedJson& j) {
  const auto number = [&](const char* key) { return j[key].get<double>(); };
  const OrderedJson& prices = j["prices"];
  const double watts = prices["watts"];
  line("speed", fmt::format("{:.0f} tok/s, {:.3f} s a step, {:.2f} TFLOP a step ({})", number("tokens_per_second"),
                            number("step_seconds"), number("step_flops") / 1e12, j["speed_from"].get<std::string>()));
  if (j.contains("sampling")) {
    const OrderedJson& s = j["sampling"];
    const auto every = s["every_steps"].get<int64_t>();
    line("sampling", fmt::format("{} answers of at most {} tokens {}, and what judges them: not in speed, time, energy "
                                 "and cost, which are the updates'",
                                 s["answers"].get<int64_t>(), s["max_new_tokens"].get<int64_t>(),
                                 every == 1 ? "a step" : fmt::format("every {} steps", every)));
  }
  const bool timed = !j["steps"].is_null();
  if (timed)
    line("time", fmt::format("{} steps, {:.0f} s", j["steps"].get<int64_t>(), number("seconds")));
  else
    line("time", "not known: how many rows there are is seen when the data is prepared (--data FOLDER)");
  if (!j["energy_kwh"].is_null())
    line("energy", fmt::format("{:.3f} kWh at {:.0f} W", number("energy_kwh"), watts));
  else if (watts > 0)
    line("energy", fmt::format("not known without the time; {:.0f} W", watts));
  else
    line("energy", "not known");
  const bool priced = watts > 0 || prices["usd_per_hour"].get<double>() > 0;
  if (!priced)
    line("cost", fmt::format("not known: say what the machine draws under load in {}, as "
                             "\"devices: {{{}: {{watts: 65}}}}\", or hardware.usd_per_hour in the recipe",
                             own_prices_path(), j["device"].get<std::string>()));
  if (timed && priced) line("cost", fmt::format("{:.2f} USD", number("cost_usd")));
  if (priced) line("cost of 1B", fmt::format("{:.2f} USD for 1,000,000,000 tokens", number("cost_per_1b_tokens_usd")));
  line("prices", fmt::format("{} of {}: {:.2f} USD/h ({}), {:.2f} USD/kWh", prices["file"].get<std::string>(),
                             prices["date"].get<std::string>(), prices["usd_per_hour"].get<double>(),
                             prices["source"].get<std::string>(), prices["usd_per_kwh"].get<double>()));
}

}  // namespace

void add_plan(CLI::App& app) {
  auto* c = app.add_subcommand("plan",
                               "what a run will take in memory, time, energy and money, before anything is "
                               "allocated\nexample: mindxtrain plan recipe.yaml --plan plan.json --json");
  struct Options {
    std::string recipe;
    EstimateOptions estimate;
    int threads = 0;
    bool json = false, list = false;
  };
  auto o = std::make_shared<Options>();
  auto* recipe = c->add_option("recipe", o->recipe, "recipe file");
  c->add_option("--plan", o->estimate.plan, "AutotunePlan whose choices and times to count with");
  auto* device = c->add_option(
      "--device", o->estimate.device,
      "a device of the price table, as cpu, rtx4090 or h100 (default: the recipe's hardware, else this machine); "
      "--list-devices shows all");
  auto* list = c->add_flag("--list-devices", o->list, "the devices of the price table");
  c->add_option("--data", o->estimate.data, "a folder that `dataset prep` made: says how many steps an epoch has");
  auto* dump = c->add_option("--dump", o->estimate.dump,
                             "write the step program to this file: every kernel call in order with its operands");
  c->add_option("--prices", o->estimate.prices,
                "what differs from the price table that ships, and further devices: \"devices: {cpu: {watts: 65}}\"; a "
                "prices.yaml in $MINDXTRAIN_HOME (else ~/.local/share/mindxtrain) is always read");
  c->add_option("--threads", o->threads, "threads (default: OMP_NUM_THREADS, else all cores)");
  c->add_flag("--json", o->json, "machine-readable answer");
  recipe->excludes(list), dump->excludes(list);
  c->callback([o, dump, device] {
    if (*dump && o->estimate.dump.empty()) fail_input("plan --dump: which file?");
    if (*device && o->estimate.device.empty()) fail_input("plan --device: which one? (mindxtrain plan --list-devices)");
    if (o->list) return list_devices(price_table(o->estimate.prices), o->json);
    if (o->recipe.empty()) fail_input("plan: which recipe? (mindxtrain plan RECIPE, or --list-devices)");
    const config::Recipe recipe = load_recipe(o->recipe);
    require_trainable(recipe);
    apply_throttle(recipe, o->threads);
    const OrderedJson j = estimate(recipe, o->estimate);
    if (o->json) {
      std::printf("%s\n", j.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
      return;
    }
    show_memory(j, o->estimate.device.empty() && !recipe.is_given("hardware"));
    show_pass(j);
    show_time_and_cost(j);
  });
}

}  // namespace mxt::app
